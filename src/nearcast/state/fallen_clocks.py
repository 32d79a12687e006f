"""Senders whose clocks fell back: reports in a row that are far before their entity's newest, so that nothing moves.

A receiver whose count of weeks rolls over goes on 1,024 weeks earlier. All that it reports from then on is late
(semantics §11), until it is right again; nothing else says so. What is noticed here decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.arrays import Flags, Integers
from nearcast.model.event import CLOCK_FALL
from nearcast.state.lateness import moments_of
from nearcast.state.repository import entities

FALL = CLOCK_FALL // timedelta(microseconds=1)
"""The same in microseconds."""

IN_A_ROW = 3
"""So many such reports, none between them that counts: one alone may have been held up."""

WATCHED = 10_000
"""Entities of which such reports are counted at a time; of more those are left out that began first."""

SOURCES = 100
"""Sources that are known by name; the reports of more are counted together."""

OTHERS = "(others)"
"""The name of those."""


@dataclass(slots=True)
class FallenClock:
    """Of a source whose clock fell back: the entity and the moments, in microseconds, by which that was noticed first;
    how many reports there were so far.
    """

    entity: str
    newest: int
    came: int
    position: int
    reports: int = 0


class FallenClocks:
    """Notices clocks that fell back; `by_source` has those that did since this began."""

    def __init__(self) -> None:
        self.by_source: dict[str, FallenClock] = {}
        self._in_a_row: dict[str, int] = {}

    def follow(self, events: pa.Table, counts: Flags, known: Integers) -> None:
        """The next events, with which of them are not late, and the moment that was known of the entity of each."""
        if counts.all() and not self._in_a_row:
            return
        moments = moments_of(events)
        rows = self._concerned(events, counts, known, moments)
        some = events.select(["about", "subject", "source"]).take(pa.array(rows))
        names, sources = entities(some).to_pylist(), some.column("source").to_pylist()
        columns = (events.column("position").to_numpy(), counts, moments, known)
        newest: dict[str, int] = {}
        for name, source, position, counted, own, before in zip(
            names, sources, *(column[rows].tolist() for column in columns), strict=True
        ):
            if counted:
                newest[name] = own
                self._in_a_row.pop(name, None)
            elif newest.get(name, before) - own >= FALL:
                self._note(source, FallenClock(name, newest.get(name, before), own, position))

    def _concerned(self, events: pa.Table, counts: Flags, known: Integers, moments: Integers) -> Integers:
        """The rows of entities of which one is late enough, or was. Seldom are there any."""
        late = np.flatnonzero(~counts)
        newest = moments[counts].max(initial=np.iinfo(np.int64).min)
        # As floats: there are times of any year, and one that is not known.
        behind = np.maximum(known[late], newest).astype(np.float64) - moments[late] >= FALL
        if not behind.any() and not self._in_a_row:
            return np.zeros(0, np.int64)
        named = entities(events)
        wanted = [*pc.unique(named.take(pa.array(late[behind]))).to_pylist(), *self._in_a_row]
        return np.flatnonzero(pc.is_in(named, value_set=pa.array(wanted, pa.string())).to_numpy())

    def _note(self, source: str, found: FallenClock) -> None:
        many = self._in_a_row[found.entity] = self._in_a_row.pop(found.entity, 0) + 1
        if len(self._in_a_row) > WATCHED:
            del self._in_a_row[next(iter(self._in_a_row))]
        if many >= IN_A_ROW:
            name = source if source in self.by_source or len(self.by_source) < SOURCES else OTHERS
            self.by_source.setdefault(name, found).reports += IN_A_ROW if many == IN_A_ROW else 1
