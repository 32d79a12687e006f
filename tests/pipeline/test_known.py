"""What is known follows the journal, from snapshots and through batches that come again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.feather as feather
import pytest
import yaml

from nearcast.errors import Mark
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions import registry_rows
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import Change, RelationChange
from nearcast.model.columns import DEAD_LETTERS, DELIVERIES, to_table
from nearcast.model.event import Event
from nearcast.pipeline import follower, refusal_letters
from nearcast.pipeline.captured_state import CapturedState, captured
from nearcast.pipeline.follower import Follower, _AtOnce
from nearcast.pipeline.refusal_letters import RefusalLetters
from nearcast.pipeline.snapshots import StateSnapshot, load, save, stages_of, write_snapshot
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold, derived_stages
from nearcast.state.derived import derived_of
from tests.pipeline import test_deriving as related
from tests.pipeline.histories import documents, live_rows, with_roles, written
from tests.relations.stories import fail_on_bad

ALL = 100_000


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    """A journal in which clients and subscriptions change."""
    with closing(written(tmp_path, with_roles(), documents(160))) as journal:
        yield journal


def known_at(journal: SqliteJournal, position: int) -> StateFold:
    """What is known at a position, folded from the journal's start."""
    known = StateFold()
    for _ in known.fold(journal.read("events", 0, position), changes):
        pass
    return known


def decided(known: StateFold, journal: SqliteJournal) -> list[dict[str, object]]:
    """The deliveries of all that comes after what is known."""
    batches = known.fold(journal.read("events", known.position, ALL), changes)
    return pa.concat_tables([decide(batch, batch.events) for batch in batches]).to_pylist()


@pytest.mark.parametrize("position", [0, 1, 40, 100])
def test_a_snapshot_loads_to_what_was_saved(journal: SqliteJournal, tmp_path: Path, position: int) -> None:
    """The registry, the newest event of every entity, and what is decided from there on."""
    known = known_at(journal, position)
    save(known, tmp_path / "known")
    loaded = load(tmp_path / "known", position)
    assert (position, list(known.registry.changes())) == (loaded.position, list(loaded.registry.changes()))
    assert known.repository.newest().to_pylist() == loaded.repository.newest().to_pylist()
    assert [row for row in live_rows(journal) if row["position"] > position] == decided(loaded, journal)


def test_the_newest_snapshot_that_is_not_too_new_is_taken(journal: SqliteJournal, tmp_path: Path) -> None:
    """One beyond the deliveries would leave a gap; what a killed process left half written is no snapshot."""
    for position in (40, 80):
        save(known_at(journal, position), tmp_path / "known")
    (tmp_path / "known" / "unfinished-1").mkdir()
    at = [load(tmp_path / "known", at_most).position for at_most in (39, 40, 79, 80, 1000)]
    assert [0, 40, 40, 80, 80] == at
    save(known_at(journal, 90), tmp_path / "known")
    assert [80, 90] == sorted(int(path.name) for path in (tmp_path / "known").iterdir())


def test_batches_that_overlap_or_leave_a_gap_are_decided_once(journal: SqliteJournal, tmp_path: Path) -> None:
    """What is known already is passed over, what lies between is read from the journal."""
    following = Follower(journal, tmp_path / "known", 0)
    tables = [DELIVERIES.empty_table()]
    for after, through in ((0, 30), (10, 50), (20, 40), (50, 60), (40, 120), (0, journal.end("events"))):
        for batch in following.fold_events(journal.read("events", after, through - after), through):
            tables.append(decide(batch, batch.events))
    assert live_rows(journal) == pa.concat_tables(tables).to_pylist()
    for _ in following.fold_events(journal.read("events", 0, 50), 50):
        pytest.fail("positions that are known were given again")


