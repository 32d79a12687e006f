"""The words as Arrow columns: what travels between the journal, the pipeline and the access servers.

Inside nearcast events are columns; JSON is parsed once, at the door. Attributes are a list of (name, typed value), so
any publisher may send any attributes without a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import wraps
from itertools import accumulate
from operator import attrgetter
from typing import Any, TypeVar
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.arrays import Flags
from nearcast.model.event import CONTROL_PREFIX, MAIN, Event, Place
from nearcast.model.values import SHORTEST_TIME, Value, may_be_time, time_of

TIME = pa.timestamp("us", tz="UTC")

ATTRIBUTE = pa.struct(
    [
        ("name", pa.string()),
        ("integer", pa.int64()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("boolean", pa.bool_()),
        ("time", TIME),
    ]
)
"""One attribute: exactly one value is set, but a text that names a moment has `time` beside `text`."""

EVENTS = pa.schema(
    [
        ("position", pa.int64()),
        ("id", pa.string()),
        ("type", pa.string()),
        ("source", pa.string()),
        ("subject", pa.string()),
        ("time", TIME),
        ("accepted", TIME),
        ("channel", pa.string()),
        ("coordinates", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("z", pa.float64()),
        ("attributes", pa.list_(ATTRIBUTE)),
        ("payload", pa.binary()),
        ("part", pa.int32()),
        ("node", pa.string()),
        ("about", pa.string()),
    ]
)
"""One event. `part` is 0, or of a derived event its number among those with the same cause, whose position it has.
`node` and `about`, as in `Event`, stand last: rows that were written before there were such are rows without them."""

FIELDS = (
    *("position", "id", "type", "source", "subject", "time", "accepted", "channel", "payload", "part", "node"),
    "about",
)
"""The columns of `EVENTS` that are fields of an event as they are."""

_PLACE = ("coordinates", "x", "y", "z")
_NOWHERE = (None,) * len(_PLACE)
_FIELDS_OF, _PLACE_OF = attrgetter(*FIELDS), attrgetter(*_PLACE)

VALUE_FIELDS = ("integer", "double", "text", "boolean", "time")
"""The fields of `ATTRIBUTE` that hold values, `text` before the `time` that it may have beside it."""

_KINDS = (bool, int, float, str, datetime)
"""The types of values, booleans before integers, which in Python they are."""
_KNOWN_KINDS = frozenset(_KINDS)
_TYPE = {field.name: field.type for field in ATTRIBUTE}
_PLAIN_TIME = pa.timestamp("us")

ALIKE = 8
"""From so many rows on it is looked whether all of them are alike: a column of few is made sooner."""

FEW = 128
"""Rows up to which texts are sooner looked at in Python than by Arrow's functions, each of which costs by itself."""

ROLE_LEVEL = pa.struct([("role", pa.string()), ("task", pa.string()), ("level", pa.int8())])

OTHER = pa.struct([("subscription", pa.string()), ("level", pa.int8())])

DELIVERIES = pa.schema(
    [
        ("position", pa.int64()),
        ("client", pa.string()),
        ("subscription", pa.string()),
        ("level", pa.int8()),
        ("by_role", pa.list_(ROLE_LEVEL)),
        ("others", pa.list_(OTHER)),
        ("part", pa.int32()),
    ]
)
"""One row per (position and part of the event, client). `level` is the level as of the event's position; `by_role`,
where a subscription takes its relevance from roles, the level the event would have under every role and task that
selects it, so that a change of role is a look-up for what still waits (semantics §3). Null where no role matters.
`others` are the client's other subscriptions that selected the event, most urgent first: one of them takes over what
still waits when `subscription` ends. Null where there are none."""

NO_DELIVERIES = DELIVERIES.empty_table()
"""As most small batches have it: to make an empty table takes longer than to make one with some rows."""

OUTCOMES = pa.schema(
    [
        ("position", pa.int64()),
        ("client", pa.string()),
        ("event", pa.int64()),
        ("outcome", pa.string()),
        ("priority", pa.int8()),
        ("attempts", pa.int32()),
        ("queued", TIME),
        ("sent", TIME),
        ("settled", TIME),
        ("part", pa.int32()),
        ("early", pa.bool_()),
    ]
)
"""How a delivery ended. `position` is the outcome's own place in its log, `event` and `part` tell the event delivered;
`outcome` is one of `OUTCOME_NAMES`; `sent` is the last sending, null if it never was; `early`, whether an access server
decided it before the pipeline did, stands last: rows that were written before there was that are rows without it."""

