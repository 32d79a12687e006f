"""How fast definitions enter: all wait while the pipeline takes one up, so who sends many waits for them by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from prometheus_client import Counter

from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    ClockTick,
    SubscriptionChange,
    SubscriptionRemoval,
)
from nearcast.model.expression import Call, Shape, parts
from nearcast.model.filter import Atom, Filter, atoms, is_costly
from nearcast.model.rate_limit import RateLimit
from nearcast.server.access import AccessToken

log = logging.getLogger(__name__)

COSTLY = 8
"""Atoms that take as long to enter as one that no index finds."""

LITERALS, CORNERS = 7, 10
"""Literals of a list, and corners of a written geometry, that take as long as an atom."""

OTHERS = 50
"""Atoms that take as long as another definition than a subscription."""

STEP_SECONDS = 0.02
"""Between two looks whether a sender may go on."""


def work_of(changes: Iterable[Change]) -> int:
    """What definitions take to enter, in atoms: one takes the pipeline some 20 microseconds."""
    return sum(map(_of_change, changes))


def _of_change(change: Change) -> int:
    if isinstance(change, SubscriptionChange):
        return _of_filter(change.subscription.filter)
    # What clients are is no definition, and comes as often as they move.
    return 0 if isinstance(change, ClientChange | ClientRemoval | SubscriptionRemoval | ClockTick) else OTHERS


def _of_filter(filter: Filter) -> int:
    return sum((COSTLY if is_costly(atom) else 1) + _of_literals(atom) for atom in atoms(filter))


def _of_literals(atom: Atom) -> int:
    shapes = (part for part in (parts(atom.name) if isinstance(atom.name, Call) else ()) if isinstance(part, Shape))
    return len(atom.literals) // LITERALS + sum(shape.text.count(",") for shape in shapes) // CORNERS


class DefinitionPacing:
    """Lets each sender, known by its token, define so much at once, and then so much per second; those of one sender
    enter in their order, and nobody waits for those of another.
    """

    def __init__(self, rate: float, burst: float, paced: Counter, now: Callable[[], float]) -> None:
        self._rate, self._burst, self._paced, self._now = rate, burst, paced, now
        # There are as many senders as the server has tokens.
        self._limits: dict[str, tuple[asyncio.Lock, RateLimit]] = {}
        self._told: set[str] = set()

    async def admit(self, token: AccessToken | None, work: int) -> None:
        """Waits until definitions that take so much may enter."""
        if not work:
            return
        sender = token.name if token else ""
        if sender not in self._limits:
            self._limits[sender] = asyncio.Lock(), RateLimit(self._rate, self._burst)
        turn, limit = self._limits[sender]
        waits = turn.locked() or not limit.affords(work, self._now())
        if waits:
            self._paced.inc()
            if sender not in self._told:
                self._told.add(sender)
                log.info("definitions wait: more come than the pipeline takes up token=%s", sender or "none")
        async with turn:
            while not limit.spend(work, self._now()):
                await asyncio.sleep(STEP_SECONDS)
