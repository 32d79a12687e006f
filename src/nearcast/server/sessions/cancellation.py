"""What waits for a client or a subscription that was removed ends, unless another subscription selected it too."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from nearcast.delivery.queue import PriorityOf, QueuedDelivery, SettledDelivery
from nearcast.model.sequence import position_of
from nearcast.model.subscription import ClientProfile, Subscription
from nearcast.server import clock
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions.session import EXPIRED_TOGETHER, Session
from nearcast.server.sessions.subscription_membership import SubscriptionMembership
from nearcast.state.registry import Registry

log = logging.getLogger(__name__)

REORDER_COST = 100
"""What it costs to order a queue, in deliveries: an empty one too is looked at."""
LOOKED_AT_TOGETHER = 50_000
"""Waiting deliveries among which those for a removed subscription are looked for before others have their turn."""


class DeliveryCancellation:
    """Ends what waits for what was removed. Belongs to the event loop of the sessions, as these do."""

    def __init__(
        self,
        registry: Registry,
        membership: SubscriptionMembership,
        sessions: Mapping[str, Session],
        record_outcomes: Callable[[Session, list[SettledDelivery]], object],
        metrics: ServerMetrics,
    ) -> None:
        self._registry, self._membership, self._sessions = registry, membership, sessions
        self.record_outcomes, self._metrics = record_outcomes, metrics
        self._removed: deque[tuple[Session, str | None]] = deque()

    def note_client(self, client: str) -> None:
        """A client was removed: all that waits for it is to end."""
        session = self._sessions.get(client)
        if session:
            session.client = ClientProfile(client)
            self._removed.append((session, None))

    def note_subscription(self, before: Subscription | None) -> None:
        """A subscription was changed or removed: what waits for clients that it has no more is to end."""
        if before is None:
            return
        after = self._registry.subscriptions.get(before.id)
        for client in set(before.clients) - set(after.clients if after else ()):
            session = self._sessions.get(client)
            if session:
                self._removed.append((session, before.id))

    async def end_removed(self) -> None:
        """Ends what waits for what was removed; in parts, between which others have a turn."""
        looked_at = 0
        while self._removed:
            session, subscription = self._removed.popleft()
            looked_at += REORDER_COST + len(session.waiting.waiting)
            try:
                if subscription is None:
                    await self._end_all(session)
                else:
                    await self._end_subscribed(session, subscription)
            except Exception:
                self._metrics.errors.labels("removal").inc()
                log.exception("not ended client=%s", session.client.id)
            if looked_at > LOOKED_AT_TOGETHER:
                looked_at = 0
                await asyncio.sleep(0)

    async def _end_all(self, session: Session) -> None:
        """Ends all that is for a client; what it is sent meanwhile, too. What another server keeps is left to that."""
        while not session.waiting.followed and (ended := session.waiting.clear(clock.steady(), EXPIRED_TOGETHER)):
            self.record_outcomes(session, ended)
            await asyncio.sleep(0)
        session.tell({"notice": {"removed": session.client.id}})

    async def _end_subscribed(self, session: Session, subscription: str) -> None:
        """Ends what waits for a subscription of a client."""
        waiting = session.waiting.waiting_for(subscription)
        for first in range(0, len(waiting), EXPIRED_TOGETHER):
            self.end(session, subscription, waiting[first : first + EXPIRED_TOGETHER], clock.steady())
            await asyncio.sleep(0)

    def end(self, session: Session, subscription: str, sequences: Iterable[int], now: float) -> None:
        """What of these waits for a subscription of the client ends, unless another one selected the event too.

        What another server keeps waits on: that one may lose it before it hears that the subscription is gone.
        """
        if session.waiting.followed:
            return
        take_over = partial(self._take_over, session, session.priority_of(self._registry.settings))
        self.record_outcomes(session, session.waiting.unsubscribe(subscription, now, take_over, sequences))

    def _take_over(self, session: Session, priority_of: PriorityOf, delivery: QueuedDelivery) -> int | None:
        for number, (name, level) in enumerate(delivery.others, 1):
            if self.holds(name, session, delivery):
                delivery.subscription, delivery.level, delivery.by_role = name, level, None
                delivery.others = delivery.others[number:]
                delivery.expires = expires_at(self._registry.subscriptions.get(name), delivery.accepted)
                # It came out of turn: it neither replaces nor is replaced by what waits there.
                delivery.conflate = False
                return priority_of(delivery)
        return None

    def holds(self, subscription: str, session: Session, delivery: QueuedDelivery) -> bool:
        """Whether the client has been in the subscription since before the event."""
        return self._membership.holds(subscription, session.client.id, position_of(delivery.sequence))


def expires_at(subscription: Subscription | None, accepted: float) -> float | None:
    """When an event accepted then has lived its time, by the steady time; None: it lives on."""
    lives = subscription.time_to_live if subscription else None
    # Whatever is done to the machine's clock while it waits, it waits so long.
    return None if lives is None else clock.steady() + lives - clock.age(accepted)
