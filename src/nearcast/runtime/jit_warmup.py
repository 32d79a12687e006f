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

from nearcast.runtime.jit_cache import folder

log = logging.getLogger("nearcast.matcher")

COMPILER = """
import fcntl, os, sys
lock, mark, wide = sys.argv[1:]
os.nice(5)
with open(lock, "wb") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    if not os.path.exists(mark):
        from nearcast.matching.engine_matcher import compile_all
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
        log.warning("kernels could not be compiled in the background status=%d", process.returncode)
    return True


def wait_for_warmup(wide: bool = False) -> None:
    """Returns when `start_warmup` has come to say yes."""
    place = folder()
    if place is not None and not start_warmup(wide):
        _compiler(place, wide).wait()


def _mark(place: Path, wide: bool) -> Path:
    """A file that is there once all kernels are kept."""
    return place / ("wide" if wide else "narrow")


@cache
def _compiler(place: Path, wide: bool) -> subprocess.Popen[bytes]:
    """The process that compiles, begun once."""
    log.info("compiling kernels in the background: until they are there, filters are matched by rows of bits")
    mark = _mark(place, wide)
    command = [sys.executable, "-c", COMPILER, str(place / "compiling"), str(mark), mark.name]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(command, env=surroundings, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def mark_compiled(wide: bool) -> None:
    """Says for all processes of the machine that all kernels are kept now."""
    place = folder()
    if place is not None:
        _mark(place, wide).touch()
