"""The stage that evaluates relations tells what the plain reference tells, however the journal is cut."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.importers import ais
from nearcast.importers.event_documents import Document
from nearcast.language.cloudevents import read_event
from nearcast.model.changes import ClientChange, ClientRemoval, ClockTick, RelationRemoval
from nearcast.model.event import Event
from nearcast.relations import gatherings
from nearcast.relations.reports import micros_of
from nearcast.relations.stage import RelationStage
from nearcast.relations.transition_events import Transition
from nearcast.state.stream_clocks import StreamClocks
from nearcast.testing.relations import Reference
from tests.relations.stories import HERE, Restarted, Step, at, defined, events_told, report, summary
from tests.shared import shared

ENTITIES = ("a", "b", "c", "d")
FORMS = (
    {},
    {"when": "distance(a, b) < 10", "margin": 3},
    {"when": "distance(a, b) <= 0"},
    {"a": {"entity": "a"}, "b": {"entity": "b"}, "when": "distance(a, b) < 10", "margin": 3, "lasting": 5},
    {"a": {"entity": "a"}, "b": {"entity": "b"}, "time_to_live": 6},
    {"a": {"entity": "c"}, "time_to_live": 6, "lasting": 4, "detect": ["enter", "dwell", "exit"]},
    {"b": "type = 'bus'", "detect": ["exit"]},
    {"when": "distance(a, b) <= 10 AND a.size < b.size", "margin": 5},
    {"when": "distance(a, b) > 10 OR a.size = b.size"},
    {"a": {"entity": "a"}, "b": {"entity": "b"}, "when": "a.size - b.size < 2", "margin": 1},
    {"when": "S_INTERSECTS(a.geom, b.geom)"},
    {"when": "S_WITHIN(a.geom, b.geom) AND a.size < 3"},
    {"among": "type = 'car'", "within": 10, "count": 3, "margin": 2},
    {"among": {"client": "ann", "list": "team"}, "within": 20, "count": 2, "time_to_live": 5, "lasting": 3},
    {"a": "type = 'nearcast.relation'", "b": "type = 'car'", "when": "distance(a, b) <= 5"},
    {"a": "type = 'nearcast.relation'", "b": "type = 'nearcast.relation'", "when": "a.distance < b.distance"},
)
WALKED = (
    {
        "when": "distance(a, b) <= 8",
        "margin": 2,
        "time_to_live": 20,
        "lasting": 4,
        "detect": ["enter", "dwell", "exit"],
    },
    {"a": {"entity": "a"}, "when": "distance(a, b) <= 15"},
    {"a": "type = 'car' AND size < 2", "when": "distance(a, b) < 12 AND a.size < b.size"},
    {"among": "type = 'car'", "within": 9, "count": 3, "margin": 2, "time_to_live": 15},
    {"among": "type = 'car'", "within": 20, "count": 4, "lasting": 3, "detect": ["enter", "dwell", "exit"]},
)
"""Relations for many that walk about."""

GEOGRAPHIC = tuple(degrees for degrees in (179.99995, -179.99995, 180.0, -180.0, 179.9999, 0.0, 0.00009))

seconds = st.one_of(st.none(), st.integers(0, 12))
planar = st.builds(
    report,
    st.sampled_from(ENTITIES),
    st.one_of(st.none(), st.sampled_from([0, 3, 5, 9.5, 10, 10.5, 13, 20, 1000])),
    st.sampled_from([0, 0, 4, 10]),
    seconds,
    seconds,
    type=st.sampled_from(["car", "car", "car", "bus"]),
    size=st.sampled_from([0, 1, 2, 3.5, "big"]),
)
SQUARE = '{"type": "Polygon", "coordinates": [[[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]]]}'
POINT = '{"type": "Point", "coordinates": [0.5, 0]}'
geographic = st.builds(
    report,
    st.sampled_from(ENTITIES),
    st.sampled_from(GEOGRAPHIC),
    st.sampled_from([0.0, 0.00009, 89.99999, -90.0]),
    seconds,
    geographic=st.just(True),
    geom=st.sampled_from(["nothing", SQUARE, POINT]),
)
definitions = st.builds(lambda number, form: defined(f"r{number}", **form), st.integers(0, 2), st.sampled_from(FORMS))
lists = st.lists(st.sampled_from(ENTITIES), max_size=4, unique=True)
changes = st.one_of(
    definitions,
    definitions,
    st.integers(0, 2).map(lambda number: RelationRemoval(f"r{number}")),
    lists.map(lambda entities: ClientChange("ann", lists={"team": tuple(entities)})),
    st.just(ClientRemoval("ann")),
    st.just(ClientChange("ann", lists={"team": ENTITIES})),
    st.integers(0, 20).map(lambda second: ClockTick(at(second))),
)


def steps(reports: st.SearchStrategy[Event]) -> st.SearchStrategy[list[Step]]:
    """Stories that begin with a definition or two."""
    rest = st.lists(st.one_of(*[reports] * 6, changes), max_size=30)
    start = st.lists(changes, max_size=3)
    return st.tuples(start, rest).map(lambda parts: [*parts[0], *parts[1]])


shards = st.sampled_from([1, 2, 3, 7])
stories = st.one_of(steps(planar), steps(geographic), steps(st.one_of(planar, geographic)))


@settings(max_examples=300, deadline=None)
@given(stories, st.data())
def test_the_stage_tells_what_the_reference_tells(story: Sequence[Step], data: st.DataObject) -> None:
    """Every event, in the same order, whatever the batches, and however many shards there are."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    expected = events_told(Reference(), story)
    assert expected == events_told(RelationStage(data.draw(shards)), story, cuts)


