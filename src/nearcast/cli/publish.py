"""`nearcast publish [FILE…]`."""

from __future__ import annotations

import asyncio
import sys
from itertools import islice
from pathlib import Path

import click

from nearcast.cli.options import INPUT_FILE, server_options
from nearcast.cli.output import DeadLetterLog, pluralize, print_json, progress, warn
from nearcast.cli.system import fetch
from nearcast.client import Publisher
from nearcast.errors import Fault
from nearcast.language.cloudevents import DeadLetter
from nearcast.language.event_files import read_documents
from nearcast.language.input_files import STANDARD_INPUT

BATCH = 500


@click.command("publish")
@click.argument("files", nargs=-1, type=INPUT_FILE)
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
def command(files: tuple[Path, ...], url: str, token: str | None, as_json: bool) -> None:
    """Publish CloudEvents or GeoJSON features from FILES or standard input (-), in their order.

    One a line or in a list, plain or gzipped.

    Safe to repeat: an event with a source and id that the journal holds is not taken again, but counted as known. Exits
    with 1 if some were refused.
    """
    # A server that restarts meanwhile is waited for; one that never was there is told at once.
    fetch(url, "/health", None, "healthy")
    letters = DeadLetterLog()
    taken, known = asyncio.run(_publish(files or (STANDARD_INPUT,), url, token, letters))
    letters.summary()
    if as_json:
        print_json({"published": taken, "known": known, "refused": letters.count})
    else:
        repeated = f"{known:,} known already, " if known else ""
        warn("note", f"{pluralize(taken, 'event')} published, {repeated}{letters.count:,} refused")
    sys.exit(1 if letters.count else 0)


async def _publish(files: tuple[Path, ...], url: str, token: str | None, letters: DeadLetterLog) -> tuple[int, int]:
    """How many events were taken, and how many the journal had before."""
    taken = known = 0
    with progress("publishing") as advance:
        async with Publisher(url, token) as publisher:
            lines = read_documents(files, letters)
            while batch := list(islice(lines, BATCH)):
                published = await publisher.publish([document for _, document in batch])
                for index, fault in published.faults.items():
                    letters(DeadLetter(Fault(fault.expected, fault.came, batch[index][0], fault.advice), b""))
                taken += len(batch) - len(published.faults) - len(published.known)
                known += len(published.known)
                advance(len(batch))
    return taken, known
