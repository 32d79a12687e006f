"""`nearcast archive`."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from threading import Event as Signal

import click

from nearcast.cli.options import DATA, journal_of, journal_path, named_place, place_option
from nearcast.cli.output import pluralize, progress, warn
from nearcast.journal.locations import Location, ids_of


@click.command("archive")
@place_option(f"A system, {DATA} unless given")
@click.option(
    "--to", "folder", type=click.Path(file_okay=False, path_type=Path), required=True, help="The archive's folder."
)
@click.option(
    "--every",
    type=click.FloatRange(min=0, min_open=True),
    help="Go on until it is ended, and look for more after so many seconds; else it ends when all is copied.",
)
def command(places: tuple[Location, ...], folder: Path, every: float | None) -> None:
    """Copy what was decided into Parquet files by day and channel.

    Events, derived events, deliveries and outcomes, in folders that pandas, DuckDB and Spark read as Hive's; the system
    may run meanwhile. It goes on where it was, and nothing is there twice. With `archive: true` in the retention of
    definitions the journal keeps what is not copied yet.

    `nearcast replay` and `nearcast explain` read it with --archive.
    """
    # Columns take longer to load than it takes to say what is wrong with an option.
    from nearcast.journal.archive.archive_writer import ArchiveWriter
    from nearcast.journal.locations import journal_at
    from nearcast.pipeline.past_journal import opened_journal
    from nearcast.runtime.file_lock import file_lock

    ended = Signal()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda number, _frame: ended.set())
    place = named_place(places) or DATA
    location, ids = journal_of(place), ids_of(journal_path(place)) if isinstance(place, Path) else None
    # It must be there, and is written to: how far the archive is.
    opened_journal(location).close()
    folder.mkdir(parents=True, exist_ok=True)
    advice = "end that one, or name another folder"
    with (
        file_lock(folder / ".writing", f"nobody else to write to {folder}", "another one", advice),
        closing(journal_at(location, ids=ids)) as journal,
    ):
        writer = ArchiveWriter(journal, folder)
        while True:
            with progress("archiving") as advance:
                count = writer.write(advance)
            if count or not every:
                manifest = writer.manifest
                warn("note", f"{pluralize(count, 'event')} archived, {manifest.events:,} in all, in {folder}")
            if not every or ended.wait(every):
                return
