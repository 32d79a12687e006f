"""A wall clock that a test sets while processes run, as somebody sets a machine's; the steady clocks go on.

A library of a few lines, compiled here, stands before the C library in processes that get `environment`: what asks for
the time of day, Java too, gets it shifted by what a file says.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *shift;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SHIFTED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *found = mmap(0, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
        if (found != MAP_FAILED) shift = found;
        close(file);
    }
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, id, at);
    if (!failed && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        long long whole = at->tv_sec * 1000000000LL + at->tv_nsec + *shift;
        at->tv_sec = whole / 1000000000LL;
        at->tv_nsec = whole % 1000000000LL;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


@dataclass
class MachineClock:
    """The clock of the processes that have its `environment`."""

    library: Path
    file: Path
    shifted: float = 0.0

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "LD_PRELOAD": str(self.library), "SHIFTED_CLOCK": str(self.file)}

    def set(self, seconds: float) -> None:
        """Sets it forward by so many seconds, back if they are negative."""
        self.shifted += seconds
        # In place: it is mapped. Eight bytes at once are never seen half.
        with self.file.open("r+b", buffering=0) as file:
            file.write(struct.pack("q", round(self.shifted * 1e9)))


def machine_clock(folder: Path) -> MachineClock:
    """A clock that is right as yet; skips where there is no C compiler to make it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc) to make a wall clock that can be set")
    source, library, file = folder / "clock.c", folder / "clock.so", folder / "shift"
    source.write_text(SOURCE)
    file.write_bytes(struct.pack("q", 0))
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True, capture_output=True)
    return MachineClock(library, file)
