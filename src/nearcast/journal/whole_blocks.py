"""What is whole of a damaged journal, copied into a new one: blocks as they are, at their positions.

A block is whole where its checksum says so; what is missing between two of them their links say. Keys are made anew
from the events. Where SQLite's own pages are damaged blocks are looked up one by one, by their numbers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.block_checksums import COLUMNS, StoredBlock, checked_block, is_position
from nearcast.journal.held_back import restored
from nearcast.journal.rows import keys_of, positions_of
from nearcast.journal.sqlite import SqliteJournal
from nearcast.journal.tables.block_table import decoded_block, put_rows, put_stored
from nearcast.journal.tables.connections import connected, reading_connection
from nearcast.journal.tables.file_format import NODES
from nearcast.journal.tables.kept_table import keep, whole_changes
from nearcast.journal.tables.log_ends import LogEnd, log_end, put_end, unchecked_blocks
from nearcast.journal.tables.note_table import all_notes, put_note
from nearcast.model.columns import LOGS

DENSE = ("events", "outcomes", "dead letters")
"""Logs that have a row at every position."""

UNREADABLE = (sqlite3.Error, ValueError, TypeError, KeyError)
"""What SQLite raises for what is damaged, and Python where it came out as something else."""

MOST_FAILED = 100_000
"""Numbers, one after the other, that are asked for where blocks cannot be walked through: some seconds."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LostPositions:
    """Positions of a log of which rows may be lost, from the first to the last; None: nobody knows how far."""

    first: int
    last: int | None


