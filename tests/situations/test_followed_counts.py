"""Counts as they are followed, and looked for around each report: nothing is missed that the reference sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.geo.dynamic_index import level_of
from nearcast.language.cql2 import parse
from nearcast.model.event import Event, Place
from nearcast.situations.counts.counted_reports import IndexedEntityCounts
from nearcast.situations.counts.entity_counts import UNKNOWN, CountedArea, count_of, truth_of_count
from nearcast.situations.counts.report_cells import CountLook
from nearcast.situations.readings import ContextReading, SituationCentre
from nearcast.situations.stage import SituationStage
from nearcast.testing.situations import PlainEntityCounts, PlainScene
from tests.situations.scenes import advanced, defined, phases, rule, table_of, told
from tests.situations.test_entity_counts import PEOPLE, REPORTS, SPOTS, crowd, person
from tests.situations.test_lasting import END
from tests.situations.test_stage import restarted


def counted(least: int) -> Any:
    """The comparison with so many people."""
    found = count_of(parse(f"count({PEOPLE}) >= {least}", Mark("here"), over_time=True))  # type: ignore[arg-type]
    assert found is not None
    return found


def reports_of(steps: Iterable[Any]) -> list[ContextReading]:
    """Reports of seven entities in the order of their moments."""
    ordered = sorted(steps, key=lambda one: one[0])
    return [
        ContextReading(PEOPLE, value, f"e{number % 7}", place, moment, number + 1)
        for number, (moment, place, value) in enumerate(ordered)
    ]


METRES = st.sampled_from([0.0, 5.0, 22.3, 100.0])


@given(REPORTS, SPOTS.filter(bool), METRES, st.sampled_from([None, 8]), st.integers(1, 4), st.booleans())
def test_who_follows_a_place_is_told_before_too_few_are_left(
    steps: list[Any], here: Any, metres: float, valid: int | None, least: int, promised: bool
) -> None:
    """Until it is told, or the moment has come to which that many would last, enough are there."""
    count, area = counted(least), CountedArea(SituationCentre("elsewhere", here), metres, None, 0, valid)
    cells, plain = IndexedEntityCounts(), PlainEntityCounts({count.name})
    cells.prepare({count.name: {level_of(metres)}}, frozenset())
    follower, lapses = None, 0
    for report in reports_of(steps):
        now = report.moment
        cells.put_reports([report], now)
        plain.put_report(report)
        enough = truth_of_count(count, plain.tally(count, area, now)) is True
        if follower is None and enough:
            follower = cells.follow(count.name, area)
        elif follower is None or (follower not in cells.shaken and now < lapses):
            assert enough or follower is None
            continue
        assert follower is not None
        tally = cells.tally(count, area, now)
        assert enough is (tally.counted >= least)
        if enough:
            lapses = tally.lapses
            if promised:
                cells.promise(follower, count, area, tally)
        else:
            cells.unfollow(follower)
            follower = None


@given(REPORTS, st.lists(st.tuples(METRES, st.integers(1, 4), st.sampled_from([None, 8])), max_size=6))
def test_around_each_report_that_counts_it_is_seen_whether_enough_do(steps: list[Any], looks: list[Any]) -> None:
    """For all rules at once; on the globe more may be said to pass, where only a geodesic tells."""
    cells, plain = IndexedEntityCounts(), PlainEntityCounts({PEOPLE})
    own = [CountLook(0, metres, least, valid, 2) for metres, least, valid in looks]
    cells.prepare({PEOPLE: {level_of(one.metres) for one in own}}, frozenset(), [(PEOPLE, one) for one in own])
    for report in reports_of(steps):
        cells.put_reports([report], report.moment)
        plain.put_report(report)
        if report.value is not True or report.place is None or plain.newest(*report.key) is not report:
            assert [] == cells.passing
            continue
        expected = set()
        for number, one in enumerate(own):
            area = CountedArea(report.centre, one.metres, None, 2, one.valid)
            tally = plain.tally(counted(one.enough), area, report.moment)
            expected |= {number} if tally.counted >= one.enough else set()
        assert expected <= set(cells.passing)
        if report.place.coordinates == "planar":
            assert expected == set(cells.passing)


def test_of_names_that_change_at_once_none_takes_anothers_report() -> None:
    """By one event an entity counts no longer as one thing, and begins to as another."""
    cells = IndexedEntityCounts()
    cells.prepare({"a": {5}, "b": {5}}, frozenset())
    here = Place("planar", 0, 0)
    for position, (a, b) in enumerate([(True, False), (False, True), (UNKNOWN, False), (True, True)], 1):
        values = {"b": b, "a": a}
        cells.put_reports([ContextReading(one, said, "e", here, 9, position) for one, said in values.items()], 9)
        assert values == {one.name: one.value for one in cells.everything()}
        assert {name for name, said in values.items() if said is not False} == {one.name for one in cells.counting("e")}


# Of each event: seconds after the one before, how late it comes, who, where, what; or who is forgotten before it.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([0, 0, 0, 4]),
        st.sampled_from("abcdef"),
        st.sampled_from([0, 10, 30, 45, 60, 90, None]),
        st.sampled_from(["guest", "guest", "guest", "crew", None, "thing", "hot", "forgotten"]),
    ),
    max_size=40,
)


def story(steps: Iterable[Any]) -> list[Event | str]:
    """The same as events, and names of those that are forgotten."""
    came, found = 5.0, list[Event | str]()
    for step, late, entity, x, what in steps:
        came += step
        if what == "forgotten":
            found.append(entity)
        elif what in ("thing", "hot"):
            found.append(told(came - late, entity, x, came, kind="lift", Temperature=90 if what == "hot" else 20))
        else:
            found.append(person(came - late, entity, x, what, came))
    return [*found, END]


def decided(
    stage: SituationStage,
    rules: Sequence[Any],
    steps: Sequence[Event | str],
    cuts: Iterable[int],
    restarting: bool = False,
) -> Any:
    """What is derived of a story in batches; entities are forgotten between two. If it is `restarting`, each is decided
    by the stage that is read from what the one before was stored as.
    """
    found = advanced(stage, defined(rules), table_of([]))
    names = [number for number, one in enumerate(steps) if isinstance(one, str)]
    bounds = sorted({0, len(steps), *names, *(one + 1 for one in names), *(cut for cut in cuts if cut < len(steps))})
    for first, last in pairwise(bounds):
        here = steps[first:last]
        if isinstance(here[0], str):
            stage.forget([here[0]])
        else:
            found += advanced(stage, [], table_of(here, first))  # type: ignore[arg-type]
            stage = restarted(stage) if restarting else stage
    return [(one.position, one.payload) for one in found]


AROUND_NOBODY: list[Any] = [
    (0, 0, "c", 0, "guest"),
    (0, 0, "b", 10, "guest"),
    (0, 0, "a", 20, "guest"),
    (0, 0, "b", 0, "forgotten"),
    (1, 0, "b", None, "guest"),
    (1, 0, "c", 900, "guest"),
]


@given(
    STEPS,
    st.integers(1, 3),
    st.sampled_from([None, 6.0]),
    st.sampled_from([0, 3]),
    st.lists(st.integers(1, 40), max_size=4),
    st.booleans(),
)
@example([*AROUND_NOBODY, (1, 0, "b", 90, "guest")], 2, None, 0, [], False)
@example([(0, 0, "c", 0, "guest"), (0, 0, "b", 10, "guest")], 2, None, 0, [1], True)
def test_rules_that_count_are_decided_as_the_reference_does(
    steps: list[Any], least: int, valid: float | None, lateness: float, cuts: list[int], restarting: bool
) -> None:
    """With entities that move, come late and are forgotten, and after restarts; around, in places, beside conditions
    and other counts.
    """
    guests, lifts = f"count({PEOPLE})", "count(uform(kind = 'lift'))"
    rules = [
        crowd(least, valid=valid, within=40, lateness=lateness),
        rule("wide", "Hazard", f"{guests} >= {least + 1}", valid=valid, within=70, lateness=lateness),
        rule("inside", "Drill", f"{guests} >= {least}", valid=valid, within=None, area="building-7", lateness=lateness),
        rule("hot", "Fire", f"Temperature > 80 AND {guests} >= {least}", valid=valid, within=40, lateness=lateness),
        rule("both", "Alarm", f"{guests} >= {least} AND {lifts} >= 1", valid=valid, within=40, lateness=lateness),
        rule("few", "Alarm", f"{lifts} < 2 AND {guests} > 1", valid=valid, within=40, end=1.0, lateness=lateness),
        rule("held", "Alarm", f"{guests} > {least}", valid=valid, within=40, margins=((guests, 1.0),)),
        rule("long", "Alarm", f"{guests} >= {least}", valid=valid, within=40, begin=2.0, end=2.0),
        rule("any", "Alarm", f"Temperature > 80 OR {guests} >= 4", valid=valid, within=40, lateness=lateness),
    ]
    told_of = story(steps)
    expected = decided(SituationStage(PlainScene), rules, told_of, [])
    assert expected == decided(SituationStage(), rules, told_of, cuts, restarting)


def test_one_who_counts_nowhere_counts_around_where_it_was() -> None:
    """Until it says where it is: then a situation that began there has too few."""
    stage = SituationStage()
    found = advanced(stage, defined([crowd(2, valid=None, within=40)]), table_of([]))
    for number, one in enumerate(story([*AROUND_NOBODY, (1, 0, "b", 90, "guest")])):
        if isinstance(one, str):
            stage.forget([one])
        else:
            found += advanced(stage, [], table_of([one], number))
    assert [(2, "crowd", "begin"), (7, "crowd", "end")] == phases(found)
