"""Relations that can never hold: taken, but hardly meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nearcast.errors import Fault, Mark
from nearcast.language import cql2
from nearcast.language.never_holding import LONGEST, excluded, never_holding, types_of
from nearcast.language.trees import all_of, any_of
from nearcast.model.expression import COMPARISONS, Call, Constant, Expression
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, atoms
from nearcast.model.relation import HERE, Matching, Pair, Relation
from nearcast.model.subscription import Settings


def warnings_of_relations(relations: Sequence[Relation], settings: Settings) -> Iterator[Fault]:
    """A warning for each predicate, and each side's filter, that nothing can satisfy."""
    types = types_of(settings)
    for relation in relations:
        about = relation.about
        sides = (about.a, about.b) if isinstance(about, Pair) else (about.among,)
        for side in dict.fromkeys(sides):
            if isinstance(side, Matching):
                yield from never_holding(side.filter, types=types)
        if isinstance(about, Pair):
            yield from _of_predicate(about.when)


def warnings_of_nodes(relations: Sequence[Relation], node: str) -> Iterator[Fault]:
    """A warning for each relation that is local to another entry node than that of all the events at hand."""
    for relation in relations:
        if relation.node not in (None, HERE, node):
            expected = f"the relation {relation.id} local to {node}, where these events count as entered"
            advice = "it sees none of them; --node names another node"
            yield Fault(expected, f"one local to {relation.node}", _where(relation), advice)


def _where(relation: Relation) -> Mark | None:
    """Where a relation's first condition is written, as far as it has one."""
    about = relation.about
    if isinstance(about, Pair):
        return next(atoms(about.when)).where
    return next(atoms(about.among.filter)).where if isinstance(about.among, Matching) else None


def _of_predicate(predicate: Filter) -> Iterator[Fault]:
    """What of a predicate can never hold: an atom by itself, else all of it together."""
    found = list(never_holding(predicate))
    yield from found
    if not found and excluded(_plain(predicate, {})):
        shown = cql2.write(predicate)
        came = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
        first = next(atoms(predicate)).where
        yield Fault("conditions that can hold together", came, first, "its atoms exclude one another")


def _plain(node: Filter, names: dict[Expression, str]) -> Filter:
    """The predicate with every value of both sides, a distance or a difference, as an attribute with a name of its own.

    That is what conditions can be held against each other for; an attribute is taken to have one value in an event.
    """
    if isinstance(node, (And, Or)):
        join = all_of if isinstance(node, And) else any_of
        return join([_plain(child, names) for child in node.children])
    if isinstance(node, Not):
        return Not(_plain(node.child, names))
    assert isinstance(node, Atom), "a predicate has no other negation"
    call = node.name
    if not isinstance(call, Call) or call.function not in COMPARISONS or not isinstance(call.arguments[1], Constant):
        return node
    value, bound = call.arguments[0], call.arguments[1].value
    return Atom(names.setdefault(value, f"v{len(names)}"), Operator(call.function), bound)  # type: ignore[arg-type]
