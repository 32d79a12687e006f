"""What zones tell, and in which order (semantics §7).

Of one cause, what lapsed with its time comes first, then what it did itself; layers in the order of their definitions,
entities and zones by their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from nearcast.model.event import Place
from nearcast.model.zone import Zone, ZoneDetection

ZoneReason = Literal["left", "silent", "changed", "removed"]
"""Why one is in a zone no more though it did not move out of it: it is not watched any more, was not heard for too
long, the zone is another now, or zone or layer were removed."""

REASON_NAMES: tuple[ZoneReason, ...] = ("left", "silent", "changed", "removed")

DETECTIONS: tuple[ZoneDetection, ...] = ("dwell", "exit", "enter", "inside", "outside")
"""What is told, in the order of telling."""


@dataclass(frozen=True, slots=True)
class ZoneTransition:
    """One thing to tell of an entity and a zone; of `outside`, which is of a whole layer, `zone` is None.

    `phase` is `EXPIRED`, `CAUSED` or `OVERDUE`, `sequence` the number of the layer. `present`: it was so when it was
    asked for. `time`: when it fell due; None: it is of the moment of its cause.
    """

    phase: int
    sequence: int
    layer: str
    detect: ZoneDetection
    entity: str
    zone: Zone | None
    place: Place | None
    since: datetime | None
    reason: ZoneReason | None = None
    present: bool = False
    time: datetime | None = None

    @property
    def order(self) -> tuple[int, int, str, str, int]:
        """Ascends in the order of telling, among what one event causes."""
        zone = self.zone.name if self.zone else ""
        return self.phase, self.sequence, self.entity, zone, DETECTIONS.index(self.detect)
