"""Where a journal is: a path of a file, or an address of NATS."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.journal.jetstream.nats_address import is_nats, parse_address

if TYPE_CHECKING:
    from nearcast.journal.seam import Journal
    from nearcast.journal.server_register import ServerRegister

Location = str | PathLike[str]
"""A path, or a URL like nats://host:4222,host2:4222/NAME."""


def shown_location(location: Location) -> str:
    """A location without what is secret."""
    return str(parse_address(str(location))) if is_nats(location) else str(location)


def ids_of(path: Path) -> Path:
    """The file, beside a path, in which a journal on NATS looks up events."""
    return path.with_name(f"{path.name}-ids")


def journal_at(location: Location, read_only: bool = False, ids: Path | None = None) -> Journal:
    """Opens the journal that is there, or makes one; `read_only`: it must be there, and nothing of it is changed.

    `ids` is a file for what one on NATS looks up events in. Raises `JournalError`, and `SetupError` where the address
    is wrong or a package is missing.
    """
    # Columns take long to load, and who only names a location needs none.
    if str(location).startswith("archive:"):
        from nearcast.journal.archive.archived_journal import ArchivedJournal, archive_at

        folder, behind = archive_at(str(location))
        return ArchivedJournal(folder, journal_at(behind, read_only=True, ids=ids) if behind else None)
    if is_nats(location):
        from nearcast.journal.jetstream.nats_journal import NatsJournal

        return NatsJournal(str(location), read_only, ids)
    from nearcast.journal.sqlite import SqliteJournal

    return SqliteJournal(location, read_only)


def wake(location: Location) -> None:
    """Lets those look for themselves who wait for news of a journal that is a file of this machine."""
    if is_nats(location) or str(location).startswith("archive:"):
        return
    from nearcast.journal import sqlite

    sqlite.wake(location)


def register_of(journal: Journal) -> ServerRegister:
    """The register of a journal's access servers: where the journal is. Raises `JournalError`."""
    from nearcast.journal.memory import MemoryJournal
    from nearcast.journal.server_register import SqliteRegister, memory_register

    if isinstance(journal, MemoryJournal):
        return memory_register(journal)
    if is_nats(journal.location):
        from nearcast.journal.jetstream.nats_register import NatsRegister

        return NatsRegister(journal.location)
    return SqliteRegister(journal.location)
