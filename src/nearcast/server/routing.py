"""The routing table of a running server: made in a thread when a publisher asks first, and kept up from then on.

Who asks does not wait for it to be made: until it is, everything is wanted.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from nearcast.decision.registry import Registry
from nearcast.decision.routing import Measures
from nearcast.decision.wanted import Interest, Wish
from nearcast.journal.seam import Journal
from nearcast.server.forwarding import EVERYTHING, Forwarding, body_of
from nearcast.server.metrics import Metrics

log = logging.getLogger(__name__)

WAIT = 0.25
"""Seconds for which an answer waits for what changed last."""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The filters that are forwarded, as the body of an answer, and its ETag."""

    tag: str
    body: bytes


class Routing:
    """Belongs to one event loop. `instance` tells its ETags from those of other servers."""

    def __init__(self, interest: Interest, journal: Journal, metrics: Metrics, precision: float, instance: str) -> None:
        self._interest, self._journal, self._metrics, self._precision = interest, journal, metrics, precision
        self._instance = instance
        self._thread = ThreadPoolExecutor(1, "nearcast-routing")
        self._everything = Forwarded(f'"{instance}-all"', body_of(EVERYTHING))
        self._changes: dict[str, Wish | None] = {}
        self._forwarding: Forwarding | None = None
        self._made = 0
        self._taking: asyncio.Future[Forwarded] | None = None

    async def forwarded(self, registry: Registry) -> Forwarded:
        """Filters that select whatever anybody may want, as of now."""
        self.advance(registry, begin=True)
        taking = self._taking
        if self._interest.all or taking is None:
            return self._everything
        try:
            return await asyncio.wait_for(asyncio.shield(taking), WAIT)
        except TimeoutError:
            return self._everything
        except Exception:
            # Once, though several may have waited: another one may have begun to make it anew.
            if taking is self._taking:
                self._metrics.errors.labels("routing").inc()
                log.exception("routing table failed, it is made anew")
                self._end()
            return self._everything

    def advance(self, registry: Registry, begin: bool = False) -> None:
        """Takes the definitions as they are now, if there is a table, or one is to begin."""
        self._interest.advance(registry)
        if self._forwarding is None and begin:
            self._made += 1
            self._forwarding = Forwarding(self._journal, self._precision)
            self._changes = dict(self._interest.wishes())
            self._interest.heard = self._hear
        # While everything is wanted there is nothing to look at it for.
        if self._forwarding is not None and not self._interest.all:
            self._take(self._forwarding)

    def _hear(self, key: str, wish: Wish | None) -> None:
        self._changes[key] = wish

    def _take(self, forwarding: Forwarding) -> None:
        """Gives the thread what has changed; with a precision below 1 it also looks what has come."""
        busy = self._taking is not None and not self._taking.done()
        if self._changes or self._taking is None or (self._precision < 1.0 and not busy):
            changes, self._changes = self._changes, {}
            loop = asyncio.get_running_loop()
            self._taking = loop.run_in_executor(self._thread, self._taken, forwarding, changes, self._made)
            # Nobody may ask again.
            self._taking.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _taken(self, forwarding: Forwarding, changes: dict[str, Wish | None], made: int) -> Forwarded:
        """The answer after some changes; in the thread."""
        forwarding.take(changes)
        return Forwarded(f'"{self._instance}-{made}-{forwarding.version}"', forwarding.body)

    def measures(self) -> Measures:
        """Size and precision of what is forwarded; of no table as long as nobody has asked."""
        found = Measures(0, 0, 1.0) if self._forwarding is None else self._forwarding.measures()
        return replace(found, forwarded=1, precision=1.0) if self._interest.all else found

    def _end(self) -> None:
        if self._forwarding is not None:
            self._forwarding.closing.set()
        self._forwarding = self._taking = self._interest.heard = None

    def close(self) -> None:
        """Ends the thread, whatever it is at."""
        self._end()
        self._thread.shutdown(wait=False, cancel_futures=True)
