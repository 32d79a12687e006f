"""Small files in which a server notes how far it is done with a journal."""

from __future__ import annotations

import os
from pathlib import Path

from nearcast.journal.seam import Journal


def note(path: Path, text: str, journal: Journal) -> None:
    """Writes a note about a journal as a whole: a server that dies meanwhile leaves the note before. Raises OSError.

    After a loss of power the journal may lack its newest rows. A note about rows that are lost would count for those
    that are written in their places, so first the journal is secured, then the note, and then it takes its name.
    """
    journal.secure()
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
