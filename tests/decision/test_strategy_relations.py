"""Relations as definitions have them, and the strategies that they ask for."""

from __future__ import annotations

import pytest

from nearcast.decision.strategies.dimensions import DIMENSIONS
from nearcast.decision.strategies.plain import CommonNode
from nearcast.decision.strategies.relations import bound_of, strategy_of
from nearcast.decision.strategies.rings import RangeRing, SpeedBound
from nearcast.decision.strategies.seam import Bound
from nearcast.errors import Fault, Mark
from nearcast.language.relation_document import relation_data, relation_document
from nearcast.model.relation import Relation, Strategy

HERE = Mark("here", 1)


def relation(when: str, **further: object) -> Relation:
    sides = {"id": "r", "a": {"entity": "p"}, "b": {"entity": "q"}}
    return relation_document({**sides, "when": when, **further}, HERE)


@pytest.mark.parametrize(
    ("when", "bound"),
    [
        ("distance(a, b) < 10", Bound(DIMENSIONS["places"], 10.0, "<", 3.0)),
        ("S_DWITHIN(a.position, b.position, 500)", Bound(DIMENSIONS["places"], 500.0, "<=", 3.0)),
        ("a.price / b.earnings < 15", Bound(DIMENSIONS["ratio"], 15.0, "<", 3.0)),
        ("a.price / b.earnings >= 1.5", Bound(DIMENSIONS["ratio"], 1.5, ">=", 3.0)),
        ("a.price / a.earnings + b.x < 15", None),
        ("distance(a, b) < a.range + b.range", None),
        ("distance(a, b) < 10 AND a.x > b.x", None),
    ],
)
def test_a_predicate_is_a_bound_where_it_compares_one_reading_with_a_number(when: str, bound: Bound | None) -> None:
    """Distances and ratios; anything else is for the common node."""
    assert bound == bound_of(relation(when, margin=3))


def test_a_relation_has_the_strategy_that_it_asks_for() -> None:
    """Without one, the common node."""
    assert CommonNode() == strategy_of(relation("distance(a, b) < 10"))
    assert RangeRing(0.2) == strategy_of(relation("distance(a, b) < 10", strategy={"name": "range-ring", "share": 0.2}))
    asked = {"name": "speed-bound", "a": 1, "b": 20}
    assert SpeedBound(a=1, b=20) == strategy_of(relation("distance(a, b) < 10", strategy=asked))


def test_a_gathering_is_for_the_common_node() -> None:
    """No guard of two serves the count of many."""
    crowd = {"id": "g", "among": "type = 'car'", "within": 50, "count": 3}
    found = relation_document(crowd, HERE)
    assert bound_of(found) is None
    with pytest.raises(Fault, match="for the strategy shared-ring, got another predicate"):
        strategy_of(Relation(found.id, found.about, strategy=Strategy("shared-ring")), HERE)


def test_a_strategy_and_its_parameters_come_back() -> None:
    """Through a document."""
    asked = {"name": "speed-bound", "speed": 20, "trust": True}
    found = relation("distance(a, b) < 10", strategy=asked)
    assert Strategy("speed-bound", {"speed": 20, "trust": True}) == found.strategy
    assert found == relation_document(relation_data(found), HERE)
