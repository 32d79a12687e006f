"""The machine that a figure was measured on: a figure without it says nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from textwrap import fill

import numpy
import pyarrow
import pyspark


def machine() -> str:
    """Processor, cores, memory, versions, and how loaded it is at this moment, in lines of a terminal's usual width."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = f"Python {platform.python_version()}, PySpark {pyspark.__version__}, Arrow {pyarrow.__version__}"
    loads = " ".join(f"{load:.1f}" for load in os.getloadavg())
    return fill(
        f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {versions}, NumPy {numpy.__version__}, "
        f"load of 1, 5 and 15 minutes {loads}",
        80,
    )
