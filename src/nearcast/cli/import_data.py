"""`nearcast import NAME SOURCE`: public data sets as events, and receivers for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import yaml

from nearcast.cli.output import warn
from nearcast.errors import Fault
from nearcast.importers import IMPORTERS, ais, mobile_links, nsw_fires
from nearcast.importers.event_documents import Document, OnFault, merged, replacing, time_of, write
from nearcast.language.checks.fault_tally import SHOWN


@click.command("import")
@click.argument("name", type=click.Choice(sorted(IMPORTERS)))
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The events file to write.")
@click.option(
    "--receivers", type=click.IntRange(min=0), default=0, help="Also make up so many receivers of these events."
)
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
    if traces and not definitions:
        raise click.UsageError("--links is for receivers: give --receivers and --definitions")
    streams: list[Iterator[Document]] = []
    described: dict[str, Any] = {}
    if definitions:
        described, movement = _receivers(name, source, seed, receivers)
        streams.append(movement)
        if traces:
            streams.append(_links(name, source, traces, [client["id"] for client in described["clients"]], seed))
    faults = _FaultLog()
    count = write(out, merged(*streams, _events(name, source, faults)))
    faults.summary()
    if definitions:
        with replacing(definitions) as file:
            file.write(yaml.safe_dump(described, sort_keys=False, allow_unicode=True).encode())
        warn("note", f"{receivers:,} receivers in {definitions}")
    warn("note", f"{count:,} events in {out}")


class _FaultLog:
    """Tells of records that were left out: of the first each, of the rest how many."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, fault: Fault) -> None:
        self._count += 1
        if self._count <= SHOWN:
            warn("warning", fault)

    def summary(self) -> None:
        """Says how many were not shown."""
        if self._count > SHOWN:
            warn("warning", f"and {self._count - SHOWN:,} more like these")


def _unheard(fault: Fault) -> None:
    """The data are read several times: faults are told once."""


def _events(name: str, source: Path, told: OnFault) -> Iterator[Document]:
    if name == "ais":
        return ais.events(source, order="time", told=told)
    return IMPORTERS[name](source, told=told)


def _receivers(name: str, source: Path, seed: int, count: int) -> tuple[dict[str, Any], Iterator[Document]]:
    if name == "ais":
        return ais.receivers(source, seed, count, told=_unheard)
    return nsw_fires.receivers(source, seed, count, told=_unheard), iter(())


def _links(name: str, source: Path, traces: Path, clients: list[str], seed: int) -> Iterator[Document]:
    """The changes of the clients' bandwidths over the time of the events."""
    # The data are read once more for this: links need the first and the last time before the first event.
    times: list[datetime] = [time_of(event) for event in _events(name, source, _unheard)]
    start = min(times)
    return mobile_links.readings(
        mobile_links.traces(traces), clients, start, (max(times) - start).total_seconds(), seed=seed
    )
