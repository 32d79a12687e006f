"""The provider's part: requests become filters, new readings that satisfy one become responses (listing 2).

A polled provider keeps nothing: it answers each request by what it reads just then, or not at all (Foraging §4, CPol).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nearcast.filters.evaluate import satisfies
from nearcast.foraging.foraging_rules import Above, only, told
from nearcast.foraging.request_index import MOST, RequestIndex
from nearcast.model.filter import Atom
from nearcast.model.foraging import Request
from nearcast.model.values import Value

Readings = Sequence[tuple[str, Value]]
"""Context classes and what their sensors read."""

Answer = tuple[float, Readings]
"""How far to tell it, and the readings that somebody wants."""


class Provider:
    """The filters that others registered at a node which measures some context classes, or infers some situations."""

    def __init__(
        self,
        provided: Iterable[str],
        above: Above = only,
        most: int = MOST,
        situations: frozenset[str] = frozenset(),
    ) -> None:
        self._above, self._most, self._situations = above, most, situations
        self._served = frozenset(wide for name in provided for wide in above(name))
        self.index = RequestIndex(most)

    @property
    def refused(self) -> int:
        """How many conditions found no room."""
        return self.index.shares.refused

    def begin_anew(self) -> None:
        """Forgets who asked: they ask again."""
        refused = self.refused
        self.index = RequestIndex(self._most)
        self.index.shares.refused = refused

    def register(self, request: Request, now: float, neighbour: str = "") -> tuple[Atom, ...]:
        """Takes the conditions on classes that this node serves; gives those that it did not have.

        They last as long as the request says, by this node's own clock. Those for which the neighbour that brought
        them has no room left are counted in `refused`.
        """
        # First, so that what is over neither takes up room nor counts as had already.
        self.index.expire(now)
        until, within = now + request.valid, request.within
        asked = [condition for condition in request.conditions if condition.name in self._served]
        return tuple(one for one in asked if self.index.register(one, until, within, neighbour))

    def answer(self, readings: Readings, now: float) -> Answer | None:
        """The readings that satisfy a live filter, to be told as far as the farthest of those who asked."""
        reaches = {}
        for name, value in readings:
            wider = told(name, value, self._above, self._situations)
            found = [self.index.match(wide, value, now) for wide in wider]
            reach = max((each for each in found if each is not None), default=None)
            if reach is not None:
                reaches[name] = reach
        if not reaches:
            return None
        # One message for all who asked: as far as the farthest.
        return max(reaches.values()), [(name, value) for name, value in readings if name in reaches]

    def polled(self, request: Request, readings: Readings) -> Answer | None:
        """The readings that satisfy a condition of the request, to be told as far as it asks; nothing is kept."""
        return self.answer_to(request.conditions, request.within, readings)

    def answer_to(self, conditions: Sequence[Atom], within: float, readings: Readings) -> Answer | None:
        """The readings that satisfy one of some conditions, also those of classes above theirs."""
        return answer_to(conditions, within, readings, self._above, self._situations)


def answer_to(
    conditions: Sequence[Atom],
    within: float,
    readings: Readings,
    above: Above = only,
    situations: frozenset[str] = frozenset(),
) -> Answer | None:
    """The readings that satisfy one of some conditions."""
    found = []
    for name, value in readings:
        wider = told(name, value, above, situations)
        if any(one.name in wider and satisfies(one, value) is True for one in conditions):
            found.append((name, value))
    return (within, found) if found else None
