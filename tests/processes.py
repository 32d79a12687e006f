"""Processes that tests start end with the test, whatever becomes of it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 300.0


@contextmanager
def killed_at_the_end(*processes: subprocess.Popen[Any], seconds: float = SECONDS) -> Iterator[None]:
    """Kills processes that still run as the block ends, or after so many seconds: who then reads what they say, or
    waits for them, waits no longer. A `with` block of a process itself waits for that without a limit.
    """

    def kill() -> None:
        for one in processes:
            one.kill()

    timer = threading.Timer(seconds, kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        kill()
