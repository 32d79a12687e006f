"""How long the command takes to do little: its processor time on a small file, and the modules that cost most of it.

Beside an interpreter that does nothing, and one that loads click alone. Processor time of the whole process, user and
system, the least of several runs; bytecode is kept in a folder of its own, as where nearcast is installed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import machine

DEFINITIONS = """\
channels: {roads: {coordinates: geographic}}
clients: [{id: van, position: {lon: 11.57, lat: 48.14}}]
subscriptions:
  - {id: near, client: van, filter: "distance(user('van'), this) <= 10000 AND type = 'closure'"}
"""
EVENT = '{"specversion": "1.0", "id": "e", "type": "closure", "source": "s", "data": {"lon": 11.6, "lat": 48.1}}\n'

COMMANDS: dict[str, tuple[str, ...]] = {
    "python -c pass": ("-c", "pass"),
    'python -c "import click"': ("-c", "import click"),
    "nearcast --help": ("-m", "nearcast", "--help"),
    "nearcast check": ("-m", "nearcast", "check", "d.yaml", "e.jsonl"),
    "nearcast match": ("-m", "nearcast", "match", "type = 'closure'", "e.jsonl"),
    "nearcast compare": ("-m", "nearcast", "compare", "a >= 10 AND b = 'x'", "a > 5"),
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modules", type=int, default=3, help="how many are shown of each command")
    options = parser.parse_args()
    print(machine(), end="\n\n")
    with TemporaryDirectory() as folder:
        Path(folder, "d.yaml").write_text(DEFINITIONS)
        Path(folder, "e.jsonl").write_text(EVENT)
        for name, arguments in COMMANDS.items():
            # The first run writes the bytecode.
            least = min([_seconds(arguments, folder) for _ in range(options.rounds + 1)][1:])
            print(f"{name:26}{least:6.3f} s")
            for module, share in _dearest(arguments, folder)[: options.modules]:
                print(f"  {share:4.0%}  {module}")


def _environment(folder: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join(one for one in sys.path if one)
    return {**kept, "PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode")), "PYTHONPATH": path}


def _seconds(arguments: Sequence[str], folder: str) -> float:
    """The processor time of one run."""
    # Raises where the command fails: that would be quick.
    running = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=_environment(folder), stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise RuntimeError(f"expected {' '.join(arguments)} to succeed, got exit code {running.returncode}")
    return used.ru_utime + used.ru_stime


def _dearest(arguments: Sequence[str], folder: str) -> list[tuple[str, float]]:
    """The libraries, and of nearcast the modules, with the shares that loading themselves has in all loading."""
    command = [sys.executable, "-X", "importtime", *arguments]
    told = subprocess.run(command, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=True)
    costs: defaultdict[str, int] = defaultdict(int)
    for micros, name in re.findall(r"^import time: +(\d+) \|.*\| +(\S+)$", told.stderr, re.MULTILINE):
        costs[name if name.startswith("nearcast.") else name.split(".")[0]] += int(micros)
    whole = sum(costs.values())
    return sorted(((name, cost / whole) for name, cost in costs.items()), key=lambda one: -one[1])


if __name__ == "__main__":
    main()
