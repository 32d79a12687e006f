"""Which zones of layers points are in, as places in which rules look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from nearcast.model.event import Place
from nearcast.model.limits import Limits
from nearcast.model.zone import ZoneLayer
from nearcast.situations.zone_areas import layer_prefix
from nearcast.zones.zone_index import ZoneIndex


class ZoneAreas:
    """The zones of some layers. Of many around a point those count that the limits of zones let be looked at."""

    def __init__(self, layers: Iterable[ZoneLayer], before: ZoneAreas | None = None) -> None:
        self.limits = Limits()
        self._indices: dict[str, ZoneIndex] = {}
        self._names: dict[str, list[str]] = {}
        for layer in layers:
            same = before._indices.get(layer.id) if before is not None else None
            index = same if same is not None and same.coordinates == layer.rule.coordinates else None
            self._indices[layer.id] = index = index or ZoneIndex(layer.rule.coordinates)
            index.set(layer.zones)
            self._names[layer.id] = [f"{layer_prefix(layer.id)}{name}" for name in layer.zones]

    def __bool__(self) -> bool:
        return bool(self._indices)

    @property
    def layers(self) -> frozenset[str]:
        """The layers."""
        return frozenset(self._indices)

    @property
    def names(self) -> frozenset[str]:
        """All zones, as places."""
        return frozenset(name for names in self._names.values() for name in names)

    def around(self, places: Sequence[Place | None]) -> Mapping[int, frozenset[str]]:
        """The zones that points are in, by the numbers of those that are in some."""
        found: dict[int, list[str]] = {}
        for layer, index in self._indices.items():
            own = [
                number
                for number, place in enumerate(places)
                if place is not None and place.coordinates == index.coordinates
            ]
            x, y = (np.array([getattr(places[number], name) for number in own]) for name in ("x", "y"))
            hits = index.hits(x, y, self.limits, bounded=False)
            names = self._names[layer]
            for point, zone in zip(hits.point.tolist(), hits.zone.tolist(), strict=True):
                found.setdefault(own[point], []).append(names[zone])
        return {number: frozenset(names) for number, names in found.items()}
