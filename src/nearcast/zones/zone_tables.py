"""The events that zones cause as tables of EVENTS, made of columns: the same, byte for byte, as one would be made
alone.

What many of them have in common is written once: each name, zone, place and moment, as a part of the JSON and as
attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from nearcast.model.arrays import Integers, runs
from nearcast.model.columns import EVENTS, entries_of, to_table
from nearcast.model.event import Event, place_data
from nearcast.model.values import Value
from nearcast.model.zone import ZONE_EVENT, ZONES
from nearcast.relations.transition_events import escaped_name
from nearcast.relations.transition_tables import (
    AT_ONCE,
    CausingEvents,
    EventTexts,
    derived_table,
    json_text,
    moment_text,
    position_cuts,
)
from nearcast.state.derived import add_attributes
from nearcast.state.lateness import NEVER
from nearcast.zones.told_zones import NO_REASON, NO_ZONE, ToldZones
from nearcast.zones.zone_transitions import DETECTIONS, REASON_NAMES

Indices = npt.NDArray[np.integer]


def zone_tables(told: ToldZones, causes: CausingEvents) -> Iterator[pa.Table]:
    """The events that tell it, in their order, their parts counted from 1 of each cause.

    A table has `AT_ONCE` events at most; those of one position may be in several.
    """
    told = told.select(told.order())
    position = causes.position[told.row]
    part = np.arange(len(told)) - np.searchsorted(told.row, told.row) + 1
    for start, stop in position_cuts(position):
        # Of one position there may be any number: a table of them all is put together of what is not larger at once.
        for first in range(start, stop, AT_ONCE):
            own = np.arange(first, min(first + AT_ONCE, stop))
            yield _ZoneWriter(told.select(own), causes, part[own]).table()


class _Attributes:
    """Attributes that events have, each once; an event's are numbers of them."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, Value]] = []

    def numbered(self, name: str, values: Sequence[Value]) -> Indices:
        """The numbers of an attribute with these values."""
        first = len(self.pairs)
        self.pairs += ((name, value) for value in values)
        return np.arange(first, len(self.pairs))

    def runs(self, each: Sequence[Sequence[tuple[str, Value]]]) -> tuple[Indices, Indices]:
        """The numbers of the first of several attributes that belong together, and how many these are."""
        count = np.array([len(one) for one in each], np.int64)
        first = len(self.pairs) + np.cumsum(count) - count
        self.pairs += (pair for one in each for pair in one)
        return first, count

    def entries(self) -> pa.StructArray:
        """All of them."""
        return entries_of(to_table([Event("", "", "", attributes=tuple(self.pairs))]))[0]


