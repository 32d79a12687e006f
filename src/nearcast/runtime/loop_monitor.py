"""How long the event loop is held at a stretch, and by what: while it is, the server answers nobody.

A beat runs on the loop every `BEAT_SECONDS`; how late it comes is how long the loop was held. A thread looks on: where
a beat is overdue, it notes what the loop's thread is doing, for afterwards nobody can tell.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

log = logging.getLogger(__name__)

BEAT_SECONDS = 0.02
TELL_SECONDS = 10.0
"""Between two lines in the log: the longest hold since the one before."""

OURS = "nearcast."


class LoopMonitor:
    """Watches the event loop that runs it. A hold of `held_seconds` and more is told in the log, with what was done: as
    a warning where the loop's own thread computed for so long, else for information, as others had the processor.

    `longest` is the longest hold until now, `busiest` the most that the thread computed in one, in seconds. `held`
    hears of every hold that is the longest or long, and whether it is long.
    """

    def __init__(self, held_seconds: float, held: Callable[[float, bool], None] = lambda seconds, long: None) -> None:
        self.held_seconds, self._held = held_seconds, held
        self.longest = self.busiest = 0.0
        self._beat = time.monotonic()
        self._doing = ""
        self._untold: tuple[float, float, str] | None = None
        self._told = -TELL_SECONDS
        self._ended = threading.Event()

    async def run(self) -> None:
        """Watches until it is cancelled."""
        watching = threading.Thread(
            target=self._watch, args=(threading.get_ident(),), name="nearcast-loop-monitor", daemon=True
        )
        self._beat = time.monotonic()
        watching.start()
        try:
            computed = time.thread_time()
            while True:
                await asyncio.sleep(BEAT_SECONDS)
                now, spent = time.monotonic(), time.thread_time()
                self._note(now - self._beat - BEAT_SECONDS, spent - computed, now)
                self._beat, computed = now, spent
        finally:
            self._ended.set()

    def _note(self, held: float, computed: float, now: float) -> None:
        """A beat came so late, and of that so much was this thread's own work."""
        doing, self._doing = self._doing, ""
        self.busiest = max(self.busiest, min(computed, held + BEAT_SECONDS))
        long = held >= self.held_seconds
        if long or held > self.longest:
            self.longest = max(self.longest, held)
            self._held(held, long)
        if long and (self._untold is None or held > self._untold[0]):
            self._untold = held, computed, doing or "not seen"
        if self._untold and now - self._told >= TELL_SECONDS:
            held, computed, doing = self._untold
            level = logging.WARNING if computed >= self.held_seconds else logging.INFO
            log.log(level, "event loop held seconds=%.2f computing=%.2f doing=%s", held, computed, doing)
            self._untold, self._told = None, now

    def _watch(self, thread: int) -> None:
        # It comes in time for every hold that is told: those are seen from half of `held_seconds` on.
        while not self._ended.wait(max(BEAT_SECONDS, self.held_seconds / 4)):
            if time.monotonic() - self._beat >= BEAT_SECONDS + self.held_seconds / 2:
                frame = sys._current_frames().get(thread)
                if frame is not None:
                    self._doing = doing(frame)


def doing(frame: FrameType) -> str:
    """What a thread does, by the innermost functions of this package that are under way, the outer ones first."""
    found: list[str] = []
    at: FrameType | None = frame
    while at is not None and len(found) < 3:
        module = at.f_globals.get("__name__", "")
        if module.startswith(OURS) and module != __name__:
            found.append(f"{module.removeprefix(OURS)}.{at.f_code.co_qualname}:{at.f_lineno}")
        at = at.f_back
    return " > ".join(reversed(found)) or frame.f_code.co_qualname
