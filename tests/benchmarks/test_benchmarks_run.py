"""Every benchmark runs, small: a figure that nobody can measure again is none."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nearcast
from tests.shared import shared

ROOT = Path(__file__).parents[2]

HELPERS = {"untuned"}
"""Modules with a `main` of their own that others start."""

HERE = {
    "batches": "--filters 100 --sizes 1 10 --batches 5 --areas 5",
    "changing": "--subscriptions 300 --replaced 20 --events 500 --rounds 1",
    "leases": "--subjects 4 --rounds 3 --publishers 2 --pause 0.02",
    "nearby": "--receivers 500 --batch 64",
    "routing": "--subscriptions 200",
    "situations": "--rules 20 --counts 4 --sensors 100 --rate 100 --seconds 2 --no-spark",
    "suppression": "--subjects 20 --rounds 5 --subscriptions 100",
    "zones": "--zones 50 --entities 40 --seconds 2 --batch 30 --replayed 60",
}
"""Those that do all in one process, which is the one of the tests: a new one takes seconds only to start."""
QUICK = {
    "journal_retention": "0.2 4 50",
    "journals": "--calls 3",
    "matching": "--filters 100 --events 500 --batch 64 --work W1 --no-clips",
    "posts": "--events 4 --rounds 1",
    "startup": "--rounds 1",
}
IN_SESSION = {
    "carried": "--events 2000 --filters 50 --rounds 1",
    "cluster": "--events 500 --filters 20 --expressions 5 --rounds 1 --executors 1",
    "dataframes": "--filters 20 --events 400 --rounds 1",
    "relations": "--entities 50 --pairs 20 --seconds 2 --ais nowhere",
    "replay": "--filters 20 --events 500 --rounds 1",
}
"""Those that ask for a Spark session, which is that of the tests: `test_benchmarks_in_session.py`."""
ON_SPARK = {
    "cluster standalone": "--standalone --events 500 --filters 20 --expressions 5 --rounds 1 --executors 1",
    "hostile": "--seconds 1 --rounds 1 --warm 1 --rate 20 --subscriptions 10 --clients 2 --only squares",
    "idle": "--seconds 3 --settle 2 --clients 2",
    "live": "--seconds 2 --warm 0.5 --rate 20 --subscriptions 10 --clients 2 --nats 1 --servers 2",
    "memory": "--minutes 0.08 --every 0.5 --rate 20 --subscriptions 10 --clients 2",
    "zones live": "--live --zones 50 --entities 40 --rate 200 --warm 1 --flow 2 --publishers 1",
}
"""A word behind the name tells a mode of it from others."""
WIDTH = 80
"""Columns that a terminal has, into which tables fit."""


def test_every_benchmark_is_run() -> None:
    """Whatever has a command line is in one of the lists above."""
    found = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if '"__main__"' in path.read_text()}
    assert found - HELPERS == {name.partition(" ")[0] for name in HERE | QUICK | IN_SESSION | ON_SPARK}


@pytest.mark.parametrize("name", HERE)
def test_a_benchmark_runs_here(name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """In seconds, with small numbers."""
    check_here(name, HERE[name], monkeypatch, capfd)


@pytest.mark.parametrize("name", QUICK)
def test_a_benchmark_runs(name: str) -> None:
    """The same for those that start other processes, or measure their own."""
    if name == "matching":
        shared("tools/matching_workload.py")
    check(name, QUICK[name])


@pytest.mark.spark
@pytest.mark.parametrize("name", ON_SPARK)
def test_a_benchmark_on_spark_runs(name: str) -> None:
    """The same for those that start a Spark of their own."""
    check(name.partition(" ")[0], ON_SPARK[name])


def check_here(name: str, options: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A benchmark does in this process what its command does."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setattr(sys, "argv", [name, *options.split()])
    thresholds = gc.get_threshold()
    try:
        importlib.import_module(f"benchmarks.{name}").main()
    finally:
        gc.set_threshold(*thresholds)
    check_printed(capfd.readouterr().out)


def check(name: str, options: str) -> None:
    """A benchmark, a process of its own, ends well and prints what it should."""
    path = os.pathsep.join([str(Path(nearcast.__file__).parents[1]), str(ROOT)])
    command = [sys.executable, "-m", f"benchmarks.{name}", *options.split()]
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": str(WIDTH)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert 0 == ran.returncode, ran.stderr[-4000:]
    check_printed(ran.stdout)


def check_printed(printed: str) -> None:
    """It tells its machine, and cuts no figure off; its tables fit a terminal."""
    assert "cores (" in printed
    tables = [line for line in printed.splitlines() if "─" in line or "│" in line]
    assert "…" not in printed and all(len(line) <= WIDTH for line in tables)
