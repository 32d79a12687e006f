"""The session manager: every session of this server, fed with what the journal brings and with what clients say."""

from __future__ import annotations

import asyncio
import heapq
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from nearcast.delivery.pacing import Pacing
from nearcast.delivery.queue import DeliveryQueue, PriorityOf, QueuedDelivery, SettledDelivery
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    SettingsChange,
    SubscriptionChange,
    SubscriptionRemoval,
)
from nearcast.model.rate_limit import RateLimit
from nearcast.model.sequence import position_of
from nearcast.model.subscription import ClientProfile, Subscription
from nearcast.server import clock
from nearcast.server.ingest.group_commit import GroupCommit
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions.cancellation import REORDER_COST, DeliveryCancellation, expires_at
from nearcast.server.sessions.journal_tailer import DecidedDelivery
from nearcast.server.sessions.outcomes import DeliveryOutcome, delivered
from nearcast.server.sessions.payloads import SendableEvent
from nearcast.server.sessions.session import EXPIRED_TOGETHER, TAKEN_OVER, Connection, Session
from nearcast.server.sessions.subscription_membership import SubscriptionMembership
from nearcast.server.sessions.validity_timers import ValidityTimers
from nearcast.state.registry import UNKNOWN_MOMENT, Registry

log = logging.getLogger(__name__)


REORDERS = 100_000
"""Deliveries of one client that are put in a new order per second."""


