"""Counts of entities in rules: who counts, where and for how long; three truths; what is kept, and what is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nearcast.cli.explain_rule import rule_data, rule_lines
from nearcast.cli.explain_text import situation_lines
from nearcast.errors import Mark
from nearcast.geo.dynamic_index import level_of
from nearcast.language.cql2 import parse
from nearcast.model.changes import Change, ClockTick, SituationRemoval
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.situations.counts.counted_reports import IndexedEntityCounts
from nearcast.situations.counts.entity_counts import UNKNOWN, CountedArea, EntityTally, count_of, truth_of_count
from nearcast.situations.readings import ContextReading, SituationCentre
from nearcast.situations.stage import UNCOUNTED, SituationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.stream_clocks import StreamClocks
from nearcast.testing.situations import PlainEntityCounts, PlainScene
from tests.situations.scenes import START, advanced, data_of, defined, ends, inferred, phases, rule, table_of, told
from tests.situations.test_lasting import END, seen
from tests.situations.test_stage import restarted

SCENES = pytest.mark.parametrize("scene", [None, PlainScene], ids=["indexed", "plain"])
PEOPLE = "uform(kind = 'person' AND role <> 'crew')"


def crowd(least: int, **fields: Any) -> Any:
    """A rule that so many people together are a hazard."""
    return rule("crowd", "Hazard", f"count({PEOPLE}) >= {least}", **{"valid": None, **fields})


def person(
    second: float, entity: str, x: float | None = 0, role: str | None = "guest", came: float | None = None
) -> Any:
    """A report of a person at x metres; without a role it is unknown whether it is of the crew."""
    known = {} if role is None else {"role": role}
    return told(second, entity, x, came, kind="person", **known)


def thing(second: float, entity: str, x: float | None = 0) -> Event:
    """A report of what is no person."""
    return told(second, entity, x, kind="lift", role="guest")


def staged(scene: type[PlainScene] | None) -> SituationStage:
    return SituationStage(scene) if scene else SituationStage()


@SCENES
def test_enough_entities_around_one_are_a_situation(scene: type[PlainScene] | None) -> None:
    """Each counts once, by its newest report; who does not satisfy the conditions does not count."""
    events = [
        person(0, "a", 0),
        person(1, "a", 10),
        thing(2, "lift", 20),
        person(3, "c", 20, role="crew"),
        person(4, "far", 500),
        person(5, "b", 60),
        person(6, "d", 90),
        person(7, "a", 300),
    ]
    found = inferred([crowd(3)], events, staged(scene))
    assert [(7, "crowd", "begin"), (8, "crowd", "end")] == phases(found)
    assert [(8, "false")] == ends(found)
    [one] = data_of(found[0])["evidence"]
    assert {"condition": PEOPLE, "count": {"counted": 3, "unknown": 0, "newest": ["d", "b", "a"]}} == one
    assert (3, {"x": 90.0, "y": 0.0}) == (data_of(found[0])["count"], data_of(found[0])["position"])
    assert f"{PEOPLE}: 3, the newest d, b, a" in "\n".join(situation_lines(data_of(found[0])))


@SCENES
def test_who_satisfies_the_conditions_no_longer_counts_no_longer(scene: type[PlainScene] | None) -> None:
    """Where it is does not matter then."""
    events = [person(0, "a"), person(1, "b"), person(2, "b", role="crew"), person(3, "b", 5)]
    found = inferred([crowd(2)], events, staged(scene))
    assert [(2, "crowd", "begin"), (3, "crowd", "end"), (4, "crowd", "begin")] == phases(found)


@SCENES
def test_a_report_counts_for_as_long_as_it_is_valid(scene: type[PlainScene] | None) -> None:
    """To the last microsecond, also where time passes by itself; who reports again counts on."""
    stage = staged(scene)
    events = [person(0, "a"), person(2, "b"), person(8, "a"), person(9, "c", 500)]
    found = advanced(stage, defined([crowd(2, valid=10)]), table_of(events))
    assert [(2.0, "crowd", "begin")] == seen(found)
    later = int(START.timestamp() + 11) * 1_000_000
    assert 1_000_001 == stage.next_due(StreamClocks.alone(later))
    ended = advanced(stage, [(5, ClockTick(START + timedelta(seconds=13)))], table_of([], 5))
    assert [(12.000001, "crowd", "false")] == seen(ended)


@SCENES
def test_a_late_report_changes_nothing(scene: type[PlainScene] | None) -> None:
    """Neither one that would let an entity count, nor one that would not, nor one of one that never counted."""
    late = [person(3, "b", 0, came=6), person(3, "a", 500, came=7), person(4, "c", 0, came=8)]
    events = [person(5, "a"), person(5, "b", role="crew"), thing(5, "c"), *late, person(9, "d")]
    found = inferred([crowd(2)], events, staged(scene))
    assert [(7, "crowd", "begin")] == phases(found)


@SCENES
def test_it_is_unknown_where_it_rests_on_those_of_whom_it_is(scene: type[PlainScene] | None) -> None:
    """Without a role nobody knows whether one is of the crew. Neither the rule nor its negation holds then."""
    few = rule("few", "Drill", f"NOT count({PEOPLE}) >= 3", valid=None)
    events = [person(0, "a"), person(1, "b", role=None), person(2, "c", role=None), person(3, "d"), person(4, "e")]
    stage = staged(scene)
    found = inferred([crowd(3), few], events, stage)
    assert [(1, "few", "begin"), (3, "few", "end"), (5, "crowd", "begin")] == phases(found)
    assert [(3, "unknown")] == ends(found)
    lines = _explained(stage, events[:4], crowd(3), scene)
    assert "UNKNOWN  count(uform(kind = 'person' AND role <> 'crew')) >= 3" in lines
    assert "(2 count; of 2 more it is unknown whether they count: c, b)" in lines
    lines = _explained(stage, events, crowd(3), scene)
    assert "(3 count, the newest of them e, d, a)" in lines


def _explained(stage: SituationStage, events: Sequence[Event], one: Any, scene: type[PlainScene] | None) -> str:
    stage = staged(scene)
    inferred([one], events, stage)
    finding = stage.find(one.id, events[-1])
    assert rule_data(finding)["conditions"][0]["count"]["counted"] == finding.conditions[0].count.counted  # type: ignore[union-attr]
    return "\n".join(rule_lines(finding))


@SCENES
def test_who_is_in_a_place_counts_there(scene: type[PlainScene] | None) -> None:
    """However far apart: by outline, by name, or by a list; who leaves it does not, wherever to."""
    inside = crowd(3, within=None, area="building-7")
    events = [
        person(0, "a", 0),
        person(1, "out", 60),
        person(2, "inside", None),
        told(3, "b", None, kind="person", role="guest", place="building-7"),
        person(4, "a", 60),
    ]
    found = inferred([inside], events, staged(scene))
    assert [(4, "crowd", "begin"), (5, "crowd", "end")] == phases(found)


@SCENES
def test_of_a_place_there_is_one_situation_wherever_its_reports_come_from(scene: type[PlainScene] | None) -> None:
    """Too few are in the building: each report of somebody outside says so, and one situation begins."""
    few = rule("few", "Fire", f"count({PEOPLE}) < 2", within=None, area="building-7", valid=None)
    events = [person(second, name, 500 + second) for second, name in enumerate("abcd")]
    events += [person(10, "a", 10), person(11, "b", 20), person(12, "b", 700), person(13, "c", 800)]
    found = inferred([few], events, staged(scene))
    assert [(1, "few", "begin"), (6, "few", "end"), (7, "few", "begin")] == phases(found)


@SCENES
def test_counts_stand_beside_other_conditions(scene: type[PlainScene] | None) -> None:
    """Hot, and few people around: it begins with the reading, and ends when more come."""
    hot = rule("hot", "Fire", f"Temperature > 80 AND count({PEOPLE}) < 2", valid=None)
    events = [person(0, "a"), told(1, "t", 10, Temperature=90, kind="sensor")]
    events += [person(2, "b", 20), person(3, "b", 200)]
    found = inferred([hot], events, staged(scene))
    assert [(2, "hot", "begin"), (3, "hot", "end")] == phases(found)
    assert [1] == [one["count"]["counted"] for one in data_of(found[0])["evidence"] if "count" in one]


@SCENES
def test_margin_and_for_are_those_of_other_conditions(scene: type[PlainScene] | None) -> None:
    """What is there holds on while not more than the margin have left, and ends after having failed for so long."""
    lasting = crowd(3, begin=5.0, end=2.0, margins=((f"count({PEOPLE})", 1.0),))
    names = "abc"
    events = [person(number, one) for number, one in enumerate(names)]
    events += [person(10, "a", 500), person(20, "b", 500), person(21, "b"), person(21.5, "a")]
    events += [person(30, "b", 500), person(30, "a", 500), END]
    found = inferred([lasting], events, staged(scene))
    assert [(7.0, "crowd", "begin"), (32.0, "crowd", "false")] == seen(found)


@SCENES
def test_a_rule_counts_the_reports_behind_its_definition(scene: type[PlainScene] | None) -> None:
    """Also where another rule counts the same, in places as around."""
    stage = staged(scene)
    area = {"within": None, "area": "building-7"}
    ones = [crowd(9), rule("other", "Drill", f"count({PEOPLE}) >= 9", **area)]
    advanced(stage, defined(ones), table_of([person(0, "a"), person(1, "b")]))
    more = [rule("later", "Alarm", f"count({PEOPLE}) >= 2"), rule("inside", "Drill", f"count({PEOPLE}) >= 2", **area)]
    changes = [(3, change) for _, change in defined(more)[1:]]
    found = advanced(stage, changes, table_of([person(2, "c"), person(3, "a")], 3))
    assert [(5, "later", "begin"), (5, "inside", "begin")] == phases(found)


@pytest.mark.parametrize("where", [{}, {"within": None, "area": "building-7"}], ids=["around", "in a place"])
def test_a_rule_that_counts_begins_after_a_restart(where: dict[str, Any]) -> None:
    """Those who reported before count, and whoever makes it enough is seen to."""
    stage = SituationStage()
    advanced(stage, defined([crowd(3, **where)]), table_of([person(0, "a"), person(1, "b")]))
    assert [(3, "crowd", "begin")] == phases(advanced(restarted(stage), [], table_of([person(2, "c")], 2)))


def test_what_is_counted_is_stored_where_rules_are_made_ready_later() -> None:
    """As a rule went, and nothing has come since."""
    stage = SituationStage()
    ones = defined([crowd(3), rule("other", "Drill", "Button = TRUE")])
    advanced(stage, ones, table_of([person(0, "a"), person(1, "b")]))
    advanced(stage, [(3, SituationRemoval("other"))], table_of([]))
    assert [(4, "crowd", "begin")] == phases(advanced(restarted(stage), [], table_of([person(2, "c")], 3)))


# Metres from a corner, at heights; on the globe the same in degrees, beside the antimeridian.
SPOTS = st.one_of(
    st.none(),
    st.builds(Place, st.just("planar"), st.integers(-30, 30), st.integers(-30, 30), st.sampled_from([None, 0.0, 12.0])),
    st.builds(
        lambda x, y: Place("geographic", -180 + x / 1e5 if x > 0 else 180 + x / 1e5, y / 1e5),
        st.integers(-30, 30),
        st.integers(-30, 30),
    ),
)
REPORTS = st.lists(st.tuples(st.integers(0, 20), SPOTS, st.sampled_from([True, True, False, UNKNOWN])), max_size=20)


@given(
    REPORTS,
    SPOTS,
    st.sampled_from([0.0, 5.0, 22.3, 100.0]),
    st.sampled_from([None, 8]),
    st.integers(0, 6),
)
def test_cells_count_whom_the_reference_counts(
    reports: list[Any], here: Place | None, metres: float, valid: int | None, least: int
) -> None:
    """On the plane, at heights and on the globe: as far as a comparison asks, and for who asks for all of them."""
    count = count_of(parse(f"count({PEOPLE}) >= {least}", Mark("here"), over_time=True))  # type: ignore[arg-type]
    assert count is not None
    cells, plain = IndexedEntityCounts(), PlainEntityCounts({count.name})
    cells.prepare({count.name: {level_of(metres)}}, frozenset())
    for number, (moment, place, value) in enumerate(reports):
        report = ContextReading(count.name, value, f"e{number % 7}", place, moment, number)
        cells.put_reports([report], moment)
        plain.put_report(report)
    area = CountedArea(SituationCentre("e0", here), metres, None, 2, valid)
    assert {*plain.found(count.name, area, 20)} == {*cells.found(count.name, area, 20)}
    both = [truth_of_count(count, one.tally(count, area, 20)) for one in (plain, cells)]
    assert both[0] == both[1]


def test_who_is_forgotten_counts_no_longer() -> None:
    """It is told with the next event."""
    stage = SituationStage()
    advanced(stage, defined([crowd(2)]), table_of([person(0, "a"), person(1, "b")]))
    stage.forget(["a", "nobody"])
    assert [(3, "crowd", "end")] == phases(advanced(stage, [], table_of([thing(2, "lift", 900)], 2)))


def test_more_than_are_kept_leave_it_unknown_where_that_matters() -> None:
    """Those who came first count on; it is counted and explained, and is over once the others would be too old."""
    stage, limits = SituationStage(), Limits(counted_entities=2)
    ones = [crowd(2, valid=10), rule("many", "Drill", f"count({PEOPLE}) >= 3", valid=10)]
    events = [person(second, one) for second, one in enumerate("abcd")]
    assert [(2, "crowd", "begin")] == phases(_limited(stage, defined(ones), events, 0, limits))
    assert {(PEOPLE, UNCOUNTED): 2} == stage.refused
    lines = "\n".join(rule_lines(stage.find("many", events[-1])))
    assert "UNKNOWN" in lines and "at most 2 entities are counted, and there were more" in lines
    _limited(stage, [], [person(14, "b"), person(15, "a")], 4, limits)
    assert "FALSE" in "\n".join(rule_lines(stage.find("many", person(15, "a"))))


def _limited(
    stage: SituationStage, changes: Sequence[tuple[int, Change]], events: list[Event], after: int, limits: Limits
) -> list[Event]:
    known = Registry(Settings(limits=limits))
    return stage.derive(StageInput(changes, {}, table_of(events, after), known, Repository()))


def test_ordinary_crowds_meet_no_limit() -> None:
    """A full stadium, in which everybody reports."""
    stage = SituationStage()
    events = [person(number / 1000, f"p{number}", number % 40) for number in range(5_000)]
    found = inferred([crowd(5_000, within=None, area="building-7")], events, stage)
    assert ([(5_000, "crowd", "begin")], {}) == (phases(found), stage.refused)


@pytest.mark.parametrize(
    ("expected", "comparison", "counted", "unknown"),
    [
        (True, ">= 3", 3, 0),
        (None, ">= 3", 2, 1),
        (False, ">= 3", 1, 1),
        (True, "< 3", 1, 1),
        (None, "< 3", 2, 1),
        (False, "< 3", 3, 9),
        (None, "= 3", 2, 2),
        (False, "= 3", 4, 2),
        (True, "= 3", 3, 0),
        (None, "<> 3", 2, 1),
        (True, "> 2.5", 3, 0),
        (False, "= 2.5", 2, 1),
        (None, "IN (1, 3)", 2, 2),
        (False, "IN (1, 4)", 2, 1),
        (True, "BETWEEN 2 AND 4", 2, 2),
        (None, "BETWEEN 2 AND 4", 2, 3),
    ],
)
def test_a_comparison_is_known_where_it_is_the_same_for_all_that_may_be(
    expected: bool | None, comparison: str, counted: int, unknown: int
) -> None:
    """Of so many it is known that they count, of so many more it is not."""
    atom = parse(f"count({PEOPLE}) {comparison}", Mark("here"), over_time=True)
    assert isinstance(atom, Atom)
    count = count_of(atom)
    assert count is not None
    assert expected is truth_of_count(count, EntityTally(counted, unknown))


# Of each event: seconds after the one before, how late it comes, who, where, and of which role.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 4),
        st.sampled_from("abcde"),
        st.sampled_from([0, 30, 60, None]),
        st.sampled_from(["guest", "guest", "crew", None, "thing"]),
    ),
    max_size=25,
)


def events_of(steps: Iterable[tuple[int, int, str, float | None, str | None]]) -> list[Event]:
    """Events that come in order, and tell of moments some of which are late."""
    came, found = 5.0, []
    for step, late, entity, x, role in steps:
        came += step
        if role == "thing":
            found.append(told(came - late, entity, x, came, kind="lift", role="guest"))
        else:
            found.append(person(came - late, entity, x, role, came))
    return found


def in_cuts(stage: SituationStage, rules: Sequence[Any], events: Sequence[Event], cuts: Sequence[int]) -> list[Event]:
    """What is derived of events in batches of these sizes."""
    found = advanced(stage, defined(rules), table_of([]))
    bounds = [0, *sorted({cut for cut in cuts if cut < len(events)}), len(events)]
    for first, last in pairwise(bounds):
        found += advanced(stage, [], table_of(events[first:last], first))
    return found


VALID = st.sampled_from([None, 6])


@given(STEPS, st.integers(1, 3), VALID, st.sampled_from([0, 4]), st.lists(st.integers(1, 24), max_size=3))
def test_indexes_and_cuts_change_nothing(
    steps: list[Any], least: int, valid: float | None, lateness: float, cuts: list[int]
) -> None:
    """The outcome is that of looking at every report, around and in places, with margins and times to hold."""
    rules = [
        crowd(least, valid=valid, lateness=lateness, within=40),
        rule("inside", "Drill", f"count({PEOPLE}) >= {least}", valid=valid, within=None, area="building-7"),
        rule("few", "Fire", f"count({PEOPLE}) < {least}", valid=valid, within=40, lateness=lateness),
        rule("some", "Alarm", f"count({PEOPLE}) >= 3", valid=valid, within=40, margins=((f"count({PEOPLE})", 1.0),)),
        rule("upper", "Emergency", "Hazard AND NOT Drill", valid=valid, end=2.0),
    ]
    events = [*events_of(steps), END]
    plain = in_cuts(SituationStage(PlainScene), rules, events, [])
    assert [one.payload for one in plain] == [one.payload for one in in_cuts(SituationStage(), rules, events, cuts)]


@given(STEPS, st.integers(1, 3), VALID)
@example([(0, 0, "a", 0, "guest"), (0, 0, "b", 0, None), (0, 0, "b", 0, "guest")], 2, None)
def test_a_place_has_a_situation_while_enough_are_in_it(steps: list[Any], least: int, valid: float | None) -> None:
    """As a few lines of Python find it: reports in the order of their moments, each late by less than is awaited."""
    inside = crowd(least, valid=valid, within=None, area="building-7", lateness=5)
    events = events_of(steps)
    found = inferred([inside], [*events, END])
    spans = [(data_of(one)["since"], data_of(one)["phase"], data_of(one)["moment"]) for one in found]
    assert list(_by_hand(events, least, valid)) == [(phase, moment) for _, phase, moment in spans]


def _by_hand(events: Iterable[Event], least: int, valid: float | None) -> Iterable[tuple[str, str]]:
    newest: dict[str, Event] = {}
    places: dict[str, float] = {}
    running = False
    # As the stage has it: of one moment by entity, then as they came.
    ordered = sorted(enumerate(events), key=lambda one: (one[1].moment, one[1].entity, one[0]))
    for _, event in ordered:
        now = event.moment
        assert now is not None
        if running and valid is not None:
            lapses = _lapse(newest, places, least, valid, now)
            if lapses is not None:
                running = False
                yield "end", _text(lapses)
        newest[event.entity] = event
        if event.place is not None:
            places[event.entity] = event.place.x
        enough = len(_inside(newest, places, now, valid)) >= least
        if running and not enough:
            running = False
            yield "end", _text(now)
        elif not running and enough and event in _inside(newest, places, now, valid):
            running = True
            yield "begin", _text(now)
    if running and valid is not None:
        lapses = _lapse(newest, places, least, valid, END.moment)
        if lapses is not None:
            yield "end", _text(lapses)


def _inside(newest: dict[str, Event], places: dict[str, float], now: Any, valid: float | None) -> list[Event]:
    known = [(one, dict(one.attributes), places.get(name)) for name, one in newest.items()]
    counted = [
        one
        for one, told_, x in known
        if told_["kind"] == "person" and told_.get("role", "crew") != "crew" and x is not None and 0 <= x <= 50
    ]
    fresh = timedelta.max if valid is None else timedelta(seconds=valid)
    return [one for one in counted if one.moment is not None and now - one.moment <= fresh]


def _lapse(newest: dict[str, Event], places: dict[str, float], least: int, valid: float, until: Any) -> Any:
    """The first moment up to another at which not enough are fresh any more."""
    reported = sorted(one.moment for one in newest.values() if one.moment is not None)
    for moment in reported:
        lapses = moment + timedelta(seconds=valid, microseconds=1)
        if lapses <= until and len(_inside(newest, places, lapses, valid)) < least:
            return lapses
    return None


def _text(moment: Any) -> str:
    return str(moment.isoformat()).replace("+00:00", "Z")
