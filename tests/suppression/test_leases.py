"""What publishers hold back under leases: relations are told as if every report had come."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.event import Event, Place
from nearcast.suppression.ingest_filter import IngestFilter
from nearcast.suppression.lease_holder import LeaseHolder, ReturnedLease
from nearcast.suppression.lease_registry import LeaseRegistry
from nearcast.suppression.leases import Lease, LeasedGuard, lease_json, lease_of
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.guards import Anywhere, Guard, Line, Nowhere, Ring, Same, TakenReport
from tests.relations.stories import report
from tests.suppression.test_ingest_filter import (
    HERE,
    RELATIONS,
    Journal,
    by_relation,
    registry,
    stories,
    told_of_all,
    walks,
    without_dwell,
)

NOON = datetime(2026, 1, 1, tzinfo=UTC)
FOREVER = 1e9


@dataclass
class Post:
    """Events on their way, the leases that come back with them; `fresh`: which event is no kept one."""

    events: list[Event]
    returned: set[int]
    fresh: Event


@dataclass
class Publisher:
    """A publisher and its connection: messages either way arrive in order, posts of one subject too."""

    name: str
    holding: LeaseHolder[Event] = field(default_factory=LeaseHolder)
    up: deque[tuple[str, object]] = field(default_factory=deque)
    down: deque[tuple[str, object]] = field(default_factory=deque)
    posts: dict[str, deque[Post]] = field(default_factory=dict)


class World:
    """An entry node with leases, publishers, and the stages; `order` is what counts as having come, in order."""

    def __init__(self, stories: dict[str, list[Event]], of: dict[str, str], lending: bool = True) -> None:
        self.journal, self.entry = Journal(), IngestFilter()
        self.entry.define(registry(), 0)
        self.leases = LeaseRegistry(self.entry, FOREVER)
        self.stories = {subject: deque(events) for subject, events in stories.items()}
        self.of, self.lending = of, lending
        self.publishers = {name: Publisher(name) for name in of.values()}
        for one in self.publishers.values():
            one.holding.heard(FOREVER)
            self.leases.heard(one.name, 0.0)
        self.queue: deque[tuple[Event, str, set[int], bool]] = deque()
        self.answers: deque[tuple[str, str]] = deque()
        self.called: set[int] = set()
        self.order: list[Event] = []
        self.sent = self.held = 0
        self.late: list[object] = []

    def actions(self) -> list[tuple[str, str]]:
        """What can happen next."""
        found = [("produce", one) for one, left in self.stories.items() if left and not self._posting(one)]
        for publisher in self.publishers.values():
            found += [("up", publisher.name)] * bool(publisher.up) + [("down", publisher.name)] * bool(publisher.down)
            found += [("post", subject) for subject, posts in publisher.posts.items() if posts]
        return found + [("take", "")] * bool(self.queue) + [("answer", "")] * bool(self.answers)

    def _posting(self, subject: str) -> bool:
        publisher = self.publishers[self.of[subject]]
        return bool(publisher.posts.get(subject)) or publisher.holding._under_way[subject] > 0

    def produce(self, subject: str) -> None:
        """The publisher holds its next report back, or posts it behind what it kept."""
        publisher, event = self.publishers[self.of[subject]], self.stories[subject].popleft()
        if publisher.holding.hold_back(event, event, 0.0):
            self.held += 1
            self.order.append(event)
            return
        back = publisher.holding.give_back(subject)
        kept = [back.kept] if back is not None and back.kept is not None else []
        publisher.holding.sending([subject])
        publisher.posts.setdefault(subject, deque()).append(
            Post([*kept, event], {back.lease} if back is not None else set(), event)
        )

    def post(self, subject: str) -> None:
        """A post arrives, and waits for its turn."""
        publisher = self.publishers[self.of[subject]]
        post = publisher.posts[subject].popleft()
        self.sent += 1
        for event in post.events:
            self.queue.append((event, publisher.name, post.returned, event is post.fresh))

    def take(self, _: str) -> None:
        """The first event is taken, unless a lease has to come back before."""
        event, holder, returned, fresh = self.queue[0]
        needed = self.leases.needed(event, holder, returned, 0.0)
        if needed:
            for one in needed:
                if one.lease.id not in self.called:
                    self.called.add(one.lease.id)
                    self.publishers[one.holder].down.append(("recall", one.lease.id))
            return
        self.queue.popleft()
        self._enter(event)
        if fresh:
            self.order.append(event)
            self.answers.append((holder, event.entity))

    def _enter(self, event: Event) -> None:
        published = self.entry.admit(event)
        self.entry.written(published, self.journal.append(published))

    def answer(self, _: str) -> None:
        """A publisher hears that its post has arrived, and asks for a lease."""
        holder, subject = self.answers.popleft()
        publisher = self.publishers[holder]
        asking = publisher.holding.sent([subject])
        publisher.up.extend(("ask", one) for one in asking if self.lending)

    def down(self, name: str) -> None:
        """A message reaches a publisher."""
        publisher = self.publishers[name]
        kind, about = publisher.down.popleft()
        if kind == "lease":
            assert isinstance(about, Lease)
            if not publisher.holding.begin_lease(about):
                publisher.up.append(("returned", ReturnedLease(about.id, None)))
        else:
            assert isinstance(about, int)
            publisher.up.append(("returned", publisher.holding.recalled(about)))

    def up(self, name: str) -> None:
        """A message reaches the entry node: what was kept is taken as if it had come in time."""
        kind, about = self.publishers[name].up.popleft()
        if kind == "ask":
            self.leases.ask(name, str(about), ["car"], 0.0)
            return
        assert isinstance(about, ReturnedLease)
        kept = about.kept
        if isinstance(kept, Event):
            # Before the lease ends, so that its guards are still those in force; one that was over has come by a post.
            assert about.lease not in self.leases._open or not [
                one for one in self.leases.needed(kept, None, set(), -1e6) if one.lease.id != about.lease
            ]
            self._enter(kept)
        self.leases.end(about.lease)

    def offer(self) -> None:
        """Leases go to publishers."""
        for one in self.leases.offers(0.0):
            data = lease_json(one.lease)
            assert data is not None
            told = lease_of(orjson.loads(orjson.dumps(data)))
            self.publishers[one.holder].down.append(("lease", told))

    def end(self) -> None:
        """Every publisher ends, and the node."""
        for publisher in self.publishers.values():
            for back in publisher.holding.give_back_all():
                if back.kept is not None:
                    self._enter(back.kept)
        self.journal.append(self.entry.release())
        self.journal.decide()


def run(events: list[Event], of: dict[str, str], chance: random.Random, relaxed: float, lending: bool = True) -> World:
    """Lets all happen in a random order: delays, recalls that cross posts, word of the pipeline late."""
    stories: dict[str, list[Event]] = {subject: [] for subject in of}
    for event in events:
        stories[event.entity].append(event)
    world = World(stories, of, lending)
    while actions := world.actions():
        kind, about = chance.choice(actions)
        getattr(world, kind)(about)
        if chance.random() > relaxed:
            world.entry.learn(world.journal.decide())
        if chance.random() > relaxed:
            world.offer()
    assert len(events) == world.sent + world.held
    world.end()
    return world


OWNERS = st.sampled_from(
    [
        {"a": "p", "b": "q", "c": "p", "d": "r"},
        {"a": "p", "b": "p", "c": "p", "d": "p"},
        {"a": "p", "b": "q", "c": "r", "d": "s"},
    ]
)


@settings(max_examples=60, deadline=None)
@given(stories(), OWNERS, st.randoms(use_true_random=False), st.sampled_from([0.0, 0.3, 0.8]))
def test_relations_are_told_as_if_every_report_had_come(
    events: list[Event], of: dict[str, str], chance: random.Random, relaxed: float
) -> None:
    """Whatever crosses: the same begins and ends, at the same places, as of evaluating every report."""
    world = run(events, of, chance, relaxed)
    assert _begins_and_ends(told_of_all(world.order)) == _begins_and_ends(world.journal.told)


def _begins_and_ends(told: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Of relations that are told at once: when one that has to last is told rests on which other events enter."""
    found = by_relation(without_dwell(told))
    return {id: each for id, each in found.items() if id != "apart"}


