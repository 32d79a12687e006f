"""`nearcast demo`: a whole system, a story, receivers over links that go bad, and a table of who gets what."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nearcast.cli.options import INPUT_FILE, Positive, journal_path
from nearcast.cli.output import DeadLetterLog, pluralize, print_json, warn
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.system import define, fetch, free_port, running, wait_until_ready
from nearcast.demo.bushfire import Scenario, StoryStep
from nearcast.demo.performance import DemoReceiver, Performance, steps_of
from nearcast.errors import EventError
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.cloudevents import read_event
from nearcast.language.definitions import files
from nearcast.language.definitions.files import client_data
from nearcast.language.event_files import read_documents
from nearcast.language.input_files import name_of

MOST_ROWS = 30
PRIORITIES = (0, 1, 2)
STYLES = {0: "bold red", 1: "yellow", 2: "cyan"}


def picture(performance: Performance) -> RenderableType:
    """The receivers as a table: role and task, link, arrivals by priority, the last event and how long it waited."""
    table = Table(box=None, pad_edge=False, title=f"{performance.clock:5.1f} s of the story", title_justify="left")
    # On a narrow terminal columns that may wrap give way: words are cut, counts and times never.
    for heading in ("receiver", "role, task"):
        table.add_column(heading)
    table.add_column("kbit/s", no_wrap=True, justify="right")
    for priority in PRIORITIES:
        table.add_column(f"p{priority}", no_wrap=True, justify="right", style=STYLES[priority])
    table.add_column("last")
    table.add_column("waited", no_wrap=True, justify="right")
    for receiver in list(performance.receivers.values())[:MOST_ROWS]:
        counts = receiver.by_priority()
        duty = ", ".join(part for part in (receiver.role, receiver.task) if part)
        arrived = (f"{counts[each]:,}" for each in PRIORITIES)
        table.add_row(_cut(receiver.id), _cut(duty), _link(receiver), *arrived, *_last(receiver))
    more = len(performance.receivers) - MOST_ROWS
    return Group(table, Text(f"and {more} more receivers")) if more > 0 else table


def _cut(text: str, style: str = "") -> Text:
    """A text that stays on one line, cut where the column is narrower."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _link(receiver: DemoReceiver) -> Text:
    bandwidth = receiver.link.bandwidth
    if bandwidth <= 0:
        return Text("dead", "bold red")
    return Text(f"{bandwidth:,.0f}", "yellow" if bandwidth < 100 else "")


def _last(receiver: DemoReceiver) -> tuple[Text, str]:
    if not receiver.arrivals:
        return Text("–"), ""
    arrival = receiver.arrivals[-1]
    event = arrival.delivery.event
    waited = "" if arrival.waited is None else f"{arrival.waited:.1f} s"
    words = f"{event['type']} {event.get('subject', '')}"
    return _cut(words, STYLES.get(arrival.delivery.priority, "")), waited


def summary(performance: Performance, status: Mapping[str, Any], restarts: Mapping[str, int]) -> dict[str, Any]:
    """The whole performance in figures. `balance` must be 0: queued deliveries that nobody can account for."""
    arrived = sum((receiver.by_priority() for receiver in performance.receivers.values()), Counter[int]())
    broadcast = len(performance.published) * len(performance.receivers)
    dropped = {name: count for name, count in status["outcomes"].items() if count and name != "acknowledged"}
    return {
        "events": len(performance.published),
        "refused": performance.refused,
        "receivers": len(performance.receivers),
        "deliveries": {str(priority): count for priority, count in sorted(arrived.items())},
        "saved_of_broadcast": 1 - status["queued"] / broadcast if broadcast else 0.0,
        "seconds": {
            str(priority): {"median": _share(waits, 0.5), "p99": _share(waits, 0.99), "longest": waits[-1]}
            for priority, waits in performance.waits().items()
        },
        "duplicates_removed": sum(receiver.client.duplicates for receiver in performance.receivers.values()),
        "connections": sum(receiver.client.connections for receiver in performance.receivers.values()),
        "waiting": dict(status["waiting"]),
        "in_flight": status["in_flight"],
        "dropped": dropped,
        "balance": status["balance"],
        "restarts": dict(restarts),
    }


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def told(result: Mapping[str, Any]) -> RenderableType:
    """The summary for a person."""
    heading = Text("\nWhat arrived, and how long after it was published", "bold")
    table = Table(box=None, pad_edge=False)
    for name in ("priority", "deliveries", "median", "p99", "longest"):
        table.add_column(name, justify="right")
    for priority, count in result["deliveries"].items():
        waits = result["seconds"].get(priority)
        cells = [f"{waits[name]:,.2f} s" for name in ("median", "p99", "longest")] if waits else ["–"] * 3
        table.add_row(priority, f"{count:,}", *cells, style=STYLES.get(int(priority), ""))
    waiting = sum(result["waiting"].values())
    withheld = result["waiting"].get("-1", 0)
    dropped = ", ".join(f"{name} {count:,}" for name, count in result["dropped"].items()) or "none"
    lines = [
        f"{pluralize(result['events'], 'event')} for {pluralize(result['receivers'], 'receiver')}; "
        f"{result['saved_of_broadcast']:.0%} fewer messages than a broadcast to everybody",
        f"waiting {waiting:,} (withheld {withheld:,}), in flight {result['in_flight']:,}; dropped: {dropped}",
        f"balance {result['balance']}: what was queued, less what was acknowledged or dropped, waits or is in flight",
    ]
    return Group(heading, table, *(Text(line) for line in lines))


