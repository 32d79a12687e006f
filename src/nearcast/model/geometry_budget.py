"""What one atom may take for one event where it compares geometries (semantics §12)."""

from __future__ import annotations

from dataclasses import dataclass, field

from nearcast.model.limits import Limits


@dataclass(slots=True)
class GeometryWork:
    """What one atom has taken for one event of what it may; `beyond` is the name of the limit that it has come to."""

    limits: Limits = field(default_factory=Limits)
    beyond: str = ""
    corners: int = 0
    spent: int = 0

    @property
    def reason(self) -> str:
        """Why not all was done; empty if it was."""
        if not self.beyond:
            return ""
        what = "its geometries have" if self.beyond == "geometry_corners" else "comparing its geometries takes"
        unit = "corners" if self.beyond == "geometry_corners" else "units of work"
        return f"{what} more than {getattr(self.limits, self.beyond):,} {unit} (limit {self.beyond})"

    def read(self, corners: int, units: int) -> bool:
        """Takes note of a geometry that is read; false where it is one too many, or takes too much by itself."""
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
