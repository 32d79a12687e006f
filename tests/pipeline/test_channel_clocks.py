"""Channels with clocks of their own: a feed that is hours behind another is as live as that, and both go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from nearcast.cli.status import clocks_behind
from nearcast.cli.system import define
from nearcast.errors import DefinitionError, EventError
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions import files
from nearcast.language.definitions.settings_documents import settings_data
from nearcast.model.changes import ClockTick, SettingsChange
from nearcast.model.event import Event, Place
from nearcast.model.subscription import MOST_CLOCKS
from nearcast.pipeline.monitoring import ClockMonitor, PipelineMetrics
from nearcast.pipeline.snapshots import load, save
from nearcast.pipeline.ticks import TickWriter
from tests.pipeline.test_ticks import NOW, Running

BEHIND = timedelta(hours=2)
MEETING = {
    "when": "distance(a, b) <= 10",
    "for": "10 s",
    "time_to_live": "30 s",
    "detect": ["enter", "dwell", "exit"],
}
SQUARE = {"type": "Polygon", "coordinates": [[[-50, -50], [50, -50], [50, 50], [-50, 50], [-50, -50]]]}
DEFINED: dict[str, Any] = {
    "channels": {
        "yard": {"coordinates": "planar"},
        "relay": {"coordinates": "planar", "types": ["ship"], "clock": "own"},
    },
    "relations": [
        {"id": "carts", "a": "type = 'cart'", "b": "type = 'cart'", **MEETING},
        {"id": "ships", "a": "type = 'ship'", "b": "type = 'ship'", **MEETING},
        {"id": "any", "a": "x >= 1000", "b": "x >= 1000", **MEETING},
        {
            "id": "late",
            "a": "type = 'ship' AND x > 300",
            "b": "type = 'ship' AND x > 300",
            **MEETING,
            "lateness": "5 s",
        },
        {
            "id": "fleet",
            "among": "type = 'ship' AND fleet",
            "count": 2,
            "within": 10,
            "for": "10 s",
            "time_to_live": "30 s",
            "detect": ["enter", "dwell", "exit"],
        },
    ],
    "zones": {
        "harbour": {
            "of": "type = 'ship' OR type = 'cart'",
            "coordinates": "planar",
            "for": "10 s",
            "time_to_live": "30 s",
            "detect": ["enter", "dwell", "exit"],
            "features": [{"id": "quay", "geometry": SQUARE}],
        }
    },
    "ontology": {
        "classes": {"Heat": {"within": 100}, "Damp": {"within": 100}},
        "situations": {"Hot": {}, "Wet": {}, "Steam": {}, "Crowd": {}},
    },
    "situations": [
        {"id": "hot", "class": "Hot", "when": "Heat > 60", "valid": "10 s"},
        {"id": "wet", "class": "Wet", "when": "Damp > 60", "valid": "10 s"},
        {"id": "steam", "class": "Steam", "when": "Hot AND Damp > 60", "valid": "10 s"},
        {
            "id": "crowd",
            "class": "Crowd",
            "when": "count(uform(type = 'cart' AND Damp > 0)) >= 2",
            "within": 100,
            "valid": "10 s",
        },
    ],
}


def running_with(folder: Path, defined: Mapping[str, Any]) -> Iterator[Running]:
    """A journal with definitions."""
    (folder / "definitions.yaml").write_text(yaml.safe_dump(dict(defined)))
    with closing(SqliteJournal(folder / "some.journal")) as journal:
        define(journal, files.load([folder / "definitions.yaml"]))
        yield Running(journal)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A journal with the definitions."""
    yield from running_with(tmp_path, DEFINED)


def cart(name: str, x: float, second: float = 0) -> Event:
    """A report of now."""
    return _report("cart", "yard", name, x, second)


def ship(name: str, x: float, second: float = 0, **attributes: bool) -> Event:
    """A report of two hours ago."""
    event = _report("ship", "relay", name, x, second - BEHIND.total_seconds())
    return replace(event, attributes=(*event.attributes, *attributes.items()))


