"""Events that are derived from events: the seam of the stages between known and match, and the order of what they give.

    known → relate → infer → match → adapt

A stage folds the events of the world and says what follows from them, each derived event at the position of its cause.
It is decided as of there, in the same batch; so the outcome rests on the journal alone, not on where batches are cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from weakref import ref

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import Fault
from nearcast.model.changes import Change
from nearcast.model.columns import any_derived, are_derived, to_table
from nearcast.model.event import Event, Place, cloud_event
from nearcast.model.sequence import MOST_PARTS
from nearcast.model.values import Value
from nearcast.state.registry import Registry
from nearcast.state.repository import NewestEvents
from nearcast.state.stream_clocks import StreamClocks
from nearcast.state.timeline import Excess

At = tuple[int, Change]
"""A change and the position of the event that makes it."""


@dataclass(frozen=True, slots=True)
class StageInput:
    """What a stage is given of a batch: changes and events, both ascending by position, and what is known around them.

    `times` are those of the control events that made the changes, by position. `events` is a table of EVENTS, those
    that earlier stages derived among them. Of `registry` the settings count; `repository` is as of the beginning, and
    stays so. A stage adds the position of a change that it leaves out, and why, to `refusals`; in `excess` it counts
    what it could not decide, of which events, for that came to a limit.
    """

    changes: Sequence[At]
    times: Mapping[int, datetime | None]
    events: pa.Table
    registry: Registry
    repository: NewestEvents
    refusals: list[tuple[int, Fault]] = field(default_factory=list)
    excess: Counter[Excess] = field(default_factory=Counter)


class DerivingStage(Protocol):
    """A stage that derives events. What it keeps from batch to batch can be pickled, and is part of a snapshot."""

    def passes_over(self, stage_input: StageInput) -> bool:
        """Whether a stretch of the journal is of no concern, as nothing is defined and no change defines anything.

        Then that it was there is noted, and `derive`, which would give nothing, is not called.
        """
        ...

    def derive(self, stage_input: StageInput) -> Iterable[Event | pa.Table]:
        """What follows from a stretch of the journal, each event with the position of its cause, ascending; some events
        may come together, as a table of EVENTS.

        It is taken to its end before the stage is asked for anything else.
        """
        ...

    @property
    def clocks(self) -> StreamClocks:
        """How far the clocks have come by what it was given so far."""
        ...

    def next_due(self, clocks: StreamClocks) -> int:
        """Microseconds until it would emit something when no event comes, from where the clocks stand so, all of which
        go on at one pace; not positive where it would at once, `FOREVER` where nothing is due.

        Where it would cost much to say, it is only said of what is due at once; else until when to ask again.
        """
        ...

    def forget(self, entities: Collection[str]) -> None:
        """Drops what is kept of some entities; what ends by that is emitted with the next event."""
        ...


AT_ONCE = 2_000
"""Derived events that become columns together: as objects they take several times as much memory."""

DERIVED = 4_096
"""Derived events that are in memory together, about: one or two kilobytes each. Those of one event always are. So many
are decided within some 50 milliseconds.
"""


def in_tables(derived: Iterable[Event | pa.Table]) -> Iterator[pa.Table]:
    """Derived events as tables: those of one position are in one table, and about `AT_ONCE` that come one by one."""
    waiting: list[pa.Table] = []
    for table in _tables(derived):
        if waiting and _last(waiting[-1]) < _first(table):
            yield pa.concat_tables(waiting)
            waiting = []
        waiting.append(table)
    if waiting:
        yield pa.concat_tables(waiting)


def _tables(derived: Iterable[Event | pa.Table]) -> Iterator[pa.Table]:
    events: list[Event] = []
    for one in derived:
        if isinstance(one, Event):
            events.append(one)
        if events and (len(events) == AT_ONCE or not isinstance(one, Event)):
            yield to_table(events)
            events = []
        if not isinstance(one, Event) and len(one):
            yield one
    if events:
        yield to_table(events)


def _first(table: pa.Table) -> int:
    return int(table.column("position")[0].as_py())


def _last(table: pa.Table) -> int:
    return int(table.column("position")[-1].as_py())


def merge_tables(sources: Sequence[Iterable[pa.Table]], first: Collection[tuple[int, int]]) -> Iterator[pa.Table]:
    """What several derive, ascending by position; of one position in the order of the sources, those in front that are
    `first` there: (position, number of the source).

    Of each source one table is in memory.
    """
    streams = [in_tables(source) for source in sources]
    waiting = [next(stream, None) for stream in streams]
    while any(table is not None for table in waiting):
        # What all have told, as far as they are.
        until = min(_last(table) for table in waiting if table is not None)
        found = []
        for number, table in enumerate(waiting):
            if table is None:
                continue
            count = int(np.searchsorted(table.column("position").to_numpy(), until, "right"))
            found.append((number, table.slice(0, count)))
            waiting[number] = table.slice(count) if count < len(table) else next(streams[number], None)
        position = np.concatenate([table.column("position").to_numpy() for _, table in found])
        source = np.repeat([number for number, _ in found], [len(table) for _, table in found])
        behind = np.array([one not in first for one in zip(position.tolist(), source.tolist(), strict=True)], np.bool_)
        order = np.lexsort((source, behind, position))
        yield pa.concat_tables([table for _, table in found]).take(pa.array(order))


def pieces(events: pa.Table, derived: Iterable[Event | pa.Table], most: int) -> Iterator[tuple[pa.Table, int | None]]:
    """The events with those derived from them, in pieces with so many derived events at most, or those of one position.

    Each piece comes with the position before which it ends; the last one without. Nothing more is derived than the
    piece after the present one begins with.
    """
    waiting: list[pa.Table] = []
    count = done = 0
    positions = events.column("position").to_numpy()
    for table in (part for whole in in_tables(derived) for part in _cut(whole, most)):
        if waiting and count + len(table) > most:
            until = _first(table)
            end = int(np.searchsorted(positions, until))
            yield merge_derived(events.slice(done, end - done), waiting), until
            waiting, count, done = [], 0, end
        waiting.append(table)
        count += len(table)
    # As it is where nothing was derived: what is known of the whole table is then known of the piece.
    yield merge_derived(events.slice(done) if done else events, waiting), None


def _cut(table: pa.Table, most: int) -> Iterator[pa.Table]:
    """A table in parts of so many rows at most, or of those of one position."""
    position = table.column("position").to_numpy()
    start = 0
    while start < len(position):
        stop = start + most
        if stop < len(position):
            begin = int(np.searchsorted(position, position[stop], "left"))
            stop = begin if begin > start else int(np.searchsorted(position, position[start], "right"))
        yield table.slice(start, stop - start)
        start = stop


def merge_derived(events: pa.Table, derived: Iterable[Event | pa.Table]) -> pa.Table:
    """The events with those derived from them, each behind its cause and what was derived from that before.

    Derived events get their parts here; of equal position they keep their order.
    """
    tables = list(_tables(derived))
    if not tables:
        return events
    added = pa.concat_tables(tables)
    if not np.all(np.diff(added.column("position").to_numpy()) >= 0):
        added = added.take(pc.sort_indices(added, [("position", "ascending")]))
    taken = derived_of(events).column("position").to_numpy()
    parts = _parts(added.column("position").to_numpy(), taken)
    column = added.schema.get_field_index("part")
    added = added.set_column(column, added.schema.field(column), pa.array(parts, pa.int32()))
    found = _interleaved(events, added)
    # What one event causes may be very much, and is not to stay in memory for this.
    if not len(taken) and len(added) <= 2 * DERIVED:
        _MERGED.last = ref(found), added
    return found


class _Merged:
    """The last table with derived events that was made, and these alone: choosing them once more would copy them."""

    last: tuple[ref[pa.Table], pa.Table] | None = None


_MERGED = _Merged()


FEW = 32
"""Derived events of an event on average from which on tables are put together from slices: `take` is slower then."""


def _interleaved(events: pa.Table, added: pa.Table) -> pa.Table:
    """Both by position and part; each ascends, and of one position what is added is behind."""
    if len(added) < FEW * len(events):
        together = pa.concat_tables([events, added])
        return together.take(pc.sort_indices(together, [("position", "ascending"), ("part", "ascending")]))
    position, other = (table.column("position").to_numpy() for table in (events, added))
    first = np.append(0, np.searchsorted(other, position, "left"))
    cut = zip(first.tolist(), np.append(first[1:], len(other)).tolist(), strict=True)
    slices = [added.slice(start, stop - start) for start, stop in cut]
    rows = (events.slice(number, 1) for number in range(len(events)))
    found = pa.concat_tables([slices[0], *(one for both in zip(rows, slices[1:], strict=True) for one in both)])
    # As one piece, for whatever looks at it looks piece by piece; but what one event causes may be very much.
    return found.combine_chunks() if len(added) <= 2 * DERIVED else found


def derived_of(events: pa.Table) -> pa.Table:
    """Those rows of a table of EVENTS that are derived."""
    if _MERGED.last is not None and _MERGED.last[0]() is events:
        return _MERGED.last[1]
    return events.filter(pa.array(are_derived(events))) if any_derived(events) else events.slice(0, 0)


def _parts(
    positions: np.ndarray[tuple[int], np.dtype[np.int64]], taken: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The parts of derived events at ascending positions, behind the ones that are taken at each, ascending too."""
    first = np.searchsorted(positions, positions, "left")
    already = np.searchsorted(taken, positions, "right") - np.searchsorted(taken, positions, "left")
    parts = np.arange(len(positions)) - first + already + 1
    # A sequence has room for so many; one event that causes more is a definition gone wrong, and is reported as such.
    if len(parts) and int(parts.max()) > MOST_PARTS:
        raise OverflowError(f"expected at most {MOST_PARTS:,} events derived from one, got {int(parts.max()):,}")
    return parts


