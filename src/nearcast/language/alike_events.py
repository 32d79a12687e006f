"""Events of a batch that are alike, read in columns: that takes a fourth of what reading them one by one takes.

`EventReader` says what an event is. Here events of one form, which have the same names in the same order, become the
same rows together where all their values are plain. Whatever may be a fault, or is more than plain (a control event,
objects and lists within data, an unusual moment), is left to it, and so are forms that few events have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import (
    DATA_NAMES,
    EXTENSION_NAME,
    KNOWN_NAMES,
    MAX_AHEAD,
    MAX_ATTRIBUTES,
    NAME_LENGTH,
    NO_CONTEXT,
    channel_of,
)
from nearcast.model.columns import EVENTS, TIME, attributes_in_columns, column_of
from nearcast.model.event import CONTROL_PREFIX, Coordinates, Place, source_and_subject
from nearcast.model.subscription import Channel

ALIKE_EVENTS = 8
"""Events of one form are fewer where they are read as fast one by one."""

TOGETHER = 5_000
"""Events whose columns are made together: each is made in one go, and nothing else is done meanwhile."""

Columns = Mapping[str, Sequence[Any]]
"""Of objects with the same names, the values by name."""

_MOMENT = r"^[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-](0\d|1[0-4]):[0-5]\d)$"
"""Date-times that Arrow reads as `time_of` does; others are left to that."""

_REQUEST = Mark("request")


class AlikeEvents(NamedTuple):
    """Events of a batch: their indices, ascending, and their rows of `EVENTS`."""

    indices: list[int]
    rows: pa.Table


class AlikeReader:
    """Reads events that are accepted at one moment at one entry node, under the same channels and limits.

    `check` raises EventError for a source and a type that must not be published.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        accepted: datetime,
        node: str,
        name_length: int = NAME_LENGTH,
        check: Callable[[str, str], None] | None = None,
    ) -> None:
        self._channels, self._accepted, self._node = tuple(channels), accepted, node
        self._name_length, self._check = name_length, check
        self._composing = {one.name for one in self._channels if one.entity == "source and subject"}

    def read(self, documents: Sequence[Any], payloads: Sequence[bytes]) -> list[AlikeEvents]:
        """The events that are alike, each in one of the tables at most; all others are to be read one by one.

        `payloads` are the documents as they came.
        """
        found: list[AlikeEvents] = []
        # Where an event's own time may not count, it is not looked at in columns.
        if any(one.order == "arrival" for one in self._channels):
            return found
        for start in range(0, len(documents), TOGETHER):
            for indices in _alike(documents, start, min(start + TOGETHER, len(documents))):
                try:
                    those = [documents[index] for index in indices]
                    found.append(AlikeEvents(indices, self._rows(those, [payloads[index] for index in indices])))
                except (_Unlike, Fault, EventError, TypeError, OverflowError, pa.ArrowInvalid):
                    continue
        return found

    def _rows(self, documents: Sequence[dict[str, Any]], payloads: Sequence[bytes]) -> pa.Table:
        """Events of one form as rows. Raises what `read` catches."""
        count, own = len(documents), _columns(documents)
        data = _columns(own["data"]) if type(documents[0].get("data")) is dict else {}
        ids, types, sources = (self._names(own.get(name, ())) for name in ("id", "type", "source"))
        subjects = self._subjects(own.get("subject"))
        self._check_kinds(own, types, sources)
        place = _place(data)
        channels = self._channels_of(types, own.get("channel"), None if place is None else place.coordinates)
        attributes = self._attributes(own, data)
        columns: dict[str, Sequence[Any] | None] = {
            "position": [0] * count,
            "id": ids,
            "type": types,
            "source": sources,
            "subject": subjects,
            "time": self._times(own.get("time")),
            "accepted": [self._accepted] * count,
            "channel": channels,
            "attributes": attributes_in_columns(attributes, count),
            "payload": payloads,
            "part": [0] * count,
            "node": [self._node] * count,
            "about": self._abouts(channels, sources, subjects),
        }
        if place is not None:
            columns.update(coordinates=[place.coordinates] * count, x=place.x, y=place.y, z=place.z)
        return pa.Table.from_arrays([_array(columns.get(one.name), one.type, count) for one in EVENTS], schema=EVENTS)

    def _names(self, column: Sequence[Any]) -> Sequence[str]:
        """Texts that are not empty, and no longer than names may be."""
        _expect(set(map(type, column)) == {str})
        lengths = [*map(len, column)]
        _expect(min(lengths) > 0 and max(lengths) <= self._name_length)
        return column

    def _subjects(self, column: Sequence[Any] | None) -> Sequence[str | None] | None:
        if column is None or _are_none(column):
            return None
        self._names([one for one in column if one is not None])
        return column

    def _check_kinds(self, own: Columns, types: Sequence[str], sources: Sequence[str]) -> None:
        """That these are CloudEvents about the world, all of which may be published."""
        _expect(own.get("specversion", ()).count("1.0") == len(types))
        _expect("data_base64" not in own or _are_none(own["data_base64"]))
        _expect(not any(one.startswith(CONTROL_PREFIX) for one in set(types)))
        if self._check is not None:
            for source, type_ in set(zip(sources, types, strict=True)):
                self._check(source, type_)

    def _times(self, column: Sequence[Any] | None) -> pa.Array | None:
        if column is None or _are_none(column):
            return None
        _expect(set(map(type, column)) <= {str, type(None)})
        texts = pa.array(column, pa.string())
        _expect(pc.all(pc.match_substring_regex(texts, _MOMENT)).as_py())
        times = texts.cast(TIME)
        _expect(not pc.any(pc.greater(times, pa.scalar(self._accepted + MAX_AHEAD, TIME))).as_py())
        return times

    def _channels_of(
        self, types: Sequence[str], named: Sequence[Any] | None, coordinates: Coordinates | None
    ) -> Sequence[str | None] | None:
        if not self._channels:
            return None
        place = None if coordinates is None else Place(coordinates, 0.0, 0.0)
        pairs = [*zip(types, repeat(None) if named is None else named)]  # noqa: B905
        known = {pair: channel_of(*pair, place, self._channels, _REQUEST) for pair in set(pairs)}
        return [known[pair] for pair in pairs]

    def _abouts(
        self, channels: Sequence[str | None] | None, sources: Sequence[str], subjects: Sequence[str | None] | None
    ) -> Sequence[str | None] | None:
        """Which entities events are about where their channel names them by source and subject."""
        if channels is None or self._composing.isdisjoint(channels):
            return None
        named = zip(channels, sources, subjects or [None] * len(sources), strict=True)
        return [
            source_and_subject(source, subject) if one in self._composing else None for one, source, subject in named
        ]

    def _attributes(self, own: Columns, data: Columns) -> list[tuple[str, Sequence[Any]]]:
        """The attributes of events, by name: the CloudEvent's own, then those of its data."""
        attributes = [*_context(own), *_of_data(own, data)]
        _expect(len(attributes) <= MAX_ATTRIBUTES)
        _expect(all(len(name) <= self._name_length for name, _ in attributes))
        return attributes


