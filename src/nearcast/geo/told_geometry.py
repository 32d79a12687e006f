"""Geometries that entities tell or filters have written, as they are known between comparisons: by what is around them.

Whether two are apart is seen in their boxes and circles, so their texts are read again only where they are compared.
That is counted (semantics §12); what is around a geometry is kept with the entity that tells it, and takes some
hundreds of bytes, where the geometry read may take as much for each ten of its corners.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from nearcast.geo.distance import Floats
from nearcast.geo.geometry_work import EdgeBoxes
from nearcast.geo.shapes import ALLOWED, Geometry, told, written
from nearcast.model.expression import Box, Shape
from nearcast.model.values import Value

KNOWN = 1 << 16
"""Literals of which is kept what is around them."""


class ToldGeometry(Geometry):
    """What is around a geometry that a text tells, or that is written; the rest is read again where it is asked for."""

    def __init__(self, source: str | Shape | Box, allowed: int, read: Geometry) -> None:
        known: dict[str, Any] = {
            "planar": read.planar,
            "corners": read.corners,
            "cost": read.cost,
            "readable": read.readable,
        }
        if read.readable:
            known |= {"bounds": read.bounds, "disc": read.disc, "single": read.single}
        # It is frozen, and what would be found once in its shape is known.
        self.__dict__.update(known, _source=source, _allowed=allowed)

    def _read(self) -> Geometry:
        source, allowed = self.__dict__["_source"], self.__dict__["_allowed"]
        found = told(source, allowed) if isinstance(source, str) else written(source, allowed)
        assert found is not None, "it was read before"
        return found

    @property
    def shape(self) -> Any:
        """Shapely's geometry."""
        return self._read().shape

    @property
    def edge_discs(self) -> tuple[Floats, Floats]:
        """See `Geometry`."""
        return self._read().edge_discs

    @property
    def edges(self) -> EdgeBoxes:
        """See `Geometry`."""
        return self._read().edges

    @property
    def counts(self) -> tuple[int, int, int]:
        """See `Geometry`."""
        return self._read().counts

    @property
    def tangled(self) -> int:
        """See `Geometry`."""
        return self._read().tangled


@lru_cache(maxsize=KNOWN)
def around_written(expression: Shape | Box, allowed: int = ALLOWED) -> ToldGeometry:
    """What is around a literal: of more than are kept read, those that are apart from what an event tells are not read
    for each event.
    """
    return ToldGeometry(expression, allowed, written(expression, allowed))


class ToldGeometries:
    """The geometries among the values that one event tells, each read where it is first asked for, and once."""

    def __init__(self, values: Iterable[Value], allowed: int = ALLOWED) -> None:
        self._allowed = allowed
        # What is no geometry is None; what has not been asked for has no place yet.
        self._known: dict[str, ToldGeometry | None] = {}
        self._texts = {value for value in values if isinstance(value, str) and value.startswith("{")}

    def __contains__(self, text: str) -> bool:
        return text in self._texts

    def __call__(self, text: str) -> ToldGeometry | None:
        """What a text tells; None where that is no geometry."""
        if text not in self._texts:
            return None
        if text not in self._known:
            read = told(text, self._allowed)
            self._known[text] = None if read is None else ToldGeometry(text, self._allowed, read)
        return self._known[text]