def test_a_restart_from_a_snapshot_goes_on_as_if_nothing_happened(
    journal: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower saves now and then; another one takes up its snapshot and folds what is left."""
    monkeypatch.setattr(follower, "SNAPSHOT_EVERY", 25)
    monkeypatch.setattr(follower, "monotonic", lambda: 0.0)
    first = Follower(journal, tmp_path / "known", 0)
    for after in range(0, 90, 10):
        list(first.fold_events(journal.read("events", after, 10), after + 10))
    assert 90 - 25 < max(int(path.name) for path in (tmp_path / "known").iterdir())
    second = Follower(journal, tmp_path / "known", 90)
    assert [row for row in live_rows(journal) if row["position"] > 90] == decided(second.known, journal)


def test_snapshots_that_take_long_are_written_seldom(
    journal: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes a second is not followed by another for twenty, through however many positions."""
    seconds, saved = [0.0], []

    def slowly(state: CapturedState, folder: Path, last: StateSnapshot | None) -> StateSnapshot:
        saved.append(state.position)
        seconds[0] += 1
        return write_snapshot(state, folder, last)

    monkeypatch.setattr(follower, "SNAPSHOT_EVERY", 10)
    monkeypatch.setattr(follower, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(follower, "write_snapshot", slowly)
    following = Follower(journal, tmp_path / "known", 0)
    for after in range(0, 100, 10):
        list(following.fold_events(journal.read("events", after, 10), after + 10))
        seconds[0] += 6
    assert [10, 50, 90] == saved


class Later(Executor):
    """Does what was submitted when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor.submit`."""
        found = Future[Any]()
        self.waiting.append(lambda: found.set_result(fn(*args, **kwargs)))
        return found


def test_a_snapshot_that_is_written_beside_what_is_decided_is_of_the_moment_when_it_began(
    journal: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is taken in, defined and moved meanwhile; one is written at a time, and the last one at the end."""
    monkeypatch.setattr(follower, "SNAPSHOT_EVERY", 20)
    monkeypatch.setattr(follower, "monotonic", lambda: 0.0)
    later = Later()
    following = Follower(journal, tmp_path / "known", 0, beside=later)
    for after in range(0, 60, 10):
        assert [*following.fold_events(journal.read("events", after, 10), after + 10)]
    assert 1 == len(later.waiting) and not list((tmp_path / "known").glob("*"))
    later.waiting.pop()()
    expected, loaded = known_at(journal, 20), load(tmp_path / "known", 100)
    assert (20, list(expected.registry.changes())) == (loaded.position, list(loaded.registry.changes()))
    assert expected.repository.newest().to_pylist() == loaded.repository.newest().to_pylist()
    assert [row for row in live_rows(journal) if row["position"] > 20] == decided(loaded, journal)
    assert [*following.fold_events(journal.read("events", 60, 10), 70)]
    assert known_at(journal, 70).repository.newest().to_pylist() == following.known.repository.newest().to_pylist()
    later.waiting.pop()()
    later.submit = _AtOnce().submit  # type: ignore[method-assign]
    following.finish()
    assert 70 == load(tmp_path / "known", 100).position


def test_a_snapshot_of_events_that_are_lost_is_not_taken_later(journal: SqliteJournal, tmp_path: Path) -> None:
    """The journal ends before it, as after a loss of power; then others take those positions."""
    save(replaced := known_at(journal, 80), tmp_path / "known")
    assert 80 == replaced.position
    following = Follower(journal, tmp_path / "known", 60)
    assert (60, 0) == (following.known.position, load(tmp_path / "known", 100).position)


def test_a_snapshot_that_cannot_be_written_stops_nothing(
    journal: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would only have saved time; it is tried again later."""

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(follower, "SNAPSHOT_EVERY", 10)
    monkeypatch.setattr(follower, "write_snapshot", full)
    following = Follower(journal, tmp_path / "known", 0)
    for after in range(0, 60, 20):
        list(following.fold_events(journal.read("events", after, 20), after + 20))
    monkeypatch.setattr(follower, "write_snapshot", write_snapshot)
    following.save()
    assert 60 == load(tmp_path / "known", 100).position


def test_definitions_are_written_again_only_where_some_changed(journal: SqliteJournal, tmp_path: Path) -> None:
    """Snapshots with the same definitions share the file with them; each loads to what was known."""
    following, files = Follower(journal, tmp_path / "known", 0), []
    for after, through in pairwise([0, 55, 60, 65]):
        assert [*following.fold_events(journal.read("events", after, through - after), through)]
        version = following.known.registry.version
        following.save()
        files.append((version, (tmp_path / "known" / f"{through:020d}" / "registry.arrow").stat().st_ino))
        loaded = load(tmp_path / "known", through)
        assert list(known_at(journal, through).registry.changes()) == list(loaded.registry.changes())
    assert 2 == len({version for version, _ in files}) == len({inode for _, inode in files}) == len(set(files))


def test_a_restart_writes_definitions_of_its_snapshot_no_more(
    journal: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was defined since."""
    first = Follower(journal, tmp_path / "known", 0)
    assert [*first.fold_events(journal.read("events", 0, 55), 55)]
    first.save()
    second, again = Follower(journal, tmp_path / "known", 55), []

    def noted(change: Change, *rest: Any) -> Event:
        """Writes a definition."""
        again.append(change)
        return to_event(change, *rest)

    monkeypatch.setattr(registry_rows, "to_event", noted)
    assert [*second.fold_events(journal.read("events", 55, 10), 65)]
    second.save()
    before, after = first.known.registry.changes(), second.known.registry.changes()
    assert again and again == [one for one in after if one not in before]
    assert after == list(load(tmp_path / "known", 65).registry.changes())


def test_definitions_that_are_damaged_on_disk_are_written_again(journal: SqliteJournal, tmp_path: Path) -> None:
    """The next snapshot does not share a file that is not as it was written."""
    following = Follower(journal, tmp_path / "known", 0)
    for after, through in pairwise([0, 55, 60]):
        assert [*following.fold_events(journal.read("events", after, through - after), through)]
        following.save()
        (tmp_path / "known" / f"{55:020d}" / "registry.arrow").write_bytes(b"damaged")
    assert 60 == load(tmp_path / "known", 60).position


def test_a_refused_control_event_becomes_a_dead_letter_and_stops_nothing(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    """The dead letter says where it was, why it was refused, and what it held."""
    end = journal.end("events")
    bad = Event(
        "bad", "nearcast.client", "s", payload=b'{"data": {"client": "ann", "readings": {"bandwidth": "fast"}}}'
    )
    good = Event("good", "unit", "s", attributes=(("kind", "H"), ("size", 99)))
    journal.append("events", to_table([bad, good]))
    following = Follower(journal, tmp_path / "known", end)
    batches = following.fold_events(journal.read("events", end, 2), end + 2)
    found = [row["position"] for batch in batches for row in decide(batch, batch.events).to_pylist()]
    assert {end + 2} == set(found)
    [letter] = journal.read("dead letters", 0, 10).to_pylist()
    assert (1, f"journal position {end + 1}, event bad", bad.payload) == (
        following.refused,
        letter["where"],
        letter["content"],
    )
    assert "bandwidth" in letter["reason"] and "fast" in letter["reason"]


@pytest.mark.parametrize("ahead", [-20, 0, 20])
def test_a_refusal_is_reported_once_though_the_pipeline_dies(
    journal: SqliteJournal, tmp_path: Path, ahead: int
) -> None:
    """Between the dead letters and the deliveries; what follows decides it again, in batches cut otherwise, after
    others wrote dead letters too. However many hours the clock of the machine that accepted is ahead.
    """
    end = journal.end("events")
    accepted = datetime.now(UTC) + timedelta(hours=ahead)
    journal.append(
        "events",
        to_table(Event(str(number), "nearcast.client", "s", payload=b"{}", accepted=accepted) for number in range(5)),
    )
    for cuts in ([3], [1, 2], [1, 2, 4, 5]):
        following = Follower(journal, tmp_path / "known", end)
        for after, through in pairwise([0, *cuts]):
            events = journal.read("events", end + after, through - after)
            assert [*following.fold_events(events, end + through)]
        other = {"position": 0, "time": datetime.now(UTC), "where": "POST /events", "reason": "", "content": b""}
        journal.append("dead letters", pa.Table.from_pylist([other] * 2 * refusal_letters.LETTERS, DEAD_LETTERS))
    found = [letter["where"] for letter in journal.read("dead letters", 0, 1_000).to_pylist()]
    letters = [where for where in found if where != "POST /events"]
    assert [f"journal position {end + number + 1}, event {number}" for number in range(5)] == letters


def test_dead_letters_are_looked_through_where_a_batch_was_not_finished(
    journal: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by who begins behind all that was refused: there may be very many of others."""
    end = journal.end("events")
    journal.append("events", to_table(Event(str(number), "nearcast.client", "s", payload=b"{}") for number in range(3)))
    looks: list[int] = []
    where_since = RefusalLetters._where_since
    monkeypatch.setattr(
        RefusalLetters, "_where_since", lambda own, after: looks.append(after) or where_since(own, after)
    )
    for at, decided in ((0, False), (0, True), (1, True), (2, True)):
        following = Follower(journal, tmp_path / "known", end + at)
        assert [*following.fold_events(journal.read("events", end + at, 1), end + at + 1)]
        if decided:
            journal.commit_range("deliveries", DELIVERIES.empty_table(), end + at + 1)
    assert ([0], 3) == (looks, journal.end("dead letters"))


def test_a_definition_that_a_stage_raises_on_is_one_dead_letter(
    journal: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after restarts, from a snapshot or none; others beside it count, and everything is decided."""
    fail_on_bad(monkeypatch)
    end = journal.end("events")
    ids = ("before", "bad", "behind")
    sides = {"a": {"entity": "x"}, "b": {"entity": "y"}, "when": "distance(a, b) < 5"}
    made = (to_event(RelationChange(relation_document({"id": id, **sides}, Mark("f"))), id, "s") for id in ids)
    journal.append("events", to_table(replace(one, accepted=datetime.now(UTC)) for one in made))
    for _ in range(2):
        following = Follower(journal, tmp_path / "known", end)
        assert [*following.fold_events(journal.read("events", end, 3), end + 3)]
        assert (["before", "behind"], 1) == (list(following.known.registry.relations), following.refused)
    following.save()
    again = Follower(journal, tmp_path / "known", end + 3)
    assert (["before", "behind"], 0) == (list(again.known.registry.relations), again.refused)
    [letter] = journal.read("dead letters", 0, 10).to_pylist()
    assert f"journal position {end + 2}, event bad" == letter["where"]
    assert "that the stage relate can take, got one on which it fails: OverflowError: too far" in letter["reason"]
    assert f"refused a control event position={end + 2} reason=event bad: expected a definition" in caplog.text


def test_a_damaged_snapshot_costs_only_reading(journal: SqliteJournal, tmp_path: Path) -> None:
    """As a loss of power may leave one: the one before is taken, and the damaged one can be written again."""
    folder = tmp_path / "known"
    save(known_at(journal, 20), folder)
    damaged = save(known_at(journal, 60), folder).folder
    (damaged / "registry.arrow").write_bytes(b"")
    assert 20 == load(folder, ALL).position
    save(known_at(journal, 60), folder)
    assert 60 == load(folder, ALL).position


@pytest.fixture(scope="module")
def meeting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteJournal]:
    """A journal of cars that meet, some relations being local to a node."""
    folder, defined = tmp_path_factory.mktemp("meeting"), yaml.safe_load(related.DEFINITIONS)
    with closing(written(folder, defined, related.documents(400), ("main", "north"))) as journal:
        yield journal


def derived_after(known: StateFold, journal: SqliteJournal) -> list[dict[str, object]]:
    """What is derived behind what is known."""
    batches = known.fold(journal.read("events", known.position, ALL), changes)
    return pa.concat_tables([derived_of(batch.events) for batch in batches]).to_pylist()


@pytest.mark.parametrize("position", [40, 150, 300])
def test_what_was_captured_stays_as_it_was(meeting: SqliteJournal, tmp_path: Path, position: int) -> None:
    """Pairs, situations and zones change in place as more is taken in; what is written then is what was captured."""
    known = known_at(meeting, position)
    state = captured(known)
    for _ in known.fold(meeting.read("events", position, ALL), changes):
        pass
    write_snapshot(state, tmp_path / "late")
    save(known_at(meeting, position), tmp_path / "at once")
    late, at_once = (sorted((tmp_path / folder).rglob("*.*")) for folder in ("late", "at once"))
    assert [file.name for file in at_once] == [file.name for file in late]
    for one, other in zip(late, at_once, strict=True):
        if one.suffix == ".arrow":
            rows = [repr(feather.read_table(str(file)).to_pylist()) for file in (other, one)]
            assert rows[0] == rows[1], one.name
        elif one.name != "manifest.json":
            assert other.read_bytes() == one.read_bytes()
    assert derived_after(known_at(meeting, position), meeting) == derived_after(load(tmp_path / "late", ALL), meeting)


@pytest.mark.parametrize("before, after", [(1, 1), (1, 3), (3, 1), (2, 5)])
def test_a_snapshot_is_read_in_any_number_of_shards(
    meeting: SqliteJournal, tmp_path: Path, before: int, after: int
) -> None:
    """Relations go on alike, whatever the shards were when it was written."""
    known = StateFold(stages=derived_stages(before))
    for _ in known.fold(meeting.read("events", 0, 250), changes):
        pass
    snapshot = save(known, tmp_path).folder
    tables = [feather.read_table(str(path)) for path in sorted(snapshot.glob("relations-*.arrow"))]
    assert before == len(tables)
    assert {(None, "close"), ("north", "north")} <= {(row["node"], row["relation"]) for row in rows_of(tables)}
    stages = StateFold(stages=stages_of(snapshot, known.registry))
    # They are in those files only, and relations in the registry's: what is in two places may differ.
    written = orjson.loads((snapshot / "stages.json").read_bytes())["scopes"]["values"]["scopes"]
    # Those that await late reports are kept by a stage of their own.
    prompt = [id for id, one in known.registry.relations.items() if not one.lateness]
    assert sorted(prompt) == sorted(id for scope in written for id in scope["relations"])
    assert [] == list(snapshot.glob("*-definitions.arrow"))
    assert {0} == {shard.pairs.length for pairing in stages.pairings.values() for shard in pairing.shards}
    loaded = load(tmp_path, 250, after)
    assert {after} == {len(pairing.shards) for pairing in loaded.pairings.values()}
    assert derived_after(known_at(meeting, 250), meeting) == derived_after(loaded, meeting)


def rows_of(tables: list[pa.Table]) -> list[dict[str, object]]:
    """The rows of tables of one schema."""
    return pa.concat_tables(tables).to_pylist()


@pytest.mark.parametrize("damage", ["lost", "empty", "of other columns", "in the middle"])
def test_a_snapshot_without_all_shards_costs_only_reading(meeting: SqliteJournal, tmp_path: Path, damage: str) -> None:
    """It is left out, as any damaged one."""
    known = StateFold(stages=derived_stages(2))
    for _ in known.fold(meeting.read("events", 0, 250), changes):
        pass
    shard = save(known, tmp_path).folder / "relations-1.arrow"
    before = shard.read_bytes()
    shard.unlink()
    if damage == "empty":
        shard.write_bytes(b"")
    elif damage == "of other columns":
        feather.write_feather(pa.table({"a": ["car-1"]}), str(shard))
    elif damage == "in the middle":
        middle = len(before) // 2
        shard.write_bytes(before[: middle - 20] + bytes(byte ^ 0x5A for byte in before[middle - 20 : middle + 20]))
        shard.write_bytes(shard.read_bytes() + before[middle + 20 :])
    assert 0 == load(tmp_path, 250).position