OUTCOME_NAMES = ("acknowledged", "expired", "conflated", "overflowed", "unsubscribed")

DEAD_LETTERS = pa.schema(
    [
        ("position", pa.int64()),
        ("time", TIME),
        ("where", pa.string()),
        ("reason", pa.string()),
        ("content", pa.binary()),
    ]
)
"""What could not be taken: where it came from, why, and the first 64 KiB of what came."""

SOURCE_FILTERS = pa.schema(
    [
        ("position", pa.int64()),
        ("relation", pa.string()),
        ("a", pa.string()),
        ("b", pa.string()),
        ("a_position", pa.int64()),
        ("b_position", pa.int64()),
        ("holds", pa.bool_()),
    ]
)
"""How a relation whose reports may be held back stands as of `position`: the events of its two entities that count, and
whether it holds. From these follow the guards of both, by the relation's strategy."""

SNAPSHOTS = pa.schema([("position", pa.int64()), ("file", pa.string()), ("part", pa.int32()), ("content", pa.binary())])
"""What is known as of `position`, from which on the log of events may begin: a snapshot's files, each in parts."""

SESSIONS = pa.schema(
    [
        ("position", pa.int64()),
        ("time", TIME),
        ("client", pa.string()),
        ("server", pa.string()),
        ("instance", pa.string()),
        ("holder", pa.string()),
        ("takeover", pa.bool_()),
        ("ends", pa.int64()),
    ]
)
"""Which access server has a client's session: a row claims it for a server, by its name and for one run of it, and says
by which name whoever connects is known. With `takeover` it is had in any case, else where nobody, or the same holder,
is connected; null where it only states what it has. A row with `ends` says that the connection of the claim at that
position is gone."""

LOGS: dict[str, pa.Schema] = {
    "events": EVENTS,
    "derived": EVENTS,
    "deliveries": DELIVERIES,
    "outcomes": OUTCOMES,
    "dead letters": DEAD_LETTERS,
    "source filters": SOURCE_FILTERS,
    "snapshots": SNAPSHOTS,
    "sessions": SESSIONS,
}


def to_table(events: Iterable[Event]) -> pa.Table:
    """Events as a table of `EVENTS`, in their order."""
    return _table(list(events), None)


def entered_events(events: Iterable[Event], node: str) -> pa.Table:
    """Events as a table of `EVENTS`, all of them entering at one node."""
    return _table(list(events), node)


