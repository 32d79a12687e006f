"""Time passes by itself: what falls due is told though no event comes, and told again where the journal is decided."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from nearcast.cli.system import define
from nearcast.errors import Mark
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes, to_event
from nearcast.language.cql2 import parse
from nearcast.language.definitions import files
from nearcast.model.changes import ClientChange, SubscriptionChange
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event, Place
from nearcast.model.subscription import Subscription
from nearcast.pipeline.snapshots import load, save
from nearcast.pipeline.ticks import PacedClocks, TickWriter
from nearcast.server.clock import ServerClock
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from nearcast.state.lateness import NEVER
from nearcast.state.stream_clocks import StreamClocks
from nearcast.testing import ManualClock

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SQUARE = [[-9, -9], [9, -9], [9, 9], [-9, 9], [-9, -9]]
DEFINED: dict[str, Any] = {
    "channels": {"yard": {"coordinates": "planar"}},
    "relations": [
        {
            "id": "near",
            "a": "type = 'cart'",
            "b": "type = 'cart'",
            "when": "distance(a, b) <= 10",
            "for": "10 s",
            "time_to_live": "30 s",
            "detect": ["enter", "dwell", "exit"],
        }
    ],
    "ontology": {"classes": {"Heat": {"unit": "°C", "within": 100}}, "situations": {"Hot": {}}},
    "situations": [{"id": "hot", "class": "Hot", "when": "Heat > 60", "valid": "10 s"}],
}


class Running:
    """A journal that is decided as it grows, with clocks that a test sets; what it told, by position."""

    def __init__(self, journal: SqliteJournal, known: StateFold | None = None) -> None:
        self.journal, self.known = journal, known or StateFold()
        self.steady, self.wall = 1000.0, NOW.timestamp()
        self.told: list[Event] = []
        self.batches = 0
        self.decide()
        self.ticks = TickWriter(journal, self.known, lambda: self.steady, lambda: self.wall)

    def decide(self) -> None:
        """Decides what is there and not decided."""
        end = self.journal.end("events")
        if end > self.known.position:
            self.batches += 1
            for batch in self.known.fold(self.journal.read("events", self.known.position, end), changes):
                self.told += to_events(derived_of(batch.events))

    def publish(self, *events: Event) -> None:
        """Events come in now."""
        accepted = datetime.fromtimestamp(self.wall, UTC)
        self.journal.append("events", to_table([replace(event, accepted=accepted) for event in events]))

    def pass_time(self, seconds: float) -> None:
        """Time passes, with a look four times a second."""
        for _ in range(int(4 * seconds)):
            self.steady, self.wall = self.steady + 0.25, self.wall + 0.25
            self.ticks.look()
            self.decide()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A journal with the definitions."""
    (tmp_path / "definitions.yaml").write_text(yaml.safe_dump(DEFINED))
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        define(journal, files.load([tmp_path / "definitions.yaml"]))
        yield Running(journal)


def cart(name: str, x: float, ago: timedelta = timedelta()) -> Event:
    """A report of a cart, as of a while before noon."""
    return Event(f"{name}-{x}-{ago}", "cart", "yard", name, NOW - ago, Place("planar", x, 0.0), channel="yard")


def sensor(number: int, ago: timedelta = timedelta()) -> Event:
    """A hot reading."""
    place, heat = Place("planar", 1000.0 * number, 0.0), (("Heat", 80.0),)
    return Event(f"s{number}", "reading", "hall", f"sensor-{number}", NOW - ago, place, heat, channel="yard")


def seen(told: Sequence[Event]) -> list[tuple[str, float]]:
    """What was told, and of how many seconds after noon."""
    words = [one.values("detect" if one.type == "nearcast.relation" else "phase") for one in told]
    return [
        (str(next(word)), (one.time - NOW).total_seconds()) for word, one in zip(words, told, strict=True) if one.time
    ]


