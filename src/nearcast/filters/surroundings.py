"""What a filter asks for besides the event itself, and which truths it can have while that is not known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from nearcast.filters.receiver_terms import asked_of_receiver
from nearcast.filters.truth import Truth, joined, negated
from nearcast.model.event import Place
from nearcast.model.expression import Call, remembered, users
from nearcast.model.filter import And, Atom, Entities, Filter, Located, Not, Or, PlainNot, This

Truths = frozenset[Truth]

ANY_TRUTH: Truths = frozenset({True, False, None})


def asked_of_surroundings(atom: Atom) -> str:
    """What an atom asks for besides the event; empty if nothing."""
    if asked_of_receiver(atom)[0]:
        return "something of the receiver"
    if isinstance(atom.name, Call):
        if remembered(atom.name):
            return "a condition about the previous event"
        return "a position of a user" if users(atom.name) else ""
    return "" if isinstance(atom.name, str) or _self_contained(atom) else "a location term about users or entities"


def asked_of_more_than_users(atom: Atom) -> bool:
    """Whether an atom asks for more besides the event than where named users are: where they stay, its truth does."""
    if asked_of_receiver(atom)[0]:
        return True
    if isinstance(atom.name, Call):
        return bool(remembered(atom.name))
    return any(isinstance(side, Entities) for side in _sides(atom))


def possible_truths(node: Filter, of_atom: Callable[[Atom], Truths]) -> Truths:
    """The truths that a filter can have where each atom can have some, whatever the others have."""
    if isinstance(node, Atom):
        return of_atom(node)
    if isinstance(node, Not):
        return frozenset(map(negated, possible_truths(node.child, of_atom)))
    if isinstance(node, PlainNot):
        return frozenset(truth is not True for truth in possible_truths(node.child, of_atom))
    assert isinstance(node, And | Or)
    found = possible_truths(node.children[0], of_atom) if node.children else frozenset({isinstance(node, And)})
    for child in node.children[1:]:
        pairs = product(found, possible_truths(child, of_atom))
        found = frozenset(joined(isinstance(node, Or), pair) for pair in pairs)
    return found


def _self_contained(atom: Atom) -> bool:
    return all(isinstance(side, This | Place) for side in _sides(atom))


def _sides(atom: Atom) -> list[Located]:
    """What a location term is about; of other atoms nothing."""
    named = [getattr(atom.name, name, None) for name in ("a", "b", "of", "around")]
    return [side for side in named if side is not None]
