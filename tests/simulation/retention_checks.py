"""What must be true whenever a journal lets go of rows: nobody needs them any more.

It is held against the marks by which readers say how far they are, as the docs promise; and, as these may be wrong,
against all that was ever written and where everybody who reads is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from nearcast.journal.reader_marks import reader_marks

if TYPE_CHECKING:
    from tests.simulation.disturbed_journal import DisturbedJournal

WITH_EVENTS = ("derived", "source filters")
"""Logs of which rows go when events at their positions did."""


class ReadPosition(NamedTuple):
    """Who reads a log just now, and the position up to which it needs nothing of it. Another run is another reader."""

    reader: str
    log: str
    position: int


def taken_too_early(
    journal: DisturbedJournal, log: str, after: int, through: int, readers: Iterable[ReadPosition]
) -> Iterator[str]:
    """What was needed of the rows behind `after` and up to `through` that have just gone from a log."""
    gone = [row for row in journal.history[log] if after < row["position"] <= through]
    if not gone:
        return
    last = gone[-1]["position"]
    bounds = [(one.reader, one.position) for one in readers if one.log == log]
    if log == "events":
        bounds += [("the pipeline", journal.end("deliveries")), ("the snapshot", journal.end("snapshots"))]
    elif log in WITH_EVENTS:
        bounds.append(("an event", journal.trimmed("events")))
    bounds += _marks(journal, ("events", "deliveries") if log == "events" else (log,))
    for reader, position in bounds:
        if last > position:
            yield f"{log} went up to {last}, and {reader} needs those behind {position}"
    if log in ("events", "deliveries"):
        yield from _owed(journal, log, after, last)
    elif log == "outcomes":
        yield from _without_outcome(journal, gone)


def _marks(journal: DisturbedJournal, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """What readers say that they need of some logs. One that has just come says so while others let go."""
    for reader, positions in reader_marks(journal):
        yield from ((f"the mark of {reader}", positions[name]) for name in names if positions.get(name))


def _owed(journal: DisturbedJournal, log: str, after: int, through: int) -> Iterator[str]:
    """Deliveries that had not ended when their rows went, or their events."""
    decided = {_key(row, "position") for row in journal.history["deliveries"] if after < row["position"] <= through}
    ended = {_key(row, "event") for row in journal.history["outcomes"] if after < row["event"] <= through}
    if owed := sorted(decided - ended):
        yield f"{log} went up to {through}, and {len(owed)} deliveries of them are owed: {owed[:3]}"


def _without_outcome(journal: DisturbedJournal, gone: list[dict[str, Any]]) -> Iterator[str]:
    """Deliveries that are there still, and of which nobody who starts anew knows any more that they ended."""
    first = journal.trimmed("deliveries") + 1
    if left := [_key(row, "event") for row in gone if row["event"] >= first]:
        yield f"outcomes went up to {gone[-1]['position']}, of deliveries that are there from {first} on: {left[:3]}"


def _key(row: dict[str, Any], position: str) -> tuple[int, int, str]:
    return row[position], row["part"], row["client"]
