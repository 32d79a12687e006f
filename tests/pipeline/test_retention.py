"""What is too old or too much goes by itself, and nothing that somebody needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from nearcast.errors import SetupError
from nearcast.journal.identity import identity_of
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.reader_marks import ARCHIVE, put_mark, remove_mark
from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import base_position
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import to_event
from nearcast.model.changes import ClientChange, SettingsChange
from nearcast.model.columns import DEAD_LETTERS, OUTCOMES, to_table
from nearcast.model.event import Event
from nearcast.model.limits import Retention, RetentionBound
from nearcast.model.relation import RELATION_EVENT
from nearcast.model.sequence import position_of
from nearcast.model.subscription import Settings
from nearcast.pipeline.follower import Follower
from nearcast.pipeline.journal_retention import position_before
from nearcast.runtime.passed_time import PassedTime
from nearcast.server.admin.journal_views import ActiveDerivations
from nearcast.server.sessions.outcomes import SettledMark, unsettled
from nearcast.server.sessions.payloads import PayloadCache
from nearcast.state.derived import Cause, derived_event
from tests.journal.rows import deliveries

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = Retention(RetentionBound(age=60))


class System:
    """A pipeline on a journal, without Spark: an event a second, each delivered to one client."""

    def __init__(self, journal: Journal, folder: Path) -> None:
        self.journal, self.folder, self.now = journal, folder, NOON
        self.follower = Follower(journal, folder, journal.end("deliveries"))
        # By how many seconds the machine's clock was set.
        self.set = 0.0
        self.follower.retention.passed = PassedTime(
            lambda: self.now.timestamp() + self.set, lambda: self.now.timestamp()
        )

    def publish(self, count: int) -> None:
        """So many events, some at once, decided and delivered."""
        some = min(count, 20)
        for _ in range(0, count, some):
            after = self.journal.end("events")
            events = [
                Event(str(at), "t", "s", f"e{at % 7}", payload=b"{}", accepted=self.now + timedelta(seconds=number))
                for number, at in enumerate(range(after, after + some))
            ]
            self.journal.append("events", to_table(events))
            self.now += timedelta(seconds=some)
            self.decide()

    def decide(self) -> None:
        """What is not decided yet."""
        end, after = self.journal.end("events"), self.follower.known.position
        for _ in self.follower.fold_events(self.journal.read("events", after, end - after), end):
            pass
        self.journal.commit_range("deliveries", deliveries(range(after + 1, end + 1)), end)

    def settle(self, through: int) -> None:
        """A server has outcomes for what was decided up to a position, and says so."""
        rows = [{"position": 0, "event": at, "part": 0, "client": "c", "settled": self.now} for at in range(1, through)]
        self.journal.append("outcomes", pa.Table.from_pylist(rows, OUTCOMES))
        put_mark(self.journal, "server main", {"deliveries": through, "outcomes": self.journal.end("outcomes")})

    def look(self, retention: Retention = MINUTE) -> None:
        """As often as it takes: a snapshot is asked for first, and written with the next batch."""
        keeper = self.follower.retention
        for _ in range(3):
            keeper.look(retention)
            self.follower.save_for_retention()


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """One on a file."""
    with closing(SqliteJournal(tmp_path / "journal")) as journal:
        yield System(journal, tmp_path / "known")


def gone(journal: Journal) -> dict[str, int]:
    return {name: journal.trimmed(name) for name in ("events", "deliveries", "outcomes")}


def test_without_bounds_everything_stays(system: System) -> None:
    """Nothing is written either, but what is told."""
    system.publish(300)
    system.look(Retention())
    assert {"events": 0, "deliveries": 0, "outcomes": 0} == gone(system.journal)
    assert (0, ["retention"]) == (base_position(system.journal), [*system.journal.notes.all()])


def test_what_is_too_old_goes(system: System) -> None:
    """Events, deliveries and outcomes; what is of the last minute stays, and a snapshot stands for what went."""
    system.publish(600)
    system.settle(600)
    system.look()
    system.publish(160)
    system.look()
    left = gone(system.journal)
    assert 540 <= left["events"] <= 700
    assert 540 <= left["deliveries"] <= left["events"]
    assert base_position(system.journal) >= left["events"]
    assert system.journal.end("events") == 760
    system.settle(760)
    system.publish(300)
    system.look()
    assert gone(system.journal)["outcomes"] > 0


def test_a_clock_that_is_set_lets_nothing_go_before_its_time(system: System) -> None:
    """A day forward, and back: what is of the last minute stays, and goes when it is older."""
    system.publish(600)
    system.settle(600)
    system.look()
    before = gone(system.journal)
    system.set += 86_400
    system.look()
    assert before == gone(system.journal)
    system.set -= 86_400
    system.look()
    assert before == gone(system.journal)
    system.publish(160)
    system.settle(760)
    system.look()
    assert before["events"] < gone(system.journal)["events"] <= 700


def test_a_start_knows_what_it_knew(system: System) -> None:
    """Also where the pipeline's folder is lost: the journal has what stands for the events that went."""
    system.journal.append("events", to_table([to_event(ClientChange("c", role="r"), "c", "definitions", NOON)]))
    system.publish(600)
    system.settle(600)
    system.look()
    assert system.journal.trimmed("events") > 0
    known = system.follower.known
    for folder in (system.folder, system.folder.with_name("lost")):
        again = Follower(system.journal, folder, system.journal.end("deliveries")).known
        assert (known.position, known.registry) == (again.position, again.registry)
        assert known.repository.newest().equals(again.repository.newest())


