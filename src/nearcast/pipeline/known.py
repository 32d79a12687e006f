"""The stage known in the pipeline: what is known follows the journal, however the stream is cut or repeated."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from nearcast.decision.known import Batch, Refusal
from nearcast.journal.seam import Journal
from nearcast.language.control import changes
from nearcast.model.columns import DEAD_LETTERS
from nearcast.pipeline.state import load, save

log = logging.getLogger("nearcast.pipeline")

STRETCH = 100_000
"""Positions that are folded at once while catching up."""

SNAPSHOT_EVERY = 20_000
"""Positions between two snapshots: what a restart has to fold again at most, well under a second's work."""


class Follower:
    """Keeps what is known in step with the journal, and a snapshot of it on disk."""

    def __init__(self, journal: Journal, folder: Path, at: int) -> None:
        self.known = load(folder, at)
        self._journal, self._folder = journal, folder
        self._saved = self.known.position
        self.refused = 0
        self.catch_up(at)

    def catch_up(self, position: int) -> None:
        """Folds what lies between, without deciding it."""
        while self.known.position < position:
            stretch = min(STRETCH, position - self.known.position)
            for _ in self.known.advance(self._journal.read("events", self.known.position, stretch), changes):
                pass
            # They were reported when this stretch was decided.
            self.known.refusals.clear()

    def advance(self, events: pa.Table, through: int) -> Iterator[Batch]:
        """The batches of these events, without what is known already; control events refused become dead letters."""
        after = self.known.position
        # A batch that came again, as after a restart it may.
        if through <= after:
            return
        if len(events):
            first = int(events.column("position")[0].as_py())
            self.catch_up(first - 1)
            # Positions of events have no gaps, so what is known already is so many rows.
            events = events.slice(max(0, after - first + 1))
        yield from self.known.advance(events, changes)
        self.known.position = max(self.known.position, through)
        # Before the deliveries are written: who dies in between reports it twice, but never not at all.
        self._report()
        if self.known.position - self._saved >= SNAPSHOT_EVERY:
            self.save()

    def save(self) -> None:
        """Writes a snapshot of what is known now."""
        save(self.known, self._folder)
        self._saved = self.known.position

    def _report(self) -> None:
        refusals, self.known.refusals = self.known.refusals, []
        if refusals:
            letters = [_letter(each) for each in refusals]
            self._journal.append("dead letters", pa.Table.from_pylist(letters, DEAD_LETTERS))
        self.refused += len(refusals)
        for refusal in refusals:
            log.warning("refused a control event position=%d reason=%s", refusal.event.position, refusal.error)


def _letter(refusal: Refusal) -> dict[str, object]:
    where = f"journal position {refusal.event.position}, event {refusal.event.id}"
    return {
        "position": 0,
        "time": datetime.now(UTC),
        "where": where,
        "reason": str(refusal.error),
        "content": refusal.event.payload[: 64 * 1024],
    }