@settings(max_examples=50, deadline=None)
@given(stories)
def test_the_reference_itself_does_not_depend_on_batches(story: Sequence[Step]) -> None:
    """One batch for each step tells the same."""
    assert events_told(Reference(), story) == events_told(Reference(), story, range(len(story)))


@settings(max_examples=50, deadline=None)
@given(stories)
def test_a_history_published_at_once_tells_what_its_replay_tells(story: Sequence[Step]) -> None:
    """Durations are those between the reports' own times, however fast these come in."""
    of_time = [one for one in story if not isinstance(one, Event) or one.time is not None]
    read = [replace(one, accepted=one.time) if isinstance(one, Event) else one for one in of_time]
    published = [replace(one, accepted=at(3600)) if isinstance(one, Event) else one for one in of_time]
    replayed, live = (events_told(RelationStage(), steps) for steps in (read, published))
    assert [(one.sequence, one.payload) for one in replayed] == [(one.sequence, one.payload) for one in live]


def test_a_report_of_tomorrow_silences_nobody() -> None:
    """A time ahead of its acceptance counts as that: what the entity reports next is newer."""
    story: list[Step] = [
        defined(),
        report("a", 0, second=0),
        report("b", 1000, second=23 * 3600, accepted=1),
        report("b", 0, second=2),
    ]
    [enter] = events_told(RelationStage(), story)
    assert (4, "enter") == (enter.position, dict(enter.attributes)["detect"])
    late = [*story, report("b", 1000, second=1.5, accepted=3)]
    assert [enter] == events_told(RelationStage(), late), "what is late moves nothing"


