"""Why a relation holds between two that go by different clocks, and who is in a zone: as deciding tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given, settings

from nearcast.cli.explain_pair import pair_data, pair_finding, pair_finding_among_all
from nearcast.cli.explain_zone import zone_data, zone_finding
from nearcast.explain.pair_finding import PairFinding
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions import files
from nearcast.model.changes import ClockTick, RelationChange, RelationRemoval, SettingsChange
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event, Place
from nearcast.model.values import time_text
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from nearcast.state.registry import Registry

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WALL = NOON + timedelta(days=1)
BEHIND = 3600
"""Seconds that the second channel is behind the first."""

EITHER = "type IN ('t0', 't1')"
ALL = {"detect": ["enter", "dwell", "exit"]}
OVER = "distance(a, b) < 100 AND COUNT(a.x, 6 s) > COUNT(b.x, 4 s)"
FORMS: Sequence[Mapping[str, Any]] = [
    {},
    {"time_to_live": 12},
    {"for": 5, **ALL},
    {"for": 5, "time_to_live": 12, **ALL},
    {"when": OVER},
    {"when": OVER, "for": 3, "time_to_live": 12, **ALL},
    {"lateness": 3},
    {"lateness": 3, "time_to_live": 12, "for": 5, **ALL},
    {"lateness": 2, "when": OVER},
    {"a": "type = 't0'", "b": "type = 't1'", "lateness": 2},
    {"a": "type = 't1'", "b": "type = 't1'", "lateness": 2, "time_to_live": 12},
    {"a": {"entity": "u"}, "b": {"entity": "v"}, "for": 5, "time_to_live": 12, **ALL},
]


@dataclass(frozen=True)
class Report:
    """A report of an entity by a channel, 0 or 1, of a second of it."""

    entity: str
    channel: int
    x: int
    second: int


@dataclass(frozen=True)
class Tick:
    """How far both channels have come."""

    seconds: tuple[int, int]


@dataclass(frozen=True)
class Redefinition:
    """The relation, or another of the same form, as it is from then on; None: there it ends."""

    id: str
    form: Mapping[str, Any] | None


@dataclass(frozen=True)
class Clocks:
    """Whether the second channel has a clock of its own."""

    own: bool


Step = Report | Tick | Redefinition | Clocks

reports = st.builds(
    Report, st.sampled_from("uvuvuvw"), st.integers(0, 1), st.sampled_from([0, 0, 60, 60, 105, 150]), st.integers(-2, 5)
)
ticks = st.builds(Tick, st.tuples(st.integers(-2, 9), st.integers(-2, 9)))
either = reports | reports
steps = st.lists(either | ticks, min_size=4, max_size=16)


def in_turn(drawn: Sequence[Step]) -> list[Step]:
    """Steps as they were drawn, of which each has its seconds after that of the one before: mostly none is late."""
    found, now = list[Step](), 5
    for one in drawn:
        match one:
            case Report(second=second):
                found.append(replace(one, second=now + second))
                now += max(0, second)
            case Tick((first, second)):
                found.append(Tick((now + first, now + second)))
            case _:
                found.append(one)
    return found


def relation(id: str, form: Mapping[str, Any]) -> dict[str, Any]:
    """A relation of a form."""
    sides = {"a": EITHER, "b": EITHER, "when": "distance(a, b) < 100", "detect": ["enter", "exit"]}
    return {"id": id, **sides, **form}


def defined(relations: Sequence[Mapping[str, Any]], own: bool) -> files.Definitions:
    """Definitions with both channels."""
    channels = {"c0": {"types": ["t0"]}, "c1": {"types": ["t1"], "clock": "own" if own else "shared"}}
    planar = {name: {"coordinates": "planar", **one} for name, one in channels.items()}
    return files.load([{"clients": [{"id": "ops"}], "channels": planar, "relations": list(relations)}])


def moment(channel: int, second: int) -> datetime:
    """A second of a channel."""
    return NOON + timedelta(seconds=second - BEHIND * channel)


def event_of(step: Step) -> Event:
    """A step as an event."""
    match step:
        case Report(entity, channel, x, second):
            place, when = Place("planar", x, 0.0), moment(channel, second)
            return Event("e", f"t{channel}", "s", entity, when, place, (("x", x),), channel=f"c{channel}")
        case Tick((first, second)):
            return to_event(ClockTick(moment(0, first), {"c1": moment(1, second)}), "tick", "s")
        case Redefinition(id, None):
            return to_event(RelationRemoval(id), "r", "s")
        case Redefinition(id, form):
            [made] = defined([relation(id, form or {})], True).relations
            return to_event(RelationChange(made), "r", "s")
        case Clocks(own):
            return to_event(SettingsChange(defined([], own).settings), "c", "s")


def history(form: Mapping[str, Any], steps: Sequence[Step]) -> tuple[Registry, pa.Table]:
    """What is there before a history, and its events."""
    registry = Registry()
    for change in defined([relation("close", form)], True).changes():
        registry.apply(change)
    return registry, to_table(
        replace(event_of(step), position=number, accepted=WALL) for number, step in enumerate(steps, 1)
    )


def derived(registry: Registry, table: pa.Table) -> list[dict[str, Any]]:
    """What deciding a history derives."""
    batches = StateFold(registry.copy()).fold(table, changes)
    events = [event for batch in batches for event in to_events(derived_of(batch.events))]
    return [{"position": event.position, **dict(event.attributes)} for event in events]


def decided(registry: Registry, table: pa.Table) -> list[dict[str, Any]]:
    """What deciding a history tells of u and v."""
    found = [one for one in derived(registry, table) if one.get("relation") == "close"]
    return [one for one in found if {one["a"], one["b"]} == {"u", "v"}]


def summary(told: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, str | None]]:
    """The last things that were told."""
    return [(one["position"], one["detect"], one.get("reason")) for one in told][-5:]


def since(told: Sequence[Mapping[str, Any]]) -> str:
    """Since when it was told to hold last."""
    begun = [one["since"] for one in told if one["detect"] == "enter"][-1]
    return begun if isinstance(begun, str) else time_text(begun)


def assert_agree(finding: PairFinding, told: Sequence[Mapping[str, Any]]) -> None:
    """What was found of the two is what was told."""
    expected = summary(told)
    assert expected == [(position, one.detect, one.reason) for position, one in finding.told]
    # Where sides differ, another pair of the same two may hold too.
    own = [one for one in told if one["a"] == finding.a.entity]
    assert (bool(own) and own[-1]["detect"] != "exit") == finding.holds
    if finding.holds:
        assert since(own) == pair_data(finding)["since"]
        assert (own[-1]["detect"] == "dwell") == finding.dwelt


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(FORMS), steps.map(in_turn), st.data())
def test_it_holds_by_both_clocks_where_deciding_has_told_so(
    form: Mapping[str, Any], stream: list[Step], data: st.DataObject
) -> None:
    """Whoever reports in which channel, and whichever clock goes on: since when, what was told, where, and why."""
    registry, table = history(form, stream)
    until = len(stream) - data.draw(st.integers(0, 3))
    finding = pair_finding(lambda: [table], registry.copy(), "close", ("u", "v"), until)
    assert_agree(finding, decided(registry, table.slice(0, until)))


redefinitions = st.builds(Redefinition, st.sampled_from(["close", "close", "other"]), st.sampled_from(FORMS))
removals = st.just(Redefinition("other", None))
clocks = st.builds(Clocks, st.booleans())


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(FORMS),
    st.lists(either | reports | ticks | redefinitions | removals | clocks, min_size=4, max_size=16).map(in_turn),
)
def test_definitions_and_clocks_may_change_meanwhile(form: Mapping[str, Any], stream: list[Step]) -> None:
    """Relations begin anew by the clocks that there are then, with what was known."""
    registry, table = history(form, stream)
    finding = pair_finding_among_all(lambda: [table], registry.copy(), "close", ("u", "v"), None)
    assert_agree(finding, decided(registry, table))


SQUARE = {"type": "Polygon", "coordinates": [[[-10, -5], [100, -5], [100, 5], [-10, 5], [-10, -5]]]}


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["type = 't1'", EITHER]),
    st.lists(either | reports | ticks | clocks, min_size=4, max_size=16).map(in_turn),
)
def test_who_is_in_a_zone_lasts_and_falls_silent_by_its_own_clock(of: str, stream: list[Step]) -> None:
    """Also who reports in another channel meanwhile, and where channels get other clocks."""
    layer = {"coordinates": "planar", "of": of, "for": 5, "time_to_live": 12, **ALL}
    layer["features"] = [{"id": "z", "geometry": SQUARE}]
    registry, table = history({}, stream)
    for change in files.load([{"zones": {"yard": layer}}]).changes():
        if not isinstance(change, SettingsChange):
            registry.apply(change)
    told = [one for one in derived(registry, table) if "zone" in one and one["entity"] == "u"]
    finding = zone_finding(lambda: [table], registry.copy(), "yard", "u", "z", None)
    assert summary(told) == [(position, one.detect, one.reason) for position, one in finding.told]
    [standing] = finding.standings
    assert (bool(told) and told[-1]["detect"] != "exit") == standing.holds
    assert not standing.holds or since(told) == zone_data(finding)["zones"][0]["since"]