def _report(type_: str, channel: str, name: str, x: float, second: float) -> Event:
    moment = NOW + timedelta(seconds=second)
    return Event(
        f"{name}-{x}-{second}", type_, "s", name, moment, Place("planar", x, 0.0), (("x", x),), channel=channel
    )


def told_by(running: Running, id: str) -> list[tuple[str, float]]:
    """What a relation, layer or rule told, and of how many seconds after noon."""
    names = ("relation", "layer", "situation")
    return words([one for one in running.told if any(id in one.values(name) for name in names)])


def words(told: Sequence[Event]) -> list[tuple[str, float]]:
    """What was told, and of how many seconds after noon."""
    found = [(next(chain(one.values("detect"), one.values("phase"))), one.time or NOW) for one in told]
    return [(str(word), (time - NOW).total_seconds()) for word, time in found]


def test_entities_of_a_feed_that_is_behind_are_not_silent(running: Running) -> None:
    """Theirs dwell and fall silent when it is time, two hours ago, also where nothing comes any more."""
    running.publish(cart("a", 500), cart("b", 505))
    running.pass_time(1)
    running.publish(ship("c", 200), ship("d", 205))
    behind = -BEHIND.total_seconds()
    running.pass_time(10)
    assert [("enter", behind)] == told_by(running, "ships"), "a quarter of a second is left"
    running.pass_time(1.25)
    assert [("enter", behind), ("dwell", behind + 10)] == told_by(running, "ships")
    running.pass_time(21)
    assert [("dwell", behind + 10), ("exit", behind + 30)] == told_by(running, "ships")[1:]
    assert [("enter", 0.0), ("dwell", 10.0), ("exit", 30.0)] == told_by(running, "carts")
    before = running.ticks.ticks
    running.pass_time(60)
    assert before == running.ticks.ticks, "nothing is due any more"


def test_what_is_between_both_feeds_goes_by_the_slower(running: Running) -> None:
    """A pair of one of each begins with a report of two hours ago, and dwells ten seconds after that."""
    running.publish(cart("a", 1000), ship("c", 1005))
    behind = -BEHIND.total_seconds()
    running.pass_time(9.5)
    assert [("enter", behind)] == told_by(running, "any")
    running.pass_time(1)
    assert [("enter", behind), ("dwell", behind + 10)] == told_by(running, "any")
    running.publish(cart("a", 1001, 10.5))
    running.pass_time(21)
    assert [("exit", behind + 30)] == told_by(running, "any")[2:], "the ship is silent by its own clock"


def test_zones_go_by_the_clock_of_who_is_in_them(running: Running) -> None:
    """One layer for both."""
    running.publish(cart("a", 0), ship("c", 20))
    behind = -BEHIND.total_seconds()
    running.pass_time(31)
    whole = [("enter", 0.0), ("dwell", 10.0), ("exit", 30.0)]
    assert whole == [one for one in told_by(running, "harbour") if one[1] >= 0]
    assert [(word, second + behind) for word, second in whole] == [
        one for one in told_by(running, "harbour") if one[1] < 0
    ]


def test_gatherings_and_relations_with_a_lateness_go_by_the_channels_they_take(running: Running) -> None:
    """Though another is two hours ahead."""
    running.publish(cart("a", 500), ship("c", 400, fleet=True), ship("d", 405, fleet=True))
    behind = -BEHIND.total_seconds()
    running.pass_time(4.5)
    assert [] == told_by(running, "late"), "it waits for what is late"
    running.pass_time(32)
    whole = [("enter", behind), ("dwell", behind + 10), ("exit", behind + 30)]
    assert (whole, 2) == (told_by(running, "late"), len({*told_by(running, "fleet")}) - 1)
    assert sorted([*whole, *whole]) == sorted(told_by(running, "fleet"))


def test_situations_go_by_the_channels_in_which_readings_came(running: Running) -> None:
    """That of a ship lasts for ten seconds of its own clock."""
    running.publish(cart("a", 500), replace(ship("c", 700), attributes=(("Heat", 80.0),)))
    behind = -BEHIND.total_seconds()
    running.pass_time(9.5)
    assert [("begin", behind)] == told_by(running, "hot")
    running.pass_time(1.5)
    assert [("begin", behind), ("end", behind + 10.000001)] == told_by(running, "hot")


