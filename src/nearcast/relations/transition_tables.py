"""The events that relations cause as tables of EVENTS, made of columns: the same, byte for byte, as `transition_events`
makes one by one.

What is told of pairs has one form, so its JSON is put together from parts that are written once for each name, place
and moment, and its attributes are a matrix whose empty cells are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.arrays import Flags, Integers
from nearcast.model.columns import ATTRIBUTE, EVENTS, TIME, entered_events, to_table
from nearcast.model.relation import RELATION_EVENT, RELATIONS
from nearcast.model.values import may_be_time, time_of, time_text
from nearcast.relations.entity_table import GEOGRAPHIC, NOWHERE, PLANAR
from nearcast.relations.reports import WindowChanges, micros_of, moment_of
from nearcast.relations.told_pairs import NO_REASON, AtRow, PlaceColumns, ToldPairs
from nearcast.relations.transition_events import DETECTIONS, REASON_NAMES, escaped_name, transition_event
from nearcast.state.derived import Cause
from nearcast.state.lateness import NEVER, times_of

AT_ONCE = 4_096
"""Events that are made together at most, but for those that one event causes, which are told in one table."""

SPACES = {PLANAR: ("x", "y", "z"), GEOGRAPHIC: ("lon", "lat", "alt")}
"""The names of coordinates, by the kind of a place."""

_PLACE = tuple(name for names in SPACES.values() for name in names)

NAMES = (
    *("specversion", "relation", "detect", "a", "b"),
    *(f"{side}_position.{name}" for side in "ab" for name in _PLACE),
    *("distance", "since", "reason", "present", *_PLACE),
)
"""The attributes of an event about a pair, in their order."""

_TEXTS = np.isin(NAMES, ["specversion", "relation", "detect", "a", "b", "since", "reason"])
_PRESENT = NAMES.index("present")
_NUMBERS = ~_TEXTS
_NUMBERS[_PRESENT] = False


@dataclass(frozen=True, slots=True)
class CausingEvents:
    """Events that something is derived as of, in the order of their rows; times in microseconds since 1970."""

    position: Integers
    time: Integers
    accepted: Integers

    @staticmethod
    def of(table: pa.Table) -> CausingEvents:
        """The rows of a table of EVENTS."""
        times = (times_of(table.column(name)) for name in ("time", "accepted"))
        return CausingEvents(table.column("position").to_numpy(), *times)

    @staticmethod
    def alone(cause: Cause) -> CausingEvents:
        """One event."""
        return CausingEvents(
            *(np.array([one]) for one in (cause.position, *map(micros_of, (cause.time, cause.accepted))))
        )

    def __len__(self) -> int:
        return len(self.position)

    def slice(self, own: slice) -> CausingEvents:
        """Some of them."""
        return CausingEvents(self.position[own], self.time[own], self.accepted[own])

    def at(self, row: int) -> Cause:
        """One of them."""
        times = (moment_of(int(column[row])) for column in (self.time, self.accepted))
        return Cause(int(self.position[row]), *times)

    @property
    def moment(self) -> Integers:
        """When each happened, as `Cause.moment`."""
        both = np.where(self.time == NEVER, self.accepted, self.time)
        return np.where(self.accepted == NEVER, both, np.minimum(both, self.accepted))


@dataclass(frozen=True, slots=True)
class ReportRows:
    """Rows of a table of EVENTS, ascending by the positions of their `causes`, of which several may have one.

    Of a journal as it is every row is a report and its own cause. Else `reports` says which are, and the others bring
    the clock to `clock`, in microseconds since 1970, `NEVER` for reports; `series` has how far each clock has come
    where several do at once. `changes` are those of windows over a time, where some are kept.
    """

    table: pa.Table
    causes: CausingEvents
    reports: Flags | None = None
    clock: Integers | None = None
    changes: WindowChanges | None = None
    series: Integers | None = None

    @staticmethod
    def of(events: pa.Table) -> ReportRows:
        """The events of a journal as it is."""
        return ReportRows(events, CausingEvents.of(events))

    def __len__(self) -> int:
        return len(self.table)

    def slice(self, start: int, count: int) -> ReportRows:
        """Some of them."""
        own = slice(start, start + count)
        return ReportRows(
            self.table.slice(start, count),
            self.causes.slice(own),
            None if self.reports is None else self.reports[own],
            None if self.clock is None else self.clock[own],
            None if self.changes is None else self.changes.slice(start, count),
            None if self.series is None else self.series[:, own],
        )


def transition_tables(
    pairs: ToldPairs,
    others: Sequence[AtRow],
    causes: CausingEvents,
    node: str | None = None,
    before: tuple[int, int] = (-1, 0),
) -> Iterator[pa.Table]:
    """The events that tell it, in their order: those of one position in one table, their parts counted from 1.

    A table has `AT_ONCE` events at most, or those of one position. `node`: where the relations that tell it are local.
    `before`: a position at which so many were told before.
    """
    others = sorted(others, key=lambda one: (one[0], one[1].order))
    pairs = pairs.select(pairs.order())
    keys = np.stack([pairs.row, pairs.phase, pairs.sequence])
    if others:
        own = [(row, one.phase, one.sequence) for row, one in others]
        keys = np.concatenate([keys, np.array(own, np.int64).T], axis=1)
    # Of one relation all are pairs or none is, so the order among them stays.
    order = np.lexsort(keys[::-1]) if others else np.arange(len(pairs))
    position = causes.position[keys[0][order]]
    part = np.arange(len(order)) - np.searchsorted(position, position) + 1
    part += np.where(position == before[0], before[1], 0)
    writer = _PairWriter(pairs, causes, node)
    for start, stop in position_cuts(position):
        which, own_parts = order[start:stop], part[start:stop]
        of_pairs = which < len(pairs)
        tables = [writer.table(which[of_pairs], own_parts[of_pairs])]
        if not of_pairs.all():
            chosen = zip((which[~of_pairs] - len(pairs)).tolist(), own_parts[~of_pairs].tolist(), strict=True)
            told = ((*others[index], number) for index, number in chosen)
            events = (transition_event(one, causes.at(at), number) for at, one, number in told)
            tables.append(entered_events(events, node) if node else to_table(events))
            behind = np.argsort(np.concatenate([np.flatnonzero(of_pairs), np.flatnonzero(~of_pairs)]))
            yield pa.concat_tables(tables).take(pa.array(behind))
        else:
            yield tables[0]


def position_cuts(row: Integers) -> Iterator[tuple[int, int]]:
    """Stretches of ascending rows, none of which ends within a row: `AT_ONCE` long at most, or of one row."""
    start = 0
    while start < len(row):
        stop = min(start + AT_ONCE, len(row))
        if stop < len(row):
            begin = int(np.searchsorted(row, row[stop], "left"))
            stop = begin if begin > start else int(np.searchsorted(row, row[start], "right"))
        yield start, stop
        start = stop


class _PairWriter:
    """Writes what is told of pairs; what many of them have in common is written once."""

    def __init__(self, pairs: ToldPairs, causes: CausingEvents, node: str | None) -> None:
        self._pairs, self._causes, self._node = pairs, causes, node
        self._sequences, self._relation = np.unique(pairs.sequence, return_inverse=True)
        self._ids = [pairs.relations[number] for number in self._sequences.tolist()]
        self._since, self._started_at = np.unique(pairs.started_at, return_inverse=True)
        since, names = moment_texts(self._since), pairs.names
        paths = _escaped_names(names)
        within = _json_within(names)
        begins = [f"{escaped_name(id)}/" for id in self._ids]
        said = [f'{json_text(id)},"detect":"{detect}","a":' for id in self._ids for detect in DETECTIONS]
        reasons = [*(f',"reason":"{name}"' for name in REASON_NAMES), ""]
        parts = {
            "begin": begins,
            "path": paths,
            # A text is escaped character by character, so its parts are.
            "json_begin": _json_within(begins),
            "json_path": within if paths is names else _json_within(paths),
            "said": said,
            "since": [f',"since":"{text}"' if text else "" for text in since],
            "reason": [f"{reason}{present}" for reason in reasons for present in _PRESENTS],
        }
        self._parts = {name: pa.array(texts, pa.string()) for name, texts in parts.items()} | self._places()
        written = pa.array(within, pa.string())
        self._parts |= {"a": _joined('"', written, '"'), "b": _joined(',"b":"', written, '"')}
        # The pool of texts: what has few values first, so that its places are known.
        texts = [["1.0"], DETECTIONS, REASON_NAMES, self._ids, since, names]
        self._pool = pa.array([*chain(*texts)], pa.string())
        firsts = np.cumsum([0, *map(len, texts)]).tolist()
        _, self._first_detect, self._first_reason, self._first_id, self._first_since, self._first_name, _ = firsts
        moments = np.full(len(self._pool), NEVER)
        for first, own in ((self._first_id, self._ids), (self._first_name, names)):
            for at in [at for at, text in enumerate(own) if may_be_time(text)]:
                moments[first + at] = micros_of(time_of(own[at]))
        moments[self._first_since : self._first_name] = self._since
        self._moments = _times(moments)

    def _places(self) -> dict[str, pa.StringArray]:
        """Of each place its coordinates as they stand in an event: for side a, for side b, and of the event itself."""
        places = self._pairs.places
        x, y, z = (pa.array(_numbers(column), pa.string()) for column in places[1:])
        high, found = ~np.isnan(places.z), pa.repeat(pa.scalar("", pa.string()), len(places.x))
        for kind, (lon, lat, alt) in SPACES.items():
            own = places.kind == kind
            for which, height in ((own & ~high, ()), (own & high, (f',"{alt}":', z))):
                if which.any():
                    written = _joined(f'"{lon}":', x, f',"{lat}":', y, *height)
                    found = written if which.all() else pc.if_else(pa.array(which), written, found)
        there = places.kind != NOWHERE
        texts = {f"{side}_place": (f',"{side}_position":{{', "}", "") for side in "ab"} | {"tail": (",", "}}", "}}")}
        return {
            name: pc.if_else(pa.array(there), _joined(begin, found, end), nowhere)
            for name, (begin, end, nowhere) in texts.items()
        }

    def table(self, which: Integers, part: Integers) -> pa.Table:
        """The events about some of the pairs, which have these parts."""
        found = [
            self._table(which[first : first + AT_ONCE], part[first : first + AT_ONCE])
            for first in range(0, len(which), AT_ONCE)
        ]
        return pa.concat_tables(found) if found else EVENTS.empty_table()

    def _table(self, which: Integers, part: Integers) -> pa.Table:
        pairs, relation = self._pairs.select(which), self._relation[which]
        since, metres = self._started_at[which], pairs.metres()
        position = self._causes.position[pairs.row]
        moment = np.where(pairs.time == NEVER, self._causes.moment[pairs.row], pairs.time)
        return derived_table(
            (RELATION_EVENT, RELATIONS),
            (position, part),
            (moment, self._causes.accepted[pairs.row]),
            self._texts(pairs, relation, since, metres, position, moment, part),
            pairs.places.select(pairs.a_place),
            self._attributes(pairs, relation, since, metres),
            self._node,
        )

    def _texts(
        self,
        pairs: ToldPairs,
        relation: Integers,
        since: Integers,
        metres: tuple[npt.NDArray[np.float64], Flags],
        position: Integers,
        moment: Integers,
        part: Integers,
    ) -> EventTexts:
        """Ids, subjects and payloads."""
        times, when = np.unique(moment, return_inverse=True)
        written = [f',"time":"{text}"' if text else "" for text in moment_texts(times)]
        apart, which = np.unique(np.where(metres[1], metres[0], np.nan), return_inverse=True)
        distances = [
            "" if known else f',"distance":{metre}'
            for metre, known in zip(_numbers(apart), np.isnan(apart).tolist(), strict=True)
        ]
        number = _joined(pa.array(position).cast(pa.string()), ".", pa.array(part).cast(pa.string()))
        path = self._named("begin", relation, "path", pairs)
        json = self._named("json_begin", relation, "json_path", pairs)
        reason = np.where(pairs.reason == NO_REASON, len(REASON_NAMES), pairs.reason) * len(_PRESENTS) + pairs.present
        payloads = _joined(
            '{"specversion":"1.0","id":"',
            _joined(json, "/", number),
            f'","type":"{RELATION_EVENT}","source":"{RELATIONS}","subject":"nearcast/relations/',
            json,
            _chosen([f'"{time},"data":{{"relation":' for time in written], when),
            self._of("said", relation * len(DETECTIONS) + pairs.detect),
            self._of("a", pairs.a),
            self._of("b", pairs.b),
            self._of("a_place", pairs.a_place),
            self._of("b_place", pairs.b_place),
            _chosen(distances, which),
            self._of("since", since),
            self._of("reason", reason),
            self._of("tail", pairs.a_place),
        )
        return EventTexts(_joined(path, "/", number), _joined("nearcast/relations/", path), payloads)

    def _of(self, part: str, which: Integers) -> pa.StringArray:
        return self._parts[part].take(pa.array(which))

    def _named(self, begin: str, relation: Integers, path: str, pairs: ToldPairs) -> pa.StringArray:
        """The relation and both names, as they stand in ids."""
        return _joined(self._of(begin, relation), self._of(path, pairs.a), "/", self._of(path, pairs.b))

    def _attributes(
        self,
        pairs: ToldPairs,
        relation: Integers,
        since: Integers,
        metres: tuple[npt.NDArray[np.float64], Flags],
    ) -> pa.ListArray:
        shape = len(pairs), len(NAMES)
        there, number, text = np.zeros(shape, np.bool_), np.zeros(shape), np.zeros(shape, np.int32)
        at = {name: index for index, name in enumerate(NAMES)}
        texts = {
            "specversion": (np.zeros(len(pairs), np.int64), True),
            "relation": (self._first_id + relation, True),
            "detect": (self._first_detect + pairs.detect, True),
            "a": (self._first_name + pairs.a, True),
            "b": (self._first_name + pairs.b, True),
            "since": (self._first_since + since, pairs.started_at != NEVER),
            "reason": (self._first_reason + pairs.reason, pairs.reason != NO_REASON),
        }
        for name, (place, known) in texts.items():
            text[:, at[name]], there[:, at[name]] = place, known
        number[:, at["distance"]], there[:, at["distance"]] = metres
        there[:, at["present"]] = pairs.present
        for before, which in (("a_position.", pairs.a_place), ("b_position.", pairs.b_place), ("", pairs.a_place)):
            kind, *values = pairs.places.select(which)
            for space, names in SPACES.items():
                own = kind == space
                for name, value, known in zip(names, values, (own, own, own & ~np.isnan(values[2])), strict=True):
                    number[:, at[before + name]], there[:, at[before + name]] = value, known
        return self._listed(there, number, text)

    def _listed(self, there: Flags, number: npt.NDArray[np.float64], text: npt.NDArray[np.int32]) -> pa.ListArray:
        """The cells of a matrix that are there, a list a row: numbers, or texts by their places in the pool."""
        cells = np.flatnonzero(there)
        name = cells % len(NAMES)
        chosen = pa.array(text.ravel()[cells], mask=~_TEXTS[name])
        arrays = [
            pa.array(NAMES, pa.string()).take(pa.array(name)),
            pa.nulls(len(cells), pa.int64()),
            pa.array(number.ravel()[cells], mask=~_NUMBERS[name]),
            self._pool.take(chosen),
            pa.array(np.ones(len(cells), np.bool_), mask=name != _PRESENT),
            self._moments.take(chosen),
        ]
        offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        entries = pa.StructArray.from_arrays(arrays, fields=list(ATTRIBUTE))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries, type=EVENTS.field("attributes").type)


_PRESENTS = ("", ',"present":true')


def _chosen(texts: Sequence[str], which: Integers) -> pa.StringArray:
    return pa.array(texts, pa.string()).take(pa.array(which))


def _joined(*parts: pa.StringArray | str) -> pa.StringArray:
    """Texts put together, each of one of every part."""
    return pc.binary_join_element_wise(*parts, "")


class EventTexts(NamedTuple):
    """Ids, subjects and payloads of events."""

    ids: pa.StringArray
    subjects: pa.StringArray
    payloads: pa.StringArray

    @staticmethod
    def of(ids: Sequence[str], subjects: Sequence[str], payloads: Sequence[str]) -> EventTexts:
        """Those that are written one by one."""
        return EventTexts(*(pa.array(texts, pa.string()) for texts in (ids, subjects, payloads)))


def derived_table(
    kind: tuple[str, str],
    at: tuple[Integers, Integers],
    times: tuple[Integers, Integers],
    texts: EventTexts,
    place: PlaceColumns,
    attributes: pa.ListArray,
    node: str | None,
) -> pa.Table:
    """Derived events of one type and source, as a table of EVENTS: their positions and parts, their times and when they
    were accepted, and their texts.
    """
    count = len(place.kind)
    there = place.kind != NOWHERE
    kinds = pa.array(["planar", "geographic"]).take(pa.array(np.where(there, place.kind - PLANAR, 0), mask=~there))
    columns: dict[str, pa.Array] = {
        "position": pa.array(at[0]),
        "id": texts.ids,
        "type": _repeated(count, kind[0], pa.string()),
        "source": _repeated(count, kind[1], pa.string()),
        "subject": texts.subjects,
        "time": _times(times[0]),
        "accepted": _times(times[1]),
        "coordinates": kinds,
        "x": pa.array(place.x, mask=~there),
        "y": pa.array(place.y, mask=~there),
        "z": pa.array(place.z, mask=~there | np.isnan(place.z)),
        "attributes": attributes,
        "payload": texts.payloads.cast(pa.binary()),
        "part": pa.array(at[1], pa.int32()),
        "node": _repeated(count, node, pa.string()),
    }
    arrays = [columns.get(field.name) for field in EVENTS]
    return pa.Table.from_arrays(
        [pa.nulls(count, field.type) if array is None else array for field, array in zip(EVENTS, arrays, strict=True)],
        schema=EVENTS,
    )


def json_text(text: str) -> str:
    """A text as JSON has it."""
    return orjson.dumps(text).decode()


def _numbers(values: npt.NDArray[np.float64]) -> list[str]:
    """Numbers as JSON has them."""
    return orjson.dumps(values.tolist()).decode()[1:-1].split(",") if len(values) else []


def _json_within(texts: Sequence[str]) -> Sequence[str]:
    """Texts as they stand within a JSON text."""
    # Mostly nothing is escaped, which one look at all of them says.
    return texts if b"\\" not in orjson.dumps(list(texts)) else [json_text(text)[1:-1] for text in texts]


def _escaped_names(names: Sequence[str]) -> Sequence[str]:
    """Each as `escaped_name` has it."""
    together = "".join(names)
    return names if "%" not in together and "/" not in together else [escaped_name(name) for name in names]


def moment_texts(micros: Integers) -> list[str]:
    """Each as `moment_text` has it."""
    texts = np.datetime_as_string(np.where(micros == NEVER, 0, micros).view("M8[us]")).tolist()
    columns = zip(texts, (micros % 1_000_000 == 0).tolist(), (micros == NEVER).tolist(), strict=True)
    return ["" if unknown else f"{text[:19] if whole else text}Z" for text, whole, unknown in columns]


def moment_text(micros: int) -> str:
    """A moment as text, empty where none is known."""
    moment = moment_of(micros)
    return "" if moment is None else time_text(moment)


def _times(micros: Integers) -> pa.Array:
    return pa.array(micros, mask=micros == NEVER).cast(TIME)


def _repeated(count: int, text: str | None, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind) if text is None else pa.repeat(pa.scalar(text, kind), count)
