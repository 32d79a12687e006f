"""Retention: lets go of what is too old, or too much, and needed by nobody; as long as the pipeline runs.

First a snapshot of what is known is put into the journal, which then stands for the events before it; then these go.
Whoever is killed in between loses nothing: what did not go yet goes with the next look. Readers note how far they are
(`journal.reader_marks`); what one of them needs stays, however old or much it is, and that is told.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import orjson

from nearcast.errors import JournalError
from nearcast.journal.identity import keep_identity
from nearcast.journal.reader_marks import ARCHIVE, KEPT_NOTE, ReaderMark, reader_marks
from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import base_position
from nearcast.model.limits import Retention, RetentionBound
from nearcast.pipeline.base_snapshots import store_base
from nearcast.pipeline.monitoring import PipelineMetrics
from nearcast.pipeline.snapshots import named, newest_position
from nearcast.runtime.error_log import RateLimitedErrorLog
from nearcast.runtime.passed_time import PassedTime

log = logging.getLogger("nearcast.pipeline")

SHORTEST, LONGEST = 0.5, 60.0
"""Seconds between two looks: a fiftieth of the shortest age, within these."""

SHARE = 0.02
"""Of the positions that are kept so many go together: a snapshot is written for them."""

PAIRS = 200
"""Pairs of positions that are remembered of each server."""

TIMES = {"events": "accepted", "outcomes": "settled", "dead letters": "time"}
"""The column of a log's rows by which their age counts."""

WITH_EVENTS = ("derived", "source filters")
"""Logs whose rows go with the events of their positions."""


class Cut(NamedTuple):
    """Up to which position rows of a log may go, and which reader holds what else should: empty for none."""

    through: int
    held_by: str = ""


class KeptLog(NamedTuple):
    """What is kept of a log: its first position and when that row is of, the last position, bytes, who holds it."""

    first: int
    time: datetime | None
    last: int
    size: int
    held_by: str


@dataclass
class JournalRetention:
    """Keeps one journal within the bounds of its settings. `wanted`: a snapshot at position or later is awaited.

    `passed` tells ages: what lasts a day lasts a day, also where the machine's clock is set forward by one meanwhile.
    """

    journal: Journal
    folder: Path
    passed: PassedTime = field(default_factory=PassedTime)
    wanted: int = 0
    _pairs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _held: dict[str, str] = field(default_factory=dict)

    def look(self, retention: Retention) -> dict[str, KeptLog]:
        """Lets go of what may go, and tells what is kept then, by log. Raises `JournalError`."""
        # An archive is waited for where it is configured, and not where one was written once.
        marks = [mark for mark in reader_marks(self.journal) if mark.reader != ARCHIVE or retention.archive]
        if retention.archive and all(mark.reader != ARCHIVE for mark in marks):
            # It is awaited from the beginning on.
            marks.append(ReaderMark(ARCHIVE, {"events": 0, "deliveries": 0, "outcomes": 0}))
        self._remember(marks)
        cuts = {"events": self._events(retention, marks)} if retention else {}
        if retention:
            cuts["deliveries"] = self._deliveries(retention, marks)
            cuts["outcomes"] = self._outcomes(retention, marks)
            cuts["dead letters"] = Cut(self._bounded("dead letters", retention.dead_letters))
        for name, cut in cuts.items():
            self._tell(name, cut)
            if name != "events" and cut.through > self.journal.trimmed(name):
                self.journal.trim_through(name, cut.through)
        found = self._kept(cuts)
        self._note(found)
        return found

    def _events(self, retention: Retention, marks: list[ReaderMark]) -> Cut:
        wanted = self._bounded("events", retention.events)
        decided = self.journal.end("deliveries")
        cut = _held(min(wanted, decided), marks, ("events", "deliveries"))
        gone, end = self.journal.trimmed("events"), self.journal.end("events")
        if cut.through - gone >= max(1, SHARE * (end - gone)):
            self._let_events_go(cut.through)
        return cut

    def _let_events_go(self, through: int) -> None:
        base = base_position(self.journal)
        # One is written before the deliveries of its last batch are: who starts anew knows no more than these say.
        newest = newest_position(self.folder, self.journal.end("deliveries"))
        if base < through:
            # What is newer is the same to all others, and mostly there.
            self.wanted = through
            if newest > base:
                keep_identity(self.journal)
                try:
                    store_base(self.journal, named(self.folder, newest))
                    base = newest
                except (OSError, ValueError, LookupError, TypeError) as error:
                    # The folder's oldest may go meanwhile; a damaged one is left out with the next start.
                    log.warning("snapshot not put into the journal position=%d error=%r", newest, error)
        through = min(through, base)
        if through > self.journal.trimmed("events"):
            for name in ("events", *WITH_EVENTS):
                self.journal.trim_through(name, through)

    def _deliveries(self, retention: Retention, marks: list[ReaderMark]) -> Cut:
        gone = self.journal.trimmed("events")
        wanted = max(self._bounded("deliveries", retention.deliveries), gone)
        return _held(min(wanted, self.journal.end("deliveries")), marks, ("deliveries",))

    def _outcomes(self, retention: Retention, marks: list[ReaderMark]) -> Cut:
        """Those of deliveries that went: outcomes of others come after the mark of their server."""
        gone, bound = self.journal.trimmed("deliveries"), retention.outcomes
        through = min((_outcomes_before(pairs, gone) for pairs in self._pairs.values()), default=0)
        if bound:
            through = min(through, self._bounded("outcomes", bound))
        return _held(through, [mark for mark in marks if mark.reader == ARCHIVE], ("outcomes",))

    def _remember(self, marks: Iterable[ReaderMark]) -> None:
        """Takes in how far servers are: pairs of positions, of deliveries and of outcomes, that belong together."""
        for reader, positions in marks:
            if "outcomes" not in positions or reader == ARCHIVE:
                continue
            pairs = self._pairs.setdefault(reader, [])
            pair = positions["deliveries"], positions["outcomes"]
            if not pairs or pair > pairs[-1]:
                pairs.append(pair)
            if len(pairs) > PAIRS:
                pairs[:] = pairs[::2]
        there = {mark.reader for mark in marks}
        self._pairs = {reader: pairs for reader, pairs in self._pairs.items() if reader in there}

    def _bounded(self, name: str, bound: RetentionBound) -> int:
        """Up to which position a log's rows are beyond a bound."""
        through = 0
        if bound.age is not None:
            times = "events" if name == "deliveries" else name
            through = position_before(self.journal, times, self.passed.stamped(bound.age))
        if bound.size is not None:
            through = max(through, self._beyond_size(name, bound.size))
        return through

    def _beyond_size(self, name: str, size: int) -> int:
        """Up to which position rows have to go for a log to take so many bytes, as if each took the same."""
        stored = self.journal.stored_bytes()
        taken = stored[name] + (stored["derived"] if name == "events" else 0)
        if taken <= size:
            return 0
        gone, end = self.journal.trimmed(name), self.journal.end(name)
        beyond = gone + int((end - gone) * (taken - size) / taken)
        # What was written together goes together, even if that is more.
        return max(beyond, self.journal.end_within_bytes(name, gone, end - gone, 1)) if end > gone else 0

    def _kept(self, cuts: dict[str, Cut]) -> dict[str, KeptLog]:
        stored, found = self.journal.stored_bytes(), {}
        stored["events"] += stored["derived"] + stored["source filters"] + stored["snapshots"]
        for name in ("events", "deliveries", "outcomes", "dead letters"):
            gone, end = self.journal.trimmed(name), self.journal.end(name)
            first = gone + 1 if gone < end else 0
            moment = time_at(self.journal, name, first) if first else None
            found[name] = KeptLog(first, moment, end, stored[name], cuts[name].held_by if name in cuts else "")
        return found

    def _note(self, found: dict[str, KeptLog]) -> None:
        text = orjson.dumps({name: one._asdict() for name, one in found.items()}).decode()
        if text != self.journal.notes.read(KEPT_NOTE):
            self.journal.notes.write(KEPT_NOTE, text)

    def _tell(self, name: str, cut: Cut) -> None:
        """Says once who holds what else would go."""
        if cut.held_by != self._held.get(name, ""):
            self._held[name] = cut.held_by
            if cut.held_by:
                said = "retention of %s waits for the reader %s, which needs what comes after position %d"
                log.warning(said, name, cut.held_by, cut.through)


