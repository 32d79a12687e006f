"""Rows to put into a journal."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pyarrow as pa

from nearcast.model.columns import DEAD_LETTERS, DELIVERIES, to_table
from nearcast.model.event import Event


def events(ids: Iterable[object], source: str = "s") -> pa.Table:
    """Events with these ids."""
    return to_table([Event(id=str(id), type="t", source=source, attributes=(("n", 1),), payload=b"{}") for id in ids])


def deliveries(positions: Iterable[int]) -> pa.Table:
    """One delivery per position given; of equal ones each to its own client."""
    rows = [{"position": at, "part": 0, "client": f"c{number}", "level": 0} for number, at in enumerate(positions)]
    return pa.Table.from_pylist(rows, schema=DELIVERIES)


def letters(count: int) -> pa.Table:
    """So many dead letters, each of some bytes that do not shrink."""
    rows = [{"position": 0, "where": "here", "reason": "why", "content": os.urandom(100)} for _ in range(count)]
    return pa.Table.from_pylist(rows, schema=DEAD_LETTERS)


def ids(table: pa.Table) -> list[str]:
    """The ids of events."""
    return table["id"].to_pylist()


def positions(table: pa.Table) -> list[int]:
    """The positions of rows."""
    return table["position"].to_pylist()
