"""Experiments run as a user runs them, on a terminal of 80 columns."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.docs.pages import ROOT


def experiment(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m experiments` with these words; fails where it fails, and where a table cuts something off."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "experiments", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert 0 == done.returncode, done.stderr
    assert "…" not in done.stdout
    return done
