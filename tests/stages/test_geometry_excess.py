"""Geometries that come to a limit in relations and location terms: UNKNOWN by the limits that are set, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from nearcast.errors import Mark
from nearcast.language.control_events import changes
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import Change, ClientChange, RelationChange, SettingsChange
from nearcast.model.event import Event, Place
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from nearcast.state.timeline import Excess
from tests.relations.test_boxes import square
from tests.stages.test_adapt import subscribed
from tests.stages.test_stages import as_table

HERE = Mark("here")
ZONE = Event("z", "zone", "city", "zone", None, Place("geographic", 0, 0), (("geom", square(0, 0, 2)),))
CAR = Event("c", "car", "fleet", "car", None, Place("geographic", 1, 1))
LITTLE = SettingsChange(Settings(limits=Limits(geometry_work=60)))


def excess_and_told(story: Sequence[Event | Change]) -> tuple[Counter[Excess], int, int]:
    """What came to a limit, and how many events were derived and delivered."""
    excess, derived, delivered = Counter[Excess](), 0, 0
    for batch in StateFold().fold(as_table(story), changes):
        delivered += len(decide(batch, batch.events))
        derived += len(derived_of(batch.events))
        excess += batch.around.excess
    return excess, derived, delivered


RELATIONS = (
    {"a": "type = 'car'", "b": "type = 'zone'", "when": "S_INTERSECTS(a, b.geom)"},
    {"a": {"entity": "car"}, "b": "type = 'zone'", "when": "S_INTERSECTS(a, b.geom) OR S_WITHIN(a, b.geom)"},
    {"a": "type = 'car'", "b": "S_INTERSECTS(geom, POINT(1 1))", "when": "distance(a, b) < 1000000"},
    {"among": "type = 'car' OR S_INTERSECTS(geom, POINT(1 1))", "within": 1_000_000, "count": 2},
)


@pytest.mark.parametrize("form", RELATIONS)
@pytest.mark.parametrize("at", [0, 2])
def test_relations_keep_to_the_limits_that_are_set(form: dict[str, object], at: int) -> None:
    """In predicates and in the filters of their sides, also of what is known when they are defined."""
    relation = RelationChange(relation_document({"id": "in", **form}, HERE))
    story: list[Event | Change] = [ZONE, CAR]
    story.insert(at, relation)
    excess, derived, _ = excess_and_told(story)
    assert (Counter(), True) == (excess, derived > 0)
    excess, derived, _ = excess_and_told([LITTLE, *story])
    assert ({("city", "zone", "geometry_work")}, 0) == (set(excess), derived)


def test_location_terms_keep_to_the_limits_that_are_set() -> None:
    """In the conditions of what they ask for."""
    text = "count(uform(S_INTERSECTS(geom, POINT(1 1)))) > 0 AND type = 'car'"
    story = [ClientChange("ann"), ZONE, subscribed("around", text=text), ZONE, CAR]
    excess, _, delivered = excess_and_told(story)
    assert (Counter(), 1) == (excess, delivered)
    excess, _, delivered = excess_and_told([LITTLE, *story])
    assert {("city", "zone", "geometry_work")} == set(excess)
    assert 0 == delivered