@pytest.mark.parametrize("ago", [timedelta(), HOUR])
def test_a_dwell_and_a_silence_come_by_themselves(running: Running, ago: timedelta) -> None:
    """Within a second of being due; of a feed that is an hour old they are of an hour ago."""
    running.publish(cart("a", 0, ago), cart("b", 5, ago))
    running.decide()
    before = -ago.total_seconds()
    running.pass_time(9.75)
    assert [("enter", before)] == seen(running.told)
    running.pass_time(1)
    assert [("enter", before), ("dwell", before + 10)] == seen(running.told)
    running.pass_time(19)
    assert 1 == running.ticks.ticks, "nothing was due meanwhile"
    running.pass_time(1)
    assert [("dwell", before + 10), ("exit", before + 30)] == seen(running.told)[1:]
    running.pass_time(100)
    assert (2, 3) == (running.ticks.ticks, len(running.told))


def test_situations_of_quiet_sensors_end_by_themselves(running: Running) -> None:
    """Each within a second of the moment at which its reading is too old."""
    running.publish(*(sensor(number) for number in range(5)))
    running.decide()
    running.pass_time(11)
    assert [("begin", 0.0)] * 5 + [("end", 10.000001)] * 5 == seen(running.told)


def test_where_nothing_is_due_nothing_is_written(running: Running) -> None:
    """No positions and no batches, with relations and rules that nothing holds in."""
    running.publish(cart("a", 0), cart("b", 500))
    running.decide()
    before = running.journal.end("events"), running.batches
    running.pass_time(600)
    assert before == (running.journal.end("events"), running.batches)


def test_deciding_the_journal_again_tells_the_same(running: Running) -> None:
    """At the same positions, in one batch as in many, and from a snapshot."""
    running.publish(cart("a", 0), cart("b", 5), sensor(1))
    running.pass_time(12)
    running.publish(cart("b", 4))
    running.pass_time(40)
    assert ["enter", "begin", "dwell", "end", "exit"] == [word for word, _ in seen(running.told)]
    assert running.told == Running(running.journal).told


def test_a_snapshot_knows_the_clock(running: Running, tmp_path: Path) -> None:
    """So time goes on after a restart as if there had been none, by how long nothing was decided."""
    running.publish(cart("a", 0), cart("b", 5))
    running.pass_time(11)
    save(running.known, tmp_path / "known")
    again = Running(running.journal, load(tmp_path / "known", running.known.position))
    assert (running.known.clocks.by_name, NEVER) == (again.known.clocks.by_name, StateFold().clocks.shared)
    again.wall = running.wall + 15
    again.ticks = TickWriter(again.journal, again.known, lambda: again.steady, lambda: again.wall)
    again.pass_time(5)
    assert [("exit", 30.0)] == seen(again.told)


def test_setting_the_machines_clock_changes_nothing(running: Running) -> None:
    """Neither back, where ticks are of a time that is yet to come, nor forward."""
    running.publish(cart("a", 0), cart("b", 5))
    running.decide()
    running.wall -= 7200
    running.pass_time(11)
    assert [("enter", 0.0), ("dwell", 10.0)] == seen(running.told)
    running.wall += 86_400
    running.pass_time(10)
    assert (2, 1) == (len(running.told), running.ticks.ticks)


def test_what_is_due_waits_for_events_that_are_there(running: Running) -> None:
    """They may bring that time themselves; but not for ever, as others may come without end."""
    running.publish(cart("a", 0), cart("b", 5))
    running.pass_time(9.5)
    running.publish(cart("a", 1, -timedelta(seconds=9)))
    looks = [running.ticks.look()]
    for _ in range(6):
        running.steady, running.wall = running.steady + 0.25, running.wall + 0.25
        looks.append(running.ticks.look())
    assert [*[False] * 6, True] == looks
    running.decide()
    assert [("enter", 0.0), ("dwell", 10.0)] == seen(running.told)


