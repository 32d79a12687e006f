"""How far readers of a journal are: what none of them needs any more may go. Each notes it under its name.

A reader that is away holds what it has not read: so nothing that is owed to anybody is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from nearcast.journal.seam import Journal

PREFIX = "reader "
"""What the names of notes begin with under which readers say how far they are."""

ARCHIVE = "archive"
"""The reader that copies what happened into files."""


KEPT_NOTE = "retention"
"""The note in which the pipeline tells what is kept of each log."""


class ReaderMark(NamedTuple):
    """A reader's name, and by log the position up to which it needs nothing."""

    reader: str
    positions: dict[str, int]


def put_mark(journal: Journal, reader: str, positions: Mapping[str, int]) -> None:
    """Notes by log how far a reader is."""
    journal.notes.write(PREFIX + reader, orjson.dumps(dict(positions), option=orjson.OPT_SORT_KEYS).decode())


def remove_mark(journal: Journal, reader: str) -> None:
    """Forgets a reader: nothing is kept for it any more."""
    journal.notes.remove(PREFIX + reader)


def reader_marks(journal: Journal) -> list[ReaderMark]:
    """All readers, in the order of their names."""
    notes = journal.notes.all()
    return [
        ReaderMark(name.removeprefix(PREFIX), orjson.loads(text))
        for name, text in sorted(notes.items())
        if name.startswith(PREFIX)
    ]