def reading(event: Event, **values: float) -> Event:
    """The same with readings."""
    return replace(event, id=f"{event.id} {values}", attributes=tuple(values.items()))


def test_a_feed_that_stands_holds_only_the_situations_that_read_it(running: Running) -> None:
    """Without ticks, as in a file: what is damp, and who is counted, goes on by the events of its own channel."""
    running.wall += BEHIND.total_seconds()
    behind = -BEHIND.total_seconds()
    running.publish(reading(ship("c", 700), Heat=80.0))
    running.publish(reading(cart("a", 700), Damp=80.0), reading(cart("b", 710, 1), Damp=10.0), cart("e", 5000, 12))
    running.decide()
    assert [("begin", 0.0), ("end", 10.000001)] == told_by(running, "wet")
    assert [("begin", 1.0), ("end", 10.000001)] == told_by(running, "crowd")
    assert [("begin", behind)] == told_by(running, "hot")
    assert [] == told_by(running, "steam"), "both together wait for the slower"
    running.publish(ship("d", 5000, BEHIND.total_seconds() + 1))
    running.decide()
    assert [("end", behind + 10.000001)] == told_by(running, "hot")[1:]
    assert running.told == Running(running.journal).told


def test_a_rule_above_goes_by_what_those_below_it_read(running: Running) -> None:
    """It holds where the slower feed has come to what the faster told, and both are by that clock fresh."""
    running.wall += BEHIND.total_seconds()
    running.publish(reading(cart("a", 700), Damp=80.0), reading(ship("c", 700), Heat=80.0))
    running.publish(reading(ship("c", 701, BEHIND.total_seconds() + 1), Heat=80.0))
    running.decide()
    assert [] == told_by(running, "steam"), "of that second more may come"
    running.publish(cart("e", 5000, 3), ship("d", 5000, BEHIND.total_seconds() + 3))
    running.decide()
    assert [("begin", 1.0)] == told_by(running, "steam")
    assert [("begin", 0.0)] == told_by(running, "wet")


def test_situations_go_on_where_their_readings_come_in_another_channel(running: Running) -> None:
    """By the slower of both clocks from then on; others do not hear of it."""
    running.wall += BEHIND.total_seconds()
    running.publish(reading(cart("a", 700), Damp=80.0), reading(cart("b", 900), Heat=80.0))
    running.publish(reading(ship("c", 2000), Heat=80.0), cart("e", 5000, 12))
    running.decide()
    assert [("begin", 0.0)] == told_by(running, "hot")[:1]
    assert ("end", 10.000001) not in told_by(running, "hot"), "by the clock of the ships it is two hours ago"
    assert [("begin", 0.0), ("end", 10.000001)] == told_by(running, "wet")
    running.publish(cart("e", 5000, 13), ship("d", 5000, BEHIND.total_seconds() + 12))
    running.decide()
    assert ("end", 10.000001) in told_by(running, "hot")
    assert running.told == Running(running.journal).told


def test_deciding_again_and_going_on_from_a_snapshot_tell_the_same(running: Running, tmp_path: Path) -> None:
    """At the same positions, in one batch as in many."""
    running.publish(cart("a", 0), cart("b", 5), ship("c", 400, fleet=True), ship("d", 405, fleet=True), ship("e", 20))
    running.publish(reading(cart("f", 700), Damp=80.0), reading(ship("g", 700), Heat=80.0))
    running.pass_time(4)
    running.publish(reading(cart("f", 700, 4), Damp=80.0), reading(ship("h", 1700, 4), Damp=80.0))
    running.pass_time(8)
    save(running.known, tmp_path / "known")
    again = Running(running.journal, load(tmp_path / "known", running.known.position))
    assert running.known.clocks.by_name == again.known.clocks.by_name
    assert "relay" in again.known.clocks.by_name
    told = len(running.told)
    again.wall, again.steady = running.wall, running.steady
    again.ticks = TickWriter(again.journal, again.known, lambda: again.steady, lambda: again.wall)
    again.pass_time(40)
    running.decide()
    assert again.told == running.told[told:]
    assert running.told == Running(running.journal).told
    assert {"enter", "dwell", "exit", "begin", "end"} == {word for word, _ in words(running.told)}


