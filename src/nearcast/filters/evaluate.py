"""The plain evaluator: what a filter means, one event at a time, as semantics §2–4 says it. The reference for matchers.

Truth is True, False or None (UNKNOWN). Nothing here is fast; every other matcher must agree with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol

from nearcast.filters.expressions import truth_of
from nearcast.filters.like_patterns import like
from nearcast.filters.relevance import ABSENT
from nearcast.filters.truth import COMPARE, Truth, both, joined, negated, some
from nearcast.geo.distance import distance
from nearcast.model.event import Event, Place
from nearcast.model.expression import Call
from nearcast.model.filter import (
    And,
    Atom,
    Count,
    Distance,
    Entities,
    Filter,
    Located,
    Not,
    Operator,
    Or,
    PlainNot,
    This,
    User,
    atoms,
)
from nearcast.model.geometry_budget import GeometryWork
from nearcast.model.limits import Limits
from nearcast.model.values import Value, kind_of, time_of

DEFAULT = Limits()
"""What holds where no settings are known."""


class EvaluationContext(Protocol):
    """What is known besides the event, as of the event's position: where users are, the newest event of each entity."""

    def user(self, name: str) -> Place | None:
        """Where that client was last known to be."""

    def entities(self) -> Iterable[Event]:
        """The newest event of every entity before this one."""

    def undecided_conditions(self, newest: Event) -> Collection[Atom]:
        """The atoms of the conditions of location terms that the work for an entity's newest event leaves UNKNOWN."""


class RequiredTruth(Enum):
    """Which truth of a part makes the whole hold: NOT pushed down a tree turns one into another."""

    TRUE = "is TRUE"
    FALSE = "is FALSE"
    NOT_TRUE = "is not TRUE"
    NOT_FALSE = "is not FALSE"

    def holds(self, truth: Truth) -> bool:
        """Whether a part of this truth is as wanted."""
        return {
            RequiredTruth.TRUE: truth is True,
            RequiredTruth.FALSE: truth is False,
            RequiredTruth.NOT_TRUE: truth is not True,
            RequiredTruth.NOT_FALSE: truth is not False,
        }[self]

    @property
    def joint(self) -> bool:
        """Whether an And must have all its children so (else one is enough); an Or the other way round."""
        return self in (RequiredTruth.TRUE, RequiredTruth.NOT_FALSE)


UNDER_NOT = {
    RequiredTruth.TRUE: RequiredTruth.FALSE,
    RequiredTruth.FALSE: RequiredTruth.TRUE,
    RequiredTruth.NOT_TRUE: RequiredTruth.NOT_FALSE,
    RequiredTruth.NOT_FALSE: RequiredTruth.NOT_TRUE,
}
UNDER_PLAIN_NOT = {
    RequiredTruth.TRUE: RequiredTruth.NOT_TRUE,
    RequiredTruth.FALSE: RequiredTruth.TRUE,
    RequiredTruth.NOT_TRUE: RequiredTruth.TRUE,
    RequiredTruth.NOT_FALSE: RequiredTruth.NOT_TRUE,
}
"""A plain negation is never UNKNOWN: it is TRUE where its child is not, FALSE where its child is TRUE."""


def level_of(
    node: Filter,
    classes: Sequence[int],
    event: Event,
    around: EvaluationContext,
    limits: Limits = DEFAULT,
    undecided: Collection[Atom] = (),
) -> int | None:
    """The level of an event for a filter whose atoms have these classes, in document order; None: not selected.

    An atom that holds has its class; OR takes the greatest of its children that hold; AND the least, and holds only if
    all hold; an atom of class −1 is not in the tree (semantics §3). Atoms that are `undecided` are UNKNOWN.
    """
    present = without_absent(node, iter(classes))
    if present is None:
        return None
    truths = partial(atom_truth, event=event, around=around, limits=limits, undecided=undecided)
    return _level(present[0], iter(present[1]), RequiredTruth.TRUE, truths)


