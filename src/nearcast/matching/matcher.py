"""The columnar matcher: which events each group's filter selects, and at which level.

A group is a filter with classes for its atoms; clients with the same filter and the same classes share it, and it is
evaluated once (Agent §6.1.2). For every event the outcome is that of the plain evaluator, `filters.evaluate`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.matching.bitset import BitsetMatcher, FilterGroup, MatchedPairs
from nearcast.matching.postfix import PostfixFilters
from nearcast.model.filter import Atom, Entities, Filter, atoms
from nearcast.state.timeline import Environment

__all__ = ["FilterGroup", "FilterMatcher", "MatchedPairs", "location_conditions"]

SAMPLED = 4096
"""Of a batch so many events tell how its values are spread."""

MANY = 200
"""Groups from which on the engine is used: below, rows of bits do, and nothing has to be compiled."""


class FilterMatcher:
    """Groups that do not change, numbered in their order; it may be pickled.

    From `many` on they are matched by the engine; rows of bits do for few, and for what the engine does not take.
    Groups whose filters go too deep for either are `left_out`: they select nothing and take nothing else down.
    `conditions` are filters of location terms whose lanes `selected` gives. Codes of columns with more than `narrow` of
    them take 32 bits; None: as many as 16 bits can hold. `flat` is what reading the groups gave, if that was done.
    """

    def __init__(
        self,
        groups: Sequence[FilterGroup],
        conditions: Sequence[Filter] = (),
        many: int = MANY,
        narrow: int | None = None,
        flat: PostfixFilters | None = None,
    ) -> None:
        self._many = None
        if len(groups) >= many:
            # Compiled code takes a second to import, and few need it.
            from nearcast.matching.engine_matcher import EngineMatcher

            self._many = EngineMatcher(groups, flat=flat) if narrow is None else EngineMatcher(groups, narrow, flat)
        left = range(len(groups)) if self._many is None else self._many.refused
        self._left = np.array(left, np.int64)
        self._bits = BitsetMatcher([groups[number] for number in left], conditions)
        self.left_out = self._left[self._bits.left_out].tolist()

    def prepare(self, table: pa.Table, around: Environment) -> None:
        """Does once what matching events like these needs, so that nobody to whom the index is sent has to."""
        if self._many:
            self._many.prepare(table.slice(0, SAMPLED), around)

    @property
    def large(self) -> bool:
        """Whether it is matched by the engine."""
        return self._many is not None

    def planned_without_sample(self, events: int) -> bool:
        """Whether it was made for events that nobody had seen, and so many would show how they are."""
        return self._many is not None and self._many.planned_without_sample(events)

    def match(self, table: pa.Table, around: Environment) -> MatchedPairs:
        """The pairs of a table of EVENTS, ascending by position, with all groups, in no particular order."""
        few = self._bits.match(table, around)
        if not self._many:
            return few
        many = self._many.match(table, around)
        if not len(few.lanes):
            return many
        return MatchedPairs(
            np.concatenate([few.lanes, many.lanes]),
            np.concatenate([self._left[few.groups], many.groups]),
            np.concatenate([few.levels, many.levels]),
        )

    def held(self, table: pa.Table, around: Environment) -> list[npt.NDArray[np.bool_]]:
        """For each condition, which events of the table satisfy it in their surroundings, in whose `excess` is counted
        what comes to one of the limits.
        """
        return self._bits.held(table, around)


def location_conditions(filter: Filter) -> list[Entities]:
    """The `uform(…)` references in a filter's location terms."""
    found = []
    for atom in atoms(filter):
        if not isinstance(atom.name, str):
            found += [side for side in _sides_of(atom) if isinstance(side, Entities)]
    return found


def _sides_of(atom: Atom) -> list[object]:
    term = atom.name
    return [getattr(term, side) for side in ("a", "b", "of", "around") if hasattr(term, side)]
