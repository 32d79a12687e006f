"""Experiments run as a user runs them, on a terminal of 80 columns."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from experiments.__main__ import command
from nearcast.cli.main import main
from tests.docs.pages import ROOT

PROGRAM = "python -m experiments"


def experiment(*words: str) -> subprocess.CompletedProcess[str]:
    """What the command does with these words, in this process: a new one takes seconds only to start.

    Fails where the command fails, and where a table cuts something off.
    """
    said, complained = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(complained):
        patch.setenv("COLUMNS", "80")
        patch.setattr(sys, "argv", ["experiments", *words])
        with pytest.raises(SystemExit) as ended:
            main(command, PROGRAM)
    texts = [stream.buffer.getvalue().decode() for stream in (said, complained)]
    return _whole(subprocess.CompletedProcess(words, ended.value.code or 0, *texts))


def experiment_of_its_own(*words: str) -> subprocess.CompletedProcess[str]:
    """The same as a process of its own."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "experiments", *words]
    return _whole(subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300))


def _whole(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert 0 == done.returncode, done.stderr
    assert "…" not in done.stdout
    return done
