"""What a journal's log of events begins with once its oldest rows went: a snapshot, in the log of snapshots.

Its files are rows of the position that it is of, written together. Unlike other snapshots it is not there to save time:
it stands for the events before it, so it is written before they go, and goes when a newer one is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

from nearcast.errors import JournalError
from nearcast.journal.seam import Journal
from nearcast.model.columns import SNAPSHOTS

LOG = "snapshots"

PART = 4 << 20
"""Bytes of a row."""

REGISTRY, REPOSITORY = "registry.arrow", "repository.arrow"
"""Files of it: definitions, and the newest event of each entity."""

STATED, ACTIVE = "stated.arrow", "active.arrow"
"""Files that only it has: what definition files said of clients, and what held, as derived events told it."""


def base_position(journal: Journal) -> int:
    """The position that the journal's snapshot is of: what came up to there is in it; 0 if there is none."""
    return journal.end(LOG)


def put_base(journal: Journal, position: int, files: dict[str, bytes]) -> None:
    """Puts a snapshot in the place of the one before, by the contents of its files. Nothing at an earlier position."""
    rows = [row for name, content in sorted(files.items()) for row in _parts(position, name, content)]
    journal.commit_range(LOG, pa.Table.from_pylist(rows, SNAPSHOTS), position)
    journal.trim_through(LOG, position - 1)


def _parts(position: int, name: str, content: bytes) -> Iterator[dict[str, Any]]:
    for part, at in enumerate(range(0, max(len(content), 1), PART)):
        yield {"position": position, "file": name, "part": part, "content": content[at : at + PART]}


def write_base(journal: Journal, folder: Path) -> int:
    """Writes the files of the journal's snapshot into a folder that there is; its position, 0 without any."""
    position = base_position(journal)
    # Block by block: a file may be larger than all that should be in memory.
    for rows in journal.blocks(LOG, position - 1, position) if position else ():
        for name, content in zip(rows.column("file").to_pylist(), rows.column("content"), strict=True):
            if os.path.basename(name) != name:
                raise JournalError(f"journal {journal}: expected the name of a file in its snapshot, got {name!r}")
            with (folder / name).open("ab") as file:
                file.write(content.as_buffer())
    return position


def base_table(journal: Journal, name: str) -> tuple[int, pa.Table | None]:
    """One file of the journal's snapshot, and its position; 0 and None where there is no such."""
    while True:
        position = base_position(journal)
        parts = [
            content.as_py()
            for rows in (journal.blocks(LOG, position - 1, position) if position else ())
            for file, content in zip(rows.column("file").to_pylist(), rows.column("content"), strict=True)
            if file == name
        ]
        # Where it was replaced by a newer one meanwhile, once more.
        if parts or position == base_position(journal):
            break
    return (position, feather.read_table(pa.BufferReader(b"".join(parts)))) if parts else (position, None)
