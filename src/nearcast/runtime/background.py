"""Work beside: a thread that makes one thing, and giving way to others while something long is made."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock, Thread
from typing import Generic, TypeVar

__all__ = ["BackgroundTask", "Lock", "give_way"]

Made = TypeVar("Made")

log = logging.getLogger("nearcast")


class BackgroundTask(Generic[Made]):
    """Makes something in a thread that ends with the process; `made` is None until then, and where making it failed."""

    def __init__(self, name: str, make: Callable[[], Made]) -> None:
        self.made: Made | None = None
        self._make = make
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it is still being made."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Returns when it is made, or failed."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self.made = self._make()
        except Exception:
            log.exception("background task failed task=%s", self._thread.name)


def give_way() -> None:
    """Lets other threads run: who waits for Python's lock would get it every 5 ms only otherwise."""
    time.sleep(0)
