"""The stage known in the pipeline: what is known follows the journal, however the stream is cut or repeated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from nearcast.journal.rows import within
from nearcast.journal.seam import Journal
from nearcast.language.control_events import changes
from nearcast.pipeline.base_snapshots import loaded
from nearcast.pipeline.captured_state import CapturedState, captured
from nearcast.pipeline.journal_retention import JournalRetention
from nearcast.pipeline.refusal_letters import RefusalLetters
from nearcast.pipeline.snapshots import StateSnapshot, drop_beyond, named, newest_position, write_snapshot
from nearcast.pipeline.stored_snapshots import snapshots_in
from nearcast.relations.shards import SHARDS
from nearcast.stages.fold import FoldedBatch
from nearcast.state.repository import KeptEvents

T = TypeVar("T")

log = logging.getLogger("nearcast.pipeline")

STRETCH = 100_000
"""Positions that are folded at once while catching up."""

SNAPSHOT_EVERY = 20_000
"""Positions between two snapshots: what a restart has to fold again, well under a second's work."""

SNAPSHOT_SHARE = 0.05
"""Of the time so much goes into snapshots at most: the first one beside a hundred thousand definitions takes
seconds, in which more than twenty thousand reports may come. A restart then folds more."""

SNAPSHOT_AGAIN = 60.0
"""Seconds until a snapshot is tried again that could not be written, the disk being full for example."""


class Follower:
    """Keeps what is known in step with the journal, and a snapshot of it on disk; related pairs in so many shards.

    `beside` writes snapshots while more is taken in; without it, all waits until one is written.
    """

    def __init__(
        self, journal: Journal, folder: Path, at: int, shards: int = SHARDS, beside: Executor | None = None
    ) -> None:
        drop_beyond(folder, at)
        self._stored = snapshots_in(journal)
        if self._stored:
            self._stored.drop_beyond(at)
            self._stored.fetch(folder, newest_position(folder), at)
        self.known = loaded(journal, folder, at, shards)
        self._journal, self._folder = journal, folder
        self._saved, self._rests = self.known.position, -inf
        self._last = StateSnapshot(named(folder, self._saved), self.known.registry.copy()) if self._saved else None
        self._beside = beside or _AtOnce()
        self._compacting: tuple[KeptEvents, Future[pa.Table]] | None = None
        self._writing: _Writing | None = None
        self.retention = JournalRetention(journal, folder)
        self.refused = 0
        self._letters = RefusalLetters(journal)
        self.catch_up(at)
        self.known.repository.compacted_beside = beside is not None

    def catch_up(self, position: int) -> None:
        """Folds what lies between, without deciding it."""
        if position > self.known.position:
            log.info("reading after=%d through=%d", self.known.position, position)
        for events in self._journal.row_ranges("events", self.known.position, position, STRETCH):
            for _ in self.known.fold(events, changes):
                pass
            # They were reported when this stretch was decided.
            self.known.refusals.clear()

    def fold_events(self, events: pa.Table, through: int) -> Iterator[FoldedBatch]:
        """The batches of these events, without what is known already; control events refused become dead letters."""
        after = self.known.position
        # A batch that came again, as after a restart it may.
        if through <= after:
            return
        if len(events):
            self.catch_up(int(events.column("position")[0].as_py()) - 1)
            # Not so many rows: where a journal was damaged positions are missing.
            events = within(events, after, through)
        yield from self.known.fold(events, changes)
        self.known.position = max(self.known.position, through)
        # Before the deliveries are written: then it is reported, and by whom follows it is not reported again.
        self._report()
        self._compact()
        self._note_written()
        if self.known.position - self._saved >= SNAPSHOT_EVERY and monotonic() >= self._rests:
            self._begin_save()
        self.save_for_retention()

    def _compact(self) -> None:
        """Has the newest event of each entity found beside what is decided, where many are superseded: of a hundred
        thousand pairs it takes a quarter of a second.
        """
        repository = self.known.repository
        if self._compacting is None and (kept := repository.superseded()):
            self._compacting = kept, self._beside.submit(kept.newest)
        if self._compacting and self._compacting[1].done():
            (kept, found), self._compacting = self._compacting, None
            # What it raised is raised here, as if it had been found here.
            found.result()
            repository.adopt(kept)

    def save_for_retention(self) -> None:
        """Has a snapshot written where events shall go that came after the last one."""
        self._note_written()
        if self._saved < min(self.retention.wanted, self.known.position) and monotonic() >= self._rests:
            self._begin_save()

    def save(self) -> None:
        """Writes a snapshot of what is known now; where that fails it says so, and tries again later."""
        self._note_written(wait=True)
        self._begin_save()
        self._note_written(wait=True)

    def _begin_save(self) -> None:
        """Has a snapshot of what is known now written beside what is decided meanwhile; one at a time."""
        if self._writing:
            return
        began = monotonic()
        try:
            state = captured(self.known)
        except Exception as error:
            self._tell_unwritten(error)
            return
        written = self._beside.submit(_written, state, self._folder, self._last)
        self._writing = _Writing(began, state, written)
        # Where nothing is written beside, it is there by now.
        self._note_written()

    def _note_written(self, wait: bool = False) -> None:
        """Takes note of a snapshot that is written by now, or waits for it."""
        writing = self._writing
        if writing is None or not (wait or writing.written.done()):
            return
        self._writing = None
        try:
            self._last, ended = writing.written.result()
        except Exception as error:
            self._tell_unwritten(error)
            return
        if self._stored:
            self._stored.submit(self._last.folder)
        self.known.repository.adopt(writing.state.repository)
        self._saved, self._rests = writing.state.position, ended + (ended - writing.began) / SNAPSHOT_SHARE

    def _tell_unwritten(self, error: Exception) -> None:
        # It would only have saved time, and a batch that failed for it would fail again and again.
        log.error("snapshot not written folder=%s error=%r; a restart reads more", self._folder, error)
        self._rests = monotonic() + SNAPSHOT_AGAIN

    def finish(self) -> None:
        """Writes a last snapshot, and waits until it is where it should be."""
        self.save()
        if self._stored:
            self._stored.finish()

    def _report(self) -> None:
        # In the order of the journal, whichever stage refused them.
        refusals, self.known.refusals = sorted(self.known.refusals, key=lambda one: one.event.position), []
        self._letters.write(refusals)
        self.refused += len(refusals)
        for refusal in refusals:
            log.warning("refused a control event position=%d reason=%s", refusal.event.position, refusal.error)


class _Writing(NamedTuple):
    """A snapshot that is being written: since when, what of, and what comes of it, with when it ended."""

    began: float
    state: CapturedState
    written: Future[tuple[StateSnapshot, float]]


def _written(state: CapturedState, folder: Path, last: StateSnapshot | None) -> tuple[StateSnapshot, float]:
    return write_snapshot(state, folder, last), monotonic()


class _AtOnce(Executor):
    """Has no thread: what is submitted is done when that returns."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """See `Executor.submit`."""
        found = Future[T]()
        try:
            found.set_result(fn(*args, **kwargs))
        except Exception as error:
            found.set_exception(error)
        return found