REFRESH = 0.5


@dataclass(frozen=True, slots=True)
class Story:
    """What is performed: the definitions it begins with, its steps, and how it is announced."""

    definitions: list[Path]
    clients: list[dict[str, Any]]
    steps: Iterator[StoryStep]
    title: str


@click.command("demo")
@click.option("--seconds", default=60.0, show_default=True, help="How long the afternoon's four hours take.")
@click.option("--seed", default=1, show_default=True, help="Another seed, another afternoon.")
@click.option("--rate", default=15.0, show_default=True, help="About so many events a second.")
@click.option(
    "--speed",
    type=Positive(),
    default=1.0,
    show_default=True,
    help="So many times as fast as the story, or times, say.",
)
@click.option(
    "--events",
    "events_file",
    type=INPUT_FILE,
    help="Perform these events, of a file as publish takes it, instead, by their times.",
)
@click.option(
    "--definitions",
    "definition_files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Who listens to --events; without it one receiver to all of them.",
)
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Keep journal and state here.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def command(
    seconds: float,
    seed: int,
    rate: float,
    speed: float,
    events_file: Path | None,
    definition_files: tuple[Path, ...],
    data: Path | None,
    as_json: bool,
) -> None:
    """See it decide: a bushfire afternoon, simulated from a seed; or a file of events.

    Starts an access server and a pipeline on this machine, publishes the events in time, and lets every receiver listen
    over a link of its own, some of which go bad. Ends by itself with a summary, or with Ctrl-C before.
    """
    if definition_files and not events_file:
        raise click.UsageError("--definitions says who listens to --events: give these too")
    with tempfile.TemporaryDirectory(prefix="nearcast-demo-") as folder:
        where = data or Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        story = (
            _told(events_file, list(definition_files) or [_one_listener(Path(folder))])
            if events_file
            else _bushfire(Scenario(seed, seconds, rate), Path(folder))
        )
        result, ended = _perform(story, where, speed, as_json)
    if as_json:
        print_json(result)
    sys.exit(1 if ended else 0)


def _bushfire(scenario: Scenario, folder: Path) -> Story:
    path = folder / "bushfire.yaml"
    document = scenario.definitions()
    path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    title = f"a bushfire afternoon: four hours in {scenario.seconds:.0f} s, {len(scenario.people)} receivers"
    return Story([path], document["clients"], scenario.steps(), title)


def _told(events: Path, definitions: list[Path]) -> Story:
    clients = [client_data(client) for client in files.load(definitions).clients]
    told = f"{name_of(events)}, {pluralize(len(clients), 'receiver')}"
    return Story(definitions, clients, steps_of(_documents(events)), told)


def _one_listener(folder: Path) -> Path:
    """Definitions of one receiver, which gets everything."""
    everything = {"id": "everything", "client": "everything", "filter": "type IS NOT NULL"}
    path = folder / "everything.yaml"
    path.write_text(yaml.safe_dump({"clients": [{"id": "everything"}], "subscriptions": [everything]}))
    return path


def _documents(events: Path) -> Iterator[dict[str, Any]]:
    """The events of a file that are any; of the others it complains."""
    letters = DeadLetterLog()
    for where, document in read_documents([events], letters):
        try:
            read_event(document, where)
        except EventError as error:
            letters.refuse(error.fault)
        else:
            yield document
    letters.summary()


def _perform(story: Story, data: Path, speed: float, as_json: bool) -> tuple[dict[str, Any], bool]:
    """Runs the system, performs the story, shows it; the summary, and whether it was ended by Ctrl-C."""
    # With --json standard output belongs to the one object.
    console = Console(stderr=as_json)
    journal = SqliteJournal(journal_path(data))
    define(journal, files.load(story.definitions))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    warn("note", "starting the access server and Spark, which takes some 15 seconds")
    # The system is this machine's own: tokens that were meant for another would lock its receivers out.
    os.environ.pop("NEARCAST_TOKENS", None)
    with running(data, ServingOptions(port=port)) as supervisor:
        wait_until_ready(supervisor, url, data)
        warn("note", f"performing {story.title}; end with Ctrl-C")
        performance, ended = Performance(url), False
        try:
            asyncio.run(_shown(performance, story, speed, console))
        except KeyboardInterrupt:
            warn("note", f"ended {performance.clock:.1f} s after the beginning of the story")
            ended = True
        supervisor.look()
        status = fetch(url, "/status", None, "balance")
        restarts = {part.name: part.restarts for part in supervisor.parts}
    result = summary(performance, status, restarts)
    console.print(told(result))
    journal.close()
    return result, ended


async def _shown(performance: Performance, story: Story, speed: float, console: Console) -> None:
    """Performs the story; meanwhile, on a terminal, a live table, else a line now and then."""
    performing = asyncio.create_task(performance.perform(story.clients, story.steps, speed))
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=False) as live:
            while not performing.done():
                live.update(picture(performance))
                await asyncio.sleep(REFRESH)
    else:
        while not performing.done():
            await asyncio.wait({performing}, timeout=10)
            arrived = sum(len(receiver.arrivals) for receiver in performance.receivers.values())
            warn("note", f"{performance.clock:4.0f} s of the story, {arrived:,} deliveries arrived")
    await performing
