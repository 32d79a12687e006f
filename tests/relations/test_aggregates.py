"""Aggregates over a time in the predicates of relations: what they are of, and that time alone changes what holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.geo.distance import distance
from nearcast.importers import ais
from nearcast.language.cloudevents import read_event
from nearcast.model.changes import ClockTick, RelationRemoval
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.relations import pairs, stage
from nearcast.relations.aggregates import windowed_rows
from nearcast.relations.reports import micros_of
from nearcast.relations.stage import RelationStage
from nearcast.state.stream_clocks import StreamClocks
from nearcast.state.timeline import Excess
from nearcast.testing.relations import Reference
from tests.relations.stories import HERE, Restarted, Step, at, defined, events_told, placed, report, summary
from tests.relations.test_lateness import expected, late
from tests.relations.test_stage import off, shards
from tests.shared import shared

ENTITIES = ("a", "b", "c", "d")

FORMS = (
    {"when": "distance(a, b) <= 10 AND AVG(a.size, 5 s) > 1"},
    {"when": "AVG(a.size, 4 s) < b.size", "margin": 0.5},
    {"when": "AVG(a.size, 4 s) = AVG(b.size, 4 s)"},
    {"when": "distance(a, b) <= 10 AND MAX(a.size, 3 s) >= 2 AND COUNT(b.size, 6 s, 2) >= 2"},
    {"when": "distance(a, b) <= 10 AND NOT (SUM(a.size, 5 s) > 3)", "lasting": 3, "detect": ["enter", "dwell", "exit"]},
    {"when": "distance(a, b) < MIN(a.size, 5 s) * 10", "time_to_live": 6},
    {"when": "MAX(a.size, 4 s) - MIN(b.size, 4 s) > 1", "time_to_live": 3, "lasting": 2},
    {"a": {"entity": "a"}, "b": {"entity": "b"}, "when": "RATE(a.size, 6 s) > RATE(b.size, 6 s)"},
    {"a": {"entity": "c"}, "b": "type = 'car'", "when": "COUNT(a.type, 3 s) > COUNT(b.type, 5 s)"},
    {"b": "type = 'bus'", "when": "distance(a, b) <= 10 OR AVG(b.size, 5 s) > 1"},
    {"when": "S_INTERSECTS(a.geom, b.geom) AND MAX(a.size, 4 s) > 0"},
)
OTHERS = (
    {"when": "distance(a, b) <= 10", "time_to_live": 4, "lasting": 2, "detect": ["enter", "dwell", "exit"]},
    {"among": "type = 'car'", "within": 10, "count": 3, "time_to_live": 5},
    {"a": "type = 'nearcast.relation'", "b": "type = 'car'", "when": "distance(a, b) <= 5"},
)
LIMITED = Limits(relation_begins=1, relation_burst=2, relation_partners=1, relation_pairs=3, relation_looks=2)

seconds = st.one_of(st.none(), st.integers(0, 14), st.integers(0, 14))
reports = st.builds(
    report,
    st.sampled_from(ENTITIES),
    st.one_of(st.none(), st.sampled_from([0, 5, 9.5, 20])),
    st.just(0),
    seconds,
    seconds,
    type=st.sampled_from(["car", "car", "car", "bus"]),
    size=st.sampled_from([0, 1, 2, 3.5, "big"]),
) | st.builds(report, st.sampled_from(ENTITIES), st.just(1), st.just(0), seconds)
definitions = st.builds(
    lambda number, form: defined(f"r{number}", **form), st.integers(0, 2), st.sampled_from([*FORMS, *FORMS, *OTHERS])
)
changes = st.one_of(
    definitions,
    st.integers(0, 2).map(lambda number: RelationRemoval(f"r{number}")),
    st.integers(0, 25).map(lambda second: ClockTick(at(second))),
    st.integers(0, 25).map(lambda second: ClockTick(at(second))),
)
rest = st.lists(st.one_of(*[reports] * 6, changes), max_size=30)
stories = st.tuples(st.lists(definitions, min_size=1, max_size=3), rest).map(lambda parts: [*parts[0], *parts[1]])
cuts_of = st.lists(st.integers(0, 33), max_size=6)


@settings(max_examples=120, deadline=None)
@given(stories, cuts_of, shards)
def test_the_stage_tells_what_the_reference_tells(story: Sequence[Step], cuts: list[int], count: int) -> None:
    """Every event, in the same order, whatever the batches, with reports that are late, and wherever ticks are."""
    cuts = [min(one, len(story)) for one in cuts]
    assert events_told(Reference(), story) == events_told(RelationStage(count), story, cuts)


@settings(max_examples=40, deadline=None)
@given(stories, cuts_of, shards)
def test_what_is_stored_and_read_between_batches_goes_on(story: Sequence[Step], cuts: list[int], count: int) -> None:
    """Windows are kept, and what aggregates were; what follows from them is made again."""
    cuts = [min(one, len(story)) for one in cuts]
    assert events_told(Reference(), story) == events_told(Restarted(count), story, cuts)


@settings(max_examples=60, deadline=None)
@given(stories, cuts_of)
def test_a_window_that_changes_brings_no_room(story: Sequence[Step], cuts: list[int]) -> None:
    """Within narrow limits of pairs the stage and the reference begin the same ones."""
    cuts = [min(one, len(story)) for one in cuts]
    found = [events_told(engine, story, own, LIMITED) for engine, own in ((Reference(), []), (RelationStage(), cuts))]
    assert found[0] == found[1]


@settings(max_examples=40, deadline=None)
@given(stories, cuts_of, st.sampled_from([1, 3]))
def test_late_reports_count_in_the_windows_of_relations_with_a_lateness(
    story: Sequence[Step], cuts: list[int], most: int
) -> None:
    """As if they had come in time; cut small, too, and stored between batches."""
    cuts, story = [min(one, len(story)) for one in cuts], [late(one) for one in story]
    story = [one for one in story if not isinstance(one, Event) or one.moment is not None]
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((windowed_rows, "TOGETHER"), (stage, "STRETCH"), (pairs, "MOST_PAIRS")):
            patch.setattr(module, name, most)
        assert expected(story) == events_told(Restarted(), story, [min(one, len(story)) for one in cuts])


@settings(max_examples=40, deadline=None)
@given(stories, st.integers(0, 30))
def test_before_what_is_due_next_a_tick_tells_nothing(story: Sequence[Step], second: int) -> None:
    """Where readings leave windows the stage says so in time."""
    told = RelationStage()
    events_told(told, [one for one in story if not isinstance(one, ClockTick)])
    until = StreamClocks.alone(micros_of(at(second)))
    assert told.next_due(until) <= 0 or [] == events_told(told, [ClockTick(at(second))])


def speeds(*told: tuple[float, str, float, float]) -> list[Event]:
    """Reports of (second, entity, x, speed)."""
    return [report(entity, x, second=second, speed=speed) for second, entity, x, speed in told]


MEAN = defined(when="distance(a, b) <= 10 AND AVG(a.speed, 10 s) > 5", b="type = 'bus'")


def timed(found: Sequence[Event]) -> list[tuple[object, ...]]:
    """What is told, and how many seconds after noon it happened."""
    return [(summary(one), (one.time - at(0)).total_seconds()) for one in found if one.time]


BUS = report("bus", 1, second=0, type="bus")


def test_a_pair_ends_as_a_reading_leaves_its_window() -> None:
    """At the microsecond after, though nothing is reported: told with the event, or tick, that brings that time."""
    story = [MEAN, BUS, *speeds((1, "a", 0, 9), (8, "a", 0, 2))]
    begun, ended = (3, "enter", "a", "bus"), (5, "exit", "a", "bus")
    found = timed(events_told(RelationStage(), [*story, report("z", second=30)]))
    assert [(begun, 1.0), (ended, 11.000001)] == found
    assert [begun, ended] == [summary(one) for one in events_told(RelationStage(), [*story, ClockTick(at(12))])]
    assert [begun] == [summary(one) for one in events_told(RelationStage(), [*story, ClockTick(at(11))])]


def test_a_pair_begins_as_a_reading_leaves_its_window() -> None:
    """The slow reading goes, the fast one stays: from that moment on the mean is above the bound, and it lasts."""
    lasting = defined(when="distance(a, b) <= 10 AND AVG(a.speed, 10 s) > 5", b="type = 'bus'", lasting=4)
    story = [lasting, BUS, *speeds((1, "a", 0, 0), (8, "a", 0, 9)), report("z", second=14), report("z", second=30)]
    # As the fast one leaves too, nothing is known any more, and that ends nothing.
    assert [((6, "dwell", "a", "bus"), 15.000001)] == timed(events_told(RelationStage(), story))


def test_between_two_reports_all_that_happens_is_told() -> None:
    """An hour that passes at once is as one that passes second by second."""
    relation = defined(when="distance(a, b) <= 10 AND AVG(a.speed, 10 s) BETWEEN 5 AND 6", b="type = 'bus'")
    story = [relation, BUS, *speeds((1, "a", 0, 9), (2, "a", 0, 9), (3, "a", 0, 1), (4, "a", 0, 8), (5, "a", 0, 8))]
    every = [report("z", second=second) for second in range(6, 60)]
    for passing in (every, every[-1:]):
        found = timed(events_told(RelationStage(), [*story, *passing]))
        assert [("enter", 12.000001), ("exit", 13.000001)] == [(one[1], second) for one, second in found]


def test_too_few_reports_are_unknown() -> None:
    """What is unknown begins nothing, and ends nothing."""
    relation = defined(when="distance(a, b) <= 10 AND AVG(a.speed, 10 s, 2) > 5", b="type = 'bus'")
    story = [relation, BUS, *speeds((1, "a", 0, 9), (5, "a", 0, 9)), report("z", second=14), report("z", second=60)]
    assert [((4, "enter", "a", "bus"), 5.0)] == timed(events_told(RelationStage(), story))


def test_a_late_report_is_in_no_window() -> None:
    """It moves nothing; with a lateness it counts as if it had come in time."""
    story = [BUS, *speeds((5, "a", 0, 2)), report("a", 0, second=4, accepted=6, speed=90), report("z", second=30)]
    assert [] == events_told(RelationStage(), [MEAN, *story])
    found = timed(events_told(Restarted(), [late(MEAN), *story]))
    assert [((5, "enter", "a", "bus"), 4.0), ((5, "exit", "a", "bus"), 14.000001)] == found


def test_reports_before_a_definition_are_in_no_window() -> None:
    """As with rules: whoever replays a journal needs to know nothing of before."""
    fast = speeds((1, "a", 0, 9), (2, "a", 0, 4))
    other = defined("other", when="distance(a, b) <= 10 AND MAX(a.speed, 10 s) > 8", b="type = 'bus'")
    story = [MEAN, BUS, fast[0], other, fast[1], *speeds((3, "a", 0, 9))]
    assert [(3, "r"), (6, "other")] == [
        (one.position, dict(one.attributes)["relation"]) for one in events_told(RelationStage(), story)
    ]


def test_readings_beyond_a_limit_make_an_aggregate_unknown() -> None:
    """Until those that are left out would be too old; it is counted once for each, with its sender."""
    story = [MEAN, BUS, *speeds(*((second / 2, "a", 0, 0) for second in range(1, 6)), (5, "a", 0, 90))]
    story.append(report("z", second=16))
    assert [((8, "enter", "a", "bus"), 5.0)] == timed(events_told(RelationStage(), story))
    for name in ("window_readings", "windows_readings"):
        limits, excess = replace(Limits(), **{name: 3}), Counter[Excess]()
        found = events_told(RelationStage(), story, limits=limits, excess=excess)
        assert ([((9, "enter", "a", "bus"), 11.500001)], {("s", "car", name): 3}) == (timed(found), excess)


def test_windows_of_entities_that_are_silent_take_no_memory() -> None:
    """All their readings leave as time passes."""
    engine = RelationStage()
    events_told(engine, [MEAN, *(report(f"car-{number}", 0, second=1, speed=1) for number in range(50))])
    assert 50 == engine._windows.readings.total
    events_told(engine, [report("z", second=30)])
    assert (0, {}) == (engine._windows.readings.total, engine._windows._due)


def test_only_named_entities_have_windows_where_all_sides_are_named() -> None:
    """What others report of the attribute is not kept."""
    engine = RelationStage()
    named = defined(a={"entity": "a"}, b={"entity": "b"}, when="AVG(a.speed, 5 s) > AVG(b.speed, 5 s)")
    events_told(engine, [named, *speeds((1, "a", 0, 9), (2, "c", 0, 9), (3, "b", 0, 2))])
    assert 2 == engine._windows.readings.total


def test_the_end_of_a_relation_with_geometries_leaves_others_be() -> None:
    """Whoever reports first after it has a place among all again."""
    story = [
        defined("spatial", when="S_INTERSECTS(a.geom, b.geom)"),
        defined("other", when="a.size < b.size"),
        report("a", 0, second=1, size=1),
        RelationRemoval("spatial"),
        report("b", 0, second=2, size=2),
    ]
    assert events_told(Reference(), story, range(5)) == events_told(RelationStage(), story, range(5))


@pytest.mark.data
def test_ships_off_a_coast_have_the_means_that_a_table_gives() -> None:
    """Of real ships within 5 km of each other those pairs hold in the end whose means, found by pandas, are so."""
    documents = islice(filter(off, ais.events(shared("data/ais_us_20220103/AISdata.csv.gz"))), 150)
    events = [placed(read_event(one, HERE), number) for number, one in enumerate(documents, 2)]
    events = sorted(events, key=lambda one: micros_of(one.moment))
    when = "distance(a, b) <= 5000 AND AVG(a.speed, 10 min) > 2 * MAX(b.speed, 5 min) + 0.05"
    relation = defined("faster", a="type = 'vessel'", b="type = 'vessel'", when=when)
    found = events_told(RelationStage(), [relation, *events], [40, 41, 90])
    holding = set[tuple[str, str]]()
    for _, detect, a, b, *_ in map(summary, found):
        holding = holding | {(a, b)} if detect == "enter" else holding - {(a, b)}
    assert _by_table(events) == holding and len(found) > 10
    assert found == events_told(RelationStage(1), [relation, *events], range(0, 150, 50))


def _by_table(events: Sequence[Event]) -> set[tuple[str, str]]:
    """The pairs of which the predicate was TRUE as it was last known: at all moments of change, by pandas."""
    speeds = [next(iter(one.values("speed")), None) for one in events]
    rows = zip([one.entity for one in events], [micros_of(one.moment) for one in events], speeds, strict=True)
    ships = dict(list(pd.DataFrame(rows, columns=["ship", "moment", "speed"]).groupby("ship")))
    steps = {(micros_of(one.moment), 1, number): one for number, one in enumerate(events)}
    last = max(moment for moment, *_ in steps)
    for number, one in enumerate(events):
        for span in (600, 300):
            leaving = micros_of(one.moment) + span * 1_000_000 + 1
            steps |= {(leaving, 0, number): one} if leaving <= last else {}
    places, means, most, held = {}, {}, {}, {}
    for (moment, reports, _), event in sorted(steps.items(), key=lambda one: one[0]):
        ship = event.entity
        known = ships[ship][ships[ship]["moment"] < moment + reports]["speed"]
        moments = ships[ship]["moment"]
        means[ship] = known[moments >= moment - 600_000_000].mean()
        most[ship] = known[moments >= moment - 300_000_000].max()
        places |= {ship: event.place} if reports else {}
        for other in places.keys() - {ship}:
            near = distance(places[ship], places[other]) <= 5000
            for a, b in ((ship, other), (other, ship)):
                # Without a value the comparison is unknown, and what is unknown changes nothing.
                if not near or not (pd.isna(means[a]) or pd.isna(most[b])):
                    held[a, b] = near and bool(means[a] > 2 * most[b] + 0.05)
    return {pair for pair, holds in held.items() if holds}
