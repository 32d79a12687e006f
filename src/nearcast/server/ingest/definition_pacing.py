"""How fast definitions enter: all wait while the pipeline takes one up, so who sends many waits for them by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from prometheus_client import Counter

from nearcast.filters.spatial_atoms import spatial_atoms
from nearcast.matching.matcher import location_conditions
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    ClockTick,
    RelationChange,
    SubscriptionChange,
    SubscriptionRemoval,
    ZoneRuleChange,
)
from nearcast.model.expression import Call, Shape, parts
from nearcast.model.filter import Atom, Filter, atoms, is_costly
from nearcast.model.rate_limit import RateLimit
from nearcast.model.relation import Matching, Pair
from nearcast.relations.sides import sides_of
from nearcast.server.access import AccessToken

log = logging.getLogger(__name__)

COSTLY, SPATIAL = 8, 16
"""Atoms that take as long to enter as one that no index finds, and as one that compares geometries."""

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
    match change:
        case SubscriptionChange(subscription):
            return _of_filter(subscription.filter)
        case RelationChange(relation):
            sides = [side.filter for side in sides_of(relation) if isinstance(side, Matching)]
            when = [relation.about.when] if isinstance(relation.about, Pair) else []
            return OTHERS + sum(map(_of_filter, [*sides, *when]))
        case ZoneRuleChange(rule):
            return OTHERS + _of_filter(rule.of)
        case ClientChange() | ClientRemoval() | SubscriptionRemoval() | ClockTick():
            # What clients are is no definition, and comes as often as they move.
            return 0
    return OTHERS


def _of_filter(filter: Filter) -> int:
    return sum(map(_of_atom, atoms(filter)))


def _of_atom(atom: Atom) -> int:
    if not is_costly(atom):
        return 1 + _of_literals(atom)
    # Of a location term the conditions are atoms too.
    conditions = [term.conditions for term in location_conditions(atom) if term.conditions is not None]
    kind = SPATIAL if any(spatial_atoms(atom)) else COSTLY
    return kind + _of_literals(atom) + sum(map(_of_filter, conditions))


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
