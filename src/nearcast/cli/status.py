"""`nearcast status`: how a running system is, for a person."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from nearcast.cli.options import server_options
from nearcast.cli.output import print_json
from nearcast.cli.system import fetch


@click.command("status")
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print the server's own JSON.")
def command(url: str, token: str | None, as_json: bool) -> None:
    """Show what a running system does: sessions, deliveries by priority, latencies, what waits and what was dropped.

    Exits with 1 if the balance is not zero: then deliveries are unaccounted for.
    """
    status = fetch(url, "/status", token)
    if as_json:
        print_json(status)
    else:
        show(status, Console())
    sys.exit(1 if status["balance"] else 0)


def show(status: dict[str, Any], console: Console) -> None:
    """The status as a few lines and a table."""
    sessions, known, read = status["sessions"], status["known"], status["read"]
    console.print(
        f"{known['clients']:,} clients, {sessions['connected']:,} connected; {known['subscriptions']:,} subscriptions; "
        f"{read['events']:,} events, decided through {read['deliveries']:,}; up {status['seconds']:,.0f} s"
    )
    console.print(latency_table(status))
    outcomes = {name: count for name, count in status["outcomes"].items() if count}
    told = ", ".join(f"{name} {count:,}" for name, count in outcomes.items()) or "none settled yet"
    console.print(
        f"{status['queued']:,} queued: {told}, in flight {status['in_flight']:,}, "
        f"waiting {sum(status['waiting'].values()):,}; balance {status['balance']}"
    )


def latency_table(status: dict[str, Any]) -> Table:
    """Per priority: what waits, and how long the recent ones took from acceptance to sending and acknowledgement."""
    table = Table(box=None, pad_edge=False)
    for heading in ("priority", "waiting", "sent p50", "sent p99", "acknowledged p50", "acknowledged p99"):
        table.add_column(heading, justify="right")
    latency = status["latency"]
    for priority in sorted({*status["waiting"], *latency["send"], *latency["acknowledge"]}, key=int):
        cells = [
            f"{latency[kind][priority][share] * 1000:,.0f} ms" if priority in latency[kind] else "–"
            for kind in ("send", "acknowledge")
            for share in ("p50", "p99")
        ]
        name = "withheld" if priority == "-1" else priority
        table.add_row(name, f"{status['waiting'].get(priority, 0):,}", *cells)
    return table
