"""`nearcast import NAME SOURCE`: public data sets as events, and receivers for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import yaml

from nearcast.cli.output import warn
from nearcast.importers import IMPORTERS, ais, mobile_links, nsw_fires
from nearcast.importers.event_documents import Document, merged, time_of, write


@click.command("import")
@click.argument("name", type=click.Choice(sorted(IMPORTERS)))
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The events file to write.")
@click.option("--receivers", type=int, default=0, help="Also make up so many receivers of these events.")
@click.option(
    "--definitions", type=click.Path(dir_okay=False, path_type=Path), help="Where the receivers' definitions go."
)
@click.option(
    "--links",
    "traces",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Let the receivers' bandwidth follow these measured mobile links (a tar of JSON logs).",
)
@click.option("--seed", default=1, show_default=True, help="Another seed, other receivers.")
def command(
    name: str,
    source: Path,
    out: Path,
    receivers: int,
    definitions: Path | None,
    traces: Path | None,
    seed: int,
) -> None:
    """Turn a public data set into CloudEvents, one a line, for `replay`, `publish` and `demo --events`.

    nsw-fires: changes of the New South Wales Rural Fire Service's incidents. ais: vessel positions of MarineCadastre.
    """
    if bool(receivers) != bool(definitions):
        raise click.UsageError("--receivers and --definitions go together")
    streams: list[Iterator[Document]] = []
    if definitions:
        document, movement = _receivers(name, source, seed, receivers)
        definitions.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
        warn("note", f"{receivers:,} receivers in {definitions}")
        streams.append(movement)
        if traces:
            streams.append(_links(name, source, traces, [client["id"] for client in document["clients"]], seed))
    count = write(out, merged(*streams, _events(name, source)))
    warn("note", f"{count:,} events in {out}")


def _events(name: str, source: Path) -> Iterator[Document]:
    return ais.events(source, order="time") if name == "ais" else IMPORTERS[name](source)


def _receivers(name: str, source: Path, seed: int, count: int) -> tuple[dict[str, Any], Iterator[Document]]:
    if name == "ais":
        return ais.receivers(source, seed, count)
    return nsw_fires.receivers(source, seed, count), iter(())


def _links(name: str, source: Path, traces: Path, clients: list[str], seed: int) -> Iterator[Document]:
    """The changes of the clients' bandwidths over the time of the events."""
    # The data are read once more for this: links need the first and the last time before the first event.
    times: list[datetime] = [time_of(event) for event in _events(name, source)]
    start = min(times)
    return mobile_links.readings(
        mobile_links.traces(traces), clients, start, (max(times) - start).total_seconds(), seed=seed
    )
