"""Clocks of channels over any stream: two channels are as two systems, and what is between them follows one rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions import files
from nearcast.model.changes import ClockTick, SettingsChange
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event, Place
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WALL = NOON + timedelta(days=1)
BEHIND = 7200
FOR, TIME_TO_LIVE = 5, 12
TOLD = {"for": f"{FOR} s", "time_to_live": f"{TIME_TO_LIVE} s", "detect": ["enter", "dwell", "exit"]}
SQUARE = {"type": "Polygon", "coordinates": [[[0, -5], [20, -5], [20, 5], [0, 5], [0, -5]]]}
NEAR = "distance(a, b) <= 10"
OVER = f"{NEAR} AND COUNT(a.type, 6 s) > COUNT(b.type, 4 s)"

Told = tuple[int, str, str, tuple[tuple[str, object], ...]]
"""A derived event: its position, type, time and attributes."""

Clocks = tuple[int, int]
"""How far two channels have come, in seconds, the second's `BEHIND` what is written."""


@dataclass(frozen=True)
class Report:
    """A report of a channel, 0 or 1: of its n-th entity at a place, of a second."""

    channel: int
    entity: int
    x: int
    second: int


Step = Report | Clocks
"""What a stream is of: reports, and ticks."""

steps = st.lists(
    st.builds(Report, st.integers(0, 1), st.integers(0, 2), st.integers(-3, 30), st.integers(0, 30))
    | st.tuples(st.integers(0, 45), st.integers(0, 45)),
    max_size=14,
)


def moment(channel: int, second: int) -> datetime:
    """A second of a channel."""
    return NOON + timedelta(seconds=second - BEHIND * channel)


def definitions(channel: int, coordinates: Mapping[str, Any]) -> dict[str, Any]:
    """What one channel is asked for: pairs, pairs with a lateness, a gathering, a zone, situations."""
    of, own = f"type = 't{channel}'", f"of-{channel}"
    return {
        "channels": {f"c{channel}": {"types": [f"t{channel}"], **coordinates}},
        "relations": [
            {"id": f"pairs-{own}", "a": of, "b": of, "when": NEAR, **TOLD},
            {"id": f"late-{own}", "a": of, "b": of, "when": NEAR, "lateness": "3 s", **TOLD},
            {"id": f"over-{own}", "a": of, "b": of, "when": OVER, **TOLD},
            {"id": f"some-{own}", "among": of, "count": 2, "within": 10, **TOLD},
        ],
        "zones": {
            f"zone-{own}": {
                "coordinates": "planar",
                "of": of,
                **TOLD,
                "features": [{"id": "z", "geometry": SQUARE}],
            }
        },
        "ontology": {
            "classes": {f"Heat{channel}": {"within": 10}},
            "situations": {f"Hot{channel}": {}, f"Crowd{channel}": {}, f"Both{channel}": {}},
        },
        "situations": [
            {"id": f"hot-{own}", "class": f"Hot{channel}", "when": f"Heat{channel} > 15", "valid": "6 s"},
            {
                "id": f"crowd-{own}",
                "class": f"Crowd{channel}",
                "when": f"count(uform({of})) >= 2",
                "within": 10,
                "valid": "9 s",
                "lateness": "2 s",
            },
            {
                "id": f"both-{own}",
                "class": f"Both{channel}",
                "when": f"Hot{channel} AND count(uform({of} AND Heat{channel} > 5)) > 1",
                "within": 20,
                "valid": "9 s",
                "for": {"begin": "1 s", "end": "1 s"},
            },
        ],
    }


SHARED, OWN = {"coordinates": "planar"}, {"coordinates": "planar", "clock": "own"}


def joined(*defined: Mapping[str, Any]) -> dict[str, Any]:
    """Definitions together."""
    found: dict[str, Any] = {"channels": {}, "relations": [], "zones": {}, "situations": []}
    ontology = found["ontology"] = {"classes": {}, "situations": {}}
    for one in defined:
        for name, own in one.get("ontology", {}).items():
            ontology[name] |= own
        found["situations"] += one.get("situations", [])
        found["channels"] |= one.get("channels", {})
        found["zones"] |= one.get("zones", {})
        found["relations"] += one.get("relations", [])
    return found


