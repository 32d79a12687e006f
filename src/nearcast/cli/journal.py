"""`nearcast journal copy FROM TO`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from nearcast.cli.options import JournalPlace, journal_path
from nearcast.cli.output import pluralize, progress, warn
from nearcast.journal.locations import Location, shown_location


@click.group("journal")
def command() -> None:
    """Handle a system's journal.

    copy FROM TO copies a journal into another: a data folder, a file, or nats://host:4222/NAME each. Every row keeps
    its position, so deciding goes on where it was. Of a journal that has let go of its oldest rows what it keeps is
    copied, with the snapshot in it that stands for the rest; snapshots on the disk are made anew. The system has to be
    stopped. A copy that was cut off goes on where it was, a target that has anything else is refused.
    """


@command.command("copy")
@click.argument("source", metavar="FROM", type=JournalPlace())
@click.argument("target", metavar="TO", type=JournalPlace())
def copy(source: Location, target: Location) -> None:
    """Copy a journal into another, which is empty or was begun so."""
    # A journal takes longer to load than to say what is wrong with a name.
    from nearcast.journal.journal_copy import copy_journal
    from nearcast.journal.locations import journal_at
    from nearcast.pipeline.past_journal import opened_journal

    origin, goal = _journal_of(source), _journal_of(target)
    if isinstance(goal, Path):
        goal.parent.mkdir(parents=True, exist_ok=True)
    with closing(opened_journal(origin)) as old, closing(journal_at(goal)) as new, progress("copying") as advance:
        found = copy_journal(old, new, advance)
    for one in found:
        if one.end:
            click.echo(f"{one.log}: {pluralize(one.rows, 'row')}, up to position {one.end:,}")
    there = f"--journal {shown_location(target)}" if isinstance(target, str) else f"--data {target}"
    warn("note", f"nearcast up {there} goes on from there")


def _journal_of(place: Location) -> Location:
    """The journal that is meant: of a data folder that in it."""
    return journal_path(place) if isinstance(place, Path) and not place.is_file() else place
