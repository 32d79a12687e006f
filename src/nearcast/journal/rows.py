"""Rows of a log: checked against its schema, given positions, cut to a range. Every journal shares these."""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.model.columns import LOGS


def checked(log: str, rows: pa.Table) -> pa.Table:
    """The rows with the columns and types of the log; `JournalError` where there is no such log or they do not fit."""
    schema = schema_of(log)
    try:
        rows = rows if rows.schema.equals(schema) else rows.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        came = ", ".join(f"{field.name} {field.type}" for field in rows.schema)
        raise JournalError(f"expected rows of the log {log!r}, got the columns {came}: {error}") from error
    if log == "events" and (rows["id"].null_count or rows["source"].null_count):
        raise JournalError("expected an id and a source in every event, got an event without; they identify it")
    return rows


def schema_of(log: str) -> pa.Schema:
    """The schema of a log; `JournalError` if there is none of that name."""
    if log not in LOGS:
        raise JournalError(f"expected one of the logs {', '.join(LOGS)}, got {log!r}")
    return LOGS[log]


def numbered(rows: pa.Table, after: int) -> pa.Table:
    """The rows with the positions `after + 1`, `after + 2`, …"""
    positions = pa.array(np.arange(after + 1, after + 1 + len(rows), dtype=np.int64))
    # In every log the position is the first column.
    return rows.set_column(0, rows.schema.field(0), positions)


def ascending(log: str, rows: pa.Table, through: int) -> pa.Table:
    """Rows that bring their own positions, checked; `JournalError` unless these ascend within 1 to `through`."""
    rows = checked(log, rows)
    if rows["position"].null_count:
        raise JournalError(f"expected a position in every row that covers the log {log!r}, got none in some")
    positions = positions_of(rows)
    # Equal positions may follow each other: an event is delivered to many.
    if len(rows) and (positions[0] < 1 or positions[-1] > through or (np.diff(positions) < 0).any()):
        came = f"positions from {positions[0]} to {positions[-1]}, not all in order or in range"
        raise JournalError(f"expected positions of the log {log!r} that ascend within 1 to {through}, got {came}")
    return rows


def within(rows: pa.Table, after: int, through: int) -> pa.Table:
    """The rows with `after` < position ≤ `through`, of rows in the order of their positions; copies nothing."""
    first, last = np.searchsorted(positions_of(rows), [after, through], side="right")
    return rows.slice(first, max(0, last - first))


def positions_of(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The column of positions."""
    return rows["position"].to_numpy()


def keys_of(events: pa.Table) -> list[tuple[str, str]]:
    """The (id, source) of every event: the pair identifies it."""
    ids, sources = events["id"].to_pylist(), events["source"].to_pylist()
    return cast(list[tuple[str, str]], list(zip(ids, sources, strict=True)))


def joined(log: str, parts: list[pa.Table]) -> pa.Table:
    """The parts one after the other, as one table without seams; empty if there are none."""
    if not parts:
        return schema_of(log).empty_table()
    return pa.concat_tables(parts).combine_chunks()
