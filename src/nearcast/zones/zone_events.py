"""The events that zones cause: what they tell, and in which order (semantics §7).

Of one cause, what lapsed with its time comes first, then what it did itself; layers in the order of their definitions,
entities and zones by their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import orjson

from nearcast.model.event import Event, Place, place_data
from nearcast.model.values import time_text
from nearcast.model.zone import ZONE_EVENT, ZONES, Zone, ZoneDetection
from nearcast.relations.transition_events import escaped_name
from nearcast.state.derived import Cause, derived_event

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


def zone_events(told: Iterable[ZoneTransition], cause: Cause) -> list[Event]:
    """The events that tell it, in order."""
    ordered = sorted(told, key=lambda one: one.order)
    return [_event(one, cause, part) for part, one in enumerate(ordered, 1)]


def _event(told: ZoneTransition, cause: Cause, part: int) -> Event:
    names = [told.layer, told.entity, *([told.zone.name] if told.zone else ())]
    subject = "nearcast/zones/" + "/".join(map(escaped_name, names))
    id = f"{subject}/{cause.position}.{part}"
    return derived_event(ZONE_EVENT, ZONES, id, subject, _data(told), cause, told.place, part, told.time)


def _data(told: ZoneTransition) -> dict[str, Any]:
    """What the event tells; what is not known is left out."""
    properties = orjson.loads(told.zone.properties) if told.zone else None
    data: dict[str, Any] = {
        "layer": told.layer,
        "zone": told.zone.name if told.zone else None,
        "entity": told.entity,
        "detect": told.detect,
        "since": None if told.since is None else time_text(told.since),
        "reason": told.reason,
        "present": told.present or None,
        "properties": properties or None,
    }
    # The event is where the entity is; who reads it anew finds its place as in any other event.
    data |= place_data(told.place) if told.place else {}
    return {name: value for name, value in data.items() if value is not None}
