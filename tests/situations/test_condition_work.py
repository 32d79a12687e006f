"""Conditions of rules that compare geometries of readings share the work that is allowed (semantics §12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.cli.explain_rule import rule_lines
from nearcast.model.changes import SettingsChange, SituationChange, SituationRemoval
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.model.ontology import ContextClass
from nearcast.model.subscription import Settings
from nearcast.situations.geometries import condition_work
from nearcast.situations.stage import SituationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.timeline import Excess
from nearcast.testing.situations import PlainScene
from tests.relations.test_boxes import notched, square
from tests.situations import scenes
from tests.situations.scenes import ends, phases, rule, told
from tests.situations.test_stage import restarted

SPENT = "event_geometry_work"

ONTOLOGY = replace(scenes.ONTOLOGY, classes=(*scenes.ONTOLOGY.classes, ContextClass("Outline"), ContextClass("Burnt")))

Step = Event | SituationChange | SituationRemoval


def told_in(
    story: Sequence[Step], limits: Limits, cuts: Iterable[int] = (), plainly: bool = False
) -> tuple[SituationStage, list[Event], Counter[Excess]]:
    """What is derived of a story in batches, put away between these, and what came to a limit."""
    stage, found, excess = SituationStage(PlainScene) if plainly else SituationStage(), list[Event](), Counter[Excess]()
    own = Settings(ontology=ONTOLOGY, limits=limits)
    for first, last in pairwise(sorted({0, *cuts, len(story)})):
        steps = list(enumerate(story[first:last], first + 1))
        changes = [(at, one) for at, one in steps if not isinstance(one, Event)]
        events = to_table(replace(one, position=at) for at, one in steps if isinstance(one, Event))
        if first and not plainly:
            stage = restarted(stage)
        begin = [] if first else [(0, SettingsChange(own))]
        found += stage.derive(StageInput([*begin, *changes], {}, events, Registry(own), Repository(), excess=excess))
    return stage, found, excess


CONDITIONS = (
    "S_INTERSECTS(Outline, POINT(1 1))",
    "S_INTERSECTS(Outline, Burnt) AND Smoke = TRUE",
    "S_OVERLAPS(Outline, Burnt) OR Smoke = TRUE",
    "NOT S_INTERSECTS(Outline, BBOX(0, 0, 2, 2)) AND Temperature > 80",
    "S_DWITHIN(Outline, Burnt, 100000) AND NOT S_TOUCHES(Outline, Burnt)",
    "(S_INTERSECTS(Outline, BBOX(1, 1, 3, 3)) OR Temperature > 80) AND Smoke = TRUE",
    "S_INTERSECTS(Outline, Burnt) AND count(uform(Smoke = TRUE)) >= 2",
    "S_INTERSECTS(Outline, Burnt) AND MAX(Temperature, 8 s) > 50",
)
UPPER = (
    "Fire",
    "Fire AND S_INTERSECTS(Outline, BBOX(2, 2, 4, 4))",
    "NOT Fire AND Smoke = TRUE",
    "S_OVERLAPS(Burnt, BBOX(0, 0, 3, 3))",
)

shapes = st.sampled_from([square(0, 0, 2), square(1, 1, 2), square(1, 1, 3), notched(0, 0), notched(1, 1), "none"])
reports = st.builds(
    lambda second, entity, x, read: told(second, entity, x, **read),
    st.integers(0, 40),
    st.sampled_from("abcd"),
    st.sampled_from([None, 0, 0, 30, 60, 110, 400]),
    st.fixed_dictionaries(
        {},
        optional={
            "Outline": shapes,
            "Burnt": shapes,
            "Smoke": st.booleans(),
            "Temperature": st.sampled_from([20, 81, 96]),
        },
    ),
)
rules = st.builds(
    lambda lower, upper, necessary, wide, valid, area, lateness, lasting, margins: [
        rule("fire", "Fire", lower, within=wide, valid=valid, lateness=lateness, begin=lasting[0], end=lasting[1],
             margins=margins),
        rule("alarm", "Alarm", upper, within=None if area else wide, valid=2 * valid,
             area="building-7" if area else None),
        *([rule("needed", "Fire", "S_INTERSECTS(Outline, BBOX(2, 2, 3, 3))", within=50, sufficient=False)] * necessary),
    ],
    st.sampled_from(CONDITIONS),
    st.sampled_from(UPPER),
    st.booleans(),
    st.sampled_from([50, 100]),
    st.sampled_from([3, 10]),
    st.booleans(),
    st.sampled_from([0, 0, 2]),
    st.sampled_from([(0, 0), (0, 0), (2, 0), (0, 3)]),
    st.sampled_from([(), (), (("Temperature", 10.0),)]),
)  # fmt: skip


@st.composite
def stories(draw: st.DrawFn) -> list[Step]:
    """Rules, reports in the order of time, and perhaps a rule that comes or goes between them."""
    story: list[Step] = sorted(draw(st.lists(reports, min_size=4, max_size=20)), key=lambda one: one.time)
    own = [SituationChange(one) for one in draw(rules)]
    more = st.one_of(rules.map(lambda found: SituationChange(found[0])), st.just(SituationRemoval("alarm")))
    for change in draw(st.lists(more, max_size=1)):
        story.insert(draw(st.integers(0, len(story))), change)
    return [*own, *story]


@settings(max_examples=150, deadline=None)
@given(stories(), st.sampled_from([6_000_000, 8_000, 3_000, 600, 1]), st.lists(st.integers(1, 22), max_size=4))
def test_what_is_undecided_is_so_in_the_reference(story: list[Step], units: int, cuts: list[int]) -> None:
    """And counted as often: whatever rules come and go, in any batches, with restarts between them."""
    limits = Limits(event_geometry_work=units)
    _, expected, counted = told_in(story, limits, plainly=True)
    _, found, excess = told_in(story, limits, [cut for cut in cuts if cut < len(story)])
    assert [(one.position, one.payload) for one in expected] == [(one.position, one.payload) for one in found]
    assert counted == excess


AREAS = [f"POLYGON((0 0, {x} 1, {x} 9, 0 8, 0 0))" for x in range(2, 42)]


def crossing(areas: Sequence[str], **fields: float | None) -> list[SituationChange]:
    """A rule for each area, that an outline crosses it."""
    whens = (f"S_INTERSECTS(Outline, {area})" for area in areas)
    return [SituationChange(rule(f"r{n}", "Hazard", when, **fields)) for n, when in enumerate(whens)]


def test_the_conditions_of_all_rules_share_the_work_of_one_report() -> None:
    """Those that were defined first come first; of the others it is counted and explained, and all have as much again
    with the next report.
    """
    van, limits = told(1, "van", Outline=square(0, 0, 7)), Limits(event_geometry_work=10_000)
    stage, found, excess = told_in([*crossing(AREAS), van], limits)
    begun = [id for _, id, _ in phases(found)]
    assert [f"r{n}" for n in range(len(begun))] == begun and 3 < len(begun) < 20
    assert {("van", "Outline", SPENT): 40 - len(begun)} == excess
    last = "\n".join(rule_lines(stage.find("r39", van)))
    assert "UNKNOWN" in last and "takes more than 10,000 units of work for all rules together" in last
    assert "UNKNOWN" not in "\n".join(rule_lines(stage.find("r0", van)))
    assert [40] == [len(told_in([*crossing(AREAS), van], Limits())[1])]


def test_what_is_running_goes_on_where_no_work_is_left_for_it() -> None:
    """Until it is looked at again: a long outline ends none that it does not let be decided."""
    limits = Limits(event_geometry_work=20_000)
    story: list[Step] = [*crossing(AREAS[:5]), told(1, "van", Outline=square(0, 0, 7))]
    parts = [[[x / 100, 20], [x / 100 + 1, 0], [x / 100 + 1, 21], [x / 100, 20]] for x in range(300)]
    bent = f'{{"type": "MultiLineString", "coordinates": {parts}}}'
    _, found, excess = told_in([*story, told(2, "bus", Outline=bent)], limits)
    assert (["begin"] * 5, []) == ([phase for *_, phase in phases(found)], ends(found))
    assert {("bus", "Outline", SPENT)} == set(excess)
    away = [told(3, "bus", Outline=square(50, 50, 1)), told(4, "van", Outline=square(50, 50, 1))]
    _, found, _ = told_in([*story, told(2, "bus", Outline=bent), *away], limits)
    assert [(9, "false")] * 5 == ends(found)


@pytest.mark.parametrize("together", [True, False])
def test_what_falls_due_at_one_moment_shares_as_much(together: bool) -> None:
    """Each moment by itself, whatever brings the time."""
    moments = [2, 2] if together else [2, 3]
    # Behind each place one reading gets too old, and another one is there.
    story: list[Step] = crossing(AREAS[:2], valid=20, within=10)
    for number, second in enumerate(moments):
        story += [told(second, f"old{number}", 1000 * number, Outline=square(0, 0, 7))]
        story += [told(second + 5, f"new{number}", 1000 * number, Outline=square(0, 0, 7))]
    story.sort(key=lambda one: one.time.timestamp() if isinstance(one, Event) and one.time else 0)
    limits = Limits(event_geometry_work=2_000)
    _, found, excess = told_in([*story, told(24.5, "clock", 9_000)], limits)
    # What rests on the old readings is looked at again, with the new ones, and goes on.
    assert not ends(found)
    assert ({("new1", "Outline", SPENT): 2} if together else {}) == excess


def test_each_situation_has_as_much_where_rules_are_defined() -> None:
    """So none rests on how many others there are."""
    limits = Limits(event_geometry_work=1_000)
    vans = [told(1, f"van{n}", 1_000 * n, Outline=square(0, 0, 7)) for n in range(6)]
    other = SituationChange(rule("other", "Hazard", "Smoke = TRUE"))
    _, found, excess = told_in([*crossing(AREAS[:1]), *vans, other, told(2, "bus", 50_000)], limits)
    assert ([(id, "begin") for id in ["r0"] * 6], {}) == ([(id, phase) for _, id, phase in phases(found)], excess)


def test_looks_that_are_known_as_undecided_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones are, and none that was decided since."""
    monkeypatch.setattr(condition_work, "LISTED", 2)
    known = condition_work.ConditionLimits()
    looks = [("r", number, "van", None) for number in range(4)]
    for look in looks:
        known.note(look, False)
    known.note(looks[3], True)
    assert [looks[2]] == list(known.undecided)