class _ZoneWriter:
    """Writes the events of a table."""

    def __init__(self, told: ToldZones, causes: CausingEvents, part: Integers) -> None:
        self._told, self._causes, self._part = told, causes, part
        self._entities, self._entity = np.unique(told.entity, return_inverse=True)
        self._sequences, self._layer = np.unique(told.sequence, return_inverse=True)
        self._starts, self._since = np.unique(told.started_at, return_inverse=True)
        self._areas, self._zone = np.unique(told.zone, return_inverse=True)
        self._there, self._place = np.unique(told.place, return_inverse=True)
        self._names = [told.names[number] for number in self._entities.tolist()]
        self._ids = [told.layers[number] for number in self._sequences.tolist()]
        self._zones = [None if number == NO_ZONE else told.zones[number] for number in self._areas.tolist()]
        self._properties = [orjson.loads(zone.properties) if zone else {} for zone in self._zones]
        self._moments = [moment_text(one) for one in self._starts.tolist()]
        places = told.places.select(self._there).places()
        self._places = [{} if place is None else place_data(place) for place in places]

    def table(self) -> pa.Table:
        """The events."""
        told, causes = self._told, self._causes
        moment = np.where(told.time == NEVER, causes.moment[told.row], told.time)
        place = told.places.select(told.place)
        return derived_table(
            (ZONE_EVENT, ZONES),
            (causes.position[told.row], self._part),
            (moment, causes.accepted[told.row]),
            self._texts(moment),
            place,
            self._attributes(),
            None,
        )

    def _texts(self, moment: Integers) -> EventTexts:
        """Ids, subjects and payloads."""
        times, when = np.unique(moment, return_inverse=True)
        written = [f',"time":"{text}"' if (text := moment_text(one)) else "" for one in times.tolist()]
        layers = [f"nearcast/zones/{escaped_name(id)}/" for id in self._ids]
        names = [escaped_name(name) for name in self._names]
        zones = ["" if zone is None else f"/{escaped_name(zone.name)}" for zone in self._zones]
        # A text is escaped character by character, so its parts are.
        begin = list(zip(layers, map(_inner, layers), [f'{{"layer":{json_text(id)}' for id in self._ids], strict=True))
        who = list(
            zip(names, map(_inner, names), [f',"entity":{json_text(name)}' for name in self._names], strict=True)
        )
        areas = ["" if zone is None else f',"zone":{json_text(zone.name)}' for zone in self._zones]
        properties = [f',"properties":{orjson.dumps(one).decode()}' if one else "" for one in self._properties]
        area = list(zip(zones, map(_inner, zones), areas, properties, strict=True))
        since = [f',"since":"{text}"' if text else "" for text in self._moments]
        tail = [f",{orjson.dumps(one).decode()[1:]}" if one else "}" for one in self._places]
        told, position = self._told, self._causes.position[self._told.row]
        columns = (self._layer, self._entity, self._zone, told.detect, self._since, told.reason, told.present)
        ids, subjects, payloads = [], [], []
        for layer, entity, zone, detect, start, reason, present, at, part, time, place in zip(
            *(column.tolist() for column in (*columns, position, self._part, when, self._place)), strict=True
        ):
            (path, json, data), (name, name_json, name_data) = begin[layer], who[entity]
            zone_path, zone_json, zone_data, zone_properties = area[zone]
            subject, subject_json = f"{path}{name}{zone_path}", f"{json}{name_json}{zone_json}"
            ids.append(f"{subject}/{at}.{part}")
            subjects.append(subject)
            payloads.append(
                f'{{"specversion":"1.0","id":"{subject_json}/{at}.{part}","type":"{ZONE_EVENT}","source":"{ZONES}",'
                f'"subject":"{subject_json}"{written[time]},"data":{data}{zone_data}{name_data}{_DETECTS[detect]}'
                f"{since[start]}{_REASONS[reason]}{_PRESENT[present]}{zone_properties}{tail[place]}}}"
            )
        return EventTexts.of(ids, subjects, payloads)

    def _attributes(self) -> pa.ListArray:
        told, found = self._told, _Attributes()
        count = len(told)
        columns: list[tuple[Indices, npt.NDArray[np.bool_]]] = []
        always = np.ones(count, np.bool_)

        def column(name: str, values: Sequence[Value], which: Indices, there: npt.NDArray[np.bool_]) -> None:
            columns.append((found.numbered(name, values)[which], there))

        zones = [zone.name if zone else "" for zone in self._zones]
        column("specversion", ["1.0"], np.zeros(count, np.int64), always)
        column("layer", self._ids, self._layer, always)
        column("zone", zones, self._zone, told.zone != NO_ZONE)
        column("entity", self._names, self._entity, always)
        column("detect", DETECTIONS, told.detect, always)
        column("since", self._moments, self._since, told.started_at != NEVER)
        column("reason", REASON_NAMES, told.reason, told.reason != NO_REASON)
        column("present", [True], np.zeros(count, np.int64), told.present)
        first, many = found.runs([_nested(one) for one in self._properties])
        beside, few = found.runs([list(one.items()) for one in self._places])
        return _listed(
            found.entries(), columns, [(first[self._zone], many[self._zone]), (beside[self._place], few[self._place])]
        )


def _listed(
    entries: pa.StructArray,
    columns: Sequence[tuple[Indices, npt.NDArray[np.bool_]]],
    behind: Sequence[tuple[Indices, Indices]],
) -> pa.ListArray:
    """The attributes of each event: one of each column where it has one, then runs of several."""
    numbers = np.stack([number for number, _ in columns], axis=1)
    there = np.stack([flags for _, flags in columns], axis=1)
    length = there.sum(axis=1)
    size = length + sum(count for _, count in behind)
    start = np.cumsum(size) - size
    chosen = np.empty(int(size.sum()), np.int64)
    chosen[runs(start, length)] = numbers[there]
    at = start + length
    for first, count in behind:
        chosen[runs(at, count)] = runs(first, count)
        at = at + count
    offsets = pa.array(np.append(start, len(chosen)), pa.int32())
    kind = EVENTS.field("attributes").type
    return pa.ListArray.from_arrays(offsets, entries.take(pa.array(chosen)), type=kind)


def _nested(properties: dict[str, object]) -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    add_attributes("properties", properties, found)
    return found


def _inner(text: str) -> str:
    return json_text(text)[1:-1]


_DETECTS = [f',"detect":"{name}"' for name in DETECTIONS]
_REASONS = [*(f',"reason":"{name}"' for name in REASON_NAMES), ""]
_PRESENT = ("", ',"present":true')
