"""The journal of a system, running or stopped, as a history to decide once more; nothing of it is changed.

Under the journal's own definitions what comes out is what the system decided, whatever the range. Under others the
journal's definitions do not count, and everything else does: events, and what is known of clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import Fault, SetupError
from nearcast.journal.jetstream.nats_address import is_nats
from nearcast.journal.locations import Location, journal_at
from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import base_position
from nearcast.language.control_events import changes
from nearcast.model.arrays import Integers
from nearcast.model.changes import Change, DefinitionChange, SettingsChange
from nearcast.model.event import Event
from nearcast.model.subscription import Channel, Settings
from nearcast.model.values import microseconds_of, time_text
from nearcast.pipeline.base_snapshots import restore_base
from nearcast.pipeline.snapshots import read_snapshot
from nearcast.stages.fold import Parse, StateFold

STRETCH = 10_000
"""Positions that are read at once."""

Bound = int | datetime
"""Where a range begins or ends: a position, or a time of acceptance (of events that have none, their own)."""


def opened_history(location: Location | None, archive: Path | None) -> Journal:
    """The journal in a file or at an address, with its archive before it where there is one, or an archive alone."""
    if archive is None:
        return opened_journal(location or "")
    from nearcast.journal.archive.archived_journal import ArchivedJournal

    return ArchivedJournal(archive, None if location is None else opened_journal(location))


def opened_journal(location: Location) -> Journal:
    """The journal in a file or at an address, to be read only. Raises `SetupError` where there is no file, and
    `JournalError` where it is no journal that can be read.
    """
    path = Path(location)
    if not is_nats(location) and not path.is_file():
        # Who names a data folder means the journal in it.
        folder = path.parent.is_dir() and path.name == "journal"
        came = f"{path.parent}, which has no file {path.name}" if folder else f"{path}, no file and no folder"
        advice = "it is what --data of `nearcast up` names, nearcast-data unless it says otherwise"
        raise SetupError(str(Fault("the data folder of a system", came, advice=advice)))
    return journal_at(location, read_only=True)


@dataclass(frozen=True, slots=True)
class PositionSpan:
    """Positions to decide: `after` < position ≤ `through`."""

    after: int
    through: int

    def __len__(self) -> int:
        return max(0, self.through - self.after)


def span_of(
    journal: Journal, first: Bound | None, last: Bound | None, advance: Callable[[int], None] = lambda count: None
) -> PositionSpan:
    """The positions from one bound to another, both included; the journal's own ends where they are None.

    A time means the first event from it on, and the last event up to it. Raises `Fault` for a range without positions.
    """
    end = journal.end("events")
    after, through = (0 if first is None else first), (end if last is None else last)
    if isinstance(after, datetime) or isinstance(through, datetime):
        before, until = _positions_at(journal, end, after, through, advance)
        after = before + 1 if isinstance(after, datetime) else after
        through = until if isinstance(through, datetime) else through
    span = PositionSpan(max(0, after - 1), min(through, end))
    if end and not len(span):
        came = f"from {_written(first, 'the beginning')} to {_written(last, 'the end')}"
        raise Fault(
            f"a range with some of the {end:,} positions there are", came, advice="times are those of acceptance"
        )
    return span


def _written(bound: Bound | None, without: str) -> str:
    return without if bound is None else bound.isoformat() if isinstance(bound, datetime) else f"{bound:,}"


def _positions_at(
    journal: Journal, end: int, first: Bound, last: Bound, advance: Callable[[int], None]
) -> tuple[int, int]:
    """The position before the first event from a time on, and that of the last event up to a time; 0 without a time."""
    begin, until = (microseconds_of(one) if isinstance(one, datetime) else None for one in (first, last))
    before, through = end, 0
    for table in journal.row_ranges("events", journal.trimmed("events"), end, STRETCH):
        positions, stamps = _acceptances(table)
        if begin is not None and before == end and (stamps >= begin).any():
            before = int(positions[stamps >= begin][0]) - 1
        if until is not None and (stamps <= until).any():
            through = int(positions[stamps <= until][-1])
        advance(len(table))
    return before, through


def _acceptances(events: pa.Table) -> tuple[Integers, Integers]:
    """The positions of events, and when each was accepted, in microseconds since 1970; its own time where nobody
    accepted it. Without those that have neither.
    """
    accepted = pc.coalesce(events.column("accepted"), events.column("time"))
    known = pc.is_valid(accepted)
    return events.column("position").filter(known).to_numpy(), pc.cast(accepted.filter(known), pa.int64()).to_numpy()


def state_before(
    journal: Journal,
    after: int,
    snapshots: Path | None,
    begin: StateFold,
    parse: Parse,
    advance: Callable[[int], None] = lambda count: None,
) -> StateFold:
    """What is known at a position: what is known at the `begin`ning, with everything up to there folded into it.

    With a folder of snapshots it is begun at the newest that fits. Raises `Fault` where that needs events of which the
    journal has let go; it tells from which position on a range may begin.
    """
    decided = min(after, journal.end("deliveries"))
    known = (read_snapshot(snapshots, decided) if snapshots else None) or begin
    gone = journal.trimmed("events")
    if known.position < gone and parse is changes:
        # Of the system's own definitions the journal has a snapshot where its events begin.
        known = _base_of(journal, decided) or known
    if known.position < gone:
        newest = read_snapshot(snapshots, journal.end("deliveries")) if snapshots else None
        at = max(newest.position if newest else 0, base_position(journal) if parse is changes else 0)
        raise _trimmed(journal, after, gone, at)
    for table in journal.row_ranges("events", known.position, after, STRETCH):
        for _ in known.fold(table, parse):
            pass
        known.refusals.clear()
        advance(len(table))
    known.position = max(known.position, after)
    return known


def _base_of(journal: Journal, at_most: int) -> StateFold | None:
    if not 0 < base_position(journal) <= at_most:
        return None
    with TemporaryDirectory(prefix="nearcast-base-") as folder:
        return read_snapshot(Path(folder), at_most) if restore_base(journal, Path(folder)) else None


def _trimmed(journal: Journal, after: int, gone: int, snapshot: int) -> Fault:
    oldest = journal.read("events", gone, 1)
    accepted = oldest.column("accepted")[0].as_py() if len(oldest) else None
    since = f", accepted {time_text(accepted)}" if accepted else ""
    advice = "give --archive DIR, where it was archived"
    if snapshot >= gone:
        advice += f"; or begin with --from {snapshot + 1}, as what was known then is kept"
    came = f"a journal that keeps them from position {gone + 1:,} on{since}: what was before is no longer in it"
    return Fault(f"all events before position {after + 1:,}", came, advice=advice)


class RecordedClients:
    """Reads the control events of a journal for a history under other definitions, as they were taken: without the
    journal's own.

    Roles, tasks, readings, places and lists stay as they were, also such as the other definitions know nothing of.
    `channels` are those of the journal's own settings so far: events keep what they were called there.
    """

    def __init__(self) -> None:
        self._settings = Settings()
        self.channels: set[tuple[Channel, ...]] = set()

    def __call__(self, event: Event, settings: Settings) -> list[Change]:
        """What an event changes under the other definitions. Raises EventError where it could not be taken then."""
        found = changes(event, self._settings)
        for change in found:
            if isinstance(change, SettingsChange):
                self._settings = change.settings
                self.channels.add(change.settings.channels)
        return [change for change in found if not isinstance(change, DefinitionChange)]