def test_what_held_before_the_first_kept_event_is_known(system: System, tmp_path: Path) -> None:
    """The journal's snapshot has what derived events told of it; who ended since is not there, who began is."""
    asked = ActiveDerivations(system.journal, 100)

    def tell(detect: str, name: str) -> None:
        cause = Cause(system.journal.end("events"), None, None)
        data = {"relation": "close", "detect": detect, "a": name, "b": "x"}
        event = derived_event(RELATION_EVENT, "s", f"{detect} {name}", "x", data, cause, None, 1)
        system.journal.commit_range("derived", to_table([event]), cause.position)

    def names(one: ActiveDerivations) -> list[str]:
        return [found.data["a"] for found in one.page(RELATION_EVENT, 0, 100)]

    system.publish(20)
    tell("enter", "early")
    system.publish(20)
    tell("enter", "passing")
    assert ["early", "passing"] == names(asked)
    for number in range(3):
        system.publish(400)
        tell("enter", f"late {number}")
        system.settle(system.journal.end("events"))
        system.look()
    assert system.journal.trimmed("events") > 40
    system.publish(20)
    tell("exit", "passing")
    told = ["early", "late 0", "late 1", "late 2"]
    assert [told, told] == [names(asked), names(ActiveDerivations(system.journal, 100))]
    # A start finds the snapshot whole with it.
    again = Follower(system.journal, tmp_path / "lost", system.journal.end("deliveries")).known
    assert system.follower.known.registry == again.registry


def test_nothing_goes_that_no_snapshot_has(tmp_path: Path) -> None:
    """A start that finds neither refuses, instead of knowing less than it did."""
    journal = MemoryJournal()
    system = System(journal, tmp_path / "known")
    system.publish(100)
    journal.trim_through("events", 50)
    with pytest.raises(SetupError, match="a snapshot at"):
        Follower(journal, tmp_path / "lost", 100)


def test_what_is_owed_stays(system: System, caplog: pytest.LogCaptureFixture) -> None:
    """As long as a server has not settled it, whatever age and size say; and that is told, once."""
    system.publish(300)
    system.settle(100)
    bounds = Retention(RetentionBound(age=60, size=1))
    for _ in range(3):
        system.look(bounds)
    assert gone(system.journal)["events"] <= 100
    assert "server main" == system.follower.retention.look(bounds)["events"].held_by
    assert 1 == sum("waits for the reader server main" in one for one in caplog.messages if "of events" in one)
    remove_mark(system.journal, "server main")
    system.publish(20)
    system.look(bounds)
    assert gone(system.journal)["events"] > 100


