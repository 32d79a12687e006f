"""Outcomes on their way into the journal, and the checkpoint up to which all is settled."""

from __future__ import annotations

import json
import logging
import os
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.delivery.queue import SettledDelivery
from nearcast.journal.seam import Journal
from nearcast.model.columns import DEAD_LETTERS, OUTCOMES, TIME
from nearcast.model.sequence import part_of, position_of, sequence
from nearcast.server import clock
from nearcast.server.sessions.journal_tailer import DecidedDelivery, joined
from nearcast.server.sessions.payloads import PayloadCache


def note(path: Path, text: str, journal: Journal) -> None:
    """Writes a note about a journal as a whole: a server that dies meanwhile leaves the note before. Raises OSError.

    After a loss of power the journal may lack its newest rows. A note about rows that are lost would count for those
    that are written in their places, so first the journal is secured, then the note, and then it takes its name.
    """
    journal.sync()
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


log = logging.getLogger(__name__)

ROWS = 20_000

WINDOW = 1_000
"""Positions that are read at once to look up some of them: acknowledgements come in runs."""

WINDOW_BYTES = 16 << 20
"""And of so many bytes, about."""

_Key = tuple[int, int, str]
"""What tells a delivery: the position and part of its event, and the client."""


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """How a delivery to a client ended."""

    client: str
    settled: SettledDelivery


def outcome_table(outcomes: list[DeliveryOutcome]) -> pa.Table:
    """Rows of the log of outcomes."""
    settled = [one.settled for one in outcomes]
    deliveries = [one.delivery for one in settled]
    ahead = clock.ahead_of_steady()
    # By columns: a row by itself takes four times as long, and a server has one of these for each delivery.
    columns = {
        "position": pa.repeat(pa.scalar(0, pa.int64()), len(outcomes)),
        "client": [one.client for one in outcomes],
        "event": [position_of(one.sequence) for one in deliveries],
        "part": [part_of(one.sequence) for one in deliveries],
        "outcome": [one.outcome for one in settled],
        "priority": [one.priority for one in deliveries],
        "attempts": [one.attempts for one in deliveries],
        "queued": _stamps([one.queued for one in deliveries], ahead),
        "sent": _stamps([one.sent for one in deliveries], ahead),
        "settled": _stamps([one.time for one in settled], ahead),
        "early": [one.early for one in deliveries],
    }
    return pa.table({name: columns[name] for name in OUTCOMES.names}, schema=OUTCOMES)


def _stamps(steady: Sequence[float | None], ahead: float) -> pa.Array:
    """The times of day of steady times, which they are `ahead` of; null where there is none."""
    return pa.array([None if one is None else round((ahead + one) * 1e6) for one in steady], pa.int64()).cast(TIME)


@dataclass(frozen=True, slots=True)
class RefusedInput:
    """What could not be taken: where it came from, why, and what it was."""

    where: str
    reason: str
    content: bytes
    time: float


KEPT_BYTES, KEPT_REASON = 64 * 1024, 10_000


def refused_input(where: str, reason: str, content: bytes) -> RefusedInput:
    """What could not be taken just now, as far as a dead letter keeps of it."""
    return RefusedInput(where, reason[:KEPT_REASON], content[:KEPT_BYTES], clock.now())


def dead_letter_table(refused: list[RefusedInput]) -> pa.Table:
    """Rows of the log of dead letters."""
    rows = [
        {
            "position": 0,
            "time": clock.moment(letter.time),
            "where": letter.where,
            "reason": letter.reason,
            "content": letter.content[:KEPT_BYTES],
        }
        for letter in refused
    ]
    return pa.Table.from_pylist(rows, schema=DEAD_LETTERS)


@dataclass(frozen=True, slots=True)
class SettledMark:
    """All deliveries up to `deliveries` are settled; outcomes of later ones all come after `outcomes`."""

    deliveries: int = 0
    outcomes: int = 0


