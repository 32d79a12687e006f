"""The strategy that a relation asks for: its predicate as a bound, where it is one (SEMANTICS §7)."""

from __future__ import annotations

from nearcast.decision.relate import predicate
from nearcast.decision.strategies.choice import chosen
from nearcast.decision.strategies.dimensions import DIMENSIONS
from nearcast.decision.strategies.plain import CommonNode
from nearcast.decision.strategies.seam import Bound, Strategy
from nearcast.errors import Mark
from nearcast.model.expression import Call, Constant, Expression, Property
from nearcast.model.filter import Atom, Filter
from nearcast.model.relation import Pair, Relation
from nearcast.model.values import is_exact


def strategy_of(relation: Relation, where: Mark | None = None) -> Strategy:
    """The strategy of a relation, `common-node` if it asks for none. Raises `Fault` for one that cannot be."""
    if relation.strategy is None:
        return CommonNode()
    return chosen(relation.strategy.name, relation.strategy.parameters, bound_of(relation), where)


def bound_of(relation: Relation) -> Bound | None:
    """The bound that a relation's predicate is; None for any other predicate, and for gatherings."""
    if not isinstance(relation.about, Pair):
        return None
    near = predicate.bound_of(relation.about.when)
    if near is not None:
        return Bound(DIMENSIONS["places"], near.metres, "<=" if near.inclusive else "<", relation.margin)
    return _ratio(relation.about.when, relation.margin)


def _ratio(when: Filter, margin: float) -> Bound | None:
    """`a.NAME / b.NAME` compared with a number."""
    call = when.name if isinstance(when, Atom) else None
    if not isinstance(call, Call) or len(call.arguments) != 2:
        return None
    ratio, limit = call.arguments
    if not _of_both_sides(ratio) or not isinstance(limit, Constant) or not is_exact(limit.value):
        return None
    match call.function:
        case "<" | "<=" | ">" | ">=":
            return Bound(DIMENSIONS["ratio"], float(limit.value), call.function, margin)  # type: ignore[arg-type]
    return None


def _of_both_sides(expression: Expression) -> bool:
    """Whether an expression is an attribute of a divided by one of b."""
    if not isinstance(expression, Call) or expression.function != "/":
        return False
    names = [one.name if isinstance(one, Property) else "" for one in expression.arguments]
    return [name[:2] for name in names] == ["a.", "b."]
