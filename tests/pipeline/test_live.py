"""The pipeline as a process: it goes on where it was, after a renewal of its query and after being killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from nearcast.journal.sqlite import SqliteJournal
from tests.pipeline.histories import documents, live_rows, until_decided, with_roles, written

pytestmark = [pytest.mark.spark, pytest.mark.faults]

PIPELINE = """
import logging, sys
from pathlib import Path
from nearcast.pipeline.live import PipelineConfig, run

logging.basicConfig(level="INFO", format="%(message)s")
run(PipelineConfig(Path(sys.argv[1]), Path(sys.argv[2]), "local[2]", renewed_after=int(sys.argv[3])))
"""


@contextmanager
def pipeline(journal: str, folder: Path, renewed_after: int) -> Iterator[subprocess.Popen[str]]:
    """A pipeline that is killed, if it still runs, when the test is over."""
    command = [sys.executable, "-c", PIPELINE, journal, str(folder), str(renewed_after)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_renewed_queries_and_a_killed_pipeline_leave_nothing_out(tmp_path: Path) -> None:
    """Every delivery once, in order; a pipeline that is asked to end does so, and says how often it was ready."""
    with closing(written(tmp_path, with_roles(), documents(100))) as whole, closing(growing(tmp_path)) as journal:
        end = whole.end("events")
        with pipeline(journal.path, tmp_path / "state", 1_000) as process:
            append(journal, whole, 0, 60)
            until_decided(journal, 40)
            process.kill()
        with pipeline(journal.path, tmp_path / "state", 3) as process:
            for after in range(60, end, 5):
                append(journal, whole, after, min(5, end - after))
                until_decided(journal, journal.end("events"))
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=120)
        assert 0 == process.returncode
        assert said.count("ready position=") >= 2
        assert live_rows(whole) == journal.read("deliveries", 0, 100_000).to_pylist()


def growing(folder: Path) -> SqliteJournal:
    """An empty journal."""
    return SqliteJournal(folder / "growing.journal")


def append(journal: SqliteJournal, whole: SqliteJournal, after: int, count: int) -> None:
    """Appends the next events of another journal."""
    journal.append("events", whole.read("events", after, count))