@settings(max_examples=50, deadline=None)
@given(stories, st.data())
def test_its_state_can_be_stored(story: Sequence[Step], data: st.DataObject) -> None:
    """A stage goes on after a restart as if there had been none."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    assert events_told(Reference(), story) == events_told(Restarted(data.draw(shards)), story, cuts)


@settings(max_examples=100, deadline=None)
@given(stories, st.integers(0, 30))
def test_before_what_is_due_next_a_tick_tells_nothing(story: Sequence[Step], second: int) -> None:
    """So a clock that goes on by itself needs no tick before then."""
    stage = RelationStage()
    events_told(stage, [one for one in story if not isinstance(one, ClockTick)])
    until = StreamClocks.alone(micros_of(at(second)))
    assert stage.next_due(until) <= 0 or [] == events_told(stage, [ClockTick(at(second))])


def walk(seed: int, geographic: bool) -> list[Step]:
    """Ten cars that walk about within 40 m, across the antimeridian; some reports are late, some of a bus."""
    chance = random.Random(seed)
    places = {name: (chance.uniform(0, 40), chance.uniform(0, 40)) for name in "abcdefghij"}
    story: list[Step] = [defined(f"r{number}", **form) for number, form in enumerate(WALKED)]
    for second in range(80):
        name = chance.choice("abcdefghij")
        x, y = (one + chance.gauss(0, 4) for one in places[name])
        places[name] = (x, y)
        if geographic:
            x, y = (x / 111_320 + 179.9999 + 180) % 360 - 180, y / 111_320
        when = second - chance.choice([0, 0, 0, 0, 5])
        kind = chance.choice(["car"] * 9 + ["bus"])
        size = chance.choice([0, 1, 2])
        story.append(report(name, x, y, when, second, type=kind, geographic=geographic, size=size))
    return story


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.lists(st.integers(5, 85), max_size=3), shards)
def test_many_that_walk_about(seed: int, geographic: bool, cuts: list[int], count: int) -> None:
    """Pairs, named ones among them, and gatherings of ten walkers."""
    story = walk(seed, geographic)
    assert events_told(Reference(), story) == events_told(RelationStage(count), story, cuts)


@pytest.mark.data
def test_ships_off_a_coast() -> None:
    """Real reports of ships in one stretch of water, in the order of the file, which is not that of time."""
    documents = filter(off, ais.events(shared("data/ais_us_20220103/AISdata.csv.gz")))
    reports = [read_event(document, HERE) for document in islice(documents, 100)]
    relations = [
        defined("near", a="type = 'vessel'", b="type = 'vessel'", when="distance(a, b) <= 500", margin=100),
        defined("slow", a="type = 'vessel'", b="type = 'vessel'", when="distance(a, b) <= 900 AND a.speed < b.speed"),
    ]
    story = [*relations, *reports]
    expected = events_told(Reference(), story)
    assert all(expected == events_told(RelationStage(count), story, [50, 51, 80]) for count in (1, 2, 7))
    assert len(expected) > 20


def off(document: Document) -> bool:
    """Whether a report is of the waters off San Diego."""
    data = document["data"]
    return -117.3 < data["lon"] < -117.1 and 32.6 < data["lat"] < 32.8


def test_at_a_deadline_itself_nothing_is_looked_for() -> None:
    """Many reports of the very moment through which others count cost no look at all members each."""
    stage, looks = RelationStage(), 0
    crowd = gatherings.GatheringState.expire

    def expire(self: gatherings.GatheringState, now: int) -> Iterator[Transition]:
        """Counts how often it is looked for what lapses."""
        nonlocal looks
        looks += 1
        return crowd(self, now)

    first = [report(f"car-{number}", number, second=0) for number in range(50)]
    then = [report(f"bus-{number}", number, second=60, type="bus") for number in range(200)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gatherings.GatheringState, "expire", expire)
        events_told(stage, [defined(among="type = 'car'", within=2, count=2, time_to_live=60), *first, *then])
        assert looks < 5
        silent = events_told(stage, [report("bus-0", 0, second=61, type="bus")])
    assert {"silent"} == {summary(event)[-1] for event in silent}


def test_many_late_reports_cost_one_look_at_all_entities() -> None:
    """What counts of those that late reports would replace is looked up together; relations begin with it."""
    stage, looks = RelationStage(), 0
    find = RelationStage._newest

    def newest(self: RelationStage, *more: Any) -> pa.Table:
        """Counts how often all entities are gone through."""
        nonlocal looks
        looks += 1
        return find(self, *more)

    cars = range(40)
    steps = [defined("other", a={"entity": "x"}, b={"entity": "y"}), *(report(f"{n}", 10 * n, second=9) for n in cars)]
    late = [report(f"{n}", 1000, second=1, accepted=20) for n in cars]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RelationStage, "_newest", newest)
        events_told(stage, [*steps, *late, defined(when="distance(a, b) <= 5")], [41])
    assert looks < 8
    assert [] == events_told(stage, [report("z", 1000, second=30)])
    assert [("enter", "0", "z")] == [summary(event)[1:4] for event in events_told(stage, [report("z", 1, second=31)])]