def test_how_far_each_clock_is_behind_is_known(running: Running) -> None:
    """By the names of their channels; of one in which nothing came nothing is said."""
    running.publish(cart("a", 0))
    running.decide()
    assert {"": 0.0} == running.ticks.behind()
    running.publish(ship("c", 200))
    running.decide()
    assert {"": 0.0, "relay": BEHIND.total_seconds()} == running.ticks.behind()


def test_a_channel_may_get_its_own_clock_while_it_runs(tmp_path: Path) -> None:
    """Then its entities go by that; and by the shared one again when it has it no more."""
    before = {**DEFINED, "channels": {**DEFINED["channels"], "relay": {"coordinates": "planar", "types": ["ship"]}}}
    for running in running_with(tmp_path, before):
        shared = running.known.registry.settings
        own = tuple(replace(one, clock="own") if one.name == "relay" else one for one in shared.channels)
        running.publish(ship("c", 200), ship("d", 205))
        running.decide()
        running.publish(to_event(SettingsChange(replace(shared, channels=own)), "s1", "me"))
        running.publish(cart("a", 0))
        running.pass_time(5)
        behind = -BEHIND.total_seconds()
        assert ([("enter", behind)], {"", "relay"}) == (told_by(running, "ships"), running.known.clocks.by_name.keys())
        running.pass_time(6)
        assert [("enter", behind), ("dwell", behind + 10)] == told_by(running, "ships")
        running.publish(to_event(SettingsChange(shared), "s2", "me"))
        running.pass_time(1)
        assert [("exit", behind + 30)] == told_by(running, "ships")[2:]
        assert running.told == Running(running.journal).told


def test_operators_see_how_far_clocks_are_behind() -> None:
    """Where there are several, or one is by a minute; those of channels that have none any more are gone."""
    metrics = PipelineMetrics()
    monitor = ClockMonitor(metrics)
    monitor.report({"": 0.25, "relay": 7200.0})
    monitor.report({"relay": 7201.0, "other": 1.0})
    shown = {
        sample.labels["channel"]: sample.value
        for family in metrics.registry.collect()
        if family.name == "nearcast_pipeline_clock_behind_seconds"
        for sample in family.samples
    }
    assert {"relay": 7201.0, "other": 1.0} == shown
    start = "clock_behind_seconds_"
    assert clocks_behind({start: 0.25}) is None
    assert "clocks behind the wall clock: shared 90 s" == clocks_behind({start: 90.0})
    assert "clocks behind the wall clock: shared 0 s, relay 7,200 s" == clocks_behind(
        {start: -0.01, f"{start}relay": 7200.0}
    )


def test_clocks_are_in_definitions_and_ticks() -> None:
    """As they were given; a tick of one clock is as it always was, and one without any is a fault."""
    channels = {"relay": {"coordinates": "planar", "types": [], "clock": "own"}}
    loaded = files.load([{"channels": channels}]).settings
    assert channels == settings_data(loaded)["channels"]
    for tick in (ClockTick(NOW), ClockTick(None, {"relay": NOW - BEHIND}), ClockTick(NOW, {"relay": NOW - BEHIND})):
        assert [tick] == changes(replace(to_event(tick, "t", "s"), accepted=NOW), loaded)
    assert b'"data":{"clock":' in to_event(ClockTick(NOW), "t", "s").payload
    with pytest.raises(EventError, match="expected the fields clock or channels"):
        changes(Event("t", "nearcast.tick", "s", payload=b'{"data": {}}'), loaded)


def test_so_many_channels_have_their_own() -> None:
    """One more is a fault; as many that share one are none."""
    many = {f"c{number}": {"coordinates": "planar", "types": [f"t{number}"]} for number in range(MOST_CLOCKS + 1)}
    files.load([{"channels": many}])
    with pytest.raises(DefinitionError, match=f"at most {MOST_CLOCKS} channels with a clock of their own"):
        files.load([{"channels": {name: {**one, "clock": "own"} for name, one in many.items()}}])
