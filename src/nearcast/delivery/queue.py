"""What waits for one client: N queues, most urgent first, first-in first-out within one (Agent §4.4; semantics §5).

A delivery is queued once and ends in exactly one outcome, so at any moment

    queued = acknowledged + expired + conflated + overflowed + unsubscribed + waiting + in flight

Memory is bounded by `DeliveryQueue.limit` deliveries. Only what decides is kept of each; payloads stay in the journal
and are loaded at sending. Beyond the limit the least urgent queue gives up its oldest (withheld ones first): what is
oldest there is the most outdated. It ends as "overflowed".

A conflating newer event takes the turn of the one it replaces, where nothing else of its entity is outstanding:
otherwise the entity that changes fastest would never come to its turn behind slower ones. Newer is what is of a later
moment, not what came later: a late report ends as "conflated" itself while a newer one is outstanding.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

from nearcast.model.context import WITHHELD
from nearcast.model.subscription import ClientProfile, Roles

RoleLevels = Mapping[tuple[str, str], int]
"""The level of an event under each (role, task) that selects it; "" where a role or task is not stated."""

LIMIT = 100_000
"""Deliveries kept for a client; about 300 bytes each."""


@dataclass(slots=True)
class QueuedDelivery:
    """One delivery that is outstanding: an event by its sequence, for one client.

    `others` are the client's other subscriptions that selected the event, and their levels, most urgent first. `size`
    is in bytes; `accepted` and `moment` (of the event: by the latter it is newer than others of its entity) are seconds
    since 1970, `queued`, `expires` and `sent` seconds of the clock by which the queue is told the time. `early`: it was
    decided before the log of deliveries had it. `turn` orders within a priority: the sequence, or that of the event
    whose turn it took. `DeliveryQueue` keeps the last four.
    """

    sequence: int
    subscription: str
    entity: str
    level: int
    by_role: RoleLevels | None = None
    others: tuple[tuple[str, int], ...] = ()
    size: int = 0
    accepted: float = 0.0
    moment: float = 0.0
    queued: float = 0.0
    expires: float | None = None
    conflate: bool = False
    early: bool = False
    turn: int = 0
    priority: int = WITHHELD
    attempts: int = 0
    sent: float | None = None


@dataclass(frozen=True, slots=True)
class SettledDelivery:
    """A delivery and how it ended, one of `OUTCOME_NAMES`, at `time`, by the clock of its queue."""

    delivery: QueuedDelivery
    outcome: str
    time: float


def present_level(level: int, by_role: RoleLevels | None, client: ClientProfile, roles: Roles) -> int:
    """The level under the client's present role and task, or the roles' default; −1 where these do not select it.

    For a role and task that no vector is for, the level is that of ("", "").
    """
    if by_role is None:
        return level
    key = (client.role or "", client.task or "")
    if key == ("", "") and roles.default:
        key = roles.default
    return by_role.get(key if key in roles.vectors else ("", ""), WITHHELD)


PriorityOf = Callable[[QueuedDelivery], int]
"""The present priority of a delivery: its present level, looked up in the client's matrix; −1 withholds it."""

TakeOver = Callable[[QueuedDelivery], int | None]
"""Gives a delivery, whose subscription has ended, to another that selected its event: subscription, level and time to
live change. Its new priority; None, and nothing changed, if there is no other."""


def _nobody(delivery: QueuedDelivery) -> None:
    return None


SPARE = 64
"""Heap entries of deliveries that are gone are tolerated up to the number of those that are there plus this."""


