"""What Spark's Python workers do with the record batches of a partition; nothing here knows Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.api.event_rows import content_of, event_of
from nearcast.api.frames import events_of
from nearcast.errors import EventError, Fault
from nearcast.language.cloudevents import DeadLetter
from nearcast.language.control_events import changes
from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.spatial.geometry_sharing import match_within_budget
from nearcast.model.columns import EVENTS, are_control, to_table
from nearcast.model.event import Event
from nearcast.model.sequence import BITS
from nearcast.model.subscription import Channel
from nearcast.stages.decide import decide, priorities
from nearcast.stages.fold import FoldedBatch, StateFold
from nearcast.state.derived import derived_of
from nearcast.state.registry import Registry
from nearcast.state.timeline import Environment

Parts = Iterable[pa.RecordBatch]
Rows = npt.NDArray[np.int64]

ROWS = 10_000
"""Rows that are read at once."""

PAIRS = 1 << 26
"""Pairs that may be in memory at once: where every row meets every filter, half a gigabyte."""

OUT = 1 << 16
"""Rows of a record batch that goes back."""

SHOWN = 300
"""Characters of a dead letter that an error shows."""

DELIVERED = ("event", "client", "subscription", "level", "priority")
DERIVED = ("event", "type", "content")
"""The columns of a delivery and of a derived event, behind those that are kept."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the rows of record batches are events: by their columns, as the JSON in the column `cloudevents`, or as an
    archive has them.

    `names` are those of the batches' columns, in their order, `keep` the ones that go into the outcome, `columns` those
    of the event. Rows that are no events are dropped or, if not `drop`, an error.
    """

    names: tuple[str, ...]
    keep: tuple[str, ...]
    columns: tuple[str, ...]
    cloudevents: str | None
    drop: bool
    channels: tuple[Channel, ...] = ()
    archived: bool = False

    def events(self, part: pa.RecordBatch, first: int = 0, letters: list[DeadLetter] | None = None) -> pa.Table:
        """The rows as EVENTS, `position` the row's number, counted from `first`, plus 1.

        Dead letters are added to `letters`, if given. Raises `EventError` for the first unless they are dropped.
        """
        if self.archived:
            return archived_table(part, first)
        found: list[DeadLetter] = []
        if self.cloudevents is None:
            table = events_of(part.select(list(self.columns)), first, found.append, self.channels)
        else:
            table = self._of_json(part.column(self.cloudevents).to_pylist(), first, found)
        if letters is not None:
            letters += found
        elif found and not self.drop:
            raise dead(found[0])
        return table

    def _of_json(self, lines: Sequence[str | bytes | None], first: int, letters: list[DeadLetter]) -> pa.Table:
        events: list[Event] = []
        for row, line in enumerate(lines, first):
            try:
                event = event_of(line, row, self.channels)
            except EventError as error:
                letters.append(DeadLetter(error.fault, content_of(line)))
                continue
            events.append(replace(event, position=row + 1))
        return to_table(events)

    def parts(self, parts: Parts, rows: int) -> Iterator[pa.RecordBatch]:
        """The same rows, at most so many at once, their columns under their own names."""
        for part in parts:
            named = pa.RecordBatch.from_arrays(part.columns, names=list(self.names))
            for start in range(0, len(part), rows):
                yield named.slice(start, rows)

    def kept(self, part: pa.RecordBatch, rows: Rows) -> list[pa.Array]:
        """The columns that go into the outcome, at some rows."""
        which = pa.array(rows)
        return [part.column(name).take(which) for name in self.keep]


def archived_table(part: pa.RecordBatch, first: int) -> pa.Table:
    """Rows of an archive as EVENTS, `position` as `Reading.events` gives it; null is what was not read of them."""
    columns = [
        part.column(one.name) if one.name in part.schema.names else pa.nulls(len(part), one.type) for one in EVENTS
    ]
    table = pa.table(columns, names=EVENTS.names).cast(EVENTS)
    return table.set_column(0, EVENTS.field(0), pa.array(np.arange(first + 1, first + 1 + len(table))))


def dead(letter: DeadLetter) -> EventError:
    """The error for a row that is no event. Its number in a partition would say nothing: the row itself is shown."""
    shown = letter.content.decode(errors="replace")
    row = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
    advice = "; ".join(filter(None, [letter.fault.advice, "dead_letters='drop' leaves such rows out"]))
    return EventError(Fault(letter.fault.expected, f"{letter.fault.came} in the row {row}", None, advice))


@dataclass(frozen=True, slots=True)
class Match:
    """The pairs of rows and filters: kept columns, without any the event's id, then the filter's name."""

    reading: Reading
    names: tuple[str, ...]
    index: FilterMatcher
    around: Environment = field(default_factory=Environment)

    def run(self, parts: Parts) -> Iterator[pa.RecordBatch]:
        """The pairs of each part."""
        names = pa.array(self.names, pa.string())
        for part in self.reading.parts(parts, min(ROWS, max(1, PAIRS // len(self.names)))):
            events = self.reading.events(part)
            pairs = match_within_budget(self.index.match, events, self.around)
            rows = events.column("position").to_numpy() - 1
            for start in range(0, len(pairs.lanes), OUT):
                lanes, groups = pairs.lanes[start : start + OUT], pairs.groups[start : start + OUT]
                kept = self.reading.kept(part, rows[lanes])
                ids = [] if kept else [_at(events, "id", lanes)]
                yield _batch([*kept, *ids, names.take(pa.array(groups))], [*(self.reading.keep or ["id"]), "filter"])


@dataclass(slots=True)
class Deliver:
    """Deliveries of rows that are decided alone, each from the definitions and nothing else."""

    reading: Reading
    registry: Registry
    batch: FoldedBatch | None = field(default=None)

    def run(self, parts: Parts) -> Iterator[pa.RecordBatch]:
        """The deliveries of each part."""
        for part in self.reading.parts(parts, ROWS):
            events = self.reading.events(part)
            control = are_control(events)
            if pc.any(control).as_py():
                raise _out_of_order(events.filter(control).column("type")[0].as_py())
            if self.batch is None:
                # The first rows show how values are spread; what is planned for them serves all that follow.
                [self.batch] = StateFold(self.registry, stages=()).fold(events, changes)
            yield from _delivered(self.reading, replace(self.batch, events=events), part, 0)


@dataclass(frozen=True, slots=True)
class DeliverInOrder:
    """Deliveries of all rows in their order, as `nearcast replay` gives them: a fold over the one partition."""

    reading: Reading
    registry: Registry

    def run(self, parts: Parts) -> Iterator[pa.RecordBatch]:
        """The deliveries of each part."""
        for batch, part, first in _in_order(self.reading, self.registry, parts):
            yield from _delivered(self.reading, batch, part, first)


@dataclass(frozen=True, slots=True)
class DeriveInOrder:
    """The events that relations, situations and actions derive from all rows in their order, whoever gets them."""

    reading: Reading
    registry: Registry

    def run(self, parts: Parts) -> Iterator[pa.RecordBatch]:
        """The derived events of each part, each with the kept columns of its cause's row."""
        for batch, part, first in _in_order(self.reading, self.registry, parts):
            derived = derived_of(batch.events)
            kept = self.reading.kept(part, derived.column("position").to_numpy() - 1 - first)
            columns = [
                *kept,
                *(derived.column(name).combine_chunks() for name in ("id", "type")),
                pc.cast(derived.column("payload"), pa.string()).combine_chunks(),
            ]
            yield from pa.table(columns, names=[*self.reading.keep, *DERIVED]).to_batches(OUT)