@dataclass(frozen=True, slots=True)
class Cause:
    """The event that something is derived as of: its place in the journal, its time, when it was accepted."""

    position: int
    time: datetime | None
    accepted: datetime | None

    @property
    def moment(self) -> datetime | None:
        """When it happened, as far as that is known; never after its acceptance."""
        if self.time is None or self.accepted is None:
            return self.time or self.accepted
        return min(self.time, self.accepted)


def derived_event(
    type_: str,
    source: str,
    id: str,
    subject: str,
    data: Any,
    cause: Cause,
    place: Place | None,
    part: int = 0,
    time: datetime | None = None,
) -> Event:
    """The event of a type, about a subject, that a cause brings about; its attributes are those of its data.

    `time`: when what it tells came to be, where that is not the moment of the cause.
    """
    time = time or cause.moment
    document = {**cloud_event(id, type_, source, subject, time), "data": data}
    attributes: list[tuple[str, Value]] = [("specversion", "1.0")]
    for name, value in data.items() if isinstance(data, dict) else (("data", data),):
        add_attributes(f"data.{name}" if name in document and isinstance(data, dict) else name, value, attributes)
    return Event(
        id=id,
        type=type_,
        source=source,
        subject=subject,
        time=time,
        place=place,
        attributes=tuple(attributes),
        payload=orjson.dumps(document),
        accepted=cause.accepted,
        position=cause.position,
        part=part,
    )


def add_attributes(name: str, value: Any, to: list[tuple[str, Value]]) -> None:
    """Adds the attributes that data makes, as at the door: nested names are dotted, lists repeat."""
    if isinstance(value, dict):
        for key, child in value.items():
            add_attributes(f"{name}.{key}", child, to)
    elif isinstance(value, list):
        for child in value:
            add_attributes(name, child, to)
    elif value is not None:
        to.append((name, value))
