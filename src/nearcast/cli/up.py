"""`nearcast up`: access server and pipeline together, supervised."""

from __future__ import annotations

import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click

from nearcast.cli.options import data_option, journal_option, spark_options
from nearcast.cli.output import pluralize, warn, warn_of
from nearcast.cli.serving_options import ServingOptions, serving_options
from nearcast.cli.system import READY_SECONDS, define, opened_at, running, wait_until_ready
from nearcast.journal.locations import Location, shown_location
from nearcast.language.definitions import files as files_module


@click.command("up")
@click.option(
    "--definitions",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML definitions to begin with; several are read together.",
)
@data_option
@journal_option
@serving_options()
@spark_options()
@click.option(
    "--wait",
    type=click.FloatRange(min=0, min_open=True),
    default=READY_SECONDS,
    show_default=True,
    help="Seconds after which to give up if server and pipeline are not ready.",
)
@click.option("--metrics-port", type=int, default=8641, show_default=True, help="The pipeline's /metrics, on loopback.")
def command(
    files: tuple[Path, ...],
    data: Path,
    location: Location | None,
    master: str | None,
    spark_properties: Path | None,
    wait: float,
    metrics_port: int,
    **given: Any,
) -> None:
    """Run access server and pipeline. A part that dies is started again, and that is said.

    Definitions are taken in as events: what is in the files and differs from what is known is changed; what is not in
    the files stays. Where a client is, its readings, role and task are as the files say until something else is said;
    starting again with the same files does not take that back.
    """
    options = ServingOptions(**given)
    found = files_module.load(files) if files else None
    warn_of("warning", found.warnings if found else ())
    data.mkdir(parents=True, exist_ok=True)
    asked: list[int] = []
    # Before the parts are there: a signal has to end them too, and in an orderly way.
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda number, _frame: asked.append(number))
    begin = partial(_begin, data, location, found, options.node)
    with running(data, options, master, metrics_port, begin, location, spark_properties) as supervisor:
        wait_until_ready(supervisor, options.url, data, lambda: bool(asked), wait, location)
        if not asked:
            kept = f", journal at {shown_location(location)}" if location else ""
            click.echo(f"ready: {options.url} (API at /docs), data in {data}{kept}; end with Ctrl-C", err=True)
        supervisor.watch(lambda: bool(asked))


def _begin(data: Path, location: Location | None, found: files_module.DefinitionSet | None, node: str) -> None:
    with closing(opened_at(data, location)) as journal:
        if journal.durability:
            warn("note", f"journal at {journal}: {journal.durability}")
        if found:
            warn("note", f"{pluralize(define(journal, found, node), 'definition')} changed")