def _held(wanted: int, marks: Iterable[ReaderMark], names: tuple[str, ...]) -> Cut:
    """As far as no reader needs what would go."""
    cut = Cut(wanted)
    for reader, positions in marks:
        for name in names:
            if positions.get(name, cut.through) < cut.through:
                cut = Cut(positions[name], reader)
    return cut


def _outcomes_before(pairs: list[tuple[int, int]], deliveries: int) -> int:
    """The outcomes that are of deliveries up to a position for sure."""
    found = bisect_right(pairs, (deliveries, 1 << 62))
    return pairs[found - 1][1] if found else 0


def position_before(journal: Journal, name: str, moment: float) -> int:
    """The last position of a log of which the row, and about all before it, is older than a moment; 0 for none."""
    low, high = journal.trimmed(name), journal.end(name)
    gone, until = low, datetime.fromtimestamp(moment, UTC)
    while low < high:
        middle = (low + high + 1) // 2
        found = time_at(journal, name, middle)
        if found is not None and found < until:
            low = middle
        else:
            high = middle - 1
    return low if low > gone else 0


def time_at(journal: Journal, name: str, position: int) -> datetime | None:
    """When the row at a position of a log is of; of deliveries their event's. None where nobody knows."""
    source = "events" if name == "deliveries" else name
    rows = journal.read(source, position - 1, 1)
    found: datetime | None = rows.column(TIMES[source])[0].as_py() if len(rows) else None
    return found


def pause_of(retention: Retention) -> float:
    """Seconds until the next look."""
    bounds = (retention.events, retention.deliveries, retention.outcomes, retention.dead_letters)
    ages = [bound.age for bound in bounds if bound.age is not None]
    return max(SHORTEST, min([LONGEST, *(age / 50 for age in ages)]))


class RetentionThread:
    """Looks again and again, in a thread of its own, until it is stopped."""

    def __init__(self, keeper: JournalRetention, retention: Callable[[], Retention], metrics: PipelineMetrics) -> None:
        self._keeper, self._retention, self._metrics = keeper, retention, metrics
        self._stopped, self._error_log = threading.Event(), RateLimitedErrorLog("journal")
        self._thread = threading.Thread(target=self._run, name="nearcast-retention", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it, when what it is about is done."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(pause_of(self._retention())):
            try:
                self._report(self._keeper.look(self._retention()))
                self._error_log.works("retention")
            except JournalError as error:
                self._error_log.failed("retention", error)
            except Exception:
                log.exception("retention not looked at")

    def _report(self, found: dict[str, KeptLog]) -> None:
        for name, one in found.items():
            self._metrics.kept_positions.labels(name).set(one.last - one.first + 1 if one.first else 0)
            self._metrics.kept_bytes.labels(name).set(one.size)
            self._metrics.kept_since.labels(name).set(one.time.timestamp() if one.time else 0)
            self._metrics.kept_held.labels(name).set(bool(one.held_by))
