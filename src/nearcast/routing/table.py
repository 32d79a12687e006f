"""A routing table: few filters forwarded for many, never selecting less than they do (Channels §2, §3).

A filter that is covered hides behind the one that covers it; filters that merge become one. Merging imperfectly saves
more and forwards events that nobody wants, so it has a price: the precision, the share of forwarded events that some
filter selects. It is measured on expected traffic, and merging stops where it would fall below what is stated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.algebra.comparison import find
from nearcast.algebra.merging import Clauses, Shared, Structure, clauses, merged
from nearcast.algebra.search import STEPS, USUAL, WitnessEvent
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.model.arrays import Flags
from nearcast.model.event import Event
from nearcast.model.filter import Filter, atoms
from nearcast.routing.filter_index import ExampleIndex
from nearcast.routing.traffic import TrafficSample


@dataclass(frozen=True, slots=True)
class MergingEffort:
    """What a table spends on finding the place of a filter; with less it may forward more filters, never fewer events.

    `patience`: what may be spent on others that do not cover it, or it does not cover: 1 for one that lacks what it
    needs, `LOOK` for one that its example is held against, `ASK` for one that is asked. `literals`: how many a merged
    filter may have. `steps`: of one search, see `find`.
    """

    patience: int
    literals: int
    steps: int


LOOK, ASK = 16, 128

THOROUGH = MergingEffort(sys.maxsize, sys.maxsize, STEPS)
QUICK = MergingEffort(20 * LOOK, 100, 5_000)
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
    witness: WitnessEvent | None
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


def route_of(
    made_of: dict[str, Filter], parts: Clauses, witness: WitnessEvent | None, flags: dict[object, Flags]
) -> Route:
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
        if len(names) == 1 and truth(clause, _BARE, NO_CONTEXT) is not True:
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


Key = TypeVar("Key")


class MergingPolicy(StrEnum):
    """How much a table merges; each does what those before it do."""

    NONE = "none"
    COVERING = "covering"
    PERFECT = "perfect"
    IMPERFECT = "imperfect"


@dataclass(frozen=True, slots=True)
class RoutingMeasures:
    """How large a table is and how precise: the share of forwarded events of the traffic that some filter selects."""

    filters: int
    forwarded: int
    precision: float


@dataclass(frozen=True, slots=True)
class ForwardingChange:
    """What a neighbour has to be told: filters forwarded from now on, and no longer."""

    added: tuple[Filter, ...]
    withdrawn: tuple[Filter, ...]


class RoutingTable:
    """Filters by id, and the filters forwarded for them.

    `precision` is kept on `traffic` by imperfect merging; 0 merges whatever has the same structure, without looking.
    `effort` bounds what a filter may cost.
    """

    def __init__(
        self,
        merging: MergingPolicy = MergingPolicy.PERFECT,
        traffic: TrafficSample | None = None,
        precision: float = 1.0,
        effort: MergingEffort = THOROUGH,
    ) -> None:
        self.merging, self.traffic, self.precision, self.effort = (
            merging,
            traffic or TrafficSample(()),
            precision,
            effort,
        )
        self._routes: dict[Route, None] = {}
        self._examples: ExampleIndex[Route] = ExampleIndex()
        self._route_of: dict[str, Route] = {}
        self._silent: set[str] = set()
        self._copies: dict[Filter, int] = {}
        self._before: dict[Filter, int] = {}
        self._alike: dict[Structure, dict[Route, None]] = {}
        self._nearly: dict[Shared, dict[Route, None]] = {}
        self._forwarded = np.zeros(len(self.traffic), np.int64)
        self._selected = np.zeros(len(self.traffic), np.int64)

    def __contains__(self, id: str) -> bool:
        return id in self._route_of or id in self._silent

    def forwards(self) -> tuple[Filter, ...]:
        """The filters that are forwarded."""
        return tuple(route.filter for route in self._routes)

    def measures(self) -> RoutingMeasures:
        """Size and precision; a table that forwards nothing is precise."""
        return RoutingMeasures(len(self._route_of) + len(self._silent), len(self._routes), self._share(self._forwarded))

    def _share(self, forwarded: npt.NDArray[np.int64]) -> float:
        """The share of forwarded events, counted by routes, that some filter selects."""
        count = np.count_nonzero(forwarded)
        return float(np.count_nonzero((forwarded > 0) & (self._selected > 0)) / count) if count else 1.0

    def add_filter(self, id: str, filter: Filter) -> ForwardingChange:
        """Takes a filter in, or another one under its id."""
        if id in self:
            self._drop(id)
        possible = find(filter, steps=self.effort.steps)
        if possible.possible is False:
            self._silent.add(id)
        else:
            # Counted before it is placed: what it selects is no waste of a route it may merge into.
            self._count_selected(filter, 1)
            self._place(self._route({id: filter}, clauses(filter), possible.witness))
        self._settle()
        return self._change()

    def remove_filter(self, id: str) -> ForwardingChange:
        """Takes a filter out; what it hid or was merged with is forwarded again. Raises `KeyError`."""
        self._drop(id)
        self._settle()
        return self._change()

    def _count_forwarded(self, route: Route, by: int) -> None:
        """Counts a route in or out, and remembers how many routes forwarded its filter when this change began."""
        copies = self._copies.pop(route.filter, 0)
        self._before.setdefault(route.filter, copies)
        if copies + by:
            self._copies[route.filter] = copies + by
        self._forwarded += by * route.accepts

    def _change(self) -> ForwardingChange:
        """What is different from when this change began."""
        before, self._before = self._before, {}
        added = tuple(filter for filter, copies in before.items() if not copies and filter in self._copies)
        withdrawn = tuple(filter for filter, copies in before.items() if copies and filter not in self._copies)
        return ForwardingChange(added, withdrawn)

    def _route(self, made_of: dict[str, Filter], parts: Clauses, witness: WitnessEvent | None) -> Route:
        flags = {about: self.traffic.selects(clause) for about, clause in parts.parts}
        return route_of(made_of, parts, witness, flags)

    def _place(self, route: Route) -> None:
        """Finds the place of a route that is in no table yet: behind another, before others, merged, or beside."""
        waiting: Route | None = route
        while waiting:
            waiting = self._placed(waiting)

    def _placed(self, route: Route) -> Route | None:
        """Places a route, or gives what it has become by merging: that may cover others by now, and merge on."""
        if self.merging is MergingPolicy.NONE:
            self._enter(route)
            return None
        wider = next(self._covering(route), None)
        if wider:
            # Nothing to tell: neighbours send already what it wants.
            wider.hides.update(route.members)
            self._route_of.update(dict.fromkeys(route.members, wider))
            return None
        for narrower in list(self._covered(route)):
            self._leave(narrower)
            route.hides.update(narrower.members)
        other, whole = next(self._merges(route), (None, None))
        if other is None:
            self._enter(route)
            return None
        self._leave(other)
        return whole

    def _covering(self, route: Route) -> Iterator[Route]:
        """The routes that cover this one. A covering filter accepts any witness, which is soon looked up."""
        yield from self._examples.equal(route.filter)
        others = self._examples.selecting(route.example)
        yield from self._patiently(others, lambda other: cost(other, route, self.effort.steps))

    def _covered(self, route: Route) -> Iterator[Route]:
        others = self._examples.selected_by(route.filter)
        return self._patiently(others, lambda other: cost(route, other, self.effort.steps))

    def _patiently(self, others: Iterable[Route], spending: Callable[[Route], int]) -> Iterator[Route]:
        """Those that cost nothing, as they are what was looked for, until the others have cost too much."""
        patience = self.effort.patience
        for other in others:
            spent = spending(other)
            if not spent:
                yield other
            patience -= spent
            if patience < 0:
                return

    def _merges(self, route: Route) -> Iterator[tuple[Route, Route]]:
        """(a route of the table, what it and this one become merged), the best first."""
        if self.merging in (MergingPolicy.PERFECT, MergingPolicy.IMPERFECT):
            for shared in route.parts.without_one():
                # Found by what they share, not by trying all.
                for other in self._nearly.get(shared, ()):
                    yield from self._together(other, route, perfect=True)
        if self.merging is MergingPolicy.IMPERFECT:
            alike = self._alike.get(route.parts.structure, ())
            tried = islice(alike, max(1, self.effort.patience // LOOK))
            # The traffic's flags of clauses tell what a merge would waste; the merged filter is made for the best only.
            ranked = sorted(((self._kept(other, route), other) for other in tried), key=lambda one: -one[0])
            for share, other in ranked:
                if share < self.precision:
                    return
                yield from self._together(other, route)

    def _kept(self, other: Route, route: Route) -> float:
        """The precision with these two merged; of what the traffic shows nothing of, nothing is known: 0."""
        whole = all_of(flags | route.flags[about] for about, flags in other.flags.items())
        return self._share(self._forwarded - other.accepts + whole) if whole.any() else 0.0

    def _together(self, other: Route, route: Route, perfect: bool = False) -> Iterator[tuple[Route, Route]]:
        fits = other.literals + route.literals <= self.effort.literals
        parts = merged(other.parts, route.parts, perfect) if fits else None
        if parts:
            # A clause is the disjunction of the two, so what it selects is known.
            flags = {about: other.flags[about] | route.flags[about] for about, _ in parts.parts}
            whole = route_of({**other.made_of, **route.made_of}, parts, other.witness or route.witness, flags)
            whole.hides.update({**other.hides, **route.hides})
            yield other, whole

    def _enter(self, route: Route) -> None:
        self._routes[route] = None
        self._examples.add_item(route, route.filter, route.example)
        self._route_of.update(dict.fromkeys(route.members, route))
        self._alike.setdefault(route.parts.structure, {})[route] = None
        for shared in route.parts.without_one():
            self._nearly.setdefault(shared, {})[route] = None
        self._count_forwarded(route, 1)

    def _leave(self, route: Route) -> None:
        del self._routes[route]
        self._examples.remove_item(route, route.filter, route.example)
        _discard(self._alike, route.parts.structure, route)
        for shared in route.parts.without_one():
            _discard(self._nearly, shared, route)
        self._count_forwarded(route, -1)

    def _drop(self, id: str) -> None:
        if id in self._silent:
            self._silent.remove(id)
            return
        route = self._route_of.pop(id)
        hidden = route.hides.pop(id, None)
        self._count_selected(hidden or route.made_of[id], -1)
        # A hidden filter goes unnoticed; one that the route is made of leaves it too wide, so it is made anew.
        if hidden is None:
            del route.made_of[id]
            self._dissolve(route)

    def _dissolve(self, route: Route) -> None:
        """Takes a route out and places what it stood for anew, what it was made of first: that hides the most."""
        self._leave(route)
        for id, filter in {**route.made_of, **route.hides}.items():
            self._place(self._route({id: filter}, clauses(filter), find(filter, steps=self.effort.steps).witness))

    def _settle(self) -> None:
        """Dissolves the least precise routes until the precision is kept again: fewer filters select fewer events."""
        while self._share(self._forwarded) < self.precision:
            wasted = {route: int((route.accepts & (self._selected == 0)).sum()) for route in self._routes}
            worst = max(wasted, key=lambda route: wasted[route])
            # Cannot be, but a loop that waits for rounding would be worse.
            if not wasted[worst]:
                return
            self._dissolve(worst)

    def _count_selected(self, filter: Filter, by: int) -> None:
        self._selected += by * self.traffic.selects(filter)


def _discard(index: dict[Key, dict[Route, None]], key: Key, route: Route) -> None:
    index[key].pop(route, None)
    if not index[key]:
        del index[key]
