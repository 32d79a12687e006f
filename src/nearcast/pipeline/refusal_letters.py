"""The dead letters of control events that were refused: each is there once, wherever the pipeline dies.

They are written before the deliveries of their batch, so who follows a pipeline that died may refuse again what is told
already. Each time a note says first from where on letters may be there and through which position they are: clocks of
machines may be what they like, and where all of that is decided nobody looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import orjson
import pyarrow as pa

from nearcast.journal.seam import Journal
from nearcast.model.columns import DEAD_LETTERS
from nearcast.stages.fold import RejectedChange

NOTE = "refusal letters"
"""The name of the note."""

LOG = "dead letters"

LETTERS = 100
"""Dead letters that are read at once: each may have 64 KiB."""

CONTENT = 64 * 1024
"""Bytes of an event that its dead letter keeps."""


class WrittenLetters(NamedTuple):
    """Letters behind `after` in the log of dead letters are of control events up to the position `through`."""

    after: int
    through: int


class RefusalLetters:
    """Writes them into a journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def write(self, refusals: Sequence[RejectedChange]) -> None:
        """Writes those that are not there yet; refusals come in the order of the journal."""
        if not refusals:
            return
        decided, noted = self._journal.end("deliveries"), self._noted()
        letters = [_letter(one) for one in refusals if one.event.position > decided]
        if noted.through >= refusals[0].event.position:
            # The one before this died between writing these and the deliveries, in batches cut otherwise.
            there = frozenset(self._where_since(noted.after))
            letters = [letter for letter in letters if letter["where"] not in there]
        if letters:
            self._note(noted, decided, refusals[-1].event.position)
            self._journal.append(LOG, pa.Table.from_pylist(letters, DEAD_LETTERS))

    def _noted(self) -> WrittenLetters:
        text = self._journal.notes.read(NOTE)
        return WrittenLetters(0, 0) if text is None else WrittenLetters(*orjson.loads(text))

    def _note(self, before: WrittenLetters, decided: int, through: int) -> None:
        """Says that letters may be there of control events up to a position."""
        # Of what is decided all are there.
        after = self._journal.end(LOG) if decided >= before.through else before.after
        self._journal.notes.write(NOTE, orjson.dumps([after, max(before.through, through)]).decode())

    def _where_since(self, after: int) -> Iterator[str]:
        """Of what control events letters are that were written behind a position."""
        first = max(after, self._journal.trimmed(LOG))
        for rows in self._journal.row_ranges(LOG, first, self._journal.end(LOG), LETTERS):
            yield from (where for where in rows.column("where").to_pylist() if where.startswith(WHERE))


WHERE = "journal position "
"""How the place of what was refused begins; those of access servers are of requests."""


def _letter(refusal: RejectedChange) -> dict[str, object]:
    return {
        "position": 0,
        "time": datetime.now(UTC),
        "where": f"{WHERE}{refusal.event.position}, event {refusal.event.id}",
        "reason": str(refusal.error),
        "content": refusal.event.payload[:CONTENT],
    }
