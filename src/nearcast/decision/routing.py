"""A routing table: few filters forwarded for many, never selecting less than they do (Channels §2, §3).

A filter that is covered hides behind the one that covers it; filters that merge become one. Merging imperfectly saves
more and forwards events that nobody wants, so it has a price: the precision, the share of forwarded events that some
filter selects. It is measured on expected traffic, and merging stops where it would fall below what is stated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.decision.algebra.merging import Clauses, Shared, Structure, clauses, merged
from nearcast.decision.algebra.questions import covers, find
from nearcast.decision.algebra.search import USUAL
from nearcast.decision.algebra.witness import Witness
from nearcast.decision.evaluate import NOTHING, truth
from nearcast.decision.example_index import ExampleIndex
from nearcast.decision.traffic import Flags, Traffic
from nearcast.model.event import Event
from nearcast.model.filter import Filter, atoms

Key = TypeVar("Key")


class Merging(StrEnum):
    """How much a table merges; each does what those before it do."""

    NONE = "none"
    COVERING = "covering"
    PERFECT = "perfect"
    IMPERFECT = "imperfect"


# Compared by identity: two routes with equal filters are still two.
@dataclass(eq=False, slots=True)
class Route:
    """A forwarded filter and the filters it stands for: those it is made of, and those that are covered by it.

    `carries`: the attributes of its witness; `needs`: those without which it holds for no event; `flags`: which events
    of the traffic each clause selects.
    """

    parts: Clauses
    filter: Filter
    witness: Witness | None
    carries: frozenset[str]
    needs: frozenset[str]
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
        return _all(self.flags.values())

    @property
    def members(self) -> dict[str, Filter]:
        """All filters it stands for."""
        return {**self.made_of, **self.hides}


@dataclass(frozen=True, slots=True)
class Measures:
    """How large a table is and how precise: the share of forwarded events of the traffic that some filter selects."""

    filters: int
    forwarded: int
    precision: float


@dataclass(frozen=True, slots=True)
class Change:
    """What a neighbour has to be told: filters forwarded from now on, and no longer."""

    added: tuple[Filter, ...]
    withdrawn: tuple[Filter, ...]


class Table:
    """Filters by id, and the filters forwarded for them.

    `precision` is kept on `traffic` by imperfect merging; 0 merges whatever has the same structure, without looking.
    """

    def __init__(
        self, merging: Merging = Merging.PERFECT, traffic: Traffic | None = None, precision: float = 1.0
    ) -> None:
        self.merging, self.traffic, self.precision = merging, traffic or Traffic(()), precision
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

    def measures(self) -> Measures:
        """Size and precision; a table that forwards nothing is precise."""
        return Measures(len(self._route_of) + len(self._silent), len(self._routes), self._share(self._forwarded))

    def _share(self, forwarded: npt.NDArray[np.int64]) -> float:
        """The share of forwarded events, counted by routes, that some filter selects."""
        count = np.count_nonzero(forwarded)
        return float(np.count_nonzero((forwarded > 0) & (self._selected > 0)) / count) if count else 1.0

    def add(self, id: str, filter: Filter) -> Change:
        """Takes a filter in, or another one under its id."""
        if id in self:
            self._drop(id)
        possible = find(filter)
        if possible.possible is False:
            self._silent.add(id)
        else:
            # Counted before it is placed: what it selects is no waste of a route it may merge into.
            self._count_selected(filter, 1)
            self._place(self._route({id: filter}, clauses(filter), possible.witness))
        self._settle()
        return self._change()

    def remove(self, id: str) -> Change:
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

    def _change(self) -> Change:
        """What is different from when this change began."""
        before, self._before = self._before, {}
        added = tuple(filter for filter, copies in before.items() if not copies and filter in self._copies)
        withdrawn = tuple(filter for filter, copies in before.items() if copies and filter not in self._copies)
        return Change(added, withdrawn)

    def _route(self, made_of: dict[str, Filter], parts: Clauses, witness: Witness | None) -> Route:
        flags = {about: self.traffic.selects(clause) for about, clause in parts.parts}
        return _route(made_of, parts, witness, flags)

    def _place(self, route: Route) -> None:
        """Finds the place of a route that is in no table yet: behind another, before others, merged, or beside."""
        waiting: Route | None = route
        while waiting:
            waiting = self._placed(waiting)

    def _placed(self, route: Route) -> Route | None:
        """Places a route, or gives what it has become by merging: that may cover others by now, and merge on."""
        if self.merging is Merging.NONE:
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
        for other in self._examples.selecting(route.example):
            if _may_cover(other, route) and covers(other.filter, route.filter):
                yield other

    def _covered(self, route: Route) -> Iterator[Route]:
        for other in self._examples.selected_by(route.filter):
            if _may_cover(route, other) and covers(route.filter, other.filter):
                yield other

    def _merges(self, route: Route) -> Iterator[tuple[Route, Route]]:
        """(a route of the table, what it and this one become merged), the best first."""
        if self.merging in (Merging.PERFECT, Merging.IMPERFECT):
            for shared in route.parts.without_one():
                # Found by what they share, not by trying all.
                for other in self._nearly.get(shared, ()):
                    yield from self._together(other, route, perfect=True)
        if self.merging is Merging.IMPERFECT:
            alike = self._alike.get(route.parts.structure, ())
            # The traffic's flags of clauses tell what a merge would waste; the merged filter is made for the best only.
            ranked = sorted(((self._kept(other, route), other) for other in alike), key=lambda one: -one[0])
            for share, other in ranked:
                if share < self.precision:
                    return
                yield from self._together(other, route)

    def _kept(self, other: Route, route: Route) -> float:
        """The precision with these two merged; of what the traffic shows nothing of, nothing is known: 0."""
        whole = _all(flags | route.flags[about] for about, flags in other.flags.items())
        return self._share(self._forwarded - other.accepts + whole) if whole.any() else 0.0

    def _together(self, other: Route, route: Route, perfect: bool = False) -> Iterator[tuple[Route, Route]]:
        parts = merged(other.parts, route.parts, perfect)
        if parts:
            # A clause is the disjunction of the two, so what it selects is known.
            flags = {about: other.flags[about] | route.flags[about] for about, _ in parts.parts}
            whole = _route({**other.made_of, **route.made_of}, parts, other.witness or route.witness, flags)
            whole.hides.update({**other.hides, **route.hides})
            yield other, whole

    def _enter(self, route: Route) -> None:
        self._routes[route] = None
        self._examples.add(route, route.filter, route.example)
        self._route_of.update(dict.fromkeys(route.members, route))
        self._alike.setdefault(route.parts.structure, {})[route] = None
        for shared in route.parts.without_one():
            self._nearly.setdefault(shared, {})[route] = None
        self._count_forwarded(route, 1)

    def _leave(self, route: Route) -> None:
        del self._routes[route]
        self._examples.remove(route, route.filter, route.example)
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
            self._place(self._route({id: filter}, clauses(filter), find(filter).witness))

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


def _route(made_of: dict[str, Filter], parts: Clauses, witness: Witness | None, flags: dict[object, Flags]) -> Route:
    carries = frozenset(name for name, _ in witness.event.attributes) if witness else frozenset()
    return Route(parts, parts.filter(), witness, carries, frozenset(_needed(parts)), flags, made_of)


def _all(flags: Iterable[Flags]) -> Flags:
    return np.logical_and.reduce(list(flags))


def _needed(parts: Clauses) -> Iterator[str]:
    """The attributes of clauses that do not hold of an event without any."""
    for _, clause in parts.parts:
        names = {atom.name for atom in atoms(clause)}
        if len(names) == 1 and truth(clause, _BARE, NOTHING) is not True:
            yield from (name for name in names if isinstance(name, str) and name not in USUAL)


_BARE = Event("", "", "")


def _may_cover(wide: Route, narrow: Route) -> bool:
    """Whether a route accepts the other's witness, looked up cheaply first: then alone it is worth asking."""
    found = narrow.witness
    if found is None:
        return True
    return wide.needs <= narrow.carries and truth(wide.filter, found.event, found) is True


def _discard(index: dict[Key, dict[Route, None]], key: Key, route: Route) -> None:
    index[key].pop(route, None)
    if not index[key]:
        del index[key]
