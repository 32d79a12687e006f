"""Compiling beside: another process compiles the kernels and keeps them, so that no batch has to wait for it.

A process and no thread, for a compiler that is at work while Python ends may take it down. What it compiled remains
for the next start, too.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np

from nearcast.geo.near_points_grid import neighbours
from nearcast.geo.timed_points import TimedPoints
from nearcast.matching.bitset import MatchedPairs
from nearcast.matching.column_tests import NARROW
from nearcast.matching.engine import NOTHING_NEAR, SAMPLE, CompiledEngine
from nearcast.matching.kernels import numbered
from nearcast.matching.proximity import ProximityIndex
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.filter import And, Atom, Distance, Filter, Not, Operator, Or, This, atoms
from nearcast.runtime.jit_cache import folder
from nearcast.state.timeline import Environment

log = logging.getLogger("nearcast.matcher")

COMPILER = """
import fcntl, os, sys
lock, mark, wide = sys.argv[1:]
os.nice(5)
with open(lock, "wb") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    if not os.path.exists(mark):
        from {module} import compile_all
        compile_all(wide == "wide")
"""
"""What the other process runs. Of all processes of a machine, Spark's workers for example, one compiles and the others
wait for it, with nothing imported yet."""


def start_warmup(wide: bool = False) -> bool:
    """Whether the kernels, for wide codes or narrow ones, are there to be loaded; if not, they are being compiled.

    Where nothing can be kept, another process cannot help: they count as ready, and are compiled when they are called.
    """
    place = folder()
    if place is None or _mark(place, wide).exists():
        return True
    process = _compiler(place, wide)
    if process.poll() is None:
        return False
    if process.returncode:
        log.warning("the kernels could not be compiled beside status=%d", process.returncode)
    return True


def wait_for_warmup(wide: bool = False) -> None:
    """Returns when `ready` has come to say yes."""
    place = folder()
    if place is not None and not start_warmup(wide):
        _compiler(place, wide).wait()


def _mark(place: Path, wide: bool) -> Path:
    """A file that is there once all kernels are kept."""
    return place / ("wide" if wide else "narrow")


@cache
def _compiler(place: Path, wide: bool) -> subprocess.Popen[bytes]:
    """The process that compiles, begun once."""
    log.info("compiling the kernels of the matcher beside: until they are there, filters are matched by rows of bits")
    mark = _mark(place, wide)
    command = [sys.executable, "-c", COMPILER.format(module=__name__), str(place / "compiling"), str(mark), mark.name]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(command, env=surroundings, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def compile_all(wide: bool) -> None:
    """Compiles all kernels by running each, and leaves the mark that they are there."""
    engine = CompiledEngine(_groups(), 0 if wide else NARROW)
    nearby = ProximityIndex(engine.nearby)
    for repeats in (False, True):
        table = to_table(_event(number, repeats) for number in range(SAMPLE))
        batch = engine.encode(table)
        engine.prepare(batch)
        nearby.follow(engine.around)
        pairs = MatchedPairs(
            *engine.pairs(batch, engine.no_rows(batch), nearby.near(table, Environment()) or NOTHING_NEAR)
        )
        numbered([(pairs, np.arange(len(_groups()), dtype=np.int32))])
    one = TimedPoints(np.zeros((1, 3)), np.zeros(1, np.int64), np.ones(1, np.int64))
    list(neighbours(one, np.ones(1), np.ones(1), one))
    place = folder()
    if place is not None:
        _mark(place, wide).touch()


def _groups() -> list[tuple[Filter, tuple[int, ...]]]:
    """Filters of all kinds: straight tests and trees, sets, opaque atoms, with and without a cover."""
    equal, below = Atom("a", Operator.EQ, 1), Atom("b", Operator.LT, 2)
    among, like = Atom("c", Operator.IN, ("x", "y")), Atom("c", Operator.LIKE, "x%")
    near = Atom(Distance(Place("geographic", 0.0, 0.0), This()), Operator.LE, 1.0)
    found: list[Filter] = [
        And((equal, below)),
        And((equal, Or((below, Not(among))))),
        Or((like, among)),
        Not(equal),
        near,
        Atom("d", Operator.EQ, True),
        Atom("type", Operator.EQ, "t"),
    ]
    return [(filter, (0,) * sum(1 for _ in atoms(filter))) for filter in found]


def _event(number: int, repeats: bool) -> Event:
    again = (("a", 2), ("c", "y")) * repeats
    given = (("a", number % 3), ("a", 0.5) if number % 5 == 0 else ("b", 1), ("c", "x"), ("d", True), *again)
    place = Place("geographic", number / 60, 0.0)
    return Event(id=str(number), type="t", source="s", place=place, attributes=given, position=number + 1)
