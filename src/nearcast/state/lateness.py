"""Which of an entity's reports is the newest: the one of the latest moment, not the last that came (semantics §11).

An event's moment is its own time, but never after its acceptance: a sender whose clock is ahead does not make late what
comes after it. An event of an earlier moment than the newest known of its entity is *late*: it is decided and delivered
as any other, and moves nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.arrays import Flags, Integers
from nearcast.model.columns import any_derived, are_derived, of_last_table
from nearcast.model.event import Event

NEVER = np.iinfo(np.int64).min
"""Times are microseconds since 1970; this stands for one that is not known."""

FOREVER = np.iinfo(np.int64).max
"""And this for one that never comes."""


def is_older(event: Event, other: Event) -> bool:
    """Whether an event is of an earlier moment than another: late, where that is the newest of its entity."""
    own, known = event.moment, other.moment
    return own is not None and known is not None and own < known


@of_last_table
def moments_of(events: pa.Table) -> Integers:
    """The moment of each event of a table of EVENTS, as `Event.moment` has it; not to be written to."""
    columns = events.column("time"), events.column("accepted")
    there = [column for column in columns if column.null_count < len(column)]
    if len(there) < 2:
        # Of most publishers one of the two is all there is.
        return times_of(there[0] if there else columns[0])
    time, accepted = map(times_of, columns)
    if not any(column.null_count for column in columns):
        return np.minimum(time, accepted)
    both = np.where(time == NEVER, accepted, time)
    return np.where((accepted != NEVER) & (accepted < both), accepted, both)


def order_of(events: pa.Table) -> Integers:
    """By which moment each event is newer than others of its entity: `NEVER` for derived ones, of which the last
    emitted is the newest. They are of the moment at which something fell due, perhaps before that of earlier ones.
    """
    moments = moments_of(events)
    return np.where(are_derived(events), NEVER, moments) if any_derived(events) else moments


def times_of(column: pa.ChunkedArray) -> Integers:
    """A column of times as microseconds since 1970, `NEVER` where there is none; not to be written to."""
    # Of a small batch every call of Arrow counts, and all stages ask for its moments.
    if column.null_count == len(column):
        return np.full(len(column), NEVER)
    if column.num_chunks == 1 and not column.null_count:
        return column.chunk(0).view(pa.int64()).to_numpy()
    return pc.fill_null(pc.cast(column, pa.int64()), NEVER).to_numpy().astype(np.int64)


def counting(number: Integers, moment: Integers, known: npt.NDArray[Any]) -> Flags:
    """Which reports count, of entities by number in the order of the journal: not those that are late.

    `known` has the moment of each entity's newest report so far. One without a moment is never late, and after it
    nothing is, until another one has a moment.
    """
    if (moment >= known[number]).all() and (moment[1:] >= moment[:-1]).all():
        # None is before any other one, whose ever it is.
        return np.ones(len(number), np.bool_)
    order = np.argsort(number, kind="stable")
    entity, time = number[order], moment[order]
    first = np.append(True, entity[1:] != entity[:-1])[: len(entity)]
    before = np.where(first, known[entity], np.append(NEVER, time[:-1])[: len(time)])
    counts = np.ones(len(number), np.bool_)
    # Seldom is any out of order: only entities with such reports are gone through one by one.
    early = (time < before) & (time != NEVER)
    if not early.any():
        return counts
    doubtful = np.unique(entity[early])
    newest = {one: int(known[one]) for one in doubtful.tolist()}
    for index in np.flatnonzero(np.isin(number, doubtful)).tolist():
        one, own = int(number[index]), int(moment[index])
        counts[index] = own == NEVER or own >= newest[one]
        if counts[index]:
            newest[one] = own
    return counts
