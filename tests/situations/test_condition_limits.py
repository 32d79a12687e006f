"""Conditions of rules that compare geometries keep to the limits of the settings."""

from __future__ import annotations

from collections import Counter

from nearcast.model.changes import SettingsChange
from nearcast.model.limits import Limits
from nearcast.model.ontology import ContextClass, Ontology, SituationClass
from nearcast.model.subscription import Settings
from nearcast.situations.stage import SituationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.timeline import Excess
from tests.relations.test_boxes import square
from tests.situations.scenes import defined, phases, rule, table_of, told

ONTOLOGY = Ontology(classes=(ContextClass("Outline"), ContextClass("Smoke")), situations=(SituationClass("Alarm"),))
INSIDE = rule("inside", "Alarm", "S_INTERSECTS(Outline, POINT(1 1))")


def outcome(limits: Limits) -> tuple[list[tuple[int, str, str]], Counter[Excess], SituationStage]:
    """What is inferred of an outline, which comes twice, and what came to a limit."""
    stage, excess = SituationStage(), Counter[Excess]()
    settings = Settings(ontology=ONTOLOGY, limits=limits)
    changes = [(0, SettingsChange(settings)), *defined([INSIDE], ONTOLOGY)[1:]]
    events = table_of([told(0, "plume", Outline=square(0, 0, 2)), told(1, "plume", Outline=square(0, 0, 2))])
    stage_input = StageInput(changes, {}, events, Registry(settings), Repository(), excess=excess)
    return phases(stage.derive(stage_input)), excess, stage


def test_ordinary_outlines_meet_no_limit() -> None:
    """A rule over geometries holds as any other."""
    found, excess, _ = outcome(Limits())
    assert [(1, "inside", "begin")] == found[:1]
    assert Counter() == excess


def test_a_condition_that_comes_to_a_limit_is_unknown_counted_and_explained() -> None:
    """By the entity and the class of what it compared; nothing begins."""
    found, excess, stage = outcome(Limits(geometry_work=60))
    assert ([], {("plume", "Outline", "geometry_work")}) == (found, set(excess))
    finding = stage.find("inside", told(1, "plume"))
    assert finding.truth is None
    expected = "comparing its geometries takes more than 60 units of work (limit geometry_work)"
    assert [expected] == [one.missing for one in finding.conditions]
