"""`nearcast status`: how a running system is, for a person."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click
import httpx
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from nearcast.cli.options import server_options
from nearcast.cli.output import plain, pluralize, print_json
from nearcast.cli.system import fetch

COUNTS = (
    "position",
    "waiting",
    "events_total",
    "deliveries_total",
    "batches_total",
    "refused_total",
    "failures_total",
    "crowded_total",
    "late_total",
    "fallen_clock_total",
    "ticks_total",
    "clock_behind_seconds",
)
FIGURES = (*COUNTS, "stage_seconds_sum", "stage_seconds_count")
ANSWERED = ("sessions", "known", "read", "queued", "outcomes", "in_flight", "waiting", "latency", "balance", "seconds")
"""What an access server answers."""

PIPELINE = "http://127.0.0.1:8641"


@click.command("status")
@server_options
@click.option("--pipeline", default=PIPELINE, show_default=True, help="Where the pipeline answers /metrics.")
@click.option("--json", "as_json", is_flag=True, help="Print the server's own JSON.")
def command(url: str, token: str | None, pipeline: str, as_json: bool) -> None:
    """Show what a running system does: sessions, deliveries by priority, latencies, what waits and what was dropped.

    Asks the access server, and the pipeline where it answers.

    Exits with 1 if the balance is not zero: then deliveries are unaccounted for.
    """
    status = fetch(url, "/status", token, *ANSWERED)
    status["pipeline"] = pipeline_status(pipeline)
    if as_json:
        print_json(status)
    else:
        # Into a pipe each fact stays on its line.
        show(status, Console(soft_wrap=not sys.stdout.isatty(), highlight=False))
    sys.exit(1 if status["balance"] else 0)


def show(status: dict[str, Any], console: Console) -> None:
    """The status as a few lines and a table."""
    sessions, known, read = status["sessions"], status["known"], status["read"]
    console.print(
        f"{pluralize(known['clients'], 'client')}, {sessions['connected']:,} connected;"
        f" {pluralize(known['subscriptions'], 'subscription')};"
        f" {pluralize(read['events'], 'event')}, decided through {read['deliveries']:,}; up {status['seconds']:,.0f} s"
    )
    journal = journal_told(status.get("journal") or {})
    if journal:
        console.print(journal, markup=False)
    for line in kept_told(status.get("kept") or {}):
        console.print(line, markup=False)
    console.print(_told(status.get("pipeline")))
    for line in limits_met(status.get("pipeline") or {}):
        console.print(line, markup=False)
    clocks = clocks_behind(status.get("pipeline") or {})
    if clocks:
        console.print(clocks, markup=False)
    for line in servers_told(status.get("servers") or []):
        console.print(line, markup=False)
    console.print(latency_table(status))
    outcomes = {name: count for name, count in status["outcomes"].items() if count}
    told = ", ".join(f"{name} {count:,}" for name, count in outcomes.items()) or "none settled yet"
    console.print(
        f"{status['queued']:,} queued: {told}, in flight {status['in_flight']:,}, "
        f"waiting {sum(status['waiting'].values()):,}; balance {status['balance']}"
    )


def servers_told(servers: list[dict[str, Any]]) -> Iterator[str]:
    """The access servers of the domain, where there are several."""
    for one in servers if len(servers) > 1 else ():
        marks = ", draining" * bool(one["draining"]) + ", this one" * bool(one["here"])
        sessions = pluralize(one["sessions"], "session")
        yield f"server {plain(one['name'])} at {plain(one['url'])}: {sessions}, load {one['load']:.0%}{marks}"


def pipeline_status(url: str) -> dict[str, float] | None:
    """The pipeline's own figures, from its metrics; None where it does not answer."""
    try:
        text = httpx.get(f"{url.rstrip('/')}/metrics", timeout=2.0).text
        families = list(text_string_to_metric_families(text))
    # Whatever else answers there says something that is not of this form.
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    found: dict[str, float] = {}
    for family in families:
        for sample in family.samples:
            name = sample.name.removeprefix("nearcast_pipeline_")
            if name in FIGURES:
                key = "_".join([name, *(value for value in sample.labels.values())])
                found[key] = sample.value
    return found