class SessionManager:
    """Belongs to one event loop. `registry` is what is known now: the journal's fold and, at once, what clients say."""

    def __init__(
        self,
        outcomes: GroupCommit[DeliveryOutcome],
        metrics: ServerMetrics,
        waiting_limit: int,
        reorders: int = REORDERS,
    ) -> None:
        self.outcomes, self.metrics, self.waiting_limit, self.reorders = outcomes, metrics, waiting_limit, reorders
        self.registry = Registry()
        self.membership = SubscriptionMembership()
        self.sessions: dict[str, Session] = {}
        self.cancellation = DeliveryCancellation(
            self.registry, self.membership, self.sessions, self.record_outcomes, metrics
        )
        self.past: Counter[str] = Counter()
        """What sessions that are no more had queued and settled; together with the others it balances."""
        self.instance = uuid.uuid4().hex[:12]
        self.events_through, self.deliveries_through = 0, 0
        self._reached: list[tuple[int, int, asyncio.Future[None]]] = []
        self.stated: dict[str, float] = {}
        self.stated_moments: dict[str, int] = {}
        self.validity_timers = ValidityTimers()
        self.keeps: Callable[[str], bool] = lambda client: True
        """Whether this server ends what waits for a client; where another does, its queue here follows."""
        self.adopted: Callable[[str], None] = lambda client: None
        """Hears that this server ends what waits for a client from now on."""
        self.ended_through = 0
        """Up to there deliveries may have outcomes, also beyond what the log of deliveries has."""
        self.left: Callable[[str], None] = lambda client: None
        """Hears that a client's connection is gone, and no other has come."""
        self.greeting: Callable[[], dict[str, object]] = dict
        """What a greeting says besides."""
        self.read_on = asyncio.Event()
        """Set whenever more of the journal is read."""
        self._closing: set[asyncio.Task[None]] = set()
        self.early = False
        """Whether events may be decided before the log of deliveries has them."""

    # What the journal brings

    def apply(self, change: Change) -> None:
        """Folds a change into the registry and lets it take effect on what waits; what a removal concerns is ended by
        `cancellation.end_removed`, before anything else is queued. What is refused as there is too much is not there.
        """
        if self.registry.refusal(change) is not None:
            return
        # Both before the change: afterwards nobody knows how it was.
        outlooks = self._outlooks(change)
        removed = self._subscription_before(change)
        self.registry.apply(change)
        match change:
            case ClientChange(client):
                if client in self.registry.clients:
                    self.validity_timers.note(self.registry.clients[client])
                self._reorder(outlooks)
            case ClientRemoval(client):
                self.validity_timers.forget(client)
                self.cancellation.note_client(client)
            case SubscriptionChange() | SubscriptionRemoval():
                self.cancellation.note_subscription(removed)
            case SettingsChange():
                self.validity_timers.restart(self.registry)
                self._reorder(outlooks)

    def _outlooks(self, change: Change) -> list[tuple[Session, tuple[object, ...]]]:
        """The sessions whose priorities the change may touch, and on what these rest before it."""
        match change:
            case SettingsChange():
                touched = list(self.sessions.values())
            case ClientChange(client) if client in self.sessions:
                touched = [self.sessions[client]]
            case _:
                touched = []
        return [(session, session.priority_inputs(self.registry.settings)) for session in touched]

    def _reorder(self, outlooks: list[tuple[Session, tuple[object, ...]]]) -> None:
        settings = self.registry.settings
        for session, before in outlooks:
            session.client = self.registry.clients.get(session.client.id, session.client)
            if session.priority_inputs(settings) != before:
                session.disordered = True
                self._order(session, clock.steady())

    def _order(self, session: Session, now: float) -> None:
        """Puts what waits in its present order, unless this session was so often that others would wait for it."""
        if session.reorders.spend(REORDER_COST + len(session.waiting.waiting), now):
            session.disordered = False
            session.waiting.reorder(session.priority_of(self.registry.settings))
            session.wake()

    def reorder_late(self) -> None:
        """Puts in order what had to wait for that."""
        now = clock.steady()
        for session in [one for one in self.sessions.values() if one.disordered]:
            self._order(session, now)

    def _subscription_before(self, change: Change) -> Subscription | None:
        match change:
            case SubscriptionChange(subscription):
                return self.registry.subscriptions.get(subscription.id)
            case SubscriptionRemoval(subscription):
                return self.registry.subscriptions.get(subscription)
        return None

    def deliver(self, decided: Iterable[DecidedDelivery], early: bool = False) -> None:
        """Queues deliveries, those to clients that nobody knows any more end at once. `early`: that were decided before
        the log has them.
        """
        now, counts = clock.steady(), dict[int, int]()
        # Once for each client: nothing changes while a batch is queued.
        receiving: dict[str, tuple[Session, PriorityOf]] = {}
        try:
            for row in decided:
                found = receiving.get(row.client)
                if found is None:
                    session = self.session(row.client)
                    found = receiving[row.client] = session, session.priority_of(self.registry.settings)
                session, priority_of = found
                # Counted once, though it were handed over again, or decided early.
                if not session.waiting.is_new(row.sequence):
                    if not early:
                        session.waiting.confirm(row.sequence)
                    continue
                delivery = self._delivery(row, now, early)
                priority = priority_of(delivery)
                counts[priority] = counts.get(priority, 0) + 1
                self._queue(session, delivery, priority, now)
        finally:
            for priority, count in counts.items():
                self.metrics.of(priority).deliveries.inc(count)
            for session, _ in receiving.values():
                session.wake()

    def _delivery(self, row: DecidedDelivery, now: float, early: bool) -> QueuedDelivery:
        subscription = self.registry.subscriptions.get(row.subscription)
        event = row.event or SendableEvent(row.sequence, b"null", "", 0.0)
        accepted = event.accepted or clock.now()
        # In the order of its fields: by their names it takes half as long again.
        return QueuedDelivery(
            row.sequence,
            row.subscription,
            event.entity,
            row.level,
            row.by_role,
            row.others,
            len(event.payload),
            accepted,
            event.moment or accepted,
            now,
            None if subscription is None or subscription.time_to_live is None else expires_at(subscription, accepted),
            subscription is not None and subscription.conflate,
            early,
        )

    def _queue(self, session: Session, delivery: QueuedDelivery, priority: int, now: float) -> None:
        ended = session.waiting.insert(delivery, priority, now)
        # Queued first and ended then, so that it has an outcome as every delivery has.
        if not self.cancellation.holds(delivery.subscription, session, delivery):
            self.cancellation.end(session, delivery.subscription, [delivery.sequence], now)
        if ended:
            self.record_outcomes(session, ended)

    def read_through(self, events: int, deliveries: int) -> None:
        """The journal is read through these positions: wakes who waits for it."""
        self.events_through, self.deliveries_through = events, deliveries
        self.read_on.set()
        while self._reached and self._reached[0][0] <= events:
            future = heapq.heappop(self._reached)[2]
            if not future.done():
                future.set_result(None)

    async def reached(self, position: int) -> None:
        """Returns once every event up to the position has taken effect here."""
        if position > self.events_through:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # The id decides between equal positions: futures do not compare.
            heapq.heappush(self._reached, (position, id(future), future))
            await future

    # What clients say

    def known(self, client: str) -> bool:
        """Whether anybody declared this client, or something waits for it still."""
        return client in self.registry.clients or client in self.sessions

    def session(self, client: str) -> Session:
        """The session of a client, begun if there is none."""
        session = self.sessions.get(client)
        if session is None:
            known = self.registry.clients.get(client, ClientProfile(client))
            reorders = RateLimit(self.reorders, self.reorders)
            session = self.sessions[client] = Session(known, DeliveryQueue(self.waiting_limit), reorders)
            session.stated = self.stated.get(client)
            session.waiting.followed = not self.keeps(client)
        return session

    def review(self, client: str) -> None:
        """Looks whether this server ends what waits for a client, now that this may have changed."""
        session = self.sessions.get(client)
        if session is None or session.waiting.followed == (not self.keeps(client)):
            return
        if session.waiting.followed:
            self._adopt(session)
        else:
            session.waiting.followed = True

    def _adopt(self, session: Session) -> None:
        now = clock.steady()
        ended = session.waiting.adopt(session.priority_of(self.registry.settings), now)
        if session.client.id not in self.registry.clients:
            ended += session.waiting.clear(now)
        self.record_outcomes(session, ended)
        # It may be that nobody has ended what was removed while another server kept it.
        gone = defaultdict[str, list[int]](list)
        for delivery in session.waiting.waiting.values():
            if not self.cancellation.holds(delivery.subscription, session, delivery):
                gone[delivery.subscription].append(delivery.sequence)
        for subscription, sequences in gone.items():
            self.cancellation.end(session, subscription, sequences, now)
        self.adopted(session.client.id)

    def settle_elsewhere(self, client: str, sequence: int, outcome: str) -> None:
        """Ends what another server says that it ended; of what this one said itself nothing is outstanding."""
        self.ended_through = max(self.ended_through, position_of(sequence))
        session = self.sessions.get(client)
        if session is None and position_of(sequence) > self.deliveries_through:
            # It was decided early there: it must not be queued here once the log has it.
            session = self.session(client)
        if session is None:
            return
        now = clock.steady()
        flying = sequence in session.waiting.in_flight
        if session.waiting.settle(sequence, outcome, now) and flying:
            session.pace.acknowledged(sequence, now)
            session.wake()

    def lose(self, client: str, code: int, reason: str) -> None:
        """The session is another server's: whoever has it here is told, and nothing more is sent."""
        session = self.sessions.get(client)
        if session is None or session.connection is None:
            return
        old, session.connection, session.holder = session.connection, None, None
        session.notices.clear()
        self.review(client)
        ended = session.waiting.take_back(session.priority_of(self.registry.settings), clock.steady())
        self.record_outcomes(session, ended)
        session.wake()
        self._close(old, code, reason)

    def _close(self, connection: Connection, code: int, reason: str) -> None:
        # Nobody waits for it: on a dead link, which is why most come anew, a connection closes late or never.
        closing = asyncio.ensure_future(connection.close(code, reason))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def state_bandwidth(self, change: ClientChange) -> None:
        """Takes note of the bandwidth that somebody, not this server, stated for a client: the cap of its pace.

        One that has lapsed is none.
        """
        client, readings = change.client, change.readings or {}
        if change.lapsed and self.stated_moments.get(client, UNKNOWN_MOMENT) <= change.lapsed.get("bandwidth", -1):
            self.forget_bandwidth(client)
        if "bandwidth" not in readings:
            return
        stated = readings["bandwidth"]
        if stated is None:
            self.forget_bandwidth(client)
            return
        self.stated[client] = stated
        moment = (change.moments or {}).get("bandwidth", change.moment)
        self.stated_moments[client] = UNKNOWN_MOMENT if moment is None else moment
        session = self.sessions.get(client)
        if session:
            session.stated = session.pace.stated = stated
            session.wake()

    def forget_bandwidth(self, client: str) -> None:
        """A client was removed, or what it stated holds no more: its pace has no cap."""
        self.stated.pop(client, None)
        self.stated_moments.pop(client, None)
        if client in self.sessions:
            session = self.sessions[client]
            session.stated = session.pace.stated = None

    def free(self, client: str, holder: str | None) -> bool:
        """Whether a connection may have the session without taking it over: nobody has it, or the same holder."""
        session = self.sessions.get(client)
        return session is None or session.connection is None or (holder is not None and holder == session.holder)

    def connect(self, client: str, connection: Connection, kind: str, holder: str | None = None) -> Session:
        """Gives the session to a connection; the one that had it is told and closed."""
        session = self.session(client)
        old, session.connection, session.holder = session.connection, connection, holder
        session.connections += 1
        session.leaving = False
        self.review(client)
        session.notices.clear()
        # Of the old connection; who does not hear that an acknowledgement is settled repeats it.
        session.confirmed.clear()
        self.metrics.connections.labels(kind).inc()
        if session.connections > 1:
            self.metrics.reconnections.inc()
        self._begin(session)
        if old:
            log.info("session taken over client=%s", client)
            self._close(old, TAKEN_OVER, "another connection took over this session")
        return session

    def _begin(self, session: Session) -> None:
        now = clock.steady()
        ended = session.waiting.take_back(session.priority_of(self.registry.settings), now)
        self.record_outcomes(session, ended)
        # What was measured is true of the link before.
        session.pace = Pacing(session.stated)
        session.tell(
            {
                "hello": {
                    "client": session.client.id,
                    "session": session.connections,
                    "server": self.instance,
                    "waiting": len(session.waiting.waiting),
                    "levels": self.registry.settings.levels,
                    **self.greeting(),
                }
            }
        )

    def disconnect(self, session: Session, connection: Connection) -> None:
        """The connection ended; unless another has taken over, what was in flight waits again."""
        if session.connection is connection:
            session.connection = None
            session.notices.clear()
            now = clock.steady()
            self.record_outcomes(session, session.waiting.take_back(session.priority_of(self.registry.settings), now))
            self.left(session.client.id)

    async def acknowledge(self, session: Session, sequences: list[int]) -> list[int]:
        """Ends what the client has; it is told which are settled once that is durable, so that it may forget them.

        Those that were never delivered to it are left out, and returned. Of what the pipeline has not decided yet it is
        not known whether another server sent it: that is left out, and sent again. Raises JournalError.
        """
        now = clock.steady()
        waiting = session.waiting
        gone = [one for one in sequences if one not in waiting.in_flight and one not in waiting.waiting]
        repeated = [one for one in gone if not waiting.knows_early(one)]
        undecided = {one for one in repeated if self.early and self._is_undecided(one)}
        repeated = [one for one in repeated if one not in undecided]
        for sequence in sequences:
            session.pace.acknowledged(sequence, now)
        written = self.record_outcomes(session, waiting.acknowledge(sequences, now))
        session.wake()
        unknown: set[int] = set()
        if repeated:
            # What is not outstanding may have been settled long ago, by another server even: it is confirmed again.
            unknown = {*repeated} - await asyncio.to_thread(
                delivered, self.outcomes.journal, session.client.id, repeated
            )
        confirmed = [one for one in sequences if one not in unknown and one not in undecided]
        written.add_done_callback(lambda future: self._confirm(session, confirmed, future))
        return sorted(unknown)

    def _is_undecided(self, sequence: int) -> bool:
        return self.deliveries_through < position_of(sequence) <= self.events_through

    def _confirm(self, session: Session, sequences: list[int], written: asyncio.Future[list[int]]) -> None:
        if not written.cancelled() and written.exception() is None:
            session.confirmed += sequences if session.connection else []
            session.wake()

    def sent(self, delivery: QueuedDelivery) -> None:
        """A delivery was sent."""
        self.metrics.sending(delivery.priority, clock.age(delivery.accepted), delivery.attempts)

    def record_outcomes(self, session: Session, settled: list[SettledDelivery]) -> asyncio.Future[list[int]]:
        """Puts outcomes on their way into the journal; the future tells when they, and all before them, are durable.

        Of a session that another server keeps it is that one which says how deliveries end, except what a client says.
        """
        if session.waiting.followed:
            settled = [one for one in settled if one.outcome == "acknowledged"]
        for outcome, count in Counter(one.outcome for one in settled).items():
            self.metrics.outcomes.labels(outcome).inc(count)
        last = max((one.delivery.sequence for one in settled), default=0)
        self.ended_through = max(self.ended_through, position_of(last))
        taken = [one.delivery for one in settled if one.outcome == "acknowledged"]
        for delivery, age in zip(taken, clock.ages([one.accepted for one in taken]), strict=True):
            self.metrics.acknowledging(delivery.priority, age)
        return self.outcomes.submit([DeliveryOutcome(session.client.id, one) for one in settled])

    async def expire(self) -> None:
        """Ends what has lived its time, also where nobody is connected; in parts, between which others have a turn."""
        for session in [*self.sessions.values()]:
            while ended := session.waiting.expire(clock.steady(), EXPIRED_TOGETHER):
                self.record_outcomes(session, ended)
                await asyncio.sleep(0)

    def prune(self) -> None:
        """Forgets sessions of clients that nobody knows any more, once nothing is outstanding."""
        for id, session in list(self.sessions.items()):
            waiting = session.waiting
            owed = session.connection or waiting.waiting or waiting.in_flight
            if owed or id in self.registry.clients:
                continue
            # Of what ended early nothing may be queued once the log has it.
            if position_of(waiting.unconfirmed) <= self.deliveries_through:
                self.past.update(waiting.settled)
                self.past["queued"] += waiting.queued
                del self.sessions[id]

    def outstanding(self) -> int:
        """How many deliveries wait or are in flight."""
        return sum(len(one.waiting.waiting) + len(one.waiting.in_flight) for one in self.sessions.values())

    def oldest(self) -> int | None:
        """The position of the first delivery that is outstanding in some session; None if none is."""
        found = min((one for session in self.sessions.values() for one in _outstanding(session)), default=None)
        return None if found is None else position_of(found)


def _outstanding(session: Session) -> Iterator[int]:
    yield from session.waiting.waiting
    yield from session.waiting.in_flight