def test_what_a_tick_does_not_settle_gets_one_tick(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is said to be due."""
    running.publish(cart("a", 0))
    running.decide()
    monkeypatch.setattr(StateFold, "next_due", lambda _self, clocks: -clocks.shared)
    running.pass_time(5)
    assert 1 == running.ticks.ticks


def test_a_tick_is_not_ahead_of_its_acceptance_and_of_the_past_changes_nothing(running: Running) -> None:
    """Whoever writes it."""
    running.publish(cart("a", 0), cart("b", 5))
    tick = Event("t1", "nearcast.tick", "me", payload=b'{"data": {"clock": "2027-01-01T00:00:00Z"}}')
    running.publish(tick)
    running.decide()
    assert [("enter", 0.0)] == seen(running.told)
    running.publish(replace(tick, id="t2", payload=b'{"data": {"clock": "2020-01-01T00:00:00Z"}}'))
    running.decide()
    assert 1_000_000 * int(NOW.timestamp()) == running.known.clocks.shared


def test_a_tick_reaches_nobody_and_what_it_ends_is_delivered_at_its_position(running: Running) -> None:
    """To whoever asks for everything: three events that are derived, at positions of which two are ticks'."""
    running.publish(cart("a", 0), cart("b", 5))
    running.pass_time(31)
    end = running.journal.end("events")
    controls = [to_event(ClientChange("ann"), "c", "s"), to_event(_subscribed("all"), "s", "s")]
    again = to_table(
        replace(event, position=position)
        for position, event in enumerate([*controls, *to_events(running.journal.read("events", 0, end))], 1)
    )
    rows = [row for batch in StateFold().fold(again, changes) for row in decide(batch, batch.events).to_pylist()]
    expected = [(end - 1, 0), (end, 0), (end, 1), (end + 1, 1), (end + 2, 1)]
    assert expected == [(row["position"], row["part"]) for row in rows]


def _subscribed(id: str) -> SubscriptionChange:
    return SubscriptionChange(Subscription(id, ("ann",), parse("TRUE", Mark("here"))))


def test_ticks_go_on_where_the_journal_let_go_of_its_events(running: Running, tmp_path: Path) -> None:
    """Of all but the tick that was last, after a restart from a snapshot."""
    running.publish(cart("a", 0), cart("b", 5))
    running.pass_time(11)
    save(running.known, tmp_path / "known")
    running.journal.trim("events", 0, 0)
    assert ["nearcast.tick"] == running.journal.read("events", 0, 100).column("type").to_pylist()
    again = Running(running.journal, load(tmp_path / "known", running.known.position))
    again.pass_time(21)
    assert [("exit", 30.0)] == seen(again.told)
    assert again.known.position == running.journal.end("events")


def test_the_paced_clock_never_falls() -> None:
    """It goes on from where events left it, and events that are behind it change nothing."""
    clocks = PacedClocks()
    assert [NEVER, 100, 105, 107, 200] == [
        clocks.at(StreamClocks.alone(value), now, 1_000).shared
        for value, now in [(NEVER, 0), (100, 1), (100, 6), (101, 8), (200, 9)]
    ]


def test_ticks_leave_nothing_behind_that_is_accepted_after_a_clock_was_set_right() -> None:
    """An hour ahead, and set right: clocks go on as times of acceptance do, and in a hundred hours all are right."""
    machine = ManualClock()
    server, clocks = ServerClock(machine, machine.monotonic), PacedClocks()
    machine.set(HOUR.total_seconds())
    last = int(server.now() * 1e6)
    machine.set(-HOUR.total_seconds())
    for hours in range(110):
        paced = clocks.at(StreamClocks.alone(last), int(machine.monotonic() * 1e6), int(machine() * 1e6)).shared
        assert abs(paced - server.now() * 1e6) < 1e3, f"after {hours} hours"
        assert (hours < 100) == (paced - machine() * 1e6 > 1e6)
        machine.move(3_600)


def mean_of(seconds: int, valid: str) -> dict[str, Any]:
    """Definitions of a situation by the mean over so many seconds."""
    rule = {"id": "warm", "class": "Hot", "when": f"AVG(Heat, '{seconds} s') > 60", "valid": valid}
    return {**DEFINED, "relations": [], "situations": [rule]}


def test_readings_that_leave_a_window_bring_no_tick_while_nothing_is_told(tmp_path: Path) -> None:
    """A mean that stays what it is changes nothing; where the last of them leaves the situation ends."""
    (tmp_path / "definitions.yaml").write_text(yaml.safe_dump(mean_of(60, "10 min")))
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        define(journal, files.load([tmp_path / "definitions.yaml"]))
        running = Running(journal)
        for second in range(30):
            running.publish(replace(sensor(1, timedelta(seconds=-second)), id=f"r{second}"))
            running.pass_time(1)
        assert ([("begin", 0.0)], 0) == (seen(running.told), running.ticks.ticks)
        running.pass_time(120)
        assert ([("begin", 0.0), ("end", 89.000001)], 1) == (seen(running.told), running.ticks.ticks)


def test_ticks_are_apart(running: Running) -> None:
    """However much falls due, between two are three quarters of a second, and each thing is told within a second."""
    for tenth in range(40):
        pair = [
            cart(f"{name}{tenth}", 100.0 * tenth + x, timedelta(seconds=tenth / -10))
            for name, x in (("a", 0), ("b", 5))
        ]
        running.publish(*pair)
    running.pass_time(4)
    told = {}
    for _ in range(60):
        running.pass_time(0.25)
        for one in running.told:
            told.setdefault(one.id, running.steady - 1000)
    late = [
        told[one.id] - (one.time - NOW).total_seconds()
        for one in running.told
        if one.time and "dwell" in one.values("detect")
    ]
    assert (40, True) == (len(late), max(late) <= 1)
    assert running.ticks.ticks <= 4 / 0.75 + 1


def moving(number: int, chance: random.Random) -> Event:
    """A report of a cart of that second, now and then late."""
    name, x = chance.choice("abc"), chance.choice([0.0, 5.0, 40.0])
    ago = timedelta(seconds=chance.choice([0, 0, 2]) - number)
    told = (("speed", chance.choice([2.0, 9.0])), ("Heat", chance.choice([20.0, 80.0])))
    return replace(cart(name, x, ago), id=f"m{number}", attributes=told)


WAITING: dict[str, Any] = {
    **DEFINED,
    "relations": [
        {**DEFINED["relations"][0], "lateness": "4 s"},
        {"id": "fast", "a": "x < 20", "b": "x < 20", "when": "distance(a, b) <= 10 AND AVG(a.speed, 6 s) > 5"},
        {"id": "told", "a": "type = 'nearcast.relation'", "b": "type = 'cart'", "when": "distance(a, b) <= 10"},
    ],
    "zones": {
        "yard": {
            "of": "type = 'cart'",
            "coordinates": "planar",
            "for": "6 s",
            "time_to_live": "9 s",
            "detect": ["dwell", "exit"],
            "features": [{"id": "gate", "geometry": {"type": "Polygon", "coordinates": [SQUARE]}}],
        }
    },
    "situations": [
        {"id": "warm", "class": "Hot", "when": "AVG(Heat, '6 s') > 50", "valid": "1 min", "lateness": "3 s"},
        {"id": "hot", "class": "Hot", "when": "Heat > 60", "valid": "10 s", "for": "5 s"},
    ],
}


@pytest.mark.parametrize("seed", range(3))
def test_every_tick_tells_something(tmp_path: Path, seed: int) -> None:
    """Whatever waits, or leaves a window: of relations, of what these tell, zones and rules; between reports, and
    after the last of them.
    """
    chance = random.Random(seed)
    (tmp_path / "definitions.yaml").write_text(yaml.safe_dump(WAITING))
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        define(journal, files.load([tmp_path / "definitions.yaml"]))
        running = Running(journal)
        for second in range(0, 40, 5):
            running.publish(moving(second, chance))
            running.decide()
            running.pass_time(5)
        running.pass_time(40)
        rows = journal.read("events", 0, journal.end("events"))
        ticks = [
            row["position"] for row in rows.select(["type", "position"]).to_pylist() if row["type"] == "nearcast.tick"
        ]
        assert ticks
        assert [] == sorted({*ticks} - {one.position for one in running.told})
        end = journal.end("events")
        running.pass_time(100)
        assert end == journal.end("events"), "nothing is left that could be told"