@pytest.mark.parametrize("relaxed", [0.0, 0.5])
def test_of_slow_walks_little_is_sent(relaxed: float) -> None:
    """Most reports never leave their publisher; without leases all do."""
    of = {"a": "p", "b": "q", "c": "p", "d": "r"}
    events = walks(600)
    with_leases, without = (run(events, of, random.Random(5), relaxed, lending) for lending in (True, False))
    assert (600, 0) == (without.sent, without.held)
    assert with_leases.held > 200
    assert by_relation(without_dwell(told_of_all(with_leases.order))) == by_relation(
        without_dwell(with_leases.journal.told)
    )


PLACE = Place("planar", 1.5, -2.0)
CENTRE = TakenReport(0, PLACE, 12.5)


@pytest.mark.parametrize(
    "guard",
    [
        Anywhere(),
        Nowhere(),
        Same(None),
        Same(PLACE),
        Same(3),
        Ring(DIMENSIONS["planar"], CENTRE, 4.25, 3.0, True),
        Ring(DIMENSIONS["planar"], CENTRE, float("inf")),
        Ring(DIMENSIONS["ratio"], TakenReport(0, 0.1, 1.0), 1 / 3),
        Line(DIMENSIONS["planar"], CENTRE, (1.5, -2.0), (0.6, 0.8), 1e-3),
    ],
)
def test_leases_travel(guard: Guard) -> None:
    """As JSON, and come back as they were."""
    lease = Lease(3, "a", frozenset({"car", "bus"}), NOON, (LeasedGuard("", guard), LeasedGuard("v", Anywhere())))
    assert lease == lease_of(orjson.loads(orjson.dumps(lease_json(lease))))