def kept_told(kept: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What is kept of the journal's logs, what an event takes on the disk, and who holds what would go."""
    found = {name: one for name, one in kept.items() if one["first"]}
    if "events" not in found:
        return
    if not any(one["first"] > 1 for one in found.values()):
        # Nothing ever went.
        return
    each = (f"{name} {one['first']:,} to {one['last']:,} in {_bytes(one['size'])}" for name, one in found.items())
    events = found["events"]
    share = sum(one["size"] for one in found.values()) / (events["last"] - events["first"] + 1)
    since = f" since {events['time']}" if events["time"] else ""
    yield f"kept{since}: {', '.join(each)}; {share:,.0f} bytes per event in all"
    for name, one in found.items():
        if one["held_by"]:
            yield f"{name} wait for the reader {plain(one['held_by'])} before they go, beyond their bounds"


def _bytes(size: int) -> str:
    """A number of bytes as people say it."""
    for unit, each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= each:
            return f"{size / each:,.1f} {unit}"
    return f"{size:,} bytes"


def journal_told(journal: dict[str, Any]) -> str:
    """That the journal does not answer, or how often it did not since the start; empty where nothing is to be said."""
    seconds, times = journal.get("unavailable_seconds", 0), journal.get("outages", 0)
    if seconds:
        return f"the journal is unavailable, for {seconds:,.1f} s by now: what is published is refused or waits"
    if failing := ", ".join(journal.get("failing", ())):
        return f"the journal fails: {failing}; the server's log says why"
    total = journal.get("unavailable_seconds_total", 0)
    return f"the journal was unavailable {pluralize(times, 'time')}, for {total:,.1f} s in all" if times else ""


def _told(pipeline: dict[str, float] | None) -> str:
    if pipeline is None:
        return "the pipeline does not answer (say where with --pipeline; `nearcast up` serves its metrics)"
    batches = sum(value for name, value in pipeline.items() if name.startswith("batches_total"))
    seconds = sum(value for name, value in pipeline.items() if name.startswith("stage_seconds_sum"))
    each = f", {1000 * seconds / batches:,.0f} ms each" if batches else ""
    done = pluralize(int(batches), "batch", "batches")
    return (
        f"pipeline: {pipeline.get('waiting', 0):,.0f} events wait to be decided; {done}{each}; "
        f"refused {pipeline.get('refused_total', 0):,.0f}, failed {pipeline.get('failures_total', 0):,.0f}"
    )


def limits_met(pipeline: dict[str, float]) -> Iterator[str]:
    """What the pipeline left out for a limit, and what moved nothing."""
    for name, count in sorted(pipeline.items()):
        if name.startswith("crowded_total_") and count:
            relation = name.removeprefix("crowded_total_")
            yield f"relation {relation}: {count:,.0f} times a pair did not begin, beyond the limits of pairs"
        if name.startswith("fallen_clock_total_") and count:
            source = name.removeprefix("fallen_clock_total_")
            yield f"source {plain(source)}: its clock fell back, {pluralize(int(count), 'report')} moved nothing"


FAR_BEHIND = 60
"""Seconds by which a clock is behind that is told though it is the only one."""


def clocks_behind(pipeline: dict[str, float]) -> str | None:
    """How far each clock is behind the wall clock, where there are several or one is far; else None."""
    start = "clock_behind_seconds_"
    found = {name.removeprefix(start): seconds for name, seconds in pipeline.items() if name.startswith(start)}
    if len(found) < 2 and max(found.values(), default=0) < FAR_BEHIND:
        return None
    each = (f"{plain(name) or 'shared'} {max(0.0, seconds):,.0f} s" for name, seconds in sorted(found.items()))
    return f"clocks behind the wall clock: {', '.join(each)}"


def latency_table(status: dict[str, Any]) -> Table:
    """Per priority: what waits, and how long the recent ones took from acceptance to sending and acknowledgement."""
    table = Table(box=None, pad_edge=False)
    for heading in ("priority", "waiting", "sent p50", "sent p99", "acknowledged p50", "acknowledged p99"):
        table.add_column(heading, justify="right")
    latency = status["latency"]
    for priority in sorted({*status["waiting"], *latency["send"], *latency["acknowledge"]}, key=int):
        cells = [
            _span(latency[kind][priority][share]) if priority in latency[kind] else "–"
            for kind in ("send", "acknowledge")
            for share in ("p50", "p99")
        ]
        name = "withheld" if priority == "-1" else priority
        table.add_row(name, f"{status['waiting'].get(priority, 0):,}", *cells)
    return table


def _span(seconds: float) -> str:
    """A time as people say it: what waited for its client for long took no milliseconds."""
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else f"{seconds:,.0f} s"
