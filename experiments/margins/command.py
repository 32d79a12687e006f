"""`python -m experiments margins`: how often measured links change their class, with a margin and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from experiments.margins.run import Outcome, run
from experiments.results import result_options, write_results
from nearcast.cli.output import print_json, progress
from nearcast.importers.mobile_links import traces

FILES = "margins.json"


@click.command("margins")
@click.option(
    "--links",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="3Glogs.tar.gz, the logs of mobile links.",
)
@click.option(
    "--margin",
    "margins",
    multiple=True,
    default=(0.0, 5.0, 10.0, 20.0),
    show_default=True,
    type=click.FloatRange(0, 100, max_open=True),
    help="Percent of the bound; may be given several times.",
)
@click.option(
    "--for",
    "lastings",
    multiple=True,
    default=(0.0, 3.0, 5.0, 10.0),
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds beyond it; may be given several times.",
)
@result_options("row", FILES)
def margins(
    links: Path, margins: tuple[float, ...], lastings: tuple[float, ...], as_json: bool, out: Path | None
) -> None:
    """Count how often measured links change their class, with a margin and without.

    Bandwidths of commuters' links, a sample a second, in three classes up to 3750 kbit/s. A margin saves changes, and
    costs time in another class than the bandwidth alone has.
    """
    read = traces(links)
    with progress("following links", len(margins) * len(lastings)) as advance:
        outcomes = list(run(read, margins, lastings, advance))
    for one in outcomes if as_json else ():
        print_json({**asdict(one), "share": one.share})
    if not as_json:
        Console().print(_table(outcomes))
    if out:
        rows = [{**asdict(one), "share": one.share} for one in outcomes]
        write_results(out, "margins", {"links": len(read), "rows": rows}, {}, FILES)


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title=f"{outcomes[0].alone:,} changes of class without a margin", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("margin", "for", "changes", "of those without", "time elsewhere"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in outcomes:
        numbers = f"{one.held:,}", f"{one.share:.1%}", f"{one.elsewhere:.1%}"
        table.add_row(f"{one.margin:g} %", f"{one.lasting:g} s", *numbers)
    return table
