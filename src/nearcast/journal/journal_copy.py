"""A journal copied into another, of whichever kind: every row at its position, and what entry nodes keep.

Where the source has let go of its oldest rows the target's logs begin where the source's do, with the snapshot that
stands for what went. A copy that was cut off goes on where it was. A target that has anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from nearcast.errors import Fault, JournalError
from nearcast.journal.identity import copy_identity
from nearcast.journal.rows import keys_of, positions_of, schema_of
from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import LOG as SNAPSHOT_LOG
from nearcast.model.columns import LOGS, to_table
from nearcast.model.event import MAIN

STRETCH = 10_000
"""Positions that are copied at once."""


@dataclass(frozen=True, slots=True)
class CopiedLog:
    """How many rows were copied of a log now, and where it ends."""

    log: str
    rows: int
    end: int


def copy_journal(source: Journal, target: Journal, advance: Callable[[int], None]) -> list[CopiedLog]:
    """Copies what the target has not yet, log after log; `advance` hears of rows. Nobody else may write to either.

    Raises `JournalError` where the target has something that the source has not, or ends before what the source still
    has of events.
    """
    for log in LOGS:
        _check_begun(source, target, log)
    # The snapshot first: without it nobody could make anything of events whose beginning is gone. Then events: nothing
    # is decided of those that are not there.
    found = {log: _copied(source, target, log, advance) for log in sorted(LOGS, key=lambda log: log != SNAPSHOT_LOG)}
    _copy_kept(source, target)
    copy_identity(source, target)
    return [found[log] for log in LOGS]


def _check_begun(source: Journal, target: Journal, log: str) -> None:
    """Raises `JournalError` unless what the target has of a log is the beginning of the source's."""
    end = target.end(log)
    if end > source.end(log):
        raise _refused(target, f"nothing yet, or the beginning of {source}", f"the log {log!r} up to position {end}")
    begins = max(target.trimmed(log), source.trimmed(log))
    if log == "events" and 0 < end < source.trimmed(log):
        raise _refused(target, f"nothing yet, or events up to position {begins:,}", f"those up to {end:,}")
    for at in sorted({begins + 1, end}) if end > begins else ():
        if not source.read(log, at - 1, 1).equals(target.read(log, at - 1, 1)):
            raise _refused(target, f"nothing yet, or the beginning of {source}", f"other {log} at position {at}")


def _copied(source: Journal, target: Journal, log: str, advance: Callable[[int], None]) -> CopiedLog:
    count, end, gone = 0, source.end(log), source.trimmed(log)
    if gone > target.end(log):
        # No rows, and an end: what comes next has the positions behind it.
        target.commit_range(log, schema_of(log).empty_table(), gone)
    after = target.end(log)
    while after < end:
        through = source.end_within_bytes(log, after, min(STRETCH, end - after))
        rows = source.read(log, after, through - after)
        if log == "events":
            _append(target, rows)
        else:
            target.commit_range(log, rows, through)
        count, after = count + len(rows), through
        advance(len(rows))
    if target.trimmed(log) < gone:
        target.trim_through(log, gone)
    return CopiedLog(log, count, end)


def _append(target: Journal, rows: pa.Table) -> None:
    """Appends events, of which each has to get the position it has."""
    given = target.append("events", rows)
    if given != positions_of(rows).tolist():
        at = next(
            number for number, both in enumerate(zip(given, positions_of(rows), strict=True)) if both[0] != both[1]
        )
        raise _refused(target, f"event {keys_of(rows)[at][0]!r} at its position", f"position {given[at]}")


def _copy_kept(source: Journal, target: Journal) -> None:
    """What entry nodes keep: of all nodes at which something entered."""
    nodes = {MAIN}
    for rows in source.row_ranges("events", 0, source.end("events"), STRETCH):
        nodes.update(node for node in rows.column("node").unique().to_pylist() if node)
    for node in sorted(nodes):
        kept = {event.entity: event for event in source.kept(node)}
        gone = {event.entity: None for event in target.kept(node) if event.entity not in kept}
        if kept or gone:
            target.append("events", to_table([]), {**kept, **gone}, node)


def _refused(journal: Journal, expected: str, came: str) -> JournalError:
    return JournalError(f"journal {journal}: {Fault(expected, came, advice='name an empty one')}")