def without_absent(node: Filter, classes: Iterator[int]) -> tuple[Filter, list[int]] | None:
    """The tree without its atoms of class −1, and the classes of the rest; None if nothing is left."""
    if isinstance(node, Atom):
        own = next(classes)
        return None if own == ABSENT else (node, [own])
    if isinstance(node, (Not, PlainNot)):
        inner = without_absent(node.child, classes)
        return None if inner is None else (type(node)(inner[0]), inner[1])
    kept = [part for part in [without_absent(child, classes) for child in node.children] if part is not None]
    if not kept:
        return None
    return type(node)(tuple(part[0] for part in kept)), [own for part in kept for own in part[1]]


def _level(node: Filter, classes: Iterator[int], wanted: RequiredTruth, truths: Callable[[Atom], Truth]) -> int | None:
    if isinstance(node, Atom):
        own = next(classes)
        return own if wanted.holds(truths(node)) else None
    if isinstance(node, Not):
        return _level(node.child, classes, UNDER_NOT[wanted], truths)
    if isinstance(node, PlainNot):
        return _level(node.child, classes, UNDER_PLAIN_NOT[wanted], truths)
    levels = [_level(child, classes, wanted, truths) for child in node.children]
    held = [level for level in levels if level is not None]
    if isinstance(node, And) == wanted.joint:
        return min(held) if len(held) == len(levels) else None
    return max(held, default=None)


def truth(
    node: Filter,
    event: Event,
    around: EvaluationContext,
    limits: Limits = DEFAULT,
    undecided: Collection[Atom] = (),
) -> Truth:
    """The three-valued truth of a filter for an event."""
    if isinstance(node, Atom):
        return atom_truth(node, event, around, limits, undecided)
    if isinstance(node, (Not, PlainNot)):
        inner = truth(node.child, event, around, limits, undecided)
        return inner is not True if isinstance(node, PlainNot) else negated(inner)
    return joined(isinstance(node, Or), [truth(child, event, around, limits, undecided) for child in node.children])


def atom_truth(
    atom: Atom,
    event: Event,
    around: EvaluationContext,
    limits: Limits = DEFAULT,
    undecided: Collection[Atom] = (),
) -> Truth:
    """The truth of one atom: TRUE if some value satisfies it, UNKNOWN if none can be compared (eq. 4-7), or if it is
    among those that the work for the event left `undecided`.
    """
    if isinstance(atom.name, str):
        values = event.values(atom.name)
        if atom.operator is Operator.IS_NULL:
            return next(values, None) is None
        return some(satisfies(atom, value) for value in values)
    if isinstance(atom.name, Call):
        return None if atom in undecided else truth_of(atom.name, EventFacts(event, around, GeometryWork(limits)))
    if isinstance(atom.name, Distance):
        return some(satisfies(atom, metres) for metres in distances(atom.name, event, around, limits))
    number = count(atom.name, event, around, limits)
    return None if number is None else satisfies(atom, number)


def satisfies(atom: Atom, value: Value) -> Truth:
    """Whether one value satisfies an atom's operator and literal; None if they are of kinds that do not compare."""
    match atom.operator:
        case Operator.IN:
            literals: tuple[Value, ...] = atom.value  # type: ignore[assignment]
            if atom.kinds.count(kind_of(value)) == len(literals) > 0:
                # The same, for lists of a hundred thousand.
                return value in literals
            return some(compare(Operator.EQ, value, literal) for literal in literals)
        case Operator.BETWEEN:
            low, high = atom.value  # type: ignore[misc, str-unpack]
            # Else a text that names a moment could lie between a time and a text.
            if kind_of(low) != kind_of(high):
                return None
            return both(compare(Operator.GE, value, low), compare(Operator.LE, value, high))
        case Operator.LIKE:
            return bool(like(str(atom.value)).fullmatch(value)) if isinstance(value, str) else None
        case _:
            return compare(atom.operator, value, atom.value)  # type: ignore[arg-type]


def compare(operator: Operator, value: Value, literal: Value) -> Truth:
    """`value operator literal` within one kind, else None. Integers and doubles compare exactly, strings by code point.

    A text that names a moment is that moment where it meets a timestamp.
    """
    if kind_of(literal) == "time" and isinstance(value, str):
        moment = time_of(value)
        if moment is None:
            return None
        value = moment
    return COMPARE[operator](value, literal) if kind_of(value) == kind_of(literal) else None