class _Unlike(Exception):
    """Events that are to be read one by one: what they hold is not plain, or one of them has a fault."""


def _expect(plain: bool) -> None:
    if not plain:
        raise _Unlike


def _are_none(column: Sequence[Any]) -> bool:
    return column.count(None) == len(column)


def _alike(documents: Sequence[Any], start: int, stop: int) -> list[list[int]]:
    """The indices of documents within a range that have the same names in the same order, theirs and their data's."""
    forms: dict[object, list[int]] = {}
    for index in range(start, stop):
        document = documents[index]
        # The types themselves: this is asked of every event.
        if type(document) is dict:
            data = document.get("data")
            if data is None:
                forms.setdefault((*document,), []).append(index)
            elif type(data) is dict:
                forms.setdefault(((*document,), (*data,)), []).append(index)
    return [indices for indices in forms.values() if len(indices) >= ALIKE_EVENTS]


def _columns(objects: Sequence[dict[str, Any]]) -> dict[str, Sequence[Any]]:
    """The values of objects that have the same names in the same order."""
    values = zip(*map(dict.values, objects), strict=True)
    return dict(zip(objects[0], values, strict=True))


def _context(own: Columns) -> Iterator[tuple[str, Sequence[Any]]]:
    """The attributes that CloudEvents have of their own."""
    for name, column in own.items():
        if name not in NO_CONTEXT:
            _expect(name in KNOWN_NAMES or EXTENSION_NAME.fullmatch(name) is not None)
            yield name, column


def _of_data(own: Columns, data: Columns) -> Iterator[tuple[str, Sequence[Any]]]:
    """The attributes that data make; one that the CloudEvent has too has `data.` before its name."""
    for name, column in data.items():
        beside = own.get(name) if name not in DATA_NAMES else None
        if beside is None or _are_none(beside):
            yield name, column
        else:
            _expect(None not in beside)
            yield f"data.{name}", column


class _PlaceColumns(NamedTuple):
    coordinates: Coordinates
    x: pa.Array
    y: pa.Array
    z: pa.Array | None


def _place(data: Columns) -> _PlaceColumns | None:
    """Where events are, None where their data tell no place."""
    planar, geographic = "x" in data and "y" in data, "lon" in data or "lat" in data
    _expect(not (planar and geographic))
    if planar:
        return _PlaceColumns("planar", _numbers(data["x"]), _numbers(data["y"]), _heights(data.get("z")))
    if not geographic:
        return None
    _expect("lon" in data and "lat" in data)
    x, y = _numbers(data["lon"], 180.0), _numbers(data["lat"], 90.0)
    return _PlaceColumns("geographic", x, y, _heights(data.get("alt")))


def _numbers(column: Sequence[Any], limit: float = np.inf) -> pa.Array:
    """Finite numbers between the limit with a minus and without."""
    _expect({int, float}.issuperset(map(type, column)))
    numbers = np.array(column, np.float64)
    _expect(bool(np.isfinite(numbers).all() and (abs(numbers) <= limit).all()))
    return pa.array(numbers)


def _heights(column: Sequence[Any] | None) -> pa.Array | None:
    return None if column is None or _are_none(column) else _numbers(column)


def _array(column: Sequence[Any] | None, kind: pa.DataType, count: int) -> pa.Array:
    if column is None:
        return pa.nulls(count, kind)
    return column if isinstance(column, pa.Array) else column_of(column, kind)
