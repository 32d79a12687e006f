"""A supervisor that is killed takes its parts with it, and the data folder is free again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearcast.cli.system import free_port
from tests.processes import killed_at_the_end

pytestmark = pytest.mark.faults

SECONDS = 180.0
"""Generous: Spark starts in 10 s where the machine is free, and in more than a minute where it is not."""


def processes() -> dict[int, int]:
    """The parent of every process that lives; a zombie, which nobody has waited for, does not."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)
    rows = (line.split() for line in listed.stdout.splitlines())
    return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}


def below(ancestor: int) -> set[int]:
    """The processes that a process started, and those that these started."""
    parents, found = processes(), set[int]()
    while more := {pid for pid, parent in parents.items() if parent in found | {ancestor}} - found:
        found |= more
    return found


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, f"expected {what} within {SECONDS:.0f} s"
        time.sleep(0.2)


@contextmanager
def up(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`nearcast up` on a data folder, once it has said that it is ready; stopped at the end, if it still runs."""
    said = data.with_suffix(".said")
    ports = ["--port", str(free_port()), "--metrics-port", str(free_port())]
    command = [sys.executable, "-m", "nearcast", "up", "--data", str(data), "--master", "local[1]", *ports]
    with said.open("wb") as output, subprocess.Popen(command, stderr=output, start_new_session=True) as process:
        try:
            until(lambda: process.poll() is not None or b"ready: " in said.read_bytes(), "the line that says `ready`")
            assert process.poll() is None, said.read_text()
            yield process
        finally:
            process.terminate()
            # Parts that a supervisor leaves behind end themselves.
            with killed_at_the_end(process):
                process.wait()


def test_the_parts_of_a_supervisor_that_was_killed_end_and_another_can_start(tmp_path: Path) -> None:
    """Server, pipeline and its Java are gone without anybody's help; then the same folder is taken again."""
    with up(tmp_path / "data") as first:
        parts = below(first.pid)
        assert 3 <= len(parts)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        until(lambda: not parts & processes().keys(), "an end of the parts")
    with up(tmp_path / "data") as second:
        assert 3 <= len(below(second.pid))
