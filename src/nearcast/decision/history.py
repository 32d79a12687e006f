"""History through the stages in this process: what a small file needs no cluster for."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from nearcast.decision.known import Batch, Known, Parse
from nearcast.decision.stages import decide


def replay(known: Known, stretches: Iterator[pa.Table], parse: Parse) -> Iterator[tuple[Batch, pa.Table]]:
    """Each batch of these tables of EVENTS, ascending by position, with its DELIVERIES."""
    for table in stretches:
        for batch in known.advance(table, parse):
            yield batch, decide(batch, batch.events, alternatives=False)
