"""Zones: named areas, and what is told of who enters, stays in and leaves them (semantics §7).

The zones of one definition are a *layer*. A layer comes as one rule, which says whose positions are watched and what is
told, and its zones, which are added, replaced and taken away by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from nearcast.model.event import Coordinates
from nearcast.model.filter import Filter
from nearcast.model.limits import Limits

ZoneDetection = Literal["enter", "dwell", "exit", "inside", "outside"]

ZONE_DETECTIONS: tuple[ZoneDetection, ...] = ("enter", "dwell", "exit", "inside", "outside")

ZONE_EVENT = "nearcast.zone"
"""The type of the events that zones cause."""

ZONES = "nearcast:zones"
"""Their source."""


@dataclass(frozen=True, slots=True)
class ZoneRule:
    """Whose positions are held against the zones of a layer, and what of it is told.

    `of`: a filter on one event alone. `margin`: metres by which one must be out of a zone until that has ended.
    `lasting`: seconds it must have been in it before `dwell`. `time_to_live`: seconds after which who is silent is in
    no zone any more.
    """

    id: str
    of: Filter
    detect: tuple[ZoneDetection, ...] = ("enter", "exit")
    margin: float = 0.0
    lasting: float | None = None
    time_to_live: float | None = None
    coordinates: Coordinates = "geographic"


@dataclass(frozen=True, slots=True)
class Zone:
    """One area of a layer: `geometry` is a Polygon or MultiPolygon and `properties` an object, both as JSON texts."""

    layer: str
    name: str
    geometry: str
    properties: str = "{}"
    coordinates: Coordinates = "geographic"

    @property
    def size(self) -> int:
        """Characters that it takes."""
        return len(self.name) + len(self.geometry) + len(self.properties)


@dataclass(frozen=True, slots=True)
class ZoneLayer:
    """A rule and its zones by name, in the order in which they were added."""

    rule: ZoneRule
    zones: Mapping[str, Zone] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The id of the rule."""
        return self.rule.id

    def with_zones(self, zones: Iterable[Zone], removed: Collection[str], limits: Limits) -> ZoneLayer | None:
        """The layer with some zones added or replaced, and others taken away; None: that would be beyond the limits."""
        found = dict(self.zones)
        for name in removed:
            found.pop(name, None)
        found.update((zone.name, zone) for zone in zones)
        whole = len(found) <= limits.zones and sum(zone.size for zone in found.values()) <= limits.zones_bytes
        return ZoneLayer(self.rule, found) if whole else None
