"""What is told of entities and zones, as columns: who, of which zone, where it was, since when, and by which event.

A crowd that enters a zone tells of each that it did. As columns each takes a hundred bytes, until `zone_tables` makes
events of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.model.arrays import Flags, Integers, placed
from nearcast.model.zone import Zone, ZoneDetection
from nearcast.relations.entity_table import EntityTable
from nearcast.relations.reports import ReportTable, names_in_order
from nearcast.relations.told_pairs import NOTHING_TOLD, PlaceColumns
from nearcast.relations.transition_events import CAUSED
from nearcast.relations.transitions import FAILS, FALLS_SILENT, LEAVES, REMOVED
from nearcast.state.lateness import NEVER
from nearcast.zones.zone_transitions import DETECTIONS

NO_ZONE = -1
"""The zone of what is told of a whole layer."""

NO_REASON, LEFT, SILENT, CHANGED, GONE = -1, 0, 1, 2, 3
"""Why one is in a zone no more, as places in `zone_transitions.REASON_NAMES`."""

_REASONS = {FAILS: NO_REASON, LEAVES: LEFT, FALLS_SILENT: SILENT, REMOVED: GONE}


class ToldRows(NamedTuple):
    """What is told of entities and zones, by their numbers, at points of a stretch; other columns are as of
    `ToldZones`.
    """

    row: Integers
    phase: Integers
    detect: Integers
    entity: Integers
    zone: Integers
    point: Integers
    started_at: Integers
    reason: Integers
    time: Integers
    present: Flags


def told_rows(
    detect: ZoneDetection,
    pairs: tuple[Integers, Integers],
    points: Integers,
    started_at: Integers,
    row: Integers | int = 0,
    phase: Integers | int = CAUSED,
    reason: Integers | int = NO_REASON,
    time: Integers | int = NEVER,
    present: bool = False,
) -> ToldRows:
    """What is told of pairs of an entity and a zone; one value is of all."""
    count = len(points)
    full = (np.broadcast_to(np.asarray(one, np.int64), count) for one in (row, phase, reason, time))
    rows, phases, reasons, times = full
    detects, entity, zone = np.full(count, DETECTIONS.index(detect)), *pairs
    flags = np.full(count, present)
    return ToldRows(rows, phases, detects, entity, zone, points, started_at, reasons, times, flags)


@dataclass(frozen=True, slots=True)
class ToldZones:
    """Each is caused by a row, in a phase, told by a layer: a number, of which `layers` has the id.

    `detect` is a place in `zone_transitions.DETECTIONS`, `entity` in `names`, which ascend, `zone` in `zones`, or
    `NO_ZONE`, `place` in `places`; `started_at` and `time` are in microseconds since 1970, `NEVER` where there is none,
    or it is that of the cause; `reason` is a place in `zone_transitions.REASON_NAMES`, or `NO_REASON`. `present`: it
    was so when it was asked for.
    """

    layers: Mapping[int, str]
    names: Sequence[str]
    zones: Sequence[Zone]
    places: PlaceColumns
    row: Integers
    phase: Integers
    sequence: Integers
    detect: Integers
    entity: Integers
    zone: Integers
    place: Integers
    started_at: Integers
    reason: Integers
    time: Integers
    present: Flags

    def __len__(self) -> int:
        return len(self.row)

    def order(self) -> Integers:
        """Ascending by row, and in the order of telling among what one row causes; see `ZoneTransition.order`."""
        names = sorted({zone.name for zone in self.zones})
        rank = {name: number for number, name in enumerate(names)}
        # What is of no zone reads the last one, and comes first.
        zone = np.array([*(rank[one.name] for one in self.zones), NO_ZONE])[self.zone]
        found: Integers = np.lexsort((self.detect, zone, self.entity, self.sequence, self.phase, self.row))
        return found

    def select(self, which: Integers) -> ToldZones:
        """Some of them."""
        columns = (getattr(self, name)[which] for name in COLUMNS)
        return ToldZones(self.layers, self.names, self.zones, self.places, *columns)

    def at(self, row: int) -> ToldZones:
        """All of them, told at one row."""
        columns = (np.full(len(self), row) if name == "row" else getattr(self, name) for name in COLUMNS)
        return ToldZones(self.layers, self.names, self.zones, self.places, *columns)


COLUMNS = (
    *("row", "phase", "sequence", "detect", "entity", "zone", "place", "started_at", "reason", "time"),
    "present",
)
"""The columns of `ToldZones` that have a value for each."""

NOTHING = ToldZones(
    {},
    (),
    (),
    NOTHING_TOLD.places,
    *(np.zeros(0, np.bool_ if name == "present" else np.int64) for name in COLUMNS),
)


def told_zones(
    layer: tuple[int, str], known: EntityTable, zones: Sequence[Zone], reports: ReportTable, told: Sequence[ToldRows]
) -> ToldZones:
    """What a layer (its number and id) tells, with names and places as of now."""
    told = [one for one in told if len(one.row)]
    if not told:
        return NOTHING
    one = told[0] if len(told) == 1 else ToldRows(*map(np.concatenate, zip(*told, strict=True)))
    (names, entity), (there, place) = names_in_order(known.names, one.entity), placed(one.point)
    # What is of no zone has the number 0 here.
    which, zone = placed(one.zone + 1)
    named = which[which > 0] - 1
    return ToldZones(
        layers={layer[0]: layer[1]},
        names=names,
        zones=[zones[number] for number in named.tolist()],
        places=PlaceColumns(*(reports.column(name, there) for name in PlaceColumns._fields)),
        row=one.row,
        phase=one.phase,
        sequence=np.full(len(one.row), layer[0]),
        detect=one.detect,
        entity=entity,
        zone=zone if len(named) == len(which) else zone - 1,
        place=place,
        started_at=one.started_at,
        reason=one.reason,
        time=one.time,
        present=one.present,
    )


def joined_zones(parts: Sequence[ToldZones]) -> ToldZones:
    """All of them together."""
    parts = [one for one in parts if len(one)]
    if len(parts) < 2:
        return parts[0] if parts else NOTHING
    names = sorted({name for one in parts for name in one.names})
    number = {name: index for index, name in enumerate(names)}
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in COLUMNS}
    places = zones = 0
    for one in parts:
        rank = np.array([number[name] for name in one.names], np.int64)
        moved = {
            "entity": rank[one.entity],
            "zone": np.where(one.zone == NO_ZONE, NO_ZONE, one.zone + zones),
            "place": one.place + places,
        }
        for name in COLUMNS:
            columns[name].append(moved.get(name, getattr(one, name)))
        places, zones = places + len(one.places.x), zones + len(one.zones)
    return ToldZones(
        {sequence: id for one in parts for sequence, id in one.layers.items()},
        names,
        [zone for one in parts for zone in one.zones],
        PlaceColumns(*(np.concatenate(column) for column in zip(*(one.places for one in parts), strict=True))),
        *(np.concatenate(columns[name]) for name in COLUMNS),
    )


def zone_reasons(effect: Integers) -> Integers:
    """Why each of some ends came, by the effect that made them."""
    found = np.full(len(effect), NO_REASON)
    for one, reason in _REASONS.items():
        found[effect == one] = reason
    return found
