"""A real day of ships through `replay`: receivers among them that move, each wanting one type of vessel near itself."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from nearcast.importers import ais
from nearcast.importers.event_documents import merged, write
from nearcast.journal.memory import MemoryJournal
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions import files
from nearcast.language.event_files import read_tables
from nearcast.model.columns import to_table
from nearcast.stages import decide
from nearcast.stages.fold import StateFold
from tests.shared import shared

pytestmark = pytest.mark.data

REPORTS, MOVES = 99_999, 5_000
FEW, SOME = 30_000, 41_000
"""Events of the day's first minutes: all receivers have moved once in each."""
BEGIN = 26_000
"""The position, definitions counted, after which receivers move for the first time."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reports by time, merged with the movements of 1,000 receivers, and their definitions."""
    source = shared("data/ais_us_20220103/AISdata.csv.gz")
    folder = tmp_path_factory.mktemp("ais")
    defined, movements = ais.receivers(source)
    (folder / "ais.yaml").write_text(yaml.safe_dump(defined, sort_keys=False))
    assert REPORTS + MOVES == write(folder / "ais.jsonl", merged(movements, ais.events(source, order="time")))
    return folder


def first(folder: Path, count: int) -> Path:
    """A file of so many of the day's events."""
    path = folder / f"first-{count}.jsonl"
    with (folder / "ais.jsonl").open() as lines:
        path.write_text("".join(islice(lines, count)))
    return path


def replayed(folder: Path, events: Path, *options: str) -> tuple[int, str]:
    """What `nearcast replay` writes: how many lines, and their digest."""
    out = folder / "out"
    command = [sys.executable, "-m", "nearcast", "replay", "--out", str(out), *options]
    command += ["--definitions", str(folder / "ais.yaml"), "--events", str(events)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert 0 == done.returncode, done.stderr
    written = out.read_bytes()
    return written.count(b"\n"), hashlib.sha256(written).hexdigest()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("count", "reports"), [(FEW, FEW - 1_000), pytest.param(REPORTS + MOVES, REPORTS, marks=pytest.mark.long)]
)
def test_one_process_local_spark_and_a_cluster_decide_the_same(folder: Path, count: int, reports: int) -> None:
    """Byte for byte, more than a delivery for each report."""
    events = first(folder, count)
    plain = replayed(folder, events, "--engine", "local")
    assert plain[0] > reports
    assert plain == replayed(folder, events, "--engine", "spark", "--master", "local[2]")
    assert plain == replayed(folder, events, "--engine", "spark", "--master", "local-cluster[2,1,1024]")


@pytest.fixture(scope="module")
def journal(folder: Path) -> MemoryJournal:
    """The definitions as control events, and some of the day's events behind them."""
    journal = MemoryJournal()
    found = files.load([folder / "ais.yaml"])
    control = (to_event(change, str(number), "test") for number, change in enumerate(found.changes()))
    journal.append("events", to_table(control))
    for table in read_tables([first(folder, SOME)], found.settings.channels, pytest.fail):
        journal.append("events", table)
    return journal


@pytest.mark.parametrize(("size", "count"), [(1, 1_500), (7, 3_000), pytest.param(7, 15_000, marks=pytest.mark.long)])
def test_batches_of_one_and_of_seven_decide_as_one_batch(journal: MemoryJournal, size: int, count: int) -> None:
    """Over a part of the day in which receivers move."""
    kinds = journal.read("events", BEGIN, count).column("type").to_pylist()
    assert 500 < kinds.count("nearcast.client")
    assert decided(journal, count, count) == decided(journal, count, size)


def decided(journal: MemoryJournal, count: int, size: int) -> pa.Table:
    """The deliveries of `count` positions from `BEGIN` on, in batches of so many."""
    known = StateFold()
    list(known.fold(journal.read("events", 0, BEGIN), changes))
    tables = (journal.read("events", BEGIN + after, min(size, count - after)) for after in range(0, count, size))
    return pa.concat_tables([deliveries for _, deliveries in decide.replay(known, tables, changes)])