def test_an_archive_is_waited_for(system: System) -> None:
    """From the beginning on, where it is configured; without, nobody waits for one."""
    archived = Retention(RetentionBound(age=60), archive=True)
    system.publish(300)
    system.settle(300)
    system.look(archived)
    assert 0 == gone(system.journal)["events"]
    put_mark(system.journal, ARCHIVE, {"events": 200, "deliveries": 200, "outcomes": 100})
    system.look(archived)
    assert 0 < gone(system.journal)["events"] <= 200
    system.look()
    assert gone(system.journal)["events"] > 200


def test_the_size_is_kept(system: System) -> None:
    """About, by as many looks as it takes."""
    system.publish(2_000)
    system.settle(2_000)
    most = system.journal.stored_bytes()["events"] // 2
    for _ in range(4):
        system.publish(20)
        system.look(Retention(RetentionBound(size=most)))
    assert system.journal.stored_bytes()["events"] <= most
    assert 0 < gone(system.journal)["events"] <= 2_000


def test_dead_letters_go_by_themselves(system: System) -> None:
    """By their own age."""
    for age in (600, 30):
        rows = [{"position": 0, "time": NOON - timedelta(seconds=age), "where": "w", "reason": "r", "content": b""}]
        system.journal.append("dead letters", pa.Table.from_pylist(rows * 5, DEAD_LETTERS))
    system.look(Retention(dead_letters=RetentionBound(age=60)))
    assert [6, 10] == [system.journal.trimmed("dead letters") + 1, system.journal.end("dead letters")]


def test_a_lost_mark_costs_reading_only(system: System) -> None:
    """Of no delivery that is kept the outcome went: a server that reads all of it finds what it owed."""
    for through in range(100, 900, 100):
        system.publish(100)
        system.settle(through)
        system.look()
    assert gone(system.journal)["outcomes"] > 0
    owed = unsettled(system.journal, PayloadCache(system.journal, 1 << 20), SettledMark(), 800)
    found = [one for piece in owed for one in piece]
    # Outcomes are told of another client: none of these deliveries has one, and each has its event.
    assert 800 - gone(system.journal)["deliveries"] == len(found)
    assert all(one.event for one in found if position_of(one.sequence) > system.journal.trimmed("events"))


def test_a_position_is_found_by_its_age(system: System) -> None:
    """The last one that is older than a moment."""
    system.publish(100)
    assert [0, 1, 50, 100] == [
        position_before(system.journal, "events", (NOON + timedelta(seconds=age)).timestamp())
        for age in (0, 1, 50, 1_000)
    ]


def test_a_journal_stays_the_same_one(system: System) -> None:
    """What tells it from others does not go with its first event."""
    system.publish(300)
    before = identity_of(system.journal)
    system.settle(300)
    system.look()
    assert system.journal.trimmed("events") > 0
    assert before == identity_of(system.journal) != ""


def test_a_killed_look_goes_on(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it ends: a snapshot that was written before anything went, or events that went before deliveries."""
    system.publish(300)
    system.settle(300)
    kept = SqliteJournal.trim_through
    for failing in ("events", "derived", "deliveries"):

        def trim(journal: SqliteJournal, log: str, through: int, failing: str = failing) -> int:
            if log == failing:
                raise KeyboardInterrupt
            return kept(journal, log, through)

        monkeypatch.setattr(SqliteJournal, "trim_through", trim)
        with pytest.raises(KeyboardInterrupt):
            system.look()
        again = Follower(system.journal, system.folder.with_name(failing), 300).known
        assert system.follower.known.registry == again.registry
        assert 300 == again.position
    monkeypatch.undo()
    system.look()
    assert gone(system.journal)["deliveries"] > 0


def test_settings_say_how_long(system: System) -> None:
    """They come as any setting does, and may change at any time."""
    change = SettingsChange(Settings(retention=MINUTE))
    system.journal.append("events", to_table([to_event(change, "1", "s", NOON)]))
    system.decide()
    assert MINUTE == system.follower.known.registry.settings.retention