def test_what_does_not_travel_is_not_lent() -> None:
    """Guards of plug-ins, values that JSON does not hold; of a kind that is not known nothing is held back."""

    class Own:
        def permits(self, report: TakenReport) -> bool:
            """Yes."""
            return True

    for guard in (Own(), Same(1 << 70), Same(NOON)):
        assert lease_json(Lease(1, "a", frozenset({"car"}), NOON, (LeasedGuard("", guard),))) is None
    unknown = {"id": 1, "subject": "a", "types": [], "after": "2026-01-01T00:00:00Z"}
    assert Nowhere() == lease_of({**unknown, "guards": [{"reads": "", "guard": "new"}]}).guards[0].guard


def lease(id: int = 1) -> Lease:
    return Lease(id, "a", frozenset({"car"}), NOON, (LeasedGuard("", Ring(DIMENSIONS["planar"], CENTRE, 5.0)),))


def at(x: float, second: float, **more: object) -> Event:
    own = {"time": NOON + timedelta(seconds=second), **more}
    return replace(report("a", x, second=second), **own)  # type: ignore[arg-type]


def test_what_a_publisher_holds_back() -> None:
    """What is newer, of a type that was lent, inside; as long as the server was heard."""
    holding: LeaseHolder[int] = LeaseHolder()
    holding.heard(10.0)
    assert not holding.hold_back(at(1.5, 1), 1, 5.0)
    assert holding.begin_lease(lease())
    assert not holding.hold_back(at(100.0, 1), 2, 5.0)
    assert not holding.hold_back(at(1.5, 1, type="bus"), 2, 5.0)
    assert not holding.hold_back(at(1.5, 0), 2, 5.0)
    assert not holding.hold_back(at(1.5, 1, time=None), 2, 5.0)
    assert not holding.hold_back(at(1.5, 1), 2, 10.0)
    assert [True, False, True] == [holding.hold_back(at(1.5, second), second, 5.0) for second in (2, 2, 3)]
    assert [] == holding.overdue(9.0)
    assert [ReturnedLease(1, 3)] == holding.overdue(10.0)
    # It is on its way by itself, and may come later than this.
    assert ReturnedLease(1, 3) == holding.recalled(1)


