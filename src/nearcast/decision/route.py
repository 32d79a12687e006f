"""The routes of a routing table: filters that are forwarded, and what finding the place of one may cost."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from nearcast.decision.algebra.merging import Clauses
from nearcast.decision.algebra.questions import find
from nearcast.decision.algebra.search import STEPS, USUAL
from nearcast.decision.algebra.witness import Witness
from nearcast.decision.evaluate import NOTHING, truth
from nearcast.decision.traffic import Flags
from nearcast.model.event import Event
from nearcast.model.filter import Filter, atoms


@dataclass(frozen=True, slots=True)
class Effort:
    """What a table spends on finding the place of a filter; with less it may forward more filters, never fewer events.

    `patience`: what may be spent on others that do not cover it, or it does not cover: 1 for one that lacks what it
    needs, `LOOK` for one that its example is held against, `ASK` for one that is asked. `literals`: how many a merged
    filter may have. `steps`: of one search, see `find`.
    """

    patience: int
    literals: int
    steps: int


LOOK, ASK = 16, 128

THOROUGH = Effort(sys.maxsize, sys.maxsize, STEPS)
QUICK = Effort(20 * LOOK, 100, 5_000)
"""Some milliseconds for a filter, however many there are."""


# Compared by identity: two routes with equal filters are still two.
@dataclass(eq=False, slots=True)
class Route:
    """A forwarded filter and the filters it stands for: those it is made of, and those that are covered by it.

    `carries`: the attributes of its witness; `needs`: those without which it holds for no event; `literals`: how many
    it has; `flags`: which events of the traffic each clause selects.
    """

    parts: Clauses
    filter: Filter
    witness: Witness | None
    carries: frozenset[str]
    needs: frozenset[str]
    literals: int
    flags: dict[object, Flags]
    made_of: dict[str, Filter]
    hides: dict[str, Filter] = field(default_factory=dict)

    @property
    def example(self) -> Event | None:
        """The event of its witness."""
        return None if self.witness is None else self.witness.event

    @property
    def accepts(self) -> Flags:
        """Which events of the traffic are forwarded."""
        return all_of(self.flags.values())

    @property
    def members(self) -> dict[str, Filter]:
        """All filters it stands for."""
        return {**self.made_of, **self.hides}


def route_of(made_of: dict[str, Filter], parts: Clauses, witness: Witness | None, flags: dict[object, Flags]) -> Route:
    """The route of filters that these clauses are made of, with an event that they select."""
    carries = frozenset(name for name, _ in witness.event.attributes) if witness else frozenset()
    filter = parts.filter()
    literals = sum(len(atom.literals) for atom in atoms(filter))
    return Route(parts, filter, witness, carries, frozenset(_needed(parts)), literals, flags, made_of)


def all_of(flags: Iterable[Flags]) -> Flags:
    """Which events all of some flags are of."""
    return np.logical_and.reduce(list(flags))


def _needed(parts: Clauses) -> Iterator[str]:
    """The attributes of clauses that do not hold of an event without any."""
    for _, clause in parts.parts:
        names = {atom.name for atom in atoms(clause)}
        if len(names) == 1 and truth(clause, _BARE, NOTHING) is not True:
            yield from (name for name in names if isinstance(name, str) and name not in USUAL)


_BARE = Event("", "", "")


def cost(wide: Route, narrow: Route, steps: int = STEPS) -> int:
    """0 where a route covers the other, else what it cost to find that it does not.

    It must accept the other's witness, which is looked up cheaply first: then alone it is worth asking.
    """
    found = narrow.witness
    if found is not None and not wide.needs <= narrow.carries:
        return 1
    if found is not None and truth(wide.filter, found.event, found) is not True:
        return LOOK
    return 0 if find(narrow.filter, steps=steps, but=wide.filter).possible is False else ASK
