"""The pipeline as a process: it goes on where it was, after a renewal of its query and after being killed; and time
passes in it by itself.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes, to_event
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event, Place
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from tests.pipeline.histories import documents, live_rows, until_decided, with_roles, written
from tests.relations.stories import defined

pytestmark = [pytest.mark.spark, pytest.mark.faults]

PIPELINE = """
import logging, sys
from pathlib import Path
from nearcast.pipeline.live import PipelineConfig, run

logging.basicConfig(level="INFO", format="%(message)s")
run(PipelineConfig(Path(sys.argv[1]), Path(sys.argv[2]), "local[2]", renewed_after=int(sys.argv[3]), stay=0.0))
"""


@contextmanager
def pipeline(journal: str, folder: Path, log: Path, renewed_after: int) -> Iterator[subprocess.Popen[bytes]]:
    """A pipeline that is killed, if it still runs, when the test is over; what it said is in `log`, and printed."""
    command = [sys.executable, "-c", PIPELINE, journal, str(folder), str(renewed_after)]
    with log.open("wb") as said, subprocess.Popen(command, stderr=said) as process:
        try:
            yield process
        finally:
            process.kill()
            print(log.read_text())


def test_renewed_queries_and_a_killed_pipeline_leave_nothing_out(tmp_path: Path) -> None:
    """Every delivery once, in order; a pipeline that is asked to end does so, and says how often it was ready.

    What falls due after the last event is told all the same, and once more when the journal is decided again.
    """
    with closing(written(tmp_path, with_roles(), documents(100))) as whole, closing(growing(tmp_path)) as journal:
        end = whole.end("events")
        with pipeline(journal.path, tmp_path / "state", tmp_path / "first.log", 1_000) as process:
            append(journal, whole, 0, 60)
            until_decided(journal, 40)
            process.kill()
        with pipeline(journal.path, tmp_path / "state", tmp_path / "second.log", 3) as process:
            for after in range(60, end, 5):
                append(journal, whole, after, min(5, end - after))
                until_decided(journal, journal.end("events"))
            append_pair(journal)
            until_told(journal, 3)
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(300)
        assert (tmp_path / "second.log").read_text().count("ready position=") >= 2
        rows = journal.read("deliveries", 0, 100_000).to_pylist()
        assert live_rows(whole) == [row for row in rows if row["position"] <= end]
        told = to_events(journal.read("derived", 0, 100_000))
        assert ["enter", "dwell", "exit"] == [next(event.values("detect")) for event in told]
        times = [event.time for event in told]
        assert [times[0] + timedelta(seconds=seconds) for seconds in (0, 1, 3)] == times
        batches = StateFold().fold(journal.read("events", 0, 100_000), changes)
        assert told == to_events(derived_of(pa.concat_tables([batch.events for batch in batches])))
        assert end + 5 == journal.end("events"), "a tick for each of both, and none else"


def growing(folder: Path) -> SqliteJournal:
    """An empty journal."""
    return SqliteJournal(folder / "growing.journal")


def append(journal: SqliteJournal, whole: SqliteJournal, after: int, count: int) -> None:
    """Appends the next events of another journal."""
    journal.append("events", whole.read("events", after, count))


def append_pair(journal: SqliteJournal) -> None:
    """Appends a relation and the last reports of two that are near each other."""
    fields = {"lasting": 1, "time_to_live": 3, "detect": ["enter", "dwell", "exit"]}
    now = datetime.now(UTC)
    reports = [Event(f"cart-{n}", "car", "yard", f"cart-{n}", now, Place("planar", n, 0)) for n in range(2)]
    events = [to_event(defined("near", **fields), "near", "yard"), *reports]
    journal.append("events", to_table([replace(event, accepted=now) for event in events]))


def until_told(journal: SqliteJournal, count: int) -> None:
    """Waits until so many events are derived."""
    end = time.monotonic() + 180
    while len(journal.read("derived", 0, 100_000)) < count:
        assert time.monotonic() < end, "what is due was not told"
        time.sleep(0.05)
