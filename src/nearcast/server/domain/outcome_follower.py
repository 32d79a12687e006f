"""Follows what other access servers write: which has which session, and how deliveries ended.

In rounds. The ends of the logs are looked at first, that of the deliveries last: what ended is in a queue here once the
server has read so far. Who waits for a round that begins from now on knows all that was written before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.seam import Journal
from nearcast.model.sequence import sequence
from nearcast.runtime.error_log import RateLimitedErrorLog
from nearcast.server.domain.session_places import SessionClaim, claims_in
from nearcast.server.sessions.manager import SessionManager

log = logging.getLogger(__name__)

ROWS = 5_000
"""Rows of a log that are read at once."""
AT_ONCE = 500
"""Of them so many take effect before others have their turn."""
RETRY_SECONDS = 0.5
PART = "following other servers"


class OutcomeFollower:
    """Follows the logs `sessions` and `outcomes` while it is `on`; `claimed` hears of each claim, in order."""

    def __init__(
        self,
        journal: Journal,
        session_manager: SessionManager,
        claimed: Callable[[SessionClaim], None],
        error_log: RateLimitedErrorLog,
        seconds: float,
    ) -> None:
        self.journal, self.session_manager, self.claimed = journal, session_manager, claimed
        self.error_log, self.seconds = error_log, seconds
        self.on = False
        self.sessions, self.outcomes = 0, 0
        self._woken = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []

    def switch(self, on: bool) -> None:
        """Begins to follow, or leaves it."""
        self.on = on
        self._woken.set()

    async def caught_up(self) -> None:
        """Returns when all that was written before now has taken effect."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._woken.set()
        await future

    async def run(self) -> None:
        """Follows until it is cancelled."""
        while True:
            if not self.on:
                self._woken.clear()
                await self._woken.wait()
                continue
            waiting, self._waiting = self._waiting, []
            self._woken.clear()
            try:
                await self._round()
                self.error_log.works(PART)
            except Exception as error:
                self.error_log.failed(PART, error)
                if not isinstance(error, JournalError):
                    log.exception("other servers not followed")
                self._waiting = waiting + self._waiting
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            if not self._waiting:
                await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _round(self) -> None:
        sessions, outcomes, deliveries = await asyncio.to_thread(self._ends)
        while self.sessions < sessions:
            rows, self.sessions = await asyncio.to_thread(self._read, "sessions", self.sessions, sessions)
            for claim in claims_in(rows):
                self.claimed(claim)
            await asyncio.sleep(0)
        if self.outcomes < outcomes:
            await self._delivered(deliveries)
        while self.outcomes < outcomes:
            rows, through = await asyncio.to_thread(self._read, "outcomes", self.outcomes, outcomes)
            await self._settle(rows)
            self.outcomes = through

    def _ends(self) -> tuple[int, int, int]:
        return self.journal.end("sessions"), self.journal.end("outcomes"), self.journal.end("deliveries")

    def _read(self, name: str, after: int, through: int) -> tuple[pa.Table, int]:
        end = self.journal.end_within_bytes(name, after, min(ROWS, through - after))
        return self.journal.read(name, after, end - after), end

    async def _delivered(self, through: int) -> None:
        manager = self.session_manager
        while manager.deliveries_through < through:
            manager.read_on.clear()
            await manager.read_on.wait()

    async def _settle(self, rows: pa.Table) -> None:
        names = ("client", "event", "part", "outcome")
        ended = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
        while some := list(islice(ended, AT_ONCE)):
            for client, event, part, outcome in some:
                self.session_manager.settle_elsewhere(client, sequence(event, part), outcome)
            await asyncio.sleep(0)
