"""Atoms that compare geometries: all filters together may take so much for one event, in a fixed order (semantics §12).

The order rests on the atoms alone: fewest corners written in them first, then by a digest of what they say, so that
nobody comes before others by how an atom is spelled. Equal atoms are one, whatever number of filters has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b

from nearcast.filters.evaluate import DEFAULT, NO_CONTEXT, EvaluationContext, EventFacts, truth
from nearcast.filters.expressions import truth_of
from nearcast.filters.truth import Truth
from nearcast.model.event import Event
from nearcast.model.expression import (
    GEOMETRY,
    SPATIAL,
    Array,
    Box,
    Call,
    Constant,
    Expression,
    Property,
    Shape,
    needed,
    parts,
)
from nearcast.model.filter import Atom, Count, Distance, Entities, Filter, atoms, located_sides
from nearcast.model.geometry_budget import EventGeometryWork, GeometryWork
from nearcast.model.limits import Limits

OrderKey = tuple[int, bytes]

KNOWN = 1 << 16
"""Atoms whose place in the order is kept: of those that are defined again and again it is asked with each change."""


def spatial_atoms(filter: Filter) -> Iterator[Atom]:
    """The atoms of a filter that read geometries of an event."""
    return (atom for atom in atoms(filter) if isinstance(atom.name, Call) and any(map(_reads, parts(atom.name))))


def term_atoms(filter: Filter) -> Iterator[Atom]:
    """The same of the conditions of the location terms in a filter, which share the work by themselves."""
    for atom in atoms(filter):
        sides = located_sides(atom.name) if isinstance(atom.name, Distance | Count) else ()
        for side in sides:
            if isinstance(side, Entities) and side.conditions is not None:
                yield from spatial_atoms(side.conditions)


def _reads(part: Expression) -> bool:
    if not isinstance(part, Call):
        return False
    if part.function == "IS NULL":
        return isinstance(part.arguments[0], Property) and part.arguments[0].name.lower() in GEOMETRY
    return part.function in SPATIAL or part.function == "S_DWITHIN"


@lru_cache(maxsize=KNOWN)
def order_key(atom: Atom) -> OrderKey:
    """By this atoms are decided, the least first."""
    assert isinstance(atom.name, Call), "it reads geometries"
    corners = sum(_corners(part) for part in parts(atom.name))
    return corners, blake2b(_said(atom.name).encode(errors="surrogatepass"), digest_size=16).digest()


def _said(expression: Expression) -> str:
    """An expression as text; equal ones have one."""
    match expression:
        case Constant(value):
            if isinstance(value, datetime):
                return f"{value.astimezone(UTC)!r}"
            return repr(value + 0.0) if isinstance(value, float) else f"{expression.kind} {value!r}"
        case Box(bounds):
            return repr([float(bound) + 0.0 for bound in bounds])
        case Array(items):
            return f"[{', '.join(map(_said, items))}]"
        case Call(function, arguments):
            return f"{function}({', '.join(map(_said, arguments))})"
    return repr(expression)


def _corners(part: Expression) -> int:
    if isinstance(part, Shape):
        return part.text.count(",") + 1
    return 4 * isinstance(part, Box)


def in_order(listed: Iterable[Atom]) -> list[Atom]:
    """Spatial atoms in the order in which they are decided, each once."""
    return sorted(dict.fromkeys(listed), key=order_key)


@dataclass(frozen=True, slots=True)
class SpentBudget:
    """For an event: the atoms in their order, and of how many it is decided; those behind them are UNKNOWN."""

    ordered: Sequence[Atom]
    decided: int
    limits: Limits

    @property
    def undecided(self) -> frozenset[Atom]:
        """The atoms that are UNKNOWN."""
        return frozenset(self.ordered[self.decided :])

    def reason(self, atom: Atom) -> str:
        """Why an atom is UNKNOWN; empty if it is decided."""
        if atom not in self.ordered[self.decided :]:
            return ""
        number, most = self.ordered.index(atom) + 1, f"{self.limits.event_geometry_work:,} units of work"
        return (
            f"comparing the event's geometries takes more than {most} for all filters together (limit"
            f" event_geometry_work): it is number {number:,} of {len(self.ordered):,} atoms, fewest corners first, and"
            f" {self.decided:,} are decided"
        )


def spent_budget(listed: Iterable[Atom], event: Event, around: EvaluationContext, limits: Limits) -> SpentBudget:
    """How far the work that is allowed for an event goes for the spatial atoms of all filters."""
    return spent_on(in_order(listed), event, around, limits)


def spent_on(ordered: Sequence[Atom], event: Event, around: EvaluationContext, limits: Limits) -> SpentBudget:
    """The same for atoms that are in their order."""
    together = EventGeometryWork(limits)
    for number, atom in enumerate(ordered):
        if together.beyond:
            return SpentBudget(ordered, number, limits)
        assert isinstance(atom.name, Call), "it reads geometries"
        facts = EventFacts(event, around, GeometryWork(limits))
        # Where an event lacks what an atom needs, there is nothing to do.
        if all(facts.values(name) for name in needed(atom.name)):
            truth_of(atom.name, facts)
            together.count(facts.work)
    return SpentBudget(ordered, len(ordered), limits)


def truth_alone(
    filter: Filter, event: Event, around: EvaluationContext = NO_CONTEXT, limits: Limits = DEFAULT
) -> Truth:
    """The truth of a filter for an event where there is no other filter."""
    undecided = spent_budget(spatial_atoms(filter), event, around, limits).undecided
    return truth(filter, event, around, limits, undecided)
