"""The conditions by which rules count entities share the work on an event's geometries (semantics §12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.cli.explain_rule import rule_lines
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.filters.spatial_atoms import spatial_atoms, spent_budget
from nearcast.model.changes import SituationChange, SituationRemoval
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings
from nearcast.situations.counts.entity_counts import UNKNOWN
from nearcast.situations.extract import CountedEvents, ReportedReadings
from nearcast.situations.stage import SituationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.timeline import Excess
from tests.relations.test_boxes import square
from tests.situations.scenes import data_of, defined, rule, told

AREAS = [
    "S_INTERSECTS(geom, BBOX(0, 0, 9, 9))",
    "S_INTERSECTS(geom, POLYGON((0 0, 8 0, 8 8, 4 9, 0 8, 0 0)))",
    "S_DWITHIN(geom, POINT(4 4), 3)",
    "S_INTERSECTS(geom, BBOX(50, 50, 60, 60))",
]
IDS = ["one", "other", "third"]
Step = Event | SituationChange | SituationRemoval


def counting(id: str, areas: Sequence[str]) -> Situation:
    """A rule that one entity that touches these areas is a hazard."""
    return rule(id, "Hazard", f"count(uform({' OR '.join(areas)})) >= 1", valid=None, within=3)


class PlainCountedEvents(CountedEvents):
    """Evaluates event by event: the reference."""

    def joined(
        self, table: Any, reported: Iterable[ReportedReadings], limits: Limits, excess: Counter[Excess]
    ) -> list[ReportedReadings]:
        """Whether events count, as readings."""
        spatial = [atom for one in self._conditions if one is not None for atom in spatial_atoms(one)]
        found = []
        for row, event in enumerate(to_events(table)):
            undecided = spent_budget(spatial, event, NO_CONTEXT, limits).undecided
            excess.update([(event.source, event.type, "event_geometry_work")] * len(undecided))
            truths = [one is None or truth(one, event, NO_CONTEXT, limits, undecided) for one in self._conditions]
            values = (UNKNOWN if one is None else one for one in truths)
            found.append(ReportedReadings(row, dict(zip(self.names, values, strict=True)), None))
        return found


def told_in(
    story: Sequence[Step], cuts: Iterable[int], limits: Limits
) -> tuple[SituationStage, list[Event], Counter[Excess]]:
    """What is derived of a story in batches, and what came to a limit."""
    stage, known, found, excess = SituationStage(), Registry(Settings(limits=limits)), list[Event](), Counter[Excess]()
    bounds = sorted({0, *cuts, len(story)})
    for first, last in pairwise(bounds):
        steps = list(enumerate(story[first:last], first + 1))
        changes = defined([]) if not first else []
        changes += [(at, one) for at, one in steps if not isinstance(one, Event)]
        events = to_table(replace(one, position=at) for at, one in steps if isinstance(one, Event))
        found += stage.derive(StageInput(changes, {}, events, known, Repository(), excess=excess))
    return stage, found, excess


outlines = st.sampled_from([{}, {"geom": square(0, 0, 3)}, {"geom": square(0, 0, 7)}, {"geom": square(40, 40, 15)}])
reports = st.builds(
    lambda second, entity, x, own: told(second, entity, x, **own),
    st.integers(0, 20),
    st.sampled_from("abc"),
    st.sampled_from([0, 2, 30]),
    outlines,
)
areas = st.lists(st.sampled_from(AREAS), min_size=1, max_size=2, unique=True)
rules = st.builds(counting, st.sampled_from(IDS), areas).map(SituationChange)
removals = st.sampled_from(IDS).map(SituationRemoval)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(rules, reports, reports, removals), min_size=2, max_size=16),
    st.lists(st.integers(1, 15), max_size=4),
    st.sampled_from([6_000_000, 6_000, 1_700, 100, 1]),
)
def test_who_counts_is_whom_the_reference_counts(story: list[Step], cuts: list[int], units: int) -> None:
    """As far as the work goes for the conditions that rules have then, whatever rules come and go, in any batches."""
    limits = Limits(event_geometry_work=units)
    _, found, excess = told_in(story, [cut for cut in cuts if cut < len(story)], limits)
    with patch("nearcast.situations.stage.CountedEvents", PlainCountedEvents):
        _, plain, counted = told_in(story, [], limits)
    assert [one.payload for one in plain] == [one.payload for one in found]
    assert counted == excess


def test_the_conditions_of_all_counts_share_the_work_on_an_events_geometries() -> None:
    """Fewest corners first; whether one counts behind is unknown, which is counted and explained. Else all count."""
    ones = [SituationChange(counting(id, [AREAS[area]])) for id, area in (("other", 1), ("one", 0))]
    van = told(1, "van", geom=square(0, 0, 7))
    for limits, begun, counted in (
        (Limits(event_geometry_work=1_000), {"one"}, {("s", "r", "event_geometry_work"): 1}),
        (Limits(), {"one", "other"}, {}),
    ):
        stage, found, excess = told_in([*ones, van], [], limits)
        assert begun == {data_of(one)["situation"] for one in found}
        assert counted == excess
        said = "\n".join(rule_lines(stage.find("other", van)))
        if counted:
            assert (
                "of 1 more it is unknown whether they count: van; van: comparing the event's geometries takes" in said
            )
            assert "it is number 2 of 2 atoms, fewest corners first, and 1 are decided" in said
        else:
            assert "UNKNOWN" not in said


def test_many_conditions_of_counts_take_no_more_work_than_is_allowed() -> None:
    """Of fifty areas that an outline meets ten are decided, as the work goes for; the rest are counted."""
    boxes = [f"S_INTERSECTS(geom, POLYGON((0 0, {x} 1, {x} 9, 0 8, 0 0)))" for x in range(2, 52)]
    ones = [SituationChange(counting(f"r{number}", [box])) for number, box in enumerate(boxes)]
    _, _, excess = told_in([*ones, told(1, "van", geom=square(0, 0, 7))], [], Limits(event_geometry_work=10_000))
    assert {("s", "r", "event_geometry_work"): 40} == excess