@dataclass(frozen=True, slots=True)
class DeadLetterRows:
    """The rows that are no events: kept columns and why."""

    reading: Reading

    def run(self, parts: Parts) -> Iterator[pa.RecordBatch]:
        """The dead letters of each part."""
        for part in self.reading.parts(parts, ROWS):
            letters: list[DeadLetter] = []
            taken = self.reading.events(part, 0, letters).column("position").to_numpy() - 1
            rows = np.setdiff1d(np.arange(len(part)), taken)
            faults = (replace(letter.fault, where=None) for letter in letters)
            reasons = pa.array([str(fault) for fault in faults], pa.string())
            yield _batch([*self.reading.kept(part, rows), reasons], [*self.reading.keep, "reason"])


Job = Match | Deliver | DeliverInOrder | DeriveInOrder | DeadLetterRows


def _in_order(reading: Reading, registry: Registry, parts: Parts) -> Iterator[tuple[FoldedBatch, pa.RecordBatch, int]]:
    """Each batch of all rows, its part and how many rows were before that. What is known grows with entities and
    relations, not with rows.
    """
    known, first = StateFold(registry.copy()), 0
    for part in reading.parts(parts, ROWS):
        for batch in known.fold(reading.events(part, first), changes):
            yield batch, part, first
        if known.refusals and not reading.drop:
            refusal = known.refusals[0]
            raise dead(DeadLetter(refusal.error.fault, refusal.event.payload))
        known.refusals.clear()
        first += len(part)


def _delivered(reading: Reading, batch: FoldedBatch, part: pa.RecordBatch, first: int) -> Iterator[pa.RecordBatch]:
    """The deliveries of a batch, each with the kept columns of its event's row, of a derived one its cause's."""
    found = decide(batch, batch.events, alternatives=False)
    if not len(found):
        return
    position = found.column("position").to_numpy()
    lanes = np.searchsorted(_sequences(batch.events), _sequences(found))
    columns = [
        *reading.kept(part, position - 1 - first),
        _at(batch.events, "id", lanes),
        found.column("client").combine_chunks(),
        found.column("subscription").combine_chunks(),
        pc.cast(found.column("level"), pa.int32()).combine_chunks(),
        pa.array(priorities(batch, found).astype(np.int32)),
    ]
    yield from pa.table(columns, names=[*reading.keep, *DELIVERED]).to_batches(OUT)


def _sequences(rows: pa.Table) -> Rows:
    position: Rows = rows.column("position").to_numpy()
    return position << BITS | rows.column("part").to_numpy()


def _at(events: pa.Table, name: str, lanes: Any) -> pa.Array:
    found = events.column(name).take(pa.array(lanes))
    return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)


def _batch(columns: list[pa.Array], names: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, names=names)


def _out_of_order(type_: str) -> EventError:
    advice = "say by order=[…] in which order the rows are to be decided, or filter such rows out"
    came = f"one of type {type_}, which changes what holds for those after it"
    return EventError(Fault("events about the world, which may be decided in any order", came, None, advice))
