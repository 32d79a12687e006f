"""What a journal takes on the disk with retention: `python -m benchmarks.journal_retention [MINUTES] [AGE] [RATE]`.

Events come at a rate, by a clock that goes as fast as the machine does; each is decided, delivered to one client and
settled, and retention is looked at as often as the pipeline would. It prints the sizes of the file and of its log of
recent commits over time, and what an event takes, by log.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from benchmarks.machine import machine
from nearcast.journal.reader_marks import put_mark
from nearcast.journal.sqlite import SqliteJournal
from nearcast.model.columns import DELIVERIES, OUTCOMES, to_table
from nearcast.model.event import Event, Place
from nearcast.model.limits import Retention, RetentionBound
from nearcast.pipeline.follower import Follower
from nearcast.pipeline.journal_retention import pause_of
from nearcast.runtime.passed_time import PassedTime

BATCH = 50
"""Events that are written together."""

SETTLED_EVERY = 5
"""Seconds between two marks of the server."""


def main(minutes: float = 6, age: float = 60, rate: int = 500) -> None:
    """Runs it for so many minutes of its own clock."""
    print(machine(), end="\n\n")
    with (
        tempfile.TemporaryDirectory(prefix="nearcast-retention-") as folder,
        closing(SqliteJournal(Path(folder) / "journal")) as journal,
    ):
        _run(journal, Path(folder), minutes * 60, Retention(RetentionBound(age)), rate)


def _run(journal: SqliteJournal, folder: Path, seconds: float, retention: Retention, rate: int) -> None:
    now, began, count = datetime.now(UTC), time.process_time(), 0
    follower, start = Follower(journal, folder / "known", 0), now
    follower.retention.passed = PassedTime(lambda: now.timestamp(), lambda: now.timestamp())
    looked = settled = told = now
    while (now - start).total_seconds() < seconds:
        events = [_event(count + number, now) for number in range(BATCH)]
        journal.append("events", to_table(events))
        _decide(journal, follower, count)
        count, now = count + BATCH, now + timedelta(seconds=BATCH / rate)
        if now >= settled + timedelta(seconds=SETTLED_EVERY):
            put_mark(journal, "server main", {"deliveries": count, "outcomes": journal.end("outcomes")})
            settled = now
        if now >= looked + timedelta(seconds=pause_of(retention)):
            follower.retention.look(retention)
            follower.save_for_retention()
            looked = now
        if now >= told + timedelta(seconds=seconds / 12):
            sizes = ", ".join(f"{name} {_size(folder / name):,}" for name in ("journal", "journal-wal"))
            kept = count - journal.trimmed("events")
            print(f"{(now - start).total_seconds():6,.0f} s: {sizes} bytes; {kept:,} events kept", flush=True)
            told = now
    kept, taken = count - journal.trimmed("events"), journal.stored_bytes()
    [blocks] = _blocks(journal)
    print(", ".join(f"{log} {size / kept:.1f}" for log, size in taken.items()), "bytes per event that is kept")
    print(f"of those of events {blocks / kept:.1f} in blocks, {(taken['events'] - blocks) / kept:.1f} in ids and pages")
    print(f"{(time.process_time() - began) / count * 1e6:.0f} µs of the processor per event")


def _event(number: int, now: datetime) -> Event:
    payload = f'{{"specversion":"1.0","id":"{number:x}-{number * 7919 % 100_003:x}","data":{{"speed":{number % 97}}}}}'
    return Event(
        id=f"{number:x}-{number * 7919 % 100_003:x}",
        type="report",
        source=f"feed-{number % 4}",
        subject=f"ship-{number % 2_000}",
        place=Place("geographic", 11 + number % 997 / 1e3, 48 + number % 991 / 1e3),
        attributes=(("speed", number % 97), ("course", number % 360)),
        payload=payload.encode(),
        accepted=now,
    )


def _decide(journal: SqliteJournal, follower: Follower, after: int) -> None:
    end = journal.end("events")
    for _ in follower.fold_events(journal.read("events", after, end - after), end):
        pass
    keys = [{"position": at, "part": 0, "client": f"c{at % 50}", "level": 0} for at in range(after + 1, end + 1)]
    journal.commit_range("deliveries", pa.Table.from_pylist(keys, DELIVERIES), end)
    ended = [
        {"position": 0, "event": one["position"], "part": 0, "client": one["client"], "outcome": "acknowledged"}
        for one in keys
    ]
    journal.append("outcomes", pa.Table.from_pylist(ended, OUTCOMES))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _blocks(journal: SqliteJournal) -> list[int]:
    with journal._reading() as connection:
        found = connection.execute("SELECT sum(length(rows)) FROM blocks WHERE log = 'events'").fetchone()
    return [found[0] or 0]


if __name__ == "__main__":
    main(*(float(one) for one in sys.argv[1:3]), *(int(one) for one in sys.argv[3:]))
