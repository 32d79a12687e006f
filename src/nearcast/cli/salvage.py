"""`nearcast salvage FROM TO`."""

from __future__ import annotations

from pathlib import Path

import click

from nearcast.cli.options import journal_path
from nearcast.cli.output import pluralize, warn


@click.command("salvage")
@click.argument("source", metavar="FROM", type=click.Path(exists=True, path_type=Path))
@click.argument("target", metavar="TO", type=click.Path(file_okay=False, path_type=Path))
def command(source: Path, target: Path) -> None:
    """Copy what is whole of a damaged journal into a new data folder.

    FROM is a data folder or a journal, and is only read; the system that wrote it has to be stopped. What was copied
    keeps its positions, and for each log it is said which positions are lost. `nearcast up --data TO` goes on from
    there. What is lost may be published again.
    """
    # A journal takes longer to load than to say what is wrong with the names of folders.
    from nearcast.journal.whole_blocks import SalvagedLog, salvage

    target.mkdir(parents=True, exist_ok=True)
    report = salvage(journal_path(source) if source.is_dir() else source, journal_path(target))

    def line(one: SalvagedLog) -> str:
        """What is said of a log."""
        ranges = [
            f"{lost.first:,} and what was behind" if lost.last is None else f"{lost.first:,} to {lost.last:,}"
            for lost in one.lost
        ]
        left_out = f"; left out, of lost events: {one.left_out:,}" if one.left_out else ""
        return f"{one.log}: {pluralize(one.rows, 'row')}; lost: {', '.join(ranges) or 'nothing'}{left_out}"

    for one in report.logs:
        if one.end or one.lost:
            click.echo(line(one))
    if report.kept or report.kept_lost:
        click.echo(f"kept events: {report.kept:,}; lost: {'some' if report.kept_lost else 'nothing'}")
    warn("note", f"nearcast up --data {target} goes on from there")
