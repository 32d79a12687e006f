"""A trouble that goes on, such as a full disk: one line when it begins, one when it is over, few in between."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

AGAIN_SECONDS = 60.0
"""Between two lines of one trouble."""


class RateLimitedErrorLog:
    """What several parts of a process run into together; it is over when all of them work again. Any thread may tell.

    `now` gives seconds.
    """

    def __init__(self, what: str, now: Callable[[], float] = time.monotonic) -> None:
        self._what, self._now = what, now
        self._lock = threading.Lock()
        self._parts: set[str] = set()
        self._since = self._told = 0.0
        self._count = 0

    def failed(self, part: str, error: BaseException) -> None:
        """A part failed once more."""
        now = self._now()
        with self._lock:
            first = not self._parts
            if first:
                self._since, self._count = now, 0
            self._parts.add(part)
            self._count += 1
            if first or now - self._told >= AGAIN_SECONDS:
                self._told = now
                state = "fails" if first else "still fails"
                said = str(error) or type(error).__name__
                log.error("%s %s part=%r failures=%d error=%r", self._what, state, part, self._count, said)

    def works(self, part: str) -> None:
        """A part works."""
        # Nearly always: without taking the lock.
        if part not in self._parts:
            return
        with self._lock:
            self._parts.discard(part)
            if not self._parts:
                seconds = self._now() - self._since
                log.warning("%s recovered seconds=%.0f failures=%d", self._what, seconds, self._count)
