"""What one atom may take for one event where it compares geometries, and all atoms together (semantics §12)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nearcast.model.limits import Limits


@dataclass(slots=True)
class GeometryWork:
    """What one atom has taken for one event of what it may; `beyond` is the name of the limit that it has come to."""

    limits: Limits = field(default_factory=Limits)
    beyond: str = ""
    corners: int = 0
    spent: int = 0
    read_texts: dict[str, int] = field(default_factory=dict)
    """The texts that were read as geometries, each with the units of that."""
    comparing: bool = True
    """Whether geometries are compared; else it is only noted, in `lacking`, that they would have to be."""
    lacking: bool = False
    told: Callable[[str], Any] | None = None
    """Gives the geometry that a text tells, where what is around it is known; else texts are read."""
    _reading: int = 0

    @property
    def compared(self) -> int:
        """The units beside those of reading, no more than an atom may take."""
        return max(0, min(self.spent, self.limits.geometry_work) - self._reading)

    @property
    def reason(self) -> str:
        """Why not all was done; empty if it was."""
        if not self.beyond:
            return ""
        what = "its geometries have" if self.beyond == "geometry_corners" else "comparing its geometries takes"
        unit = "corners" if self.beyond == "geometry_corners" else "units of work"
        return f"{what} more than {getattr(self.limits, self.beyond):,} {unit} (limit {self.beyond})"

    def may_compare(self) -> bool:
        """Whether two geometries are compared that a look at what is around them does not decide."""
        self.lacking = self.lacking or not self.comparing
        return self.comparing

    def read(self, text: str, corners: int, units: int) -> bool:
        """Takes note of a geometry that is read; false where it is one too many, or takes too much by itself."""
        self.read_texts[text] = min(units, self.limits.geometry_work)
        self._reading += units
        self.corners += corners
        if self.corners > self.limits.geometry_corners:
            self.beyond = self.beyond or "geometry_corners"
        return self.spend(units)

    def spend(self, units: int) -> bool:
        """Takes note of work that is to be done; false where it is not to be done."""
        self.spent += units
        if self.spent > self.limits.geometry_work:
            self.beyond = self.beyond or "geometry_work"
        return not self.beyond


SPENT = "event_geometry_work"
"""The limit of what the atoms of all filters, or the pairs of all relations, may take for one event."""

READ_TOGETHER = 1 << 20
"""Characters of texts that are kept read, of each length: more than one event tells."""


@dataclass(slots=True)
class EventGeometryWork:
    """What atoms have taken for one event together: each geometry is read once for all of them. Where there are very
    many, as of readings, a text counts anew when `anew` characters of texts were read since.
    """

    limits: Limits
    anew: float = math.inf
    spent: int = 0
    _texts: set[str] = field(default_factory=set)
    _characters: int = 0

    @property
    def beyond(self) -> bool:
        """Whether it is as much as it may be, so that no other atom is decided."""
        return self.spent > self.limits.event_geometry_work

    def count(self, work: GeometryWork) -> None:
        """Takes note of what an atom took."""
        self.spent += work.compared
        for text, units in work.read_texts.items():
            if text not in self._texts:
                self._keep(text)
                self.spent += units

    def _keep(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > self.anew:
            self._texts.clear()
            self._characters = len(text)
        self._texts.add(text)
