"""Early decisions and the pipeline's: each delivery once, in order, whoever was first and whatever ends meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.delivery.queue import DeliveryQueue, QueuedDelivery
from nearcast.model.sequence import position_of, sequence
from nearcast.server.sessions.early_deliveries import DecisionDifference, EarlyDeliveries
from nearcast.server.sessions.journal_tailer import DecidedDelivery

CLIENTS = ("ann", "bob")
ALL = 1 << 40


@dataclass(frozen=True)
class Told:
    """An event: whether it is decided early, who gets it, and of whom that is left to the pipeline."""

    early: bool
    receivers: frozenset[str]
    unsure: frozenset[str]


def row(position: int, client: str, level: int = 0) -> DecidedDelivery:
    """A delivery."""
    return DecidedDelivery(sequence(position, 0), client, "s", level, None, (), None)


@dataclass
class Domain:
    """The journal that servers share: events, how many of them the pipeline has decided, outcomes; what clients got."""

    events: list[Told]
    decided: int = 0
    outcomes: list[tuple[str, int]] = field(default_factory=list)
    first: dict[str, list[int]] = field(default_factory=lambda: {client: [] for client in CLIENTS})

    def rows(self, after: int, through: int) -> list[DecidedDelivery]:
        """What the pipeline decides of some positions."""
        positions = range(after + 1, through + 1)
        return [row(one, client) for one in positions for client in sorted(self.events[one - 1].receivers)]


class Server:
    """One server of the domain: it reads on, decides early, and has some clients."""

    def __init__(self, domain: Domain, clients: set[str], limit: int) -> None:
        self.domain, self.clients = domain, clients
        self.early = EarlyDeliveries(limit, lambda client: client in self.clients)
        self.queues = {client: DeliveryQueue(followed=client not in clients) for client in CLIENTS}
        self.differences: list[DecisionDifference] = []
        self.followed = 0
        self.early.leave_through(len(domain.events))
        self.follow()
        self._queue(domain.rows(0, domain.decided), early=False)
        self.early.confirm_through(domain.decided)

    def decide(self, count: int) -> None:
        """Decides the next events early."""
        through = min(len(self.domain.events), self.early.through + count)
        span = range(self.early.through + 1, through + 1)
        told = {one: self.domain.events[one - 1] for one in span if self.domain.events[one - 1].early}
        unsure = [(one, client) for one, event in told.items() for client in sorted(event.unsure)]
        rows = [row(one, client) for one, event in told.items() for client in sorted(event.receivers - event.unsure)]
        self._queue(self.early.decide([*told], rows, unsure, through), early=True)

    def confirm(self, count: int, cut: bool) -> None:
        """Reads on what the pipeline decided, in two pieces if `cut`."""
        through = min(self.domain.decided, self.early.confirmed + count)
        rows = self.domain.rows(self.early.confirmed, through)
        half = len(rows) // 2 if cut else 0
        for piece in (rows[:half], rows[half:]):
            self.differences += self.early.confirm(piece)
            self._queue(piece, early=False)
        released, surplus = self.early.confirm_through(through)
        self.differences += surplus
        self._queue(released, early=True)

    def _queue(self, rows: list[DecidedDelivery], early: bool) -> None:
        for one in rows:
            self.queues[one.client].insert(QueuedDelivery(one.sequence, "s", "e", 0, early=early), 0, 0.0)

    def send(self, client: str, count: int) -> None:
        """Sends some of what waits."""
        queue = self.queues[client]
        while client in self.clients and count and (delivery := queue.next()):
            queue.send(delivery, 0.0)
            position, first = position_of(delivery.sequence), self.domain.first[client]
            if position not in first:
                first.append(position)
            count -= 1

    def acknowledge(self, client: str, count: int) -> None:
        """The client acknowledges the first of what it was sent."""
        for settled in self.queues[client].acknowledge([*self.queues[client].in_flight][:count], 0.0):
            self.domain.outcomes.append((client, settled.delivery.sequence))

    def follow(self) -> None:
        """Hears what ended, here or elsewhere."""
        for client, ended in self.domain.outcomes[self.followed :]:
            self.queues[client].settle(ended, "acknowledged", 0.0)
        self.followed = len(self.domain.outcomes)

    def leave(self, client: str) -> None:
        """Lets go of a client."""
        self.clients.discard(client)
        self.queues[client].followed = True
        self.queues[client].take_back(lambda delivery: 0, 0.0)

    def adopt(self, client: str) -> None:
        """Has a client from now on."""
        self.follow()
        self.clients.add(client)
        self.queues[client].adopt(lambda delivery: 0, 0.0)
        self.early.adopt(client)


def steps_of(chance: random.Random, count: int) -> Iterator[tuple[Any, ...]]:
    """Steps as they may come: the servers read on more often than anything rare happens."""
    names = ["publish", "decide", "pipeline", "confirm", "send", "acknowledge", "follow", "move", "restart"]
    for name in chance.choices(names, (4, 6, 3, 3, 5, 3, 2, 1, 1), k=count):
        few, which, client = chance.randint(1, 4), chance.randrange(2), chance.choice(CLIENTS)
        match name:
            case "publish":
                yield name, [_told(chance) for _ in range(few)]
            case "decide":
                yield name, which, few
            case "confirm":
                yield name, which, few, chance.random() < 0.5
            case "pipeline":
                yield name, few
            case "send" | "acknowledge":
                yield name, client, few
            case "move":
                yield name, client
            case _:
                yield name, which


def _told(chance: random.Random) -> Told:
    receivers, unsure = (frozenset(one for one in CLIENTS if chance.random() < share) for share in (0.8, 0.15))
    return Told(chance.random() < 0.7, receivers, unsure)


class Run:
    """Two servers in any interleaving of their steps, and those of the pipeline and of clients."""

    def __init__(self, limit: int) -> None:
        self.limit, self.domain = limit, Domain([])
        self.servers = [Server(self.domain, {"ann", "bob"}, limit), Server(self.domain, set(), limit)]
        self.differences: list[DecisionDifference] = []

    def home(self, client: str) -> Server:
        """Who has a client."""
        return next(one for one in self.servers if client in one.clients)

    def step(self, name: str, *given: Any) -> None:
        """Does one step."""
        getattr(self, name)(*given)

    def publish(self, events: list[Told]) -> None:
        self.domain.events += events

    def decide(self, which: int, count: int) -> None:
        self.servers[which].decide(count)

    def pipeline(self, count: int) -> None:
        self.domain.decided = min(len(self.domain.events), self.domain.decided + count)

    def confirm(self, which: int, count: int, cut: bool) -> None:
        self.servers[which].confirm(count, cut)

    def send(self, client: str, count: int) -> None:
        self.home(client).send(client, count)

    def acknowledge(self, client: str, count: int) -> None:
        self.home(client).acknowledge(client, count)

    def follow(self, which: int) -> None:
        self.servers[which].follow()

    def move(self, client: str) -> None:
        old = self.home(client)
        new = next(one for one in self.servers if one is not old)
        old.leave(client)
        new.adopt(client)

    def restart(self, which: int) -> None:
        self.differences += self.servers[which].differences
        self.servers[which] = Server(self.domain, self.servers[which].clients, self.limit)

    def finish(self) -> None:
        """Everything is decided, sent and acknowledged."""
        for one in self.servers:
            one.decide(ALL)
            self.pipeline(ALL)
            one.confirm(ALL, False)
        for name in CLIENTS:
            self.send(name, ALL)
            self.acknowledge(name, ALL)
        for one in self.servers:
            one.follow()
            self.differences += one.differences


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 200), st.sampled_from([2, 12, 1_000]))
def test_each_delivery_ends_once_and_comes_in_order_whoever_is_first(seed: int, count: int, limit: int) -> None:
    """In any interleaving of two servers, the pipeline and clients, with restarts, moves and a bound that is met: each
    delivery has one outcome, events that are decided early come first in their order, nobody differs, nothing is left.
    """
    run = Run(limit)
    for name, *rest in steps_of(random.Random(seed), count):
        run.step(name, *rest)
    run.finish()
    everything = Counter((one.client, one.sequence) for one in run.domain.rows(0, len(run.domain.events)))
    assert everything == Counter(run.domain.outcomes)
    assert [] == run.differences
    for name in CLIENTS:
        prompt = [one for one in run.domain.first[name] if run.domain.events[one - 1].early]
        assert sorted(prompt) == prompt
    for server in run.servers:
        assert [0, 0] == [one.balance() for one in server.queues.values()]
        assert [] == [one for queue in server.queues.values() for one in (*queue.waiting, *queue.in_flight)]
        assert [({}, set()), ({}, set())] == [(one._early, one._ended) for one in server.queues.values()]
        assert (0, {}, {}) == (server.early.size, server.early._held, server.early._gates)


@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [
        ([row(1, "ann")], [], "surplus"),
        ([], [row(1, "ann")], "missing"),
        ([row(1, "ann")], [row(1, "ann", 1)], "other"),
    ],
)
def test_a_difference_is_found(early: list[DecidedDelivery], late: list[DecidedDelivery], kind: str) -> None:
    """A delivery that only one of both decided, or that they decided otherwise."""
    found = EarlyDeliveries(10, lambda client: True)
    found.decide([1], early, [], 1)
    differences = found.confirm(late)
    _, surplus = found.confirm_through(1)
    assert [DecisionDifference(kind, 1, "ann")] == [*differences, *surplus]


def test_what_stands_still_is_bounded_and_then_left_to_the_pipeline() -> None:
    """Until half of the limit is there events go on early; once the pipeline goes on, so do they."""
    found = EarlyDeliveries(10, lambda client: True)
    sent = [one for position in range(1, 11) for one in found.decide([position], [row(position, "ann")], [], position)]
    assert [1, 2, 3, 4, 5] == [position_of(one.sequence) for one in sent]
    assert (10, True) == (found.size, found.resting)
    at_ten = partial(found.confirm, [row(position, "ann") for position in range(1, 11)])
    assert [] == at_ten()
    assert ([], []) == found.confirm_through(10)
    assert [row(11, "ann")] == found.decide([11], [row(11, "ann")], [], 11)
