"""Systems under a simulated time, network and medium are, whatever is done to them, as if nothing had been done."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from nearcast.errors import JournalError
from nearcast.journal.memory import Gap
from nearcast.pipeline import journal_retention
from nearcast.server.action_runner import ActionRunner
from tests.simulation import scenario
from tests.simulation.scenario import run
from tests.simulation.simulated_loop import BEGAN
from tests.simulation.simulated_system import simulated
from tests.system import history

KEPT = [304, 1_003, 1_012]
"""Seeds that found something once."""


def test_a_seed_runs_the_same_again_and_nothing_is_wrong() -> None:
    """What is done in a minute of a disturbed system, and what comes of it, is decided by the seed alone."""
    once = run(13, 60.0)
    assert [] == once.faults
    assert 100 < once.deliveries and 50 < once.derived
    assert once == run(13, 60.0)


def test_threads_of_others_are_no_part_of_it(tmp_path: Path) -> None:
    """They sleep and read clocks as ever while a simulated thread has its turn, and take it from nobody."""
    began, moments = time.monotonic(), list[float]()

    def sleep() -> None:
        for _ in range(5):
            time.sleep(0.001)
        moments.extend((time.monotonic(), time.time()))

    def wait() -> float:
        other.start()
        other.join(60.0)
        time.sleep(1_000.0)
        return time.time()

    other = threading.Thread(target=sleep)
    with simulated(1, tmp_path, []) as system:
        assert BEGAN + 1_000.0 < system.loop.run_until_complete(system.loop.run_in_executor(None, wait))
    assert not other.is_alive()
    assert began < moments[0] and BEGAN + 2_000.0 < moments[1]


@pytest.mark.parametrize("wanted", [True, False])
def test_who_dies_of_what_was_done_is_told_from_who_dies_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    """A pipeline ends where what it has to read is lost, which is to be; where nothing is, that is a fault."""
    with simulated(1, tmp_path, []) as system:
        system.define(history.definitions([]))
        if wanted:
            system.journal.disturb(Gap("events", 1, 1))
        else:
            monkeypatch.setattr(system.journal, "wait", Mock(side_effect=JournalError("it gets lost")))
        system.start_pipeline("pipeline")
        system.loop.run_until_complete(asyncio.sleep(1.0))
        assert {"pipeline: " + ("expected" if wanted else "it gets ")} == {one[:18] for one in system.deaths}
        assert (0 if wanted else len(system.deaths)) == len(system.loop.errors)


@pytest.mark.long
def test_pipelines_that_end_while_events_are_lost_are_no_fault() -> None:
    """They are started again and again, and go on once the event is there again."""
    outcome = run(38, 90.0)
    assert [] == outcome.faults
    assert 10 < sum("died pipeline, as is to be" in one for one in outcome.story) == outcome.deaths


def test_webhooks_are_posted_and_what_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is accepted, or is a dead letter; one that is neither for its letter was not written is told."""
    assert [] == run(6, 20.0).faults
    monkeypatch.setattr(ActionRunner, "_bury", AsyncMock())
    monkeypatch.setattr(scenario, "MOODS", ("refuses",))
    assert any("was neither accepted nor is it a dead letter" in one for one in run(6, 20.0).faults)


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("reader_marks", lambda journal: [], "the mark of server server-2 needs those behind"),
        ("_outcomes_before", lambda pairs, deliveries: pairs[-1][1], "of deliveries that are there from"),
    ],
)
def test_what_goes_though_it_is_needed_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., object], said: str
) -> None:
    """Where retention does not look at the marks of readers, and where it lets outcomes go before their deliveries."""
    assert [] == run(3, 60.0).faults
    monkeypatch.setattr(journal_retention, name, wrong)
    assert any(said in one for one in run(3, 60.0).faults)


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*KEPT, *range(1_000, 1_020)}))
def test_nothing_is_wrong_however_a_system_is_disturbed(seed: int) -> None:
    """Events, decisions, deliveries, their order and their ends are those of an undisturbed system."""
    assert [] == run(seed).faults
