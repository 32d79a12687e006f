"""Many groups matched by the engine, and by rows of bits what it does not take and the literals it is told of."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from nearcast.geo.columnar_index import always_there, grid_pairs
from nearcast.matching.batch_columns import pack, words
from nearcast.matching.bitset import BitsetMatcher, MatchedPairs
from nearcast.matching.column_tests import NARROW, Coded
from nearcast.matching.engine import SAMPLE, CompiledEngine
from nearcast.matching.kernels import numbered
from nearcast.matching.postfix import FilterGroup, PostfixFilters
from nearcast.matching.proximity import NOTHING_NEAR, ProximityIndex
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.filter import And, Atom, Distance, Filter, Not, Operator, Or, PlainNot, This, atoms
from nearcast.runtime.jit_warmup import mark_compiled, start_warmup
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
        again = 0 < self._count < REPLANNED and self.planned_without_sample(len(table))
        if again or not self._planned:
            self._engine.prepare(batch, self._nearby.shares(table, around))
            self._nearby.follow(self._engine.around)
            self._literals = BitsetMatcher((), [_as_wanted(atom, wanted) for atom, wanted in self._engine.literals])
            if self._rows:
                log.info("the kernels of the matcher are compiled filters=%d", self._count)
            self._planned, self._rows, self._groups = True, None, ()
        return batch

    def planned_without_sample(self, events: int) -> bool:
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


def compile_all(wide: bool) -> None:
    """Compiles all kernels by running each, and leaves the mark that they are there."""
    engine = CompiledEngine(_groups(), 0 if wide else NARROW)
    nearby = ProximityIndex(engine.nearby)
    for repeats in (False, True):
        table = to_table(_event(number, repeats) for number in range(SAMPLE))
        batch = engine.encode(table)
        engine.prepare(batch)
        nearby.follow(engine.around)
        pairs = MatchedPairs(
            *engine.pairs(batch, engine.no_rows(batch), nearby.near(table, Environment()) or NOTHING_NEAR)
        )
        numbered([(pairs, np.arange(len(_groups()), dtype=np.int32))])
    one = always_there(np.zeros((1, 3)))
    list(grid_pairs(one, np.ones(1), one))
    mark_compiled(wide)


def _groups() -> list[tuple[Filter, tuple[int, ...]]]:
    """Filters of all kinds: straight tests and trees, sets, opaque atoms, with and without a cover."""
    equal, below = Atom("a", Operator.EQ, 1), Atom("b", Operator.LT, 2)
    among, like = Atom("c", Operator.IN, ("x", "y")), Atom("c", Operator.LIKE, "x%")
    near = Atom(Distance(Place("geographic", 0.0, 0.0), This()), Operator.LE, 1.0)
    found: list[Filter] = [
        And((equal, below)),
        And((equal, Or((below, Not(among))))),
        Or((like, among)),
        Not(equal),
        near,
        Atom("d", Operator.EQ, True),
        Atom("type", Operator.EQ, "t"),
    ]
    return [(filter, (0,) * sum(1 for _ in atoms(filter))) for filter in found]


def _event(number: int, repeats: bool) -> Event:
    again = (("a", 2), ("c", "y")) * repeats
    given = (("a", number % 3), ("a", 0.5) if number % 5 == 0 else ("b", 1), ("c", "x"), ("d", True), *again)
    place = Place("geographic", number / 60, 0.0)
    return Event(id=str(number), type="t", source="s", place=place, attributes=given, position=number + 1)
