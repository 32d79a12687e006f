"""Events sorted by a column, so that those with codes in a range lie side by side: a counting sort, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.kept import compiled

Integers = npt.NDArray[np.int64]
Short = npt.NDArray[np.int32]


class Repeated(NamedTuple):
    """The columns in which lanes have several values: see `match.codes.Coded`; `mark` is the code of such a lane."""

    which: Integers
    starts: Integers
    values: Any
    mark: int


class Events(NamedTuple):
    """A block of events sorted by a column: lane `order[r]` is r-th, those with code v are `start[v]` … `start[v + 1]`.

    `codes` are the columns in this order, one behind the other, `stride` apart. `rows` are those of opaque literals,
    by lane of the batch, `near` the block's lanes near atom a from `near_starts[a]` on. `complete` are the columns in
    which every lane has a value. `stack` is work space.
    """

    start: Short
    order: npt.NDArray[np.uint16]
    codes: Any
    stride: int
    complete: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.uint64]
    near_starts: Short
    near: Short
    stack: npt.NDArray[np.uint64]


@compiled
def sort(codes: Any, column: int, first: int, lanes: int, size: int, needed: Short, events: Any, repeated: Any) -> int:
    """Sorts the lanes from `first` on by a column's codes below `size`, and the needed columns with them.

    Returns how many there are: lanes without a value are left out, lanes with several stand under each.
    """
    start, order, own = events.start, events.order, codes[column]
    for code in range(size + 2):
        start[code] = 0
    for lane in range(first, first + lanes):
        if own[lane] < size:
            start[own[lane] + 1] += 1
    if repeated is not None:
        _count_repeated(column, first, lanes, start, repeated)
    for code in range(size + 1):
        start[code + 1] += start[code]
    total = start[size]
    # Each count moves on as its lanes are placed, and is then what the next one was: all are shifted back by one.
    for lane in range(first, first + lanes):
        code = own[lane]
        if code < size:
            order[start[code]] = lane - first
            start[code] += 1
    if repeated is not None:
        _place_repeated(column, first, lanes, start, order, repeated)
    for code in range(size, 0, -1):
        start[code] = start[code - 1]
    start[0] = 0
    for which in needed:
        source, target = codes[which, first:], events.codes[which * events.stride :]
        for rank in range(total):
            target[rank] = source[order[rank]]
    return total


@compiled
def _count_repeated(column: int, first: int, lanes: int, start: Short, repeated: Any) -> None:
    which = repeated.which[column]
    if which >= 0:
        for lane in range(first, first + lanes):
            begin, end = repeated.starts[which, lane], repeated.starts[which, lane + 1]
            if end - begin > 1:
                for index in range(begin, end):
                    start[repeated.values[index] + 1] += 1


@compiled
def _place_repeated(column: int, first: int, lanes: int, start: Short, order: Short, repeated: Any) -> None:
    which = repeated.which[column]
    if which >= 0:
        for lane in range(first, first + lanes):
            begin, end = repeated.starts[which, lane], repeated.starts[which, lane + 1]
            if end - begin > 1:
                for index in range(begin, end):
                    order[start[repeated.values[index]]] = lane - first
                    start[repeated.values[index]] += 1


@compiled
def gather(codes: Any, lanes: Short, first: int, needed: Short, events: Any) -> None:
    """These lanes in this order, however often each: `events.start` says already where which of them are."""
    for rank in range(len(lanes)):
        events.order[rank] = lanes[rank]
    for which in needed:
        base, source = which * events.stride, codes[which]
        for rank in range(len(lanes)):
            events.codes[base + rank] = source[first + lanes[rank]]


@compiled
def as_they_are(codes: Any, first: int, lanes: int, needed: Short, events: Any) -> None:
    """The lanes from `first` on in their own order, for entries that look at all events."""
    for lane in range(lanes):
        events.order[lane] = lane
    for which in needed:
        base, source = which * events.stride, codes[which]
        for lane in range(lanes):
            events.codes[base + lane] = source[first + lane]
    events.start[0], events.start[1] = 0, lanes
