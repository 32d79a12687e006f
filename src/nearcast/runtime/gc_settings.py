"""How seldom Python looks for cycles among objects that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

GC_THRESHOLDS = (100_000, 50, 100)
"""For `gc.set_threshold`, where millions of objects are known: looking through all of them as often as Python does by
itself takes a third of the time of inferring situations, and half a second each time a hundred thousand filters do."""


@contextmanager
def imports_for_good() -> Iterator[None]:
    """Looks for no cycles within the block, which imports what stays until the process ends, nor later in what is there
    then. To look through that as it grows, and once more at the end, is a third of what starting the server costs.

    Where something has been set aside before, as for tests, nothing more is: there is garbage by then.
    """
    gc.disable()
    try:
        yield
        if not gc.get_freeze_count():
            gc.freeze()
    finally:
        gc.enable()