def test_no_lease_while_something_is_under_way() -> None:
    """It is asked for once all has arrived, once."""
    holding: LeaseHolder[int] = LeaseHolder()
    holding.sending(["a", "a", "b"])
    assert (["b"], [], False) == (holding.sent(["b"]), holding.sent(["a"]), holding.begin_lease(lease()))
    assert (["a"], True) == (holding.sent(["a"]), holding.begin_lease(lease()))
    holding.sending(["a"])
    assert [] == holding.sent(["a"])


def test_what_is_on_its_way_comes_with_the_answer_to_a_call() -> None:
    """The call may be for an event behind which it stands; once it has arrived there is nothing more to say."""
    holding: LeaseHolder[int] = LeaseHolder()
    holding.heard(FOREVER)
    assert holding.begin_lease(lease())
    assert holding.hold_back(at(1.0, 2.0), 7, 0.0)
    assert ReturnedLease(1, 7) == holding.give_back("a")
    holding.sending(["a"])
    assert ReturnedLease(1, 7) == holding.recalled(1)
    holding.sent(["a"])
    assert ReturnedLease(1, None) == holding.recalled(1)


def node() -> tuple[IngestFilter, LeaseRegistry, Journal]:
    """An entry node at which `a` and `b` are known to be far apart."""
    entry, journal = IngestFilter(), Journal()
    entry.define(registry(), 0)
    for number, (who, x) in enumerate((("a", 0.0), ("b", 100.0), ("c", 300.0), ("d", 0.0))):
        one = replace(report(who, x, second=number, v=1.0), id=who)
        entry.written(entry.admit(one), journal.append([one]))
    entry.learn(journal.decide())
    return entry, LeaseRegistry(entry, 2.0), journal


def test_who_publishes_with_others_gets_no_lease() -> None:
    """Neither of both, for a while; nor who is not heard."""
    _, leases, _ = node()
    leases.ask("p", "a", ["car"], 0.0)
    assert [] == leases.offers(0.0)
    leases.heard("p", 0.0)
    leases.needed(report("a", 1.0, second=9), None, set(), 0.0)
    assert [] == leases.offers(0.0)
    leases.ask("p", "a", ["car"], 61.0)
    leases.heard("p", 61.0)
    assert ["a"] == [one.lease.subject for one in leases.offers(61.0)]
    leases.ask("q", "a", ["car"], 61.0)
    leases.end(1)
    leases.ask("p", "a", ["car"], 61.0)
    assert [] == leases.offers(61.0)


def test_what_is_between_any_entities_is_not_lent() -> None:
    """Their rings shrink with what others publish; of other types the guards are lent."""
    entry, _, _ = node()
    any_cars = {"id": "any", "a": "type = 'car'", "b": "type = 'bus'", "when": "distance(a, b) < 3"}
    strategy = {"strategy": "range-ring"}
    entry.define(registry((*RELATIONS, relation_document({**any_cars, **strategy}, HERE))), 9)
    assert entry.lease_for("a", ["car"]) is None
    entry.define(registry((*RELATIONS, relation_document({**any_cars, "a": "type = 'tram'", **strategy}, HERE))), 9)
    found = entry.lease_for("a", ["car", "bus"])
    assert found
    assert {"car"} == found[0]


def test_a_publisher_that_is_silent_is_not_waited_for() -> None:
    """Until then what leaves the other guard waits; what stays inside does not; definitions wait for all."""
    entry, leases, _ = node()
    leases.heard("p", 0.0)
    leases.ask("p", "a", ["car"], 0.0)
    [one] = leases.offers(0.0)
    inside, outside = report("b", 100.5, second=20, v=1.0), report("b", 5.0, second=20, v=1.0)
    control = replace(inside, type="nearcast.client")
    assert [[], [one], [one]] == [leases.needed(event, "q", set(), 1.0) for event in (inside, outside, control)]
    assert ([], 2.0) == (leases.overdue(1.9), leases.until(1))
    assert [one] == leases.overdue(2.0)
    assert (set(), [], 0.0) == (entry.leased, leases.needed(outside, "q", set(), 2.0), leases.until(1))
