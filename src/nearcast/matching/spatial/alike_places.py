"""Events at one place: what rests on the place alone is decided once for all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.arrays import Integers


class AlikePlaces(NamedTuple):
    """Of some events the first of each place, and for each event which of those places is its own."""

    first: Integers
    which: Integers


def alike_places(events: pa.Table) -> AlikePlaces:
    """The places of the events of a table of EVENTS."""
    kinds = events.column("coordinates").combine_chunks().dictionary_encode()
    if isinstance(kinds, pa.ChunkedArray):
        kinds = kinds.combine_chunks()
    columns = [pc.fill_null(kinds.indices, -1).to_numpy().astype(np.int64)]
    # As they are in memory: two that are equal to the last bit are alike, and no number stands for none.
    columns += [pc.fill_null(events.column(name), np.nan).to_numpy().view(np.int64) for name in ("x", "y", "z")]
    keys = np.ascontiguousarray(np.stack(columns, axis=1)).view(np.dtype((np.void, 32)))[:, 0]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return AlikePlaces(first, which)