@dataclass(frozen=True, slots=True)
class EventFacts:
    """An event and its surroundings, as expressions read them."""

    event: Event
    around: EvaluationContext
    work: GeometryWork = field(default_factory=GeometryWork)

    @property
    def place(self) -> Place | None:
        """Where the event is."""
        return self.event.place

    def values(self, name: str) -> Sequence[Value]:
        """Every value of an attribute of the event."""
        return tuple(self.event.values(name))

    def previous(self, name: str) -> Sequence[Value] | None:
        """The same of the entity's previous event; None if there was none."""
        found = (other for other in self.around.entities() if other.entity == self.event.entity)
        before = next(found, None)
        return None if before is None else tuple(before.values(name))

    def user(self, name: str) -> Place | None:
        """Where that client was last known to be."""
        return self.around.user(name)


def distances(term: Distance, event: Event, around: EvaluationContext, limits: Limits = DEFAULT) -> Iterator[float]:
    """The distances of all pairs whose places are known and of one kind, in metres."""
    for a in located(term.a, event, around, limits):
        for b in located(term.b, event, around, limits):
            metres = distance(a, b) if a and b else None
            if metres is not None:
                yield metres


def count(term: Count, event: Event, around: EvaluationContext, limits: Limits = DEFAULT) -> int | None:
    """How many of `of` there are, or are within the distance of (some) `around`; None if nobody knows where that is."""
    found = list(located(term.of, event, around, limits))
    if term.around is None or term.within is None:
        return len(found)
    centres = [place for place in located(term.around, event, around, limits) if place]
    if not centres:
        return None
    return sum(any(_within(place, centre, term.within) for centre in centres) for place in found)


def _within(a: Place | None, b: Place, metres: float) -> bool:
    apart = distance(a, b) if a else None
    return apart is not None and apart <= metres


def located(
    where: Located, event: Event, around: EvaluationContext, limits: Limits = DEFAULT
) -> Iterator[Place | None]:
    """The places that a reference stands for; an entity without a place counts, but is nowhere."""
    match where:
        case Place():
            yield where
        case This():
            yield event.place
        case User(name):
            place = around.user(name)
            if place:
                yield place
        case Entities(conditions):
            for other in around.entities():
                if conditions is None or is_member(conditions, other, around, limits):
                    yield other.place


def is_member(conditions: Filter, newest: Event, around: EvaluationContext, limits: Limits = DEFAULT) -> bool:
    """Whether an entity with this newest event is among those whom a location term with these conditions asks for."""
    alone = truth(conditions, newest, NO_CONTEXT, limits)
    if alone is not True and not _negates_plainly(conditions):
        # What is left undecided makes nobody a member, and to find it takes longer than all the rest.
        return False
    undecided = around.undecided_conditions(newest)
    return truth(conditions, newest, NO_CONTEXT, limits, undecided) is True if undecided else alone is True


def _negates_plainly(node: Filter) -> bool:
    if isinstance(node, (And, Or)):
        return any(map(_negates_plainly, node.children))
    return isinstance(node, PlainNot) or (isinstance(node, Not) and _negates_plainly(node.child))


class EmptyContext:
    """Surroundings in which nothing is known: the conditions inside a location term see only their own event."""

    def user(self, name: str) -> Place | None:
        """Nobody is anywhere."""
        return None

    def entities(self) -> Iterable[Event]:
        """There is nothing."""
        return ()

    def undecided_conditions(self, newest: Event) -> Collection[Atom]:
        """So nothing is left."""
        return ()


NO_CONTEXT = EmptyContext()


def atom_truths(
    node: Filter,
    event: Event,
    around: EvaluationContext,
    limits: Limits = DEFAULT,
    undecided: Collection[Atom] = (),
) -> list[tuple[Atom, Truth]]:
    """Every atom in document order with its truth: the material of an explanation."""
    return [(atom, atom_truth(atom, event, around, limits, undecided)) for atom in atoms(node)]
