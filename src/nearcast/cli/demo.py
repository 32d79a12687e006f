"""`nearcast demo`: a whole system, a story, receivers over links that go bad, and a table of who gets what."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson
import yaml
from rich.console import Console
from rich.live import Live

from nearcast.cli.demo_table import picture, summary, told
from nearcast.cli.options import journal_path
from nearcast.cli.output import complain, print_json
from nearcast.cli.system import define, fetch, free_port, running, wait_until_ready
from nearcast.experiments.bushfire import Scenario, Step
from nearcast.experiments.performance import Performance, steps_of
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language import definitions

REFRESH = 0.5


@dataclass(frozen=True, slots=True)
class Story:
    """What is performed: the definitions it begins with, its steps, and how it is announced."""

    definitions: list[Path]
    clients: list[dict[str, Any]]
    steps: Iterator[Step]
    title: str


@click.command("demo")
@click.option("--seconds", default=60.0, show_default=True, help="How long the afternoon's four hours take.")
@click.option("--seed", default=1, show_default=True, help="Another seed, another afternoon.")
@click.option("--rate", default=15.0, show_default=True, help="About so many events a second.")
@click.option("--speed", default=1.0, show_default=True, help="So many times as fast as the story says.")
@click.option(
    "--events",
    "events_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Perform these events (CloudEvents, one a line) instead; needs --definitions.",
)
@click.option(
    "--definitions",
    "definition_files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Who listens to --events.",
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
    over a link of its own, some of which go bad. Ends by itself with a summary.
    """
    if events_file and not definition_files:
        raise click.UsageError("--events needs --definitions: who listens?")
    with tempfile.TemporaryDirectory(prefix="nearcast-demo-") as folder:
        where = data or Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        story = (
            _told(events_file, list(definition_files))
            if events_file
            else _bushfire(Scenario(seed, seconds, rate), Path(folder))
        )
        result = _perform(story, where, speed, as_json)
    if as_json:
        print_json(result)


def _bushfire(scenario: Scenario, folder: Path) -> Story:
    path = folder / "bushfire.yaml"
    document = scenario.definitions()
    path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    title = f"a bushfire afternoon: four hours in {scenario.seconds:.0f} s, {len(scenario.people)} receivers"
    return Story([path], document["clients"], scenario.steps(), title)


def _told(events: Path, files: list[Path]) -> Story:
    clients = [client for path in files for client in yaml.safe_load(path.read_text()).get("clients", [])]
    documents = (orjson.loads(line) for line in events.open("rb") if not line.isspace())
    return Story(files, clients, steps_of(documents), f"{events.name}, {len(clients)} receivers")


def _perform(story: Story, data: Path, speed: float, as_json: bool) -> dict[str, Any]:
    """Runs the system, performs the story, shows it; the summary."""
    # With --json standard output belongs to the one object.
    console = Console(stderr=as_json)
    journal = SqliteJournal(journal_path(data))
    define(journal, definitions.load(story.definitions))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    complain("note", "starting the access server and Spark, which takes some 15 seconds")
    # The system is this machine's own: tokens that were meant for another would lock its receivers out.
    os.environ.pop("NEARCAST_TOKENS", None)
    with running(data, "127.0.0.1", port, None, None) as supervisor:
        wait_until_ready(supervisor, url, data)
        complain("note", f"performing {story.title}")
        performance = Performance(url)
        asyncio.run(_shown(performance, story, speed, console))
        supervisor.look()
        status = fetch(url, "/status", None, "balance")
        restarts = {part.name: part.restarts for part in supervisor.parts}
    result = summary(performance, status, restarts)
    console.print(told(result))
    journal.close()
    return result


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
            complain("note", f"{performance.clock:4.0f} s of the story, {arrived:,} deliveries arrived")
    await performing
