"""How the subcommands talk: results to standard output, progress and complaints to standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any
from unicodedata import category

import click
import orjson

from nearcast.errors import Fault
from nearcast.language.checks.fault_tally import FaultTally, further_text
from nearcast.language.cloudevents import DeadLetter

CONTROLS = {"Cc", "Zl", "Zp"}
"""Characters that do something instead of being seen (Unicode's general categories)."""


def print_json(value: Any) -> None:
    """One JSON value on a line of its own."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE).decode())


def pluralize(count: int, what: str, several: str | None = None) -> str:
    """A number with its noun: `1 event`, `2 events`, `1,000 deliveries`."""
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def warn(kind: str, fault: Fault | str) -> None:
    """A line on standard error: `error: …`, `warning: …`, `note: …`; on a terminal, below the results before it."""
    sys.stdout.flush()
    click.echo(plain(f"{kind}: {fault}", kept="\n\t"), err=True)


def plain(text: str, kept: str = "") -> str:
    """A text in which control characters, but those `kept`, are written out, as `\\x1b`.

    What a publisher says must not move the cursor of who reads it, nor look like a line of its own.
    """
    shown = (one if one in kept or category(one) not in CONTROLS else ascii(one)[1:-1] for one in text)
    return text if text.isprintable() else "".join(shown)


def wrapped(lines: Iterable[str]) -> str:
    """Lines as one text; on a terminal they are broken between words, and what follows is indented further."""
    if not sys.stdout.isatty():
        return "\n".join(lines)
    return "\n".join(part for line in lines for part in _broken(line, get_terminal_size().columns))


def _broken(line: str, width: int) -> list[str]:
    indent = " " * min(len(line) - len(line.lstrip()) + 4, width // 2)
    # A break at a hyphen would cut ids and times.
    return wrap(line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False) or [""]


class DeadLetterLog:
    """Complains about events that could not be taken, and counts them; of each kind the first are shown."""

    def __init__(self) -> None:
        self._tally = FaultTally()

    @property
    def count(self) -> int:
        """How many there were."""
        return self._tally.total

    def __call__(self, letter: DeadLetter) -> None:
        """Takes one."""
        self.refuse(letter.fault)

    def refuse(self, fault: Fault, note: str = "") -> None:
        """Takes what is wrong with one, and a note to print behind it."""
        shown = len(self._tally.shown)
        self._tally.extend([fault])
        if len(self._tally.shown) > shown:
            warn("dead letter", f"{fault}{note}")

    def summary(self) -> None:
        """Says how many were not shown."""
        for expected, count in self._tally.further():
            warn("dead letter", further_text(expected, count))


def warn_of(kind: str, faults: Iterable[Fault]) -> None:
    """A line for each fault, at most 20 of those that expect the same, and how many more there are."""
    tally = FaultTally(faults)
    for fault in tally.shown:
        warn(kind, fault)
    for expected, count in tally.further():
        warn(kind, further_text(expected, count))


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, while it is a terminal; gives a function that advances it."""
    # In a file or a pipe a bar would be clutter.
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
