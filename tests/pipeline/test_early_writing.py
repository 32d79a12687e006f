"""What follows from a crowd is decided in pieces, and written piece by piece: others do not wait for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest

from nearcast.cli.system import define
from nearcast.errors import JournalError
from nearcast.journal.memory import Abort, MemoryJournal
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event, Place
from nearcast.pipeline import live
from nearcast.pipeline.live import BatchDecider, PipelineConfig
from nearcast.pipeline.monitoring import PipelineMetrics
from nearcast.stages import fold
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of

DEFINITIONS = """\
channels: {yard: {types: [device], coordinates: planar}}
clients: [{id: ann}]
relations: [{id: near, a: "type = 'device'", b: "type = 'device'", when: "distance(a, b) <= 10"}]
subscriptions: [{id: all, client: ann, filter: "type = 'device' OR type = 'nearcast.relation'"}]
"""

DEVICES = 20
"""All at one place: the n-th is near n − 1 others as it comes, 190 pairs in all."""

MANY = 30
"""Pairs that are decided together, and written before more is decided; more than the last device is in."""


@pytest.fixture(autouse=True)
def few_at_once() -> Iterator[None]:
    """So many derived events are many."""
    with patch.object(fold, "DERIVED", MANY), patch.object(live, "MANY", MANY // 2):
        yield


def crowd(folder: Path, count: int = DEVICES) -> MemoryJournal:
    """A journal in which devices come to one place, in one request."""
    (folder / "definitions.yaml").write_text(DEFINITIONS)
    journal, now = MemoryJournal(), datetime(2026, 1, 1, tzinfo=UTC)
    define(journal, files.load([folder / "definitions.yaml"]))
    BatchDecider(None, journal, PipelineConfig("memory", folder / "state"), PipelineMetrics())()
    devices = [Event(f"d{n}", "device", f"s{n}", place=Place("planar", 0, 0), accepted=now) for n in range(count)]
    journal.append("events", to_table(devices))
    return journal


def decided(journal: MemoryJournal, folder: Path) -> None:
    """Lets a pipeline decide all that is there."""
    decider = BatchDecider(None, journal, PipelineConfig("memory", folder), PipelineMetrics())
    while decider():
        pass


def check_whole(journal: MemoryJournal) -> None:
    """Nothing is left out, and nothing is there twice, as history decides it."""
    batches = list(StateFold().fold(journal.read("events", 0, 1_000), changes))
    told = [one for batch in batches for one in to_events(derived_of(batch.events))]
    assert told == to_events(journal.read("derived", 0, 1_000))
    deliveries = [row for batch in batches for row in decide(batch, batch.events).to_pylist()]
    assert deliveries == journal.read("deliveries", 0, 1_000).to_pylist()


def test_a_crowd_is_written_in_pieces(tmp_path: Path) -> None:
    """After each piece the deliveries of its events are there: those who came before the rest do not wait for it."""
    journal, ends = crowd(tmp_path), list[int]()
    own = journal.commit_range
    with patch.object(journal, "commit_range", lambda log, *more: (ends.append(more[-1]), own(log, *more))):
        decided(journal, tmp_path / "state")
    assert sorted(ends) == ends and len(set(ends)) > DEVICES * DEVICES / 2 / MANY - 1
    assert journal.end("events") == journal.end("deliveries") == ends[-1]
    check_whole(journal)


def test_what_others_send_is_written_once(tmp_path: Path) -> None:
    """Of few events nothing is written early."""
    journal, logs = crowd(tmp_path, 5), list[str]()
    own = journal.commit_range
    with patch.object(journal, "commit_range", lambda log, *more: (logs.append(log), own(log, *more))):
        decided(journal, tmp_path / "state")
    assert ["derived", "deliveries"] == logs
    check_whole(journal)


@pytest.mark.parametrize("kept", [False, True])
def test_a_pipeline_that_dies_between_two_pieces_goes_on_behind_the_first(tmp_path: Path, kept: bool) -> None:
    """Nothing is lost, nothing comes twice, wherever it dies: in what is written early, or behind it."""
    for step in range(2, DEVICES, 3):
        (folder := tmp_path / str(step)).mkdir()
        journal = crowd(folder)
        journal.disturb(Abort("deliveries", journal.end("events") - DEVICES + step, "commit_range", kept))
        with pytest.raises(JournalError):
            decided(journal, folder / "state")
        decided(journal, folder / "state")
        check_whole(journal)


def test_control_events_are_written_whole(tmp_path: Path) -> None:
    """Among them nothing is written early: what stages refuse of them is told before it."""
    journal, logs = crowd(tmp_path), list[str]()
    (tmp_path / "more.yaml").write_text("clients: [{id: ben}]\n")
    define(journal, files.load([tmp_path / "more.yaml"]))
    own = journal.commit_range
    with patch.object(journal, "commit_range", lambda log, *more: (logs.append(log), own(log, *more))):
        decided(journal, tmp_path / "state")
    assert 1 == logs.count("deliveries") and logs.count("derived") > 3
    check_whole(journal)
