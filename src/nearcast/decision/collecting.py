"""Python's collector of cyclic garbage, kept from what would only cost it time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection meanwhile: who makes many values that all stay would have all of them looked at again and again."""
    there = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Of two threads that do this at once the first to end lets the collector on: that costs time only.
        if there:
            gc.enable()
