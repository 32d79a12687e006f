"""`nearcast.open_journal`: what a system kept, as Arrow tables."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from nearcast.errors import JournalError
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal


def open_journal(path: str | PathLike[str]) -> Journal:
    """The journal of a system, also while it runs: the file `journal` in its data folder.

    `read(log, after, limit)` gives the rows of the positions behind `after`, at most `limit`, as an Arrow table, and
    `end(log)` the last position, of the logs `events`, `derived`, `deliveries`, `outcomes` and `dead letters`. Close it
    when it is not needed any more. Raises `JournalError` where there is none, or one of another version.
    """
    file = Path(path)
    if not file.is_file():
        came = "a folder" if file.is_dir() else "nothing there"
        raise JournalError(
            f"{file}: expected a journal, got {came}; it is the file `journal` in a system's data folder"
        )
    return SqliteJournal(file)