@dataclass(frozen=True, slots=True)
class SalvagedLog:
    """How many rows were copied of a log, where it ends now, and what is lost of it; `left_out`: deliveries of lost
    events.
    """

    log: str
    rows: int
    left_out: int
    end: int
    lost: tuple[LostPositions, ...]


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What was copied of a journal. `kept`: of how many entities there is what an entry node keeps; `kept_lost`: some
    of that may be lost.
    """

    logs: tuple[SalvagedLog, ...]
    kept: int
    kept_lost: bool

    @property
    def whole(self) -> bool:
        """Whether nothing is lost."""
        return not self.kept_lost and not any(one.lost for one in self.logs)


class _Found(NamedTuple):
    """A block that is whole."""

    last: int
    number: int
    first: int
    previous: int | None


def salvage(source: Path, target: Path) -> SalvageReport:
    """Copies all that is whole of a journal into a new one, in a file that is not there yet. The old one is only read.

    Raises `JournalError` where the old one cannot be opened at all, or the new one not be written.
    """
    if target.exists():
        raise JournalError(f"journal {target}: expected none yet, got one; give another folder")
    with _readable(source), closing(reading_connection(str(source))) as old:
        # All as of one moment.
        old.execute("BEGIN")
        found = _whole_blocks(old)
        ends = {log: _or_none(log_end, old, log) for log in LOGS}
        through = {log: _through(found[log], ends[log]) for log in LOGS}
        # What was decided of lost events is at their positions, which no others may have.
        through["events"] = max(through["events"], through["deliveries"], through["derived"])
        SqliteJournal(target).close()
        with closing(connected(str(target))) as new:
            copy = _Copy(old, new, {log: tuple(_lost(log, found[log], ends[log])) for log in LOGS})
            logs = tuple(copy.log(log, found[log], through[log]) for log in LOGS)
            kept, kept_lost = _copied_kept(old, new)
            _copy_nodes(old, new)
            _copy_notes(old, new)
    return SalvageReport(logs, kept, kept_lost)


@contextmanager
def _readable(source: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        advice = "nothing of it can be read: restore a copy, with the files -wal and -shm beside it"
        raise JournalError(f"journal {source}: {error}; {advice}") from error


def _or_none(read: Callable[..., T], *arguments: Any) -> T | None:
    try:
        return read(*arguments)
    except UNREADABLE:
        return None


def _rows(old: sqlite3.Connection, query: str, *values: int) -> list[Any]:
    return old.execute(query, values).fetchall()


def _whole_blocks(old: sqlite3.Connection) -> dict[str, list[_Found]]:
    """The blocks that are whole, by log, in the order of their positions."""
    found: dict[str, dict[bytes | int, _Found]] = {log: {} for log in LOGS}
    unchecked = _or_none(unchecked_blocks, old) or 0
    for number in _numbers(old):
        one = _or_none(_block, old, number, unchecked)
        if one is not None:
            log, block = one
            # Of one that a damaged page shows twice once.
            found[log].setdefault(block.checksum or number, _Found(block.last, number, block.first, block.previous))
    return {log: sorted(those.values()) for log, those in found.items()}


def _numbers(old: sqlite3.Connection) -> list[int]:
    """The numbers of blocks; within damaged pages those that may be."""
    # The table says it, its index does, and each log's end.
    queries = (
        "SELECT max(number) FROM blocks",
        "SELECT max(number) FROM blocks INDEXED BY blocks_of_log WHERE log <> ''",
        "SELECT max(newest) FROM ends",
    )
    greatest = [one for query in queries for [one] in _or_none(_rows, old, query) or ()]
    last = max(filter(is_position, greatest), default=0)
    found = dict.fromkeys(_walked(old, "SELECT number FROM blocks WHERE number > ? ORDER BY number LIMIT 1", 0, last))
    # From the other end, where a damaged number seems to be far away.
    above = "SELECT number FROM blocks WHERE number < ? ORDER BY number DESC LIMIT 1"
    return [*found, *(one for one in _walked(old, above, last + 1, 0) if one not in found)]


def _walked(old: sqlite3.Connection, query: str, at: int, end: int) -> Iterator[int]:
    """The numbers of blocks, one after the other as a query gives them, and where it fails the next whole numbers."""
    step, failed = (1 if at < end else -1), 0
    while at != end and failed < MOST_FAILED:
        rows = _or_none(_rows, old, query, at)
        if rows == []:
            return
        following: object = rows[0][0] if rows else None
        if isinstance(following, int) and following >= 0 and (following - at) * step > 0:
            at, failed = following, 0
        else:
            # The page is damaged where it would be: what else stands in it is asked for one by one.
            at, failed = at + step, failed + 1
        yield at


def _block(old: sqlite3.Connection, number: int, unchecked: int) -> tuple[str, StoredBlock] | None:
    """A block with its log; None where there is none. Raises `sqlite3.DatabaseError` where it is not whole."""
    row = old.execute(f"SELECT log, {COLUMNS} FROM blocks WHERE number = ?", (number,)).fetchone()
    if row is None or row[0] not in LOGS:
        return None
    block = checked_block(row[0], row[1:], unchecked)
    if block.checksum is None:
        # A format before: it is whole if its rows say the same as its table.
        positions = positions_of(decoded_block(row[0], block)).tolist()
        if [*positions[:1], *positions[-1:]] != [block.first, block.last]:
            return None
    return row[0], block


def _through(found: Sequence[_Found], end: LogEnd | None) -> int:
    """Where a log ends: as it says, but not before its last block."""
    return max(end.position if end else 0, found[-1].last if found else 0)


def _lost(log: str, found: Sequence[_Found], end: LogEnd | None) -> Iterator[LostPositions]:
    before = _Found(0, 0, 0, None)
    for block in found:
        linked = block.previous is None or block.previous == before.number
        # A log may begin behind rows that it let go of on purpose: then its first block has no link.
        missed = log in DENSE and block.first > before.last + 1 and (before.number or block.previous is None)
        if not linked or missed:
            yield _between(log, before.last, block.first)
        before = block
    if end is None:
        yield LostPositions(before.last + 1, None)
    elif end.newest not in (None, before.number):
        yield LostPositions(min(before.last + 1, end.position), end.position)


def _between(log: str, last: int, first: int) -> LostPositions:
    # Deliveries of one event may be in several blocks, of which each has its position.
    if log in DENSE or first - last > 1:
        return LostPositions(last + 1, max(last + 1, first - 1))
    return LostPositions(max(last, 1), first)


class _Copy:
    """From one journal into another, log after log, in the order of `LOGS`."""

    def __init__(
        self, old: sqlite3.Connection, new: sqlite3.Connection, lost: dict[str, tuple[LostPositions, ...]]
    ) -> None:
        self._old, self._new, self._lost = old, new, lost
        self._unchecked = _or_none(unchecked_blocks, old) or 0
        self._derived: set[tuple[int, int]] = set()

    def log(self, log: str, found: Sequence[_Found], through: int) -> SalvagedLog:
        """Copies the blocks of a log, and puts its end."""
        count = left_out = previous = 0
        for one in found:
            _, block = _block(self._old, one.number, self._unchecked) or ("", None)
            assert block is not None, "it was whole, and this is the same moment"
            rows = decoded_block(log, block)
            kept = self._deliverable(rows) if log == "deliveries" else rows
            with self._new:
                self._new.execute("BEGIN")
                if len(kept) == len(rows):
                    previous = put_stored(self._new, log, block, previous)
                elif len(kept):
                    previous = put_rows(self._new, log, kept, block.tier, previous)
                if log == "events":
                    keys = zip(keys_of(rows), positions_of(rows).tolist(), strict=True)
                    self._new.executemany(
                        "INSERT OR IGNORE INTO keys VALUES (?, ?, ?)", [(*key, at) for key, at in keys]
                    )
            if log == "derived" and self._lost[log]:
                self._derived.update(zip(positions_of(rows).tolist(), rows["part"].to_pylist(), strict=True))
            count, left_out = count + len(kept), left_out + len(rows) - len(kept)
        if through:
            with self._new:
                put_end(self._new, log, through, previous)
        return SalvagedLog(log, count, left_out, through, self._lost[log])

    def _deliverable(self, rows: pa.Table) -> pa.Table:
        """The deliveries whose events are not lost: of the others nothing could be sent."""
        keys = zip(positions_of(rows).tolist(), rows["part"].to_pylist(), strict=True)
        return rows.filter(pa.array([self._is_there(*key) for key in keys], pa.bool_()))

    def _is_there(self, position: int, part: int) -> bool:
        if part and self._lost["derived"]:
            return (position, part) in self._derived
        lost = () if part else self._lost["events"]
        return not any(one.first <= position and (one.last is None or position <= one.last) for one in lost)


def _copied_kept(old: sqlite3.Connection, new: sqlite3.Connection) -> tuple[int, bool]:
    """Copies what entry nodes keep; of how many entities that is, and whether some may be lost."""
    if not _rows(old, "SELECT 1 FROM sqlite_master WHERE name = 'kept_at_nodes'"):
        return 0, False
    nodes = _or_none(_rows, old, "SELECT DISTINCT node FROM kept_at_nodes")
    count, lost = 0, nodes is None
    for (node,) in nodes or ():
        # A damaged row may have no name.
        if not isinstance(node, str):
            lost = True
            continue
        changes, whole = whole_changes(old, node)
        lost |= not whole
        events = _or_none(restored, changes)
        lost |= events is None
        with new:
            new.execute("BEGIN")
            keep(new, node, {event.entity: event for event in events or ()})
        count += len(events or ())
    return count, lost


def _copy_nodes(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    found = _or_none(_rows, old, "SELECT name, alone FROM nodes")
    if found:
        with new:
            new.execute(NODES)
            new.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?)", found)


def _copy_notes(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    with new:
        for name, text in (_or_none(all_notes, old) or {}).items():
            put_note(new, name, text)
