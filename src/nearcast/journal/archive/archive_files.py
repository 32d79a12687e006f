"""Where what is in an archive: Parquet files in folders by day and channel, as Hive names them.

    archive.json                                             how far it goes, and of which journal it is
    events/day=2026-01-31/channel=roads/FIRST-LAST.parquet   events of the positions FIRST to LAST
    derived/day=…/channel=…/…                                 events that were derived from those
    deliveries/day=…/…                                       their deliveries
    outcomes/day=…/…                                         how deliveries ended, by their own positions

Columns are those of the journal's logs (`nearcast.model.columns`); the channel is in the name of its folder alone, days
are those of acceptance, in UTC. A file counts where `archive.json` goes as far: it is written last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

import orjson

from nearcast.errors import Fault, SetupError

MANIFEST = "archive.json"
FORMAT = 1

LOGS = {"events": "events", "derived": "events", "deliveries": "events", "outcomes": "outcomes"}
"""The logs of an archive, and of which positions each is."""

NONE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive calls the folder of rows that have no value."""


@dataclass(frozen=True, slots=True)
class ArchiveManifest:
    """Of which journal an archive is, and the positions that it has: `after` < position ≤ `through`, of events and of
    outcomes.
    """

    identity: str
    events_after: int
    events: int
    outcomes_after: int
    outcomes: int

    def after(self, log: str) -> int:
        """The position behind which it begins."""
        return self.events_after if LOGS[log] == "events" else self.outcomes_after

    def through(self, log: str) -> int:
        """The position up to which it goes."""
        return self.events if LOGS[log] == "events" else self.outcomes


class ArchiveFile(NamedTuple):
    """A file, by the positions that it may have, and the channel of all its rows."""

    first: int
    last: int
    path: Path
    channel: str | None


def read_manifest(folder: Path) -> ArchiveManifest | None:
    """How far an archive goes; None where there is none yet. Raises `SetupError` for one that cannot be read."""
    try:
        found = orjson.loads((folder / MANIFEST).read_bytes())
        if found.pop("format") != FORMAT:
            raise ValueError("of another format")
        return ArchiveManifest(**found)
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        expected = f"an archive of format {FORMAT}"
        raise SetupError(str(Fault(expected, f"{folder / MANIFEST}: {error}", advice="name another folder"))) from None


def write_manifest(folder: Path, manifest: ArchiveManifest) -> None:
    """Says how far an archive goes now, all at once."""
    content = orjson.dumps({"format": FORMAT, **asdict(manifest)}, option=orjson.OPT_INDENT_2)
    temporary = folder / f".{MANIFEST}.new"
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / MANIFEST)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folder_of(archive: Path, log: str, day: str | None, channel: str | None) -> Path:
    """The folder of a log's rows of a day and a channel."""
    folder = archive / log / f"day={day or NONE}"
    if log not in ("events", "derived"):
        return folder
    return folder / f"channel={NONE if channel is None else quote(channel, safe='')}"


def file_name(first: int, last: int) -> str:
    """The name of a file of so many positions. Padded with zeros, names sort as positions do."""
    return f"{first:020d}-{last:020d}.parquet"


def files_of(archive: Path, log: str) -> Iterator[ArchiveFile]:
    """The files of a log that have a name as this writes them, also those that do not count."""
    for path in (archive / log).glob("**/*.parquet"):
        first, _, last = path.stem.partition("-")
        if not (first.isdigit() and last.isdigit()):
            continue
        channel = path.parent.name.removeprefix("channel=") if path.parent.name.startswith("channel=") else NONE
        yield ArchiveFile(int(first), int(last), path, None if channel == NONE else unquote(channel))
