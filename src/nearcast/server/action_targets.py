"""Where actions go, each target by itself: one that does not answer makes nobody wait but what is for it.

A target is a web server, by scheme, host and port, or a Python action by its name. It has a bounded queue, few attempts
at a time, and a circuit: after failures in a row it is left alone for a pause that doubles, and then tried once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from nearcast.model.event import Event
from nearcast.runtime.backoff import backoff
from nearcast.server.config import ServerLimits
from nearcast.server.webhook_post import ActionFailed

Attempt = Callable[[Event], Awaitable[None]]
"""Runs an action once. Raises `ActionFailed`."""

Ended = Callable[[Event, str | None, int], None]
"""Is notified how an action ended: None where it succeeded, else why not; and at which attempt."""

Failed = Callable[[Event, ActionFailed, int], None]
"""Is notified of an attempt that will be made again."""


class ActionTarget:
    """The actions for one target, in order of their events. `pause`: seconds before a second attempt."""

    def __init__(
        self, name: str, attempt: Attempt, failed: Failed, ended: Ended, pause: float, limits: ServerLimits
    ) -> None:
        self.name, self._attempt, self._failed, self._ended, self._pause = name, attempt, failed, ended, pause
        self._limits = limits
        self.waiting: deque[tuple[Event, float]] = deque()
        self.failures = 0
        self._workers: set[asyncio.Task[None]] = set()
        self._closed_until = 0.0
        self._pauses = backoff(pause, limits.action_pause_seconds)
        self._probing = asyncio.Lock()
        self._taken = asyncio.Event()

    @property
    def idle(self) -> bool:
        """Whether nothing is to be done, and nothing is to be remembered."""
        return not self._workers and not self.waiting and not self.failures

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open: the target is left alone, or tried by one attempt at a time."""
        return self.failures >= self._limits.action_failures

    async def wait_for_room(self) -> None:
        """Returns when there is room in the queue, or none is to be expected soon."""
        # Others that were begun get their turn also where nothing is waited for.
        await asyncio.sleep(0)
        if len(self.waiting) >= self._limits.actions_waiting and not self.is_open:
            self._taken.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._taken.wait(), self._limits.action_room_seconds)

    def submit(self, event: Event) -> None:
        """Takes an action; where too many wait it ends at once."""
        most = self._limits.actions_waiting
        if len(self.waiting) >= most:
            self._ended(event, f"expected at most {most:,} actions that wait for {self.name}, got more", 0)
            return
        self.waiting.append((event, asyncio.get_running_loop().time()))
        if len(self._workers) < self._limits.actions_at_once:
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def close(self) -> None:
        """Ends what is under way, and waits for that; nobody is notified."""
        self.waiting.clear()
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self) -> None:
        while self.waiting:
            event, since = self.waiting.popleft()
            longest = self._limits.action_wait_seconds
            self._taken.set()
            if self.is_open and asyncio.get_running_loop().time() - since > longest:
                self._ended(event, f"{self.name} has not answered for {longest:,.0f} s", 0)
            else:
                await self._attempts(event)

    async def _attempts(self, event: Event) -> None:
        """Runs one action until it succeeds, or is given up."""
        pauses = backoff(self._pause, self._limits.action_pause_seconds)
        most = self._limits.action_attempts
        for attempt in range(1, most + 1):
            try:
                async with self._permission():
                    await self._once(event)
                self._ended(event, None, attempt)
                return
            except ActionFailed as error:
                if error.final or attempt == most:
                    self._ended(event, error.reason, attempt)
                    return
                self._failed(event, error, attempt)
                await asyncio.sleep(max(next(pauses), error.pause))

    async def _once(self, event: Event) -> None:
        try:
            await self._attempt(event)
        except ActionFailed as error:
            self._note(error.reached)
            raise
        self._note(True)

    def _note(self, reached: bool) -> None:
        """Keeps in mind whether the target was reached."""
        if reached:
            self.failures, self._pauses = 0, backoff(self._pause, self._limits.action_pause_seconds)
            return
        self.failures += 1
        if self.is_open:
            self._closed_until = asyncio.get_running_loop().time() + next(self._pauses)

    @asynccontextmanager
    async def _permission(self) -> AsyncIterator[None]:
        """Waits until the target may be tried: at once, or one after the other and after a pause."""
        if not self.is_open:
            yield
            return
        async with self._probing:
            # Meanwhile another may have reached it.
            while self.is_open and (left := self._closed_until - asyncio.get_running_loop().time()) > 0:
                await asyncio.sleep(left)
            yield