def _table(events: list[Event], node: str | None) -> pa.Table:
    """Events as a table of `EVENTS`; with a node, all of them entering there."""
    if not events:
        return EVENTS.empty_table()
    columns: dict[str, Sequence[Any]] = dict(zip(FIELDS, zip(*map(_FIELDS_OF, events), strict=True), strict=True))
    if node is not None:
        columns["node"] = (node,) * len(events)
    places = [_NOWHERE if event.place is None else _PLACE_OF(event.place) for event in events]
    columns.update(zip(_PLACE, zip(*places, strict=True), strict=True))
    arrays = [
        _attributes(events) if name == "attributes" else column_of(columns[name], kind)
        for name, kind in zip(EVENTS.names, EVENTS.types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=EVENTS)


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values of one Arrow type as a column."""
    if len(values) >= ALIKE and values.count(values[0]) == len(values):
        # Most columns of a batch: no channel, one source, one moment of acceptance.
        return pa.nulls(len(values), kind) if values[0] is None else pa.repeat(pa.scalar(values[0], kind), len(values))
    return _times(values) if kind is TIME else pa.array(values, kind)


def _times(moments: Sequence[datetime | None]) -> pa.Array:
    # Arrow asks the zone of each moment for its offset, which takes several times as long as all the rest.
    plain = [one and (one if one.tzinfo is UTC else one.astimezone(UTC)).replace(tzinfo=None) for one in moments]
    return pa.array(plain, _PLAIN_TIME).cast(TIME)


def without_payloads(events: pa.Table) -> pa.Table:
    """A table of `EVENTS` whose payloads are null: they are most of the bytes, and nobody decides by them."""
    at = EVENTS.get_field_index("payload")
    return events.set_column(at, EVENTS.field(at), pa.nulls(len(events), EVENTS.types[at]))


def entering(table: pa.Table, node: str) -> pa.Table:
    """A table of `EVENTS`, all of them entering at one node."""
    at = EVENTS.get_field_index("node")
    return table.set_column(at, EVENTS.field(at), pa.array([node] * len(table), pa.string()))


def nodes_of(events: pa.Table) -> pa.ChunkedArray:
    """The entry node of each event of a table of `EVENTS`."""
    return pc.fill_null(events.column("node"), MAIN)


def entry_nodes(events: pa.Table) -> list[str]:
    """The nodes at which events of a table of `EVENTS` entered, each once."""
    nodes = events.column("node")
    if nodes.null_count == len(nodes):
        return [MAIN] if len(nodes) else []
    return list(nodes_of(events).unique().to_pylist())


def _attributes(events: list[Event]) -> pa.ListArray:
    """All attributes as one list column."""
    # Every column has a row of each attribute, None where it is of another kind: Arrow reads such lists faster than it
    # puts values where they belong, of one event by five times.
    lengths = [len(event.attributes) for event in events]
    pairs = [pair for event in events for pair in event.attributes]
    values = [value for _, value in pairs]
    # The types themselves, not isinstance: this is the door's other innermost loop.
    kinds = [*map(type, values)]
    there = set(kinds)
    if not there <= _KNOWN_KINDS:
        kinds = [one if one in _KNOWN_KINDS else _kind_within(one) for one in kinds]
        there = set(kinds)
    columns: list[pa.Array] = [pa.array([name for name, _ in pairs], pa.string())]
    for field, kind in zip(VALUE_FIELDS[:-1], (int, float, str, bool), strict=True):
        array = (
            pa.array([value if one is kind else None for value, one in zip(values, kinds, strict=True)], _TYPE[field])
            if kind in there
            else pa.nulls(len(values), _TYPE[field])
        )
        columns.append(array)
    columns.append(_moments(values, kinds) if there & {str, datetime} else pa.nulls(len(values), TIME))
    entries = pa.StructArray.from_arrays(columns, fields=list(ATTRIBUTE))
    offsets = pa.array([0, *accumulate(lengths)], pa.int32())
    return pa.ListArray.from_arrays(offsets, entries, type=EVENTS.field("attributes").type)


def attributes_in_columns(columns: Sequence[tuple[str, Sequence[Any]]], count: int) -> pa.ListArray:
    """The attributes of so many events that have the same names in the same order, each with the column of its values;
    None where an event lacks it. Raises TypeError for what is no value, OverflowError for an integer beyond 64 bits.
    """
    width, there = len(columns), [frozenset(map(type, values)) for _, values in columns]
    kinds = frozenset[type]().union(*there)
    if not kinds <= _KNOWN_KINDS | {type(None)}:
        raise TypeError("expected values of attributes, got others among them")
    children = [pa.array([name for name, _ in columns], pa.string()).take(np.tile(np.arange(width), count))]
    for field, kind in zip(VALUE_FIELDS[:-1], (int, float, str, bool), strict=True):
        if kind not in kinds:
            children.append(pa.nulls(width * count, _TYPE[field]))
            continue
        flat: list[Any] = [None] * (width * count)
        for at, (_, values) in enumerate(columns):
            if kind in there[at]:
                alike = len(there[at]) == 1
                flat[at::width] = values if alike else [one if type(one) is kind else None for one in values]
        children.append(pa.array(flat, _TYPE[field]))
    children.append(_moments_in_columns(columns, there, count))
    entries = pa.StructArray.from_arrays(children, fields=list(ATTRIBUTE))
    lengths = np.full(count, width)
    if type(None) in kinds:
        kept = np.array([[one is not None for one in values] for _, values in columns]).T
        entries, lengths = entries.filter(pa.array(kept.ravel())), kept.sum(axis=1)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(offsets, entries, type=EVENTS.field("attributes").type)


def _moments_in_columns(
    columns: Sequence[tuple[str, Sequence[Any]]], there: Sequence[frozenset[type]], count: int
) -> pa.Array:
    """The moments that values are or, as texts, name, those of an event one after the other."""
    flat: list[datetime | None] = [None] * (len(columns) * count)
    for at, (_, values) in enumerate(columns):
        # Of texts alone it is seen at once that none is long enough, or that none looks like a moment.
        plain = there[at] == {str} and (max(map(len, values)) < SHORTEST_TIME or not any(map(may_be_time, values)))
        if not plain and there[at] & {str, datetime}:
            flat[at :: len(columns)] = _named_moments(values, [*map(type, values)])
    return column_of(flat, TIME)


def _moments(values: Sequence[Any], kinds: Sequence[type]) -> pa.Array:
    """The moments that values are or, as texts, name."""
    found = _named_moments(values, kinds)
    return pa.nulls(len(found), TIME) if found.count(None) == len(found) else _times(found)


def _named_moments(values: Sequence[Any], kinds: Sequence[type]) -> list[datetime | None]:
    return [
        (time_of(value) if may_be_time(value) else None) if kind is str else value if kind is datetime else None
        for value, kind in zip(values, kinds, strict=True)
    ]


def _kind_within(kind: type) -> type:
    """The kind of value that a class of a publisher's own is of."""
    return next(one for one in _KINDS if issubclass(kind, one))


def to_events(table: pa.Table) -> list[Event]:
    """The events of a table of `EVENTS`: the inverse of `to_table`."""
    return [_event(row) for row in table.to_pylist()]


T = TypeVar("T")


def of_last_table(find: Callable[[pa.Table], T]) -> Callable[[pa.Table], T]:
    """A function that keeps what it found of the table that it was given last: all stages ask the same of a batch."""
    last: tuple[Callable[[], pa.Table | None], T] | None = None

    @wraps(find)
    def found(table: pa.Table) -> T:
        nonlocal last
        # Once, for another thread may ask of another table.
        known = last
        if known is None or known[0]() is not table:
            known = last = ref(table), find(table)
        return known[1]

    return found


def are_control(table: pa.Table) -> pa.ChunkedArray:
    """Of each row of a table of `EVENTS` from the journal, whether it is a control event."""
    return pc.starts_with(table.column("type"), CONTROL_PREFIX)


def any_control(table: pa.Table) -> bool:
    """Whether there are control events among those of a table of `EVENTS` from the journal."""
    if len(table) <= FEW:
        return any(type_.startswith(CONTROL_PREFIX) for type_ in table.column("type").to_pylist())
    return bool(pc.any(are_control(table)).as_py())


def control_events(table: pa.Table) -> list[Event]:
    """The control events among the rows of such a table."""
    # Nearly always there is none.
    return to_events(table.filter(are_control(table))) if any_control(table) else []


@of_last_table
def are_derived(table: pa.Table) -> Flags:
    """Of each row of a table of `EVENTS`, whether it is a derived event; not to be written to."""
    return np.asarray(table.column("part").to_numpy() > 0)


@of_last_table
def any_derived(table: pa.Table) -> bool:
    """Whether there are derived events among those of a table of `EVENTS`."""
    return bool(are_derived(table).any())


def entries_of(table: pa.Table) -> tuple[pa.StructArray, npt.NDArray[np.int64]]:
    """All attributes of a table of `EVENTS` one after the other, and of each its event's number in the table."""
    lists = table.column("attributes").combine_chunks()
    # Of a table with no chunk, or with too much for one, there are chunks still.
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    return lists.flatten(), np.repeat(np.arange(len(lists)), lists.value_lengths().fill_null(0).to_numpy())


def places_of(table: pa.Table) -> list[Place | None]:
    """Where each event of a table of `EVENTS` is."""
    columns = (table.column(name).to_pylist() for name in ("coordinates", "x", "y", "z"))
    return [None if kind is None else Place(kind, x, y, z) for kind, x, y, z in zip(*columns, strict=True)]


def _event(row: dict[str, Any]) -> Event:
    place = None if row["coordinates"] is None else Place(row["coordinates"], row["x"], row["y"], row["z"])
    return Event(
        id=row["id"],
        type=row["type"],
        source=row["source"],
        subject=row["subject"],
        time=row["time"],
        place=place,
        attributes=tuple((attribute["name"], _value(attribute)) for attribute in row["attributes"]),
        payload=row["payload"],
        channel=row["channel"],
        accepted=row["accepted"],
        position=row["position"],
        part=row["part"],
        node=row["node"],
        about=row["about"],
    )


def _value(attribute: dict[str, Any]) -> Value:
    # Text stands before time: of a text that names a moment the text is what was published.
    return next(attribute[kind] for kind in VALUE_FIELDS if attribute[kind] is not None)
