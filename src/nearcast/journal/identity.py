"""What tells a journal from another at the same place: its first event; as a note, once that event is gone."""

from __future__ import annotations

from nearcast.journal.seam import Journal

NOTE = "identity"


def identity_of(journal: Journal) -> str:
    """The first event of a journal, by what identifies it and its acceptance; empty as long as there is none."""
    noted = journal.notes.read(NOTE)
    return _first_event(journal) if noted is None else noted


def keep_identity(journal: Journal) -> None:
    """Notes it, before the first event goes."""
    if journal.notes.read(NOTE) is None:
        journal.notes.write(NOTE, _first_event(journal))


def copy_identity(source: Journal, target: Journal) -> None:
    """Makes a copy whose first event is gone the same journal, so that its archive is the copy's too."""
    noted = source.notes.read(NOTE)
    if noted is not None:
        target.notes.write(NOTE, noted)


def _first_event(journal: Journal) -> str:
    rows = journal.read("events", 0, 1).select(["id", "source", "accepted"]).to_pylist()
    return " ".join(str(value) for row in rows for value in row.values())
