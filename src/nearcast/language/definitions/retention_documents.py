"""Retention within documents: by what is kept an age and a size."""

from __future__ import annotations

from typing import Any

from nearcast.language.nodes import DocumentNode, DocumentReader
from nearcast.language.quantities import read_duration
from nearcast.model.limits import Retention, RetentionBound

KINDS = ("events", "deliveries", "outcomes", "dead_letters")
MOST = 2**53
"""What every reader of JSON still reads as a whole number."""


def read_retention(node: DocumentNode, reader: DocumentReader) -> Retention:
    """The retention of a document; what is not there is kept for ever. Faults go to the reader."""
    fields = reader.fields(node, (), (*KINDS, "archive"), "retention")
    found: dict[str, Any] = {name: _bound(item, reader) for name, item in fields.items() if name in KINDS}
    if "archive" in fields:
        found["archive"] = reader.flag(fields["archive"], "archive")
    retention = Retention(**found)
    own, events = retention.deliveries.age, retention.events.age
    if own is not None and events is not None and own > events:
        expected = f"an age of deliveries of at most {events:g} s, as that of events"
        reader.fault(expected, fields["deliveries"], "a delivery goes with its event", came=f"{own:g} s")
    return retention


def _bound(node: DocumentNode, reader: DocumentReader) -> RetentionBound:
    fields = reader.fields(node, (), ("age", "size"), "a bound of retention")
    age = read_duration(fields["age"], "age", reader) if "age" in fields else None
    size = reader.integer(fields["size"], "size, in bytes", 1, MOST) if "size" in fields else None
    return RetentionBound(age, size)


def retention_data(retention: Retention) -> dict[str, Any]:
    """What is bounded, JSON-able; `read_retention` inverts it."""
    data: dict[str, Any] = {}
    for name in KINDS:
        bound: RetentionBound = getattr(retention, name)
        if bound:
            pairs = (("age", bound.age), ("size", bound.size))
            data[name] = {key: value for key, value in pairs if value is not None}
    return data | ({"archive": True} if retention.archive else {})