@dataclass(slots=True)
class DeliveryQueue:
    """The deliveries of one client that are not settled: waiting in queues, withheld, or in flight.

    Deliveries are inserted in the order of their sequences; those that were decided early among themselves, and before
    others of lesser sequences. Methods that end deliveries return them as `SettledDelivery`.
    """

    limit: int = LIMIT
    followed: bool = False
    """Whether another server ends what is in here, and this queue hears of it (`settle`): until it is adopted nothing
    in it is conflated, expires or overflows, unless twice its limit is there."""
    queued: int = 0
    settled: Counter[str] = field(default_factory=Counter)
    waiting: dict[int, QueuedDelivery] = field(default_factory=dict)
    in_flight: dict[int, QueuedDelivery] = field(default_factory=dict)
    last: int = 0
    """Up to there the log of deliveries was inserted."""
    _early: dict[int, None] = field(default_factory=dict)
    """Beyond it, what was decided early, ascending, and what another server ended; of the latter a heap too, since
    outcomes come in any order, and many may wait for the log."""
    _ended: set[int] = field(default_factory=set)
    _ended_order: list[int] = field(default_factory=list)
    _counts: Counter[int] = field(default_factory=Counter)
    _queues: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _expiries: list[tuple[float, int]] = field(default_factory=list)
    _conflatable: dict[tuple[str, str], int] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    _entries: int = 0
    """How many the heaps have together, of what is gone too: counted, as it is asked with each delivery."""

    def insert(self, delivery: QueuedDelivery, priority: int, now: float) -> list[SettledDelivery]:
        """Queues a new delivery; returns what it replaces (conflated) and what has no room (overflowed).

        One that is not new changes nothing.
        """
        new, delivery.turn = self.is_new(delivery.sequence), delivery.sequence
        if not delivery.early:
            self.confirm(delivery.sequence)
        elif new:
            self._early[delivery.sequence] = None
        self.queued += new
        return self._admit(delivery, priority, now) if new else []

    def is_new(self, sequence: int) -> bool:
        """Whether a delivery was not inserted before, neither early nor late, and not ended elsewhere before that."""
        return sequence > self.last and not self.knows_early(sequence)

    def knows_early(self, sequence: int) -> bool:
        """Whether a delivery that the log is not known to have was inserted, or ended elsewhere."""
        return sequence in self._early or sequence in self._ended

    @property
    def unconfirmed(self) -> int:
        """The last sequence that came early, or ended elsewhere, and that the log is not known to have; 0: none."""
        return max((*self._early, *self._ended), default=0)

    def confirm(self, sequence: int) -> None:
        """Takes note that the log of deliveries has come to a delivery."""
        self.last = max(self.last, sequence)
        while self._early and (first := next(iter(self._early))) <= self.last:
            del self._early[first]
        while self._ended_order and self._ended_order[0] <= self.last:
            self._ended.remove(heapq.heappop(self._ended_order))

    def _admit(self, delivery: QueuedDelivery, priority: int, now: float) -> list[SettledDelivery]:
        ended: list[SettledDelivery] = []
        if delivery.conflate and not self.followed:
            if self._is_overtaken(delivery):
                return [self._settle(delivery, "conflated", now)]
            ended = self._conflate(delivery, now)
        self._newest[delivery.entity] = delivery.sequence
        self._enqueue(delivery, priority)
        if len(self.waiting) > self.limit:
            ended += self._overflow(now)
        self._compact()
        return ended

    def _is_overtaken(self, delivery: QueuedDelivery) -> bool:
        """Whether a newer event of the same entity waits or is in flight."""
        newest = self._conflatable.get((delivery.subscription, delivery.entity), 0)
        other = self.waiting.get(newest) or self.in_flight.get(newest)
        # Of one moment the later in the journal is newer, which may have come first.
        return other is not None and (other.moment, other.sequence) > (delivery.moment, delivery.sequence)

    def _conflate(self, delivery: QueuedDelivery, now: float) -> list[SettledDelivery]:
        """Ends the older waiting, unsent event of the same entity; the newer takes its turn if that keeps the order."""
        key = (delivery.subscription, delivery.entity)
        older = self.waiting.get(self._conflatable.get(key, 0))
        self._conflatable[key] = delivery.sequence
        if older is None or older.attempts:
            return []
        if self._newest.get(older.entity) == older.sequence:
            delivery.turn = older.turn
        ended = self._settle(older, "conflated", now)
        self._conflatable[key] = delivery.sequence
        return [ended]

    def _enqueue(self, delivery: QueuedDelivery, priority: int) -> None:
        sequence, queue = delivery.sequence, self._queues.get(priority)
        if queue is None:
            queue = self._queues[priority] = []
        delivery.priority = priority
        self.waiting[sequence] = delivery
        self._counts[priority] += 1
        self._entries += 1
        heapq.heappush(queue, (delivery.turn, sequence))
        if delivery.expires is not None:
            self._entries += 1
            heapq.heappush(self._expiries, (delivery.expires, sequence))

    def _overflow(self, now: float) -> list[SettledDelivery]:
        ended = []
        while len(self.waiting) > (2 * self.limit if self.followed else self.limit):
            withheld_first = sorted(self._queues, key=lambda priority: (priority != WITHHELD, -priority))
            oldest = next(found for priority in withheld_first if (found := self._head(priority)))
            ended.append(self._settle(oldest, "overflowed", now))
        return ended

    def settle(self, sequence: int, outcome: str, now: float) -> bool:
        """Ends a delivery as another server says that it ended; whether it was outstanding here.

        One that was decided early there, and is not here yet, will not be inserted.
        """
        delivery = self.waiting.get(sequence) or self.in_flight.get(sequence)
        if delivery is not None:
            self._settle(delivery, outcome, now)
        elif self.is_new(sequence) and len(self._ended) < self.limit:
            self._ended.add(sequence)
            heapq.heappush(self._ended_order, sequence)
        return delivery is not None

    def adopt(self, priority_of: PriorityOf, now: float) -> list[SettledDelivery]:
        """What was followed is this server's to end from now on: exactly as if it were inserted now, in its order."""
        self.followed = False
        ended = self.expire(now)
        waiting = sorted(self.waiting.values(), key=lambda delivery: delivery.sequence)
        self.waiting, self._counts, self._queues, self._expiries = {}, Counter(), {}, []
        self._conflatable, self._newest, self._entries = {}, {}, 0
        for delivery in waiting:
            ended += self._admit(delivery, priority_of(delivery), now)
        return ended

    def next(self) -> QueuedDelivery | None:
        """The delivery whose turn it is: the most urgent queue's first; None if nothing but withheld ones waits."""
        for priority in sorted(self._queues):
            head = self._head(priority) if priority != WITHHELD else None
            if head:
                return head
        return None

    @property
    def sendable(self) -> bool:
        """Whether `next` has one: not all that waits is withheld."""
        return len(self.waiting) > self._counts.get(WITHHELD, 0)

    def first(self, count: int) -> list[int]:
        """Sequences that may be among the next to be sent, about the first `count`; not exact, but cheap."""
        for priority in sorted(self._queues):
            if priority != WITHHELD and self._head(priority):
                return [sequence for _, sequence in self._queues[priority][:count] if sequence in self.waiting]
        return []

    def _head(self, priority: int) -> QueuedDelivery | None:
        queue = self._queues[priority]
        while queue:
            delivery = self.waiting.get(queue[0][1])
            if delivery and delivery.priority == priority:
                return delivery
            heapq.heappop(queue)
            self._entries -= 1
        return None

    def send(self, delivery: QueuedDelivery, now: float) -> None:
        """Moves a waiting delivery into flight."""
        self._take_out(delivery)
        delivery.attempts += 1
        delivery.sent = now
        self.in_flight[delivery.sequence] = delivery

    def acknowledge(self, sequences: Iterable[int], now: float) -> list[SettledDelivery]:
        """Ends what the client has; also what an earlier server, or over an earlier connection, was sent."""
        found = (self.in_flight.get(one) or self.waiting.get(one) for one in dict.fromkeys(sequences))
        return [self._settle(delivery, "acknowledged", now) for delivery in found if delivery]

    def take_back(self, priority_of: PriorityOf, now: float) -> list[SettledDelivery]:
        """After a disconnection what is in flight waits again, before what is newer; it may have expired meanwhile."""
        for delivery in sorted(self.in_flight.values(), key=lambda delivery: delivery.sequence):
            self._enqueue(delivery, priority_of(delivery))
        self.in_flight.clear()
        ended = self.expire(now) + self._overflow(now)
        # Who comes and goes all the time, and is sent the same each time, would fill the heaps.
        self._compact()
        return ended

    def expire(self, now: float, most: int | None = None) -> list[SettledDelivery]:
        """Ends what has waited its time to live, at most so many of it; None: all."""
        ended: list[SettledDelivery] = []
        if self.followed:
            return ended
        while self._expiries and self._expiries[0][0] <= now and (most is None or len(ended) < most):
            delivery = self.waiting.get(heapq.heappop(self._expiries)[1])
            self._entries -= 1
            # One that another subscription has taken over may live longer than it was to.
            if delivery and delivery.expires is not None and delivery.expires <= now:
                ended.append(self._settle(delivery, "expired", now))
        return ended

    def next_expiry(self) -> float | None:
        """When something may expire next; None if nothing will."""
        return self._expiries[0][0] if self._expiries and not self.followed else None

    def reorder(self, priority_of: PriorityOf) -> None:
        """Moves what waits to the queues of its present priority: exactly as if inserted anew, one look-up each."""
        for delivery in self.waiting.values():
            delivery.priority = priority_of(delivery)
        self._counts = Counter(delivery.priority for delivery in self.waiting.values())
        self._rebuild()

    def waiting_for(self, subscription: str) -> list[int]:
        """The sequences of what waits for a subscription."""
        return [one.sequence for one in self.waiting.values() if one.subscription == subscription]

    def unsubscribe(
        self, subscription: str, now: float, take_over: TakeOver = _nobody, sequences: Iterable[int] | None = None
    ) -> list[SettledDelivery]:
        """Ends what waits for a subscription that is no more; what is in flight may still be acknowledged.

        A delivery that `take_over` gives to another subscription waits on, in the queue of its priority there.
        `sequences`: of these deliveries alone those that do.
        """
        asked = self.waiting_for(subscription) if sequences is None else sequences
        gone = [one for one in map(self.waiting.get, asked) if one is not None and one.subscription == subscription]
        return [settled for delivery in gone for settled in self._hand_over(delivery, now, take_over)]

    def _hand_over(self, delivery: QueuedDelivery, now: float, take_over: TakeOver) -> list[SettledDelivery]:
        key = (delivery.subscription, delivery.entity)
        priority = take_over(delivery)
        if priority is None:
            return [self._settle(delivery, "unsubscribed", now)]
        if self._conflatable.get(key) == delivery.sequence:
            del self._conflatable[key]
        self._take_out(delivery)
        self._enqueue(delivery, priority)
        return []

    def clear(self, now: float, most: int | None = None) -> list[SettledDelivery]:
        """Ends everything, when the client itself is removed, at most so many of it; None: all."""
        gone = list(islice(chain(self.in_flight.values(), self.waiting.values()), most))
        return [self._settle(delivery, "unsubscribed", now) for delivery in gone]

    def _settle(self, delivery: QueuedDelivery, outcome: str, now: float) -> SettledDelivery:
        self._take_out(delivery)
        self.in_flight.pop(delivery.sequence, None)
        if self._newest.get(delivery.entity) == delivery.sequence:
            del self._newest[delivery.entity]
        key = (delivery.subscription, delivery.entity)
        if self._conflatable.get(key) == delivery.sequence:
            del self._conflatable[key]
        self.settled[outcome] += 1
        return SettledDelivery(delivery, outcome, now)

    def _take_out(self, delivery: QueuedDelivery) -> None:
        if self.waiting.pop(delivery.sequence, None):
            self._counts[delivery.priority] -= 1

    def _compact(self) -> None:
        """Keeps the heaps in proportion to what is there: entries of what is gone are dropped lazily otherwise."""
        if self._entries > 4 * len(self.waiting) + SPARE:
            self._rebuild()

    def _rebuild(self) -> None:
        self._queues = {}
        for delivery in self.waiting.values():
            self._queues.setdefault(delivery.priority, []).append((delivery.turn, delivery.sequence))
        for queue in self._queues.values():
            queue.sort()
        self._expiries = sorted((d.expires, d.sequence) for d in self.waiting.values() if d.expires is not None)
        self._entries = len(self.waiting) + len(self._expiries)

    def by_priority(self) -> dict[int, int]:
        """How many wait per priority; −1: withheld."""
        return {priority: count for priority, count in self._counts.items() if count}

    def balance(self) -> int:
        """What has been queued and is neither settled nor outstanding: always 0."""
        return self.queued - sum(self.settled.values()) - len(self.waiting) - len(self.in_flight)
