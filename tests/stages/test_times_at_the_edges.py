"""Events of any time that may be published: none is lost, nothing is told twice, and nobody else is affected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.cli.system import define
from nearcast.errors import EventError, Mark
from nearcast.journal.memory import MemoryJournal
from nearcast.language.cloudevents import EventReader
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event
from nearcast.model.subscription import Channel
from nearcast.model.values import time_text
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HERE = Mark("here")
PAIR = {"a": "type = 'cart'", "b": "type = 'cart'", "when": "distance(a, b) <= 10"}
DOCK = {"type": "Polygon", "coordinates": [[[-2, -5], [7, -5], [7, 5], [-2, 5], [-2, -5]]]}
HALL = {"coordinates": "planar", "of": "type = 'cart'", "features": [{"id": "dock", "geometry": DOCK}]}
TOLD = {"detect": ["enter", "dwell", "exit"], "for": "10 s", "time_to_live": "30 s"}
MEAN = "AVG(Heat, 5 min) > 60 AND RATE(Heat, 1 h) < 1"
DEFINED: dict[str, Any] = {
    "channels": {"yard": {"coordinates": "planar"}},
    "relations": [
        {"id": "near", **PAIR, **TOLD},
        {"id": "patient", **PAIR, **TOLD, "lateness": "5 s"},
        {"id": "crowd", "among": "type = 'cart'", "within": 50, "count": 3, **TOLD},
    ],
    "zones": {"hall": {**HALL, **TOLD}},
    "ontology": {"classes": {"Heat": {"unit": "°C", "within": 1}}, "situations": {"Hot": {}}},
    "situations": [
        {"id": "hot", "class": "Hot", "when": "Heat > 60", "valid": "10 s", "for": "3 s"},
        {"id": "mean", "class": "Hot", "when": MEAN, "valid": "10 s", "for": "3 s", "lateness": "5 s"},
    ],
    "clients": [{"id": "ann"}],
    "subscriptions": [{"id": "all", "client": "ann", "filter": "type = 'cart'"}],
}
DAY = timedelta(days=1)
EDGES = [
    None,
    "1970-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999999Z",
    "1969-07-20T20:17:40.5+05:30",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00.000001+00:00",
    "2016-12-31T23:59:60Z",
    "2016-12-31t23:59:60.999999999z",
    "2017-01-01T05:29:60.25+05:30",
    "2026-03-01T11:59:59.123456789-00:00",
    "2026-03-02T02:00:00.1+14:00",
]
"""Times that may be published at any moment of a story, some of them ahead."""


class Step(NamedTuple):
    """So many seconds after the step before it a cart reports that it is somewhere, with a time that is written so."""

    seconds: float
    cart: str
    x: float
    time: str | None

    @property
    def honest(self) -> bool:
        """Whether it is of a sender whose clock is right."""
        return self.cart.isupper()


seconds = st.sampled_from([0.0, 0.000001, 1.0, 4.0, 11.0, 31.0])
places = st.sampled_from([0.0, 5.0, 12.0, 100.0])
honest_steps = st.builds(Step, seconds, st.sampled_from(["A", "B", "C"]), places, st.none())
edge_steps = st.builds(Step, seconds, st.sampled_from(["x", "y"]), places, st.sampled_from([*EDGES, "ahead"]))
stories = st.lists(honest_steps | edge_steps, max_size=25)


@cache
def definitions() -> tuple[Event, ...]:
    """The control events of the definitions."""
    journal = MemoryJournal()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "definitions.yaml"
        path.write_text(yaml.safe_dump(DEFINED))
        define(journal, files.load([path]))
    return tuple(replace(event, accepted=NOON) for event in to_events(journal.read("events", 0, 1_000)))


def published(story: Sequence[Step], channels: Sequence[Channel] = ()) -> list[Event]:
    """The events as an access server takes them, behind the definitions; the last one of a cart far away."""
    accepted, found = NOON, list(definitions())
    for number, step in enumerate([*story, Step(100, "Z", 5000, None)]):
        accepted += timedelta(seconds=step.seconds)
        time = time_text(accepted) if step.honest else step.time
        time = time_text(accepted + DAY) if time == "ahead" else time
        document = {
            "specversion": "1.0",
            "id": f"e{number}",
            "source": "yard",
            "type": "cart",
            "subject": step.cart,
            "data": {"x": step.x, "y": 0, "Heat": 80},
        } | ({"time": time} if time else {})
        found.append(EventReader(channels, accepted).read(document, HERE))
    return [replace(event, position=position) for position, event in enumerate(found, 1)]


def decided(events: Sequence[Event], cuts: Sequence[int] = ()) -> tuple[list[Event], list[int]]:
    """What is told, in the order of its sequence, and the positions that are delivered."""
    known, told, delivered = StateFold(), list[Event](), list[int]()
    table, start = to_table(events), len(definitions())
    places = sorted({0, *(start + cut for cut in cuts if start + cut < len(events)), len(events)})
    for first, last in pairwise(places):
        for batch in known.fold(table.slice(first, last - first), changes):
            told += to_events(derived_of(batch.events))
            delivered += decide(batch, batch.events).column("position").to_pylist()
    assert [] == known.refusals
    return told, delivered


def of_others(told: Sequence[Event]) -> list[tuple[object, ...]]:
    """What is told of pairs of senders whose clocks are right, and of each in a zone, and of what time."""
    found = []
    for event in told:
        data = orjson.loads(event.payload)["data"]
        names = (data["a"], data["b"]) if "relation" in data else (data.get("entity", ""),)
        # Not gatherings, whose members may be anybody.
        if all(isinstance(name, str) and name.isupper() for name in names):
            what = data.get("relation") or data["layer"]
            found.append((what, *names, data["detect"], data["since"], event.time))
    return sorted(found, key=str)


@settings(max_examples=20)
@given(stories, st.lists(st.integers(1, 24), max_size=3))
def test_nothing_is_lost_or_told_twice_and_nobody_else_is_affected(story: list[Step], cuts: list[int]) -> None:
    """Pairs of others tell what they tell without these events, as of the same times, however the journal is cut."""
    events = published(story)
    told, delivered = decided(events, cuts)
    assert [event.position for event in events if event.type == "cart"] == delivered
    assert told == decided(events)[0]
    last: dict[tuple[str, ...], str] = {}
    for event in told:
        data = orjson.loads(event.payload)["data"]
        if "relation" in data:
            key = (data["relation"], data["a"], data["b"] if isinstance(data["b"], str) else "")
            assert (
                last.get(key)
                in {"enter": (None, "exit"), "dwell": ("enter",), "exit": ("enter", "dwell")}[data["detect"]]
            )
            last[key] = data["detect"]
    assert of_others(_without_edges(story)) == of_others(told)


def test_such_stories_tell_of_others() -> None:
    """Of a pair of which both begin, last and end, among senders of all edges: the comparison is not of nothing."""
    edges = [Step(1, "xy"[n % 2], 5, time) for n, time in enumerate([*EDGES, "ahead"])]
    story = [Step(0, "A", 0, None), Step(0, "B", 5, None), *edges, Step(30, "C", 100, None)]
    told, _ = decided(published(story))
    words = {(what, word) for what in ("near", "patient", "hall") for word in ("dwell", "enter", "exit")}
    assert words == {(one[0], one[-3]) for one in of_others(told)}
    assert of_others(_without_edges(story)) == of_others(told)


def _without_edges(story: Sequence[Step]) -> list[Event]:
    """What is told without the events at the edges, those of the others at the same moments."""
    kept, waited = list[Step](), 0.0
    for step in story:
        waited += step.seconds
        if step.honest:
            kept.append(step._replace(seconds=waited))
            waited = 0.0
    return decided(published([*kept, Step(waited, "Z", 5000, None)]))[0]


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59.999999Z", "2026-03-02T12:00:11Z", "0001-01-01T00:00:00+00:01"])
def test_what_is_further_ahead_or_no_time_is_refused(time: str) -> None:
    """With what came; where the channel goes by arrival it is taken, as of its acceptance."""
    story = [Step(10, "A", 0, None), Step(0, "x", 5, time)]
    with pytest.raises(EventError, match="time"):
        published(story)
    if not time.startswith("0001"):
        taken = published(story, [Channel("yard", "planar", (), order="arrival")])
        assert NOON + timedelta(seconds=10) == taken[-2].time


@settings(max_examples=10)
@given(
    st.lists(st.sampled_from([*EDGES, "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999-00:00"]), max_size=8)
)
def test_of_files_any_time_counts(times: list[str | None]) -> None:
    """There it stands for the acceptance, too; nothing fails, and every event is decided."""
    steps = [Step(0, "xyA"[n % 3], 0, None) for n in range(len(times))]
    events = published(steps)
    read = [event for event in events if event.type == "cart"]
    stated = [
        EventReader().read({**orjson.loads(e.payload), "time": t}, HERE)
        for e, t in zip(read, [*times, None], strict=True)
    ]
    whole = [*events[: len(definitions())], *stated]
    whole = [replace(event, position=position, accepted=None) for position, event in enumerate(whole, 1)]
    told, delivered = decided(whole)
    assert [event.position for event in whole if event.type == "cart"] == delivered
    assert told == decided(whole, [1, 3, 5])[0]