def event_of(step: Step, which: Sequence[int]) -> Event:
    """A step as an event; a tick says how far the first of these channels has come, and the second by its name."""
    if isinstance(step, Report):
        name, when = f"e{step.channel}{step.entity}", moment(step.channel, step.second)
        place = Place("planar", step.x, 0.0)
        read = ((f"Heat{step.channel}", step.x), ("Damp", step.x))
        return Event("e", f"t{step.channel}", "s", name, when, place, read, channel=f"c{step.channel}")
    clock = moment(which[0], step[which[0]])
    return to_event(ClockTick(clock, {f"c{one}": moment(one, step[one]) for one in which[1:]}), "tick", "s")


def told(
    defined: Mapping[str, Any], stream: Sequence[Step], which: Sequence[int], cuts: Sequence[int] = ()
) -> list[Told]:
    """What a system of these channels tells of a stream, of which the reports of others are left out."""
    known, found = StateFold(), list[Told]()
    first = [to_event(one, "d", "s") for one in files.load([defined]).changes("main", {})]
    for start, stop in pairwise([0, *sorted(cuts), len(stream)]):
        numbered = [(100 + start + number, step) for number, step in enumerate(stream[start:stop])]
        own = [(position, step) for position, step in numbered if not isinstance(step, Report) or step.channel in which]
        events = [replace(event_of(step, which), position=position) for position, step in own]
        if not start:
            events = [*(replace(one, position=number) for number, one in enumerate(first, 1)), *events]
            first = []
        for batch in known.fold(to_table(replace(one, accepted=WALL) for one in events), changes):
            found += map(_told, to_events(derived_of(batch.events)))
    return sorted(found, key=repr)


def _told(event: Event) -> Told:
    return event.position, event.type, str(event.time), tuple(sorted(event.attributes, key=repr))


@settings(max_examples=12, deadline=None)
@given(steps, st.data())
def test_two_channels_with_their_own_clocks_are_as_two_systems(stream: list[Step], data: st.DataObject) -> None:
    """Each tells what it would alone, at the same positions, wherever the stream is cut and whatever ticks come."""
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=3))
    both = joined(definitions(0, SHARED), definitions(1, OWN))
    each = [told(definitions(channel, SHARED), stream, [channel]) for channel in (0, 1)]
    assert sorted([*each[0], *each[1]], key=repr) == told(both, stream, [0, 1], cuts)


@dataclass
class PlainPairs:
    """The rule of pairs, one step at a time: two are near for so long by both their clocks, and silent by their own."""

    clocks: dict[int, int] = field(default_factory=dict)
    known: dict[str, Report] = field(default_factory=dict)
    held: dict[tuple[str, str], tuple[int, tuple[int, int], bool]] = field(default_factory=dict)

    def take(self, step: Step) -> list[tuple[str, tuple[str, str], int]]:
        """What a step tells: of whom, and of which second."""
        brought = {step.channel: at(step)} if isinstance(step, Report) else dict(enumerate([step[0], step[1] - BEHIND]))
        self.clocks = {one: max(brought.get(one, -(10**9)), self.clocks.get(one, -(10**9))) for one in (0, 1)}
        found = [one for pair in list(self.held) for one in self.pass_time(pair)]
        name = f"e{step.channel}{step.entity}" if isinstance(step, Report) else ""
        if isinstance(step, Report) and (name not in self.known or at(step) >= at(self.known[name])):
            self.known[name] = step
            for pair in [tuple(sorted((name, other))) for other in self.known if other != name]:
                found += self.reported((pair[0], pair[1]), step)
        return found

    def pass_time(self, pair: tuple[str, str]) -> list[tuple[str, tuple[str, str], int]]:
        due, clocks, dwelt = self.held[pair]
        ends = [at(self.known[one]) + TIME_TO_LIVE for one in pair if self.is_silent(one)]
        lasted = not dwelt and due <= min([*ends, *(self.clocks[one] for one in clocks)])
        self.held[pair] = due, clocks, dwelt or lasted
        if ends:
            del self.held[pair]
        return [*([("dwell", pair, due)] if lasted else []), *([("exit", pair, min(ends))] if ends else [])]

    def is_silent(self, name: str) -> bool:
        report = self.known[name]
        return self.clocks[report.channel] > at(report) + TIME_TO_LIVE

    def reported(self, pair: tuple[str, str], step: Report) -> list[tuple[str, tuple[str, str], int]]:
        one, other = (self.known[name] for name in pair)
        alive, near = not any(map(self.is_silent, pair)), abs(one.x - other.x) <= 10
        if pair in self.held:
            # Who is silent by the time at which it reports is not there.
            if not (alive and near):
                del self.held[pair]
            return [] if alive and near else [("exit", pair, at(step))]
        if not (alive and near):
            return []
        self.held[pair] = at(step) + FOR, (one.channel, other.channel), False
        return [("enter", pair, at(step)), *self.pass_time(pair)]


