"""Since when nobody answers for a journal, and for how long nobody did in all."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from nearcast.journal.outage import JournalOutage
from nearcast.runtime.error_log import AGAIN_SECONDS

log = logging.getLogger(__name__)


class AnswerWatch:
    """Is told of each try that had no answer and of each that had; says so once, now and then, and when it is over.

    Any thread may tell. `now` gives seconds.
    """

    def __init__(self, what: str, now: Callable[[], float] = time.monotonic) -> None:
        self._what, self._now = what, now
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told = self._total = self._worked = 0.0
        self._outages = 0
        self._parts: set[str] = set()

    @property
    def outage(self) -> JournalOutage:
        """How it is now."""
        with self._lock:
            seconds = 0.0 if self._since is None else self._now() - self._since
            return JournalOutage(seconds, self._total + seconds, self._outages)

    def begin(self) -> float:
        """When something is asked."""
        return self._now()

    def failed(self, part: str, error: BaseException, began: float) -> None:
        """Nobody answered what was asked then, or who did cannot just now; of one kind of what is asked."""
        with self._lock:
            now = self._now()
            # What was lost when it failed may be found out when it works again.
            if began < self._worked:
                return
            self._parts.add(part)
            if self._since is None:
                self._since, self._outages, self._told = began, self._outages + 1, now
                log.warning(
                    "journal unavailable at=%s part=%s error=%r; it is tried again", self._what, part, str(error)
                )
            elif now - self._told >= AGAIN_SECONDS:
                self._told = now
                seconds = now - self._since
                log.error("journal unavailable at=%s seconds=%.0f error=%r", self._what, seconds, str(error))

    def works(self, part: str) -> None:
        """Somebody answered; it is over when each kind that failed had an answer."""
        # Nearly always: without taking the lock.
        if part not in self._parts:
            return
        with self._lock:
            self._parts.discard(part)
            if self._since is not None and not self._parts:
                self._worked = self._now()
                seconds = self._worked - self._since
                self._since, self._total = None, self._total + seconds
                log.warning("journal available again at=%s seconds=%.1f", self._what, seconds)
