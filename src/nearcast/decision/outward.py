"""What may be wanted, as filters that rest on the event alone: a publisher can hold its events against them.

They select whatever `Interest` wants, and more: what else a filter rests on (where a client is) may be so or not, and
negation that also holds of the unknown, which CQL2 cannot say, may hold of anything. Each filter comes in its
alternatives, for a routing table covers and merges conjunctions best.
"""

from __future__ import annotations

from itertools import product
from math import prod

from nearcast.decision.evaluate import UNDER_NOT, UNDER_PLAIN_NOT, Wanted
from nearcast.decision.wanted import Open, Wish, rests_on_more
from nearcast.model.expression import Call
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, PlainNot, atoms

ALL = Atom(Call("TRUE", ()), Operator.EQ, True)
"""Selects every event."""

ALTERNATIVES = 16
"""A conjunction of disjunctions that would have more alternatives than this stays as it is."""


def outward(wish: Wish, is_open: Open = rests_on_more) -> tuple[Filter, ...] | None:
    """The filters of a wish, each once; None: it may want any event. Atoms that are open may have any truth."""
    # Not `source` where there is no subject: data that is named `subject` would be taken for one.
    found: list[Filter] = [
        Atom(name, Operator.EQ, entity) for entity in wish.entities for name in ("subject", "source")
    ]
    for filter in wish.filters:
        seen = _seen(filter, Wanted.TRUE, is_open)
        if seen is None:
            return None
        found += _alternatives(seen)
    return None if wish.all else tuple(dict.fromkeys(found))


def _seen(node: Filter, wanted: Wanted, is_open: Open) -> Filter | None:
    """The filter that selects the events of which a filter's truth may be as wanted; None: any event."""
    if isinstance(node, Atom):
        if is_open(node) or wanted in (Wanted.NOT_TRUE, Wanted.NOT_FALSE):
            return None
        return node if wanted is Wanted.TRUE else Not(node)
    if isinstance(node, (Not, PlainNot)):
        under = UNDER_NOT if isinstance(node, Not) else UNDER_PLAIN_NOT
        return _seen(node.child, under[wanted], is_open)
    parts = [_seen(child, wanted, is_open) for child in node.children]
    kept = tuple(part for part in parts if part is not None)
    if isinstance(node, And) == wanted.joint:
        return And(kept) if kept else None
    return Or(kept) if len(kept) == len(parts) else None


def _alternatives(node: Filter) -> list[Filter]:
    """Filters of which one selects an event where this one does. What is about one name alone is kept together."""
    if isinstance(node, Or):
        return [one for child in node.children for one in _alternatives(child)]
    if not isinstance(node, And):
        return [node]
    choices = [
        [child] if len({atom.name for atom in atoms(child)}) == 1 else _alternatives(child) for child in node.children
    ]
    if prod(map(len, choices)) > ALTERNATIVES:
        return [node]
    return [And(one) if len(one) > 1 else one[0] for one in product(*choices)]
