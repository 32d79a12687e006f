"""Many groups matched by the engine, and by rows of bits what it does not take and the literals it is told of."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from nearcast.matching.batch_columns import pack, words
from nearcast.matching.bitset import BitsetMatcher, MatchedPairs
from nearcast.matching.column_tests import NARROW, Coded
from nearcast.matching.engine import SAMPLE, CompiledEngine
from nearcast.matching.postfix import FilterGroup, PostfixFilters
from nearcast.matching.proximity import ProximityIndex
from nearcast.matching.warmup import start_warmup
from nearcast.model.filter import Atom, Filter, Not, Or, PlainNot
from nearcast.state.timeline import Environment

log = logging.getLogger("nearcast.matcher")

PATIENT = 20_000
"""Groups from which on compiling the kernels is waited for: to make rows of bits of so many would take as long."""

REPLANNED = 5_000
"""Groups up to which they are planned again, while a batch waits, once events are seen: some milliseconds."""


class EngineMatcher:
    """Groups matched by the engine, with an index of the literals that the engine must be told of.

    Until its kernels are compiled, rows of bits do the same.
    """

    def __init__(self, groups: Sequence[FilterGroup], narrow: int = NARROW, flat: PostfixFilters | None = None) -> None:
        self._engine = CompiledEngine(groups, narrow, flat)
        self.refused = self._engine.refused
        self._literals = BitsetMatcher(())
        self._nearby = ProximityIndex(self._engine.nearby)
        self._count = len(groups)
        # Until it is planned, rows of bits may have to be made of them.
        self._groups: Sequence[FilterGroup] = groups
        self._planned = False
        self._rows: BitsetMatcher | None = None

    def prepare(self, table: pa.Table, around: Environment) -> Coded | None:
        """Plans for events like these, and gives them as codes; None if the kernels are not there yet."""
        if not self._planned and self._count < PATIENT and not start_warmup(self._engine.wide):
            self._rows = self._rows or self._as_rows()
            return None
        batch = self._engine.encode(table)
        again = 0 < self._count < REPLANNED and self.blind(len(table))
        if again or not self._planned:
            self._engine.prepare(batch, self._nearby.shares(table, around))
            self._nearby.follow(self._engine.around)
            self._literals = BitsetMatcher((), [_as_wanted(atom, wanted) for atom, wanted in self._engine.literals])
            if self._rows:
                log.info("the kernels of the matcher are compiled filters=%d", self._count)
            self._planned, self._rows, self._groups = True, None, ()
        return batch

    def blind(self, events: int) -> bool:
        """Whether it was planned without a sample of events, and so many would be one."""
        return self._planned and self._engine.sampled < SAMPLE <= events

    def __getstate__(self) -> dict[str, Any]:
        # Who is sent a plan does not make another, which would be for one batch.
        return {**self.__dict__, "_count": 0 if self._planned else self._count}

    def match(self, table: pa.Table, around: Environment) -> MatchedPairs:
        """The pairs of a table of EVENTS, ascending by position, with all groups, in no particular order."""
        batch = self.prepare(table, around)
        if batch is None:
            assert self._rows is not None
            return self._rows.match(table, around)
        near = self._nearby.near(table, around)
        if near is None:
            half = len(table) // 2
            return _joined(self.match(table.slice(0, half), around), self.match(table.slice(half), around), half)
        if not self._engine.literals:
            return MatchedPairs(*self._engine.pairs(batch, near=near))
        held = self._literals.held(table, around)
        flags = np.array(held, np.bool_).reshape(len(held), batch.lanes)
        return MatchedPairs(*self._engine.pairs(batch, pack(flags, words(batch.lanes) or 1), near))

    def _as_rows(self) -> BitsetMatcher:
        """An index of the same groups without the engine; what the engine refuses is matched elsewhere already."""
        nothing: FilterGroup = (Or(()), ())
        refused = set(self.refused)
        groups = [nothing if number in refused else group for number, group in enumerate(self._groups)]
        return BitsetMatcher(groups)


def _joined(first: MatchedPairs, second: MatchedPairs, lanes: int) -> MatchedPairs:
    """The pairs of a table's first lanes and those of the others."""
    return MatchedPairs(
        np.concatenate([first.lanes, second.lanes + np.int32(lanes)]),
        np.concatenate([first.groups, second.groups]),
        np.concatenate([first.levels, second.levels]),
    )


def _as_wanted(atom: Atom, wanted: int) -> Filter:
    """A filter that is TRUE where an atom has the truth that is wanted of it."""
    return (atom, Not(atom), PlainNot(atom), PlainNot(Not(atom)))[wanted]