class SettledCheckpoint:
    """Keeps a `SettledMark` in a small file, so that a start does not read the logs from their beginnings.

    A lost or damaged file, or one of another journal, costs time only. None as path: kept nowhere. `mark` is the one
    that was written last, or read.
    """

    def __init__(self, path: Path | None, journal: str) -> None:
        self.path, self.journal = path, journal
        self._pending: SettledMark | None = None
        self.mark = SettledMark()

    def read(self) -> SettledMark:
        """The mark of the last run, else that of the beginning."""
        if self.path is None:
            return SettledMark()
        try:
            kept = json.loads(self.path.read_text())
            if kept["journal"] != self.journal:
                raise ValueError("it is of another journal")
            self.mark = SettledMark(int(kept["deliveries"]), int(kept["outcomes"]))
            return self.mark
        except FileNotFoundError:
            return SettledMark()
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning(
                "watermark unreadable path=%s error=%r; the logs are read from their beginnings", self.path, error
            )
            return SettledMark()

    def move_forward(self, journal: Journal, through: int, outcomes_end: int, oldest: int | None) -> None:
        """Takes note that outcomes through `outcomes_end` are of deliveries through `through`, of which `oldest` is the
        first that is not read or not durably settled.

        A pair is kept back until every delivery before it is settled; then it is written, and the next one taken.
        """
        if self._pending and (oldest is None or oldest > self._pending.deliveries):
            self._write(self._pending, journal)
            self._pending = None
        self._pending = self._pending or SettledMark(through, outcomes_end)

    def _write(self, mark: SettledMark, journal: Journal) -> None:
        # Where nothing was settled meanwhile the disk is left alone.
        if self.path is None or mark == self.mark:
            self.mark = mark
            return
        kept = {"journal": self.journal, "deliveries": mark.deliveries, "outcomes": mark.outcomes}
        note(self.path, json.dumps(kept), journal)
        self.mark = mark


def unsettled(
    journal: Journal, payloads: PayloadCache, after: SettledMark, through: int, settled: Set[_Key] | None = None
) -> Iterator[list[DecidedDelivery]]:
    """The deliveries up to `through` that have no outcome, in order, in pieces; it reads the journal.

    `settled` are those that have, where that was read already.
    """
    settled = settled_since(journal, after) if settled is None else settled
    for rows in journal.row_ranges("deliveries", after.deliveries, through, ROWS):
        if len(rows):
            rows = rows.filter(pa.array([key not in settled for key in _keys(rows, "position")]))
        for first in range(0, len(rows), 1_000):
            yield joined(rows.slice(first, 1_000), payloads)


def settled_since(journal: Journal, mark: SettledMark) -> set[_Key]:
    """The position, part and client of each delivery with an outcome behind a mark; it reads the journal."""
    found: set[_Key] = set()
    for rows in journal.row_ranges("outcomes", mark.outcomes, journal.end("outcomes"), ROWS):
        found.update(_keys(rows, "event"))
    return found


def _keys(rows: pa.Table, event: str) -> Iterator[_Key]:
    events, parts, clients = (rows.column(name).to_pylist() for name in (event, "part", "client"))
    return zip(events, parts, clients, strict=True)


def delivered(journal: Journal, client: str, sequences: Collection[int]) -> set[int]:
    """Those of some sequences at which something was delivered to a client; it reads the journal."""
    end = sequence(journal.end("deliveries") + 1, 0)
    asked, found = [one for one in sorted(sequences) if one < end], set[int]()
    at = 0
    while at < len(asked):
        first = position_of(asked[at])
        # Of one position at least, however many rows that has.
        last = max(first, journal.end_within_bytes("deliveries", first - 1, WINDOW, WINDOW_BYTES))
        rows = journal.read("deliveries", first - 1, last - first + 1)
        own = rows.filter(pc.equal(rows.column("client"), client))
        found.update(sequence(*key) for key in zip(own["position"].to_pylist(), own["part"].to_pylist(), strict=True))
        at = bisect_left(asked, sequence(last + 1, 0))
    return found & {*sequences}
