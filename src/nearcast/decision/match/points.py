"""Places as arrays, and rows of bits from flags: what location atoms are computed with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.decision.location import Floats
from nearcast.decision.match.rows import Rows
from nearcast.model.place import Place

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Points:
    """Places as arrays of one shape: whether known, whether geographic, x, y, and z (0 and not `high` if unknown)."""

    known: Flags
    geographic: Flags
    x: Floats
    y: Floats
    z: Floats
    high: Flags

    def take(self, index: npt.NDArray[np.intp] | Flags) -> Points:
        """The points at these indices, or where these flags are set."""
        return Points(*(getattr(self, name)[index] for name in Points.__slots__))

    def joined(self, others: Points) -> Points:
        """These points, and others behind them."""
        return Points(*(np.concatenate([getattr(self, name), getattr(others, name)]) for name in Points.__slots__))

    def replaced(self, index: npt.NDArray[np.intp], others: Points) -> Points:
        """The points with others in these places."""
        found = Points(*(getattr(self, name).copy() for name in Points.__slots__))
        for name in Points.__slots__:
            getattr(found, name)[index] = getattr(others, name)
        return found

    def lanes(self, first: int, last: int) -> Points:
        """The points from `first` up to but not including `last`."""
        return Points(*(getattr(self, name)[first:last] for name in Points.__slots__))

    def upright(self) -> Points:
        """The points as a column, to be met with a row of others."""
        return Points(*(getattr(self, name)[:, None] for name in Points.__slots__))


def points_of(places: Sequence[Place | None]) -> Points:
    """Places as arrays; None is unknown."""
    there = [place if place else Place("planar", 0.0, 0.0) for place in places]
    return Points(
        np.array([place is not None for place in places], np.bool_),
        np.array([place.coordinates == "geographic" for place in there], np.bool_),
        np.array([place.x for place in there], np.float64),
        np.array([place.y for place in there], np.float64),
        np.array([place.z or 0.0 for place in there], np.float64),
        np.array([place.z is not None for place in there], np.bool_),
    )


def event_points(table: pa.Table) -> Points:
    """The places of the events of a table of EVENTS."""
    coordinates, z = table.column("coordinates"), table.column("z")
    return Points(
        np.asarray(coordinates.is_valid()),
        np.asarray(pc.equal(coordinates, "geographic").fill_null(False)),
        table.column("x").fill_null(0.0).to_numpy(),
        table.column("y").fill_null(0.0).to_numpy(),
        z.fill_null(0.0).to_numpy(),
        np.asarray(z.is_valid()),
    )


def pack(flags: Flags, width: int) -> Rows:
    """Flags of shape (n, lanes) as rows of bits, shape (n, words)."""
    padded = np.zeros((flags.shape[0], width * 64), np.bool_)
    padded[:, : flags.shape[1]] = flags
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
