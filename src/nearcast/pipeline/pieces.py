"""A batch of the query in pieces: however much is defined at once, no event waits for more than some of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from nearcast.model.columns import are_control

CHANGES = 1_500
"""Control events of one piece. To take a subscription costs a seventh of a millisecond, so that is a fifth of a second,
as 16,384 events of few deliveries take."""


def pieces(events: pa.Table, through: int, changes: int = CHANGES) -> Iterator[tuple[pa.Table, int]]:
    """The rows of EVENTS that a batch has, which ends at a position, in pieces with so many control events at most.

    With each comes the position that it ends at. What is not yet decided of a batch waits for the pieces before it.
    """
    control = np.flatnonzero(are_control(events))
    start = 0
    # A piece ends with its last control event: behind it are events that need not wait for the next one's.
    for last in control[changes - 1 : -1 : changes].tolist():
        yield events.slice(start, last + 1 - start), int(events.column("position")[last].as_py())
        start = last + 1
    yield events.slice(start), through
