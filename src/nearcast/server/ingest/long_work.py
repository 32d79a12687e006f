"""Long work at once: what one sender sends that holds everybody up for long may do so for a small part of the time.

Deciding goes in one order, and Python runs one thread at a time: whoever comes behind a large definition, or beside an
event of a megabyte, waits for it. As long as that is rare few meet it. So what a sender causes of long work has a rate
and a burst, and beyond that only this sender waits: what reading took at the door, which tells what the pipeline has to
do again, and what definitions take to enter. What is short is not counted here, however much there is of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

from prometheus_client import Counter

from nearcast.model.rate_limit import RateLimit
from nearcast.server.access import AccessToken
from nearcast.server.ingest.definition_offload import LARGE
from nearcast.server.ingest.group_commit import QueueFull

log = logging.getLogger(__name__)

LONG_SECONDS = 0.004
"""What takes longer is long: ordinary events are decided together for about as long."""

ATOM_SECONDS = 15e-6
"""For an atom of a definition, as `definition_pacing` counts them, to enter the pipeline."""

Key = tuple[str, bool]
"""A sender, by the name of its token, and whether it defines: who defines much need not stop publishing."""

PAGES = "nearcast.zones.changed"
"""Control events that are not counted: a layer of a hundred thousand zones comes in pages, and would take hours."""

ORDINARY_SECONDS = 10.0
"""Nobody waits where nobody was in the way for so long, as while a system is set up."""

PATIENCE = 20.0
"""Seconds for which a request waits; then its sender is asked to come back. Clients give up after 30."""

WAITING = 16
"""Large requests of one sender that are there at once; while it has to wait more are asked to come back."""

STEP_SECONDS = 0.05
"""Between two looks whether a sender may go on."""


def seconds_of_large(sizes: Sequence[int], seconds: float) -> float:
    """Of the seconds that it took to read events of so many bytes those that large ones took, where these are long.

    One by itself is large in any case. A request of many is read with pauses between them.
    """
    whole = sum(sizes)
    large = sizes if len(sizes) == 1 else [one for one in sizes if one > LARGE]
    return long_part(seconds * one / whole for one in large)


def long_part(seconds: Iterable[float]) -> float:
    """The seconds of those of several pieces of work that are long."""
    return sum(one for one in seconds if one > LONG_SECONDS)


@dataclass(slots=True)
class _LongWork:
    """What a sender may still cause; how many of its requests are there, one of which has its turn."""

    limit: RateLimit
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    told: bool = False


class LongWorkPacing:
    """Lets each sender, known by its token, cause so many seconds of long work per second, and a burst of them at once,
    by what it defines and by what else it publishes.

    What something takes is often known only when it is read, so it is owed afterwards, and the next waits for that.
    `now` gives seconds.
    """

    def __init__(self, share: float, burst: float, paced: Counter, now: Callable[[], float]) -> None:
        self._share, self._burst, self._paced, self._now = share, burst, paced, now
        # There are as many senders as the server has tokens.
        self._senders: dict[Key, _LongWork] = {}
        self._ordinary = -inf

    def note_ordinary(self) -> None:
        """Takes note that something ordinary came, which long work would be in the way of."""
        self._ordinary = self._now()

    def owe(self, token: AccessToken | None, defines: bool, seconds: float) -> None:
        """Counts what a sender caused."""
        if seconds:
            self._of(_key(token, defines)).limit.owe(seconds, self._now())

    @asynccontextmanager
    async def turn(self, token: AccessToken | None, defines: bool) -> AsyncIterator[None]:
        """Waits until what a sender caused before has been long enough ago; its own other turns wait until this one
        ends. Raises QueueFull where that takes long, or where many wait.
        """
        key, came = _key(token, defines), self._now()
        sender = self._of(key)
        if not self._may_go_on(sender):
            self._tell(key, sender)
            if sender.waiting >= WAITING:
                raise QueueFull
        sender.waiting += 1
        try:
            async with sender.turn:
                while not self._may_go_on(sender):
                    if self._now() > came + PATIENCE:
                        raise QueueFull
                    await asyncio.sleep(STEP_SECONDS)
                yield
        finally:
            sender.waiting -= 1

    def _may_go_on(self, sender: _LongWork) -> bool:
        now = self._now()
        return now > self._ordinary + ORDINARY_SECONDS or sender.limit.owes_nothing(now)

    def _tell(self, key: Key, sender: _LongWork) -> None:
        self._paced.inc()
        if not sender.told:
            sender.told = True
            log.info("what takes long waits: its sender sends more of it than it may token=%s", key[0] or "none")

    def _of(self, key: Key) -> _LongWork:
        if key not in self._senders:
            self._senders[key] = _LongWork(RateLimit(self._share, self._burst))
        return self._senders[key]


def _key(token: AccessToken | None, defines: bool) -> Key:
    return token.name if token else "", defines
