"""`nearcast publish [FILE…]`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
import orjson

from nearcast.cli.options import server_options
from nearcast.cli.output import DeadLetterLog, pluralize, print_json, progress, warn
from nearcast.cli.system import fetch
from nearcast.client import Publisher
from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import DeadLetter, whole_lines
from nearcast.language.json_text import loads

BATCH = 500


@click.command("publish")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
def command(files: tuple[Path, ...], url: str, token: str | None, as_json: bool) -> None:
    """Publish CloudEvents, one a line, from FILES or standard input (-), in their order.

    Safe to repeat: an event with a source and id that the journal holds is not taken again, but counted as known. Exits
    with 1 if some were refused.
    """
    # A server that restarts meanwhile is waited for; one that never was there is told at once.
    fetch(url, "/health", None, "healthy")
    letters = DeadLetterLog()
    taken, known = asyncio.run(_publish(files or (Path("-"),), url, token, letters))
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
            lines = _documents(files, letters)
            while batch := list(islice(lines, BATCH)):
                published = await publisher.publish([document for _, document in batch])
                for index, fault in published.faults.items():
                    letters(DeadLetter(Fault(fault.expected, fault.came, batch[index][0], fault.advice), b""))
                taken += len(batch) - len(published.faults) - len(published.known)
                known += len(published.known)
                advance(len(batch))
    return taken, known


def _documents(files: tuple[Path, ...], letters: DeadLetterLog) -> Iterator[tuple[Mark, Any]]:
    for path in files:
        with click.open_file(str(path), "rb") as file:
            for number, line in enumerate(whole_lines(file), 1):
                where = Mark(str(path), number)
                try:
                    if not line.isspace():
                        yield where, loads(line.strip(), where)
                except (EventError, Fault, orjson.JSONDecodeError) as error:
                    fault = error.fault if isinstance(error, EventError) else error
                    letters(DeadLetter(fault if isinstance(fault, Fault) else Fault("JSON", str(fault), where), line))