def at(report: Report) -> int:
    """The second of a report, by one axis for both channels."""
    return report.second - BEHIND * report.channel


EITHER = "type IN ('t0', 't1')"
ANY = {"relations": [{"id": "any", "a": EITHER, "b": EITHER, "when": NEAR, **TOLD}]}
WET = {
    "ontology": {"classes": {"Damp": {"within": 10}}, "situations": {"Wet": {}, "Full": {}}},
    "situations": [
        {"id": "wet", "class": "Wet", "when": "Damp > 15", "valid": "6 s"},
        {"id": "full", "class": "Full", "when": "Wet AND count(uform()) >= 2", "within": 20, "valid": "9 s"},
    ],
}


@settings(max_examples=60, deadline=None)
@given(steps, st.data(), st.sampled_from([0, BEHIND - 8]))
def test_pairs_between_channels_go_by_both_clocks(stream: list[Step], data: st.DataObject, ahead: int) -> None:
    """As the plain rule has it, in one batch as in many; also where the feed that was behind catches up."""
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=3))
    stream = [
        replace(step, second=step.second + ahead * step.channel)
        if isinstance(step, Report)
        else (step[0], step[1] + ahead)
        for step in stream
    ]
    channels = {"channels": {"c0": {"types": ["t0"], **SHARED}, "c1": {"types": ["t1"], **OWN}}}
    plain, expected = PlainPairs(), []
    for position, step in enumerate(stream, 100):
        for detect, pair, second in plain.take(step):
            expected.append((position, detect, *pair, str(NOON + timedelta(seconds=second))))
    found = []
    for position, _, time, attributes in told(joined(channels, ANY), stream, [0, 1], cuts):
        values = dict(attributes)
        found.append((position, values["detect"], values["a"], values["b"], time))
    assert sorted(expected) == sorted(found)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.booleans() | steps.map(tuple), max_size=6), st.data())
def test_channels_may_change_their_clocks_at_any_time(parts: list[Any], data: st.DataObject) -> None:
    """What is told does not rest on where the stream is cut; neither does how far the clocks have come."""
    both = joined(definitions(0, SHARED), definitions(1, SHARED), ANY, WET)
    loaded = files.load([both])
    first = [to_event(one, "d", "s") for one in loaded.changes("main", {})]
    clocks = {
        own: replace(loaded.settings, channels=tuple(replace(one, clock=own) for one in loaded.settings.channels))
        for own in ("own", "shared")
    }
    stream = [
        event
        for part in parts
        for event in (
            [to_event(SettingsChange(clocks["own" if part else "shared"]), "c", "s")]
            if isinstance(part, bool)
            else [event_of(step, [0, 1]) for step in part]
        )
    ]
    events = [replace(one, position=number, accepted=WALL) for number, one in enumerate([*first, *stream], 1)]
    cuts = data.draw(st.lists(st.integers(len(first), len(events)), max_size=4))
    found = []
    for bounds in ([0, len(events)], [0, *sorted(cuts), len(events)]):
        known, seen = StateFold(), list[Event]()
        for start, stop in pairwise(bounds):
            for batch in known.fold(to_table(events[start:stop]), changes):
                seen += to_events(derived_of(batch.events))
        found.append((seen, known.clocks.by_name))
    assert found[0] == found[1]
