"""What waits for one client: order, reordering, ends, and a balance, as properties over any history."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nearcast.delivery.queue import DeliveryQueue, QueuedDelivery, SettledDelivery, present_level
from nearcast.model.subscription import ClientProfile, Roles

PRIORITIES = st.integers(-1, 2)


def delivery(position: int, entity: str = "e", subscription: str = "s", **more: object) -> QueuedDelivery:
    return QueuedDelivery(position, subscription, entity, level=2, **more)  # type: ignore[arg-type]


def drained(waiting: DeliveryQueue, now: float = 0.0) -> list[int]:
    """Sends everything that may be sent; the positions in their order."""
    order = []
    while one := waiting.next():
        waiting.send(one, now)
        order.append(one.sequence)
    return order


def test_the_most_urgent_goes_first_and_within_a_priority_the_first() -> None:
    """N queues, each first-in first-out."""
    waiting = DeliveryQueue()
    for position, priority in enumerate([2, 0, 1, 0, 2], 1):
        waiting.insert(delivery(position), priority, 0.0)
    assert [2, 4, 3, 1, 5] == drained(waiting)


def test_what_is_withheld_waits_and_is_sent_once_a_change_lets_it() -> None:
    """Priority −1 is not sent, and not dropped."""
    waiting = DeliveryQueue()
    waiting.insert(delivery(1), -1, 0.0)
    assert waiting.next() is None
    waiting.reorder(lambda _: 1)
    assert [1] == drained(waiting)


@given(st.lists(PRIORITIES, max_size=30), st.lists(PRIORITIES, min_size=30, max_size=30))
def test_reordering_equals_inserting_anew(before: list[int], after: list[int]) -> None:
    """After a change of context, role or matrix the order is as if it had been so from the beginning."""
    moved, anew = DeliveryQueue(), DeliveryQueue()
    for position, priority in enumerate(before, 1):
        moved.insert(delivery(position), priority, 0.0)
        anew.insert(delivery(position), after[position - 1], 0.0)
    moved.reorder(lambda one: after[one.sequence - 1])
    assert drained(anew) == drained(moved)


def test_what_came_already_is_not_queued_again() -> None:
    """Deliveries ascend by position; reading a range of the journal again changes nothing."""
    waiting = DeliveryQueue()
    waiting.insert(delivery(5), 0, 0.0)
    waiting.insert(delivery(5), 0, 0.0)
    waiting.insert(delivery(4), 0, 0.0)
    assert (1, [5]) == (waiting.queued, drained(waiting))


def test_only_the_newest_of_an_entity_waits_and_takes_the_turn_of_the_older() -> None:
    """A fast entity does not lose its turn to slower ones by being updated."""
    waiting = DeliveryQueue()
    waiting.insert(delivery(1, "fast", conflate=True), 0, 0.0)
    waiting.insert(delivery(2, "slow", conflate=True), 0, 0.0)
    ended = waiting.insert(delivery(3, "fast", conflate=True), 0, 0.0)
    assert [(1, "conflated")] == [(one.delivery.sequence, one.outcome) for one in ended]
    assert [3, 2] == drained(waiting)


def test_a_late_report_does_not_replace_a_newer_one() -> None:
    """Newer is what is of a later moment: who conflates is never left with the older report alone."""
    waiting = DeliveryQueue()
    waiting.insert(delivery(1, conflate=True, moment=10.0), 0, 0.0)
    ended = waiting.insert(delivery(2, conflate=True, moment=0.0), 0, 0.0)
    assert [(2, "conflated")] == [(one.delivery.sequence, one.outcome) for one in ended]
    [sent] = waiting.waiting.values()
    waiting.send(sent, 1.0)
    ended = waiting.insert(delivery(3, conflate=True, moment=9.0), 0, 1.0)
    assert [(3, "conflated")] == [(one.delivery.sequence, one.outcome) for one in ended], "the newer is on its way"
    assert 0 == waiting.balance()


def test_a_newer_event_does_not_overtake_another_of_its_entity_by_taking_a_turn() -> None:
    """Where something of the entity, by another subscription, lies in between, the newer one goes to the end."""
    waiting = DeliveryQueue()
    waiting.insert(delivery(1, "u", "conflating", conflate=True), 0, 0.0)
    waiting.insert(delivery(2, "u", "plain"), 0, 0.0)
    waiting.insert(delivery(3, "u", "conflating", conflate=True), 0, 0.0)
    assert [2, 3] == drained(waiting)


def test_what_was_sent_is_not_conflated() -> None:
    """The client may have it: it is sent again until it is acknowledged."""
    waiting = DeliveryQueue()
    waiting.insert(delivery(1, conflate=True), 0, 0.0)
    drained(waiting)
    waiting.take_back(lambda _: 0, 1.0)
    assert [] == waiting.insert(delivery(2, conflate=True), 0, 1.0)
    assert [1, 2] == drained(waiting)


def test_what_is_unacknowledged_goes_again_before_what_is_newer() -> None:
    """After a disconnection the order within a priority is kept."""
    waiting = DeliveryQueue()
    for position in (1, 2):
        waiting.insert(delivery(position), 0, 0.0)
    drained(waiting)
    waiting.acknowledge([1], 1.0)
    waiting.insert(delivery(3), 0, 1.0)
    waiting.take_back(lambda _: 0, 2.0)
    assert [2, 3] == drained(waiting)


def test_what_waits_too_long_expires_also_after_it_was_in_flight() -> None:
    """The time to live ends waiting; what is in flight ends by acknowledgement, or expires once it waits again."""
    waiting = DeliveryQueue()
    waiting.insert(delivery(1, expires=5.0), 0, 0.0)
    drained(waiting)
    assert [] == waiting.expire(6.0)
    [ended] = waiting.take_back(lambda _: 0, 7.0)
    assert ("expired", 7.0) == (ended.outcome, ended.time)


def test_beyond_the_limit_the_least_urgent_oldest_gives_way() -> None:
    """Withheld ones first, then the least urgent queue's oldest."""
    waiting = DeliveryQueue(limit=2)
    waiting.insert(delivery(1), 0, 0.0)
    waiting.insert(delivery(2), 2, 0.0)
    ended = waiting.insert(delivery(3), -1, 0.0) + waiting.insert(delivery(4), 2, 0.0)
    assert [(3, "overflowed"), (2, "overflowed")] == [(one.delivery.sequence, one.outcome) for one in ended]


def test_unsubscribing_ends_what_waits_for_it_only() -> None:
    """What is in flight may still be acknowledged; other subscriptions are untouched."""
    waiting = DeliveryQueue()
    waiting.insert(delivery(1, subscription="gone"), 0, 0.0)
    waiting.send(waiting.waiting[1], 0.0)
    waiting.insert(delivery(2, subscription="gone"), 0, 0.0)
    waiting.insert(delivery(3, subscription="kept"), 0, 0.0)
    assert [2] == [one.delivery.sequence for one in waiting.unsubscribe("gone", 1.0)]
    assert ([3], 0) == (drained(waiting), waiting.balance())


def test_what_another_subscription_takes_over_waits_on_there() -> None:
    """In the queue of its priority there, with the time to live that it has there; the others end."""
    waiting = DeliveryQueue()
    for position, others in ((1, (("kept", 0),)), (2, ())):
        waiting.insert(delivery(position, subscription="gone", others=others, expires=5.0), 0, 0.0)
    waiting.insert(delivery(3, subscription="kept"), 1, 0.0)

    def take_over(one: QueuedDelivery) -> int | None:
        if not one.others:
            return None
        one.subscription, one.expires = "kept", 9.0
        return 2

    assert [2] == [one.delivery.sequence for one in waiting.unsubscribe("gone", 1.0, take_over)]
    assert ([], {1: 1, 2: 1}) == (waiting.expire(5.0), waiting.by_priority())
    assert [1] == [one.delivery.sequence for one in waiting.expire(9.0)]
    assert ([3], 0) == (drained(waiting), waiting.balance())


def test_the_level_follows_the_present_role_or_the_default() -> None:
    """A role and task with a vector that is not listed are not selected; those without a vector count as ("", "")."""
    roles = Roles({("leader", "attack"): {}, ("scout", "attack"): {}}, default=("leader", "attack"))
    listed = {("leader", "attack"): 2, ("", ""): 1}
    assert 2 == present_level(0, listed, ClientProfile("a"), roles)
    assert -1 == present_level(0, listed, ClientProfile("a", "scout", "attack"), roles)
    assert 1 == present_level(0, listed, ClientProfile("a", "cook", "lunch"), roles)
    assert 1 == present_level(1, None, ClientProfile("a", "scout", "attack"), roles)


@dataclass
class Model:
    """What a client was sent, by entity and subscription, to check the order against."""

    outcomes: Counter[str] = field(default_factory=Counter)


class AnyHistory(RuleBasedStateMachine):
    """Any history of insertions, sendings, acknowledgements, disconnections and changes keeps the promises."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = DeliveryQueue(limit=12)
        self.position, self.now = 0, 0.0
        self.ended: dict[int, str] = {}
        self.priorities = [0, 1, 2, -1, 1]
        self.sent: list[QueuedDelivery] = []

    def priority_of(self, one: QueuedDelivery) -> int:
        return self.priorities[one.sequence % len(self.priorities)]

    def note(self, settled: list[SettledDelivery]) -> None:
        for one in settled:
            assert one.delivery.sequence not in self.ended, "a delivery ends once"
            self.ended[one.delivery.sequence] = one.outcome

    @rule(
        entity=st.sampled_from("xyz"),
        subscription=st.sampled_from(["s", "t"]),
        lives=st.none() | st.integers(1, 5),
        moment=st.sampled_from([0.0, 0.0, 1.0, 2.0]),
    )
    def insert(self, entity: str, subscription: str, lives: int | None, moment: float) -> None:
        self.position += 1
        expires = None if lives is None else self.now + lives
        conflate = subscription == "s"
        one = delivery(self.position, entity, subscription, expires=expires, conflate=conflate, moment=moment)
        self.note(self.waiting.insert(one, self.priority_of(one), self.now))
        newer = [o for o in self.waiting.waiting.values() if o.conflate and o.entity == entity and o.moment > moment]
        assert not (conflate and newer and one.sequence in self.waiting.waiting), "the older does not wait beside it"

    @rule()
    def send(self) -> None:
        one = self.waiting.next()
        if one is None:
            assert all(self.priority_of(other) == -1 for other in self.waiting.waiting.values())
            return
        others = [other for other in self.waiting.waiting.values() if self.priority_of(other) >= 0]
        assert self.priority_of(one) == min(self.priority_of(other) for other in others)
        same = [o.sequence for o in others if (o.entity, self.priority_of(o)) == (one.entity, self.priority_of(one))]
        assert one.sequence == min(same), "within a priority the order of an entity is kept"
        self.waiting.send(one, self.now)

    @precondition(lambda self: self.waiting.in_flight)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from(sorted(self.waiting.in_flight)))
        self.note(self.waiting.acknowledge([position, position, 10_000], self.now))

    @rule()
    def disconnect(self) -> None:
        self.note(self.waiting.take_back(self.priority_of, self.now))

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.note(self.waiting.expire(self.now))
        assert all(one.expires is None or one.expires > self.now for one in self.waiting.waiting.values())

    @rule(priorities=st.lists(PRIORITIES, min_size=5, max_size=5))
    def change(self, priorities: list[int]) -> None:
        self.priorities = priorities
        self.waiting.reorder(self.priority_of)

    @rule(subscription=st.sampled_from(["s", "t"]))
    def unsubscribe(self, subscription: str) -> None:
        self.note(self.waiting.unsubscribe(subscription, self.now))

    @invariant()
    def everything_is_accounted_for(self) -> None:
        outstanding = {*self.waiting.waiting, *self.waiting.in_flight}
        assert set(range(1, self.position + 1)) == outstanding | set(self.ended)
        assert not outstanding & set(self.ended)
        assert Counter(self.ended.values()) == self.waiting.settled
        assert self.waiting.balance() == 0
        by_priority = Counter(one.priority for one in self.waiting.waiting.values())
        assert by_priority == self.waiting.by_priority()
        assert len(self.waiting.waiting) <= self.waiting.limit

    @invariant()
    def it_is_known_whether_something_may_be_sent(self) -> None:
        assert self.waiting.sendable == (self.waiting.next() is not None)

    @invariant()
    def the_entries_of_the_heaps_are_counted(self) -> None:
        heaps = [*self.waiting._queues.values(), self.waiting._expiries]
        assert self.waiting._entries == sum(map(len, heaps))

    @invariant()
    def of_a_conflating_subscription_one_unsent_event_of_an_entity_waits(self) -> None:
        keys = [one.entity for one in self.waiting.waiting.values() if one.conflate and not one.attempts]
        assert len(keys) == len(set(keys))


TestAnyHistory = AnyHistory.TestCase


def test_memory_is_in_proportion_to_what_waits() -> None:
    """Conflated updates leave no trace in the queues."""
    waiting = DeliveryQueue()
    for position in range(1, 20_001):
        waiting.insert(delivery(position, f"e{position % 5}", conflate=True, expires=1e9), 0, 0.0)
    kept = sum(len(queue) for queue in waiting._queues.values()) + len(waiting._expiries)
    assert (5, True) == (len(waiting.waiting), kept < 200)


def test_memory_does_not_grow_with_reconnections() -> None:
    """A client that comes and goes, and is sent the same each time, leaves no trace in the queues."""
    waiting = DeliveryQueue()
    for position in range(1, 11):
        waiting.insert(delivery(position, expires=1e9), 0, 0.0)
    for _ in range(1_000):
        drained(waiting)
        waiting.take_back(lambda _: 0, 0.0)
    kept = sum(len(queue) for queue in waiting._queues.values()) + len(waiting._expiries)
    assert (10, True) == (len(waiting.waiting), kept < 200)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), PRIORITIES, st.booleans(), st.floats(1, 9)), max_size=12),
    st.sets(st.integers(1, 12)),
    st.integers(1, 6),
)
def test_what_is_followed_and_adopted_is_as_if_it_were_inserted_then(
    came: list[tuple[str, int, bool, float]], ended: set[int], limit: int
) -> None:
    """While another server ends it nothing of it is ended here, but as that one says; afterwards all is as ever."""
    deliveries = [
        (number, entity, priority, {"conflate": conflate, "expires": expires, "moment": float(number)})
        for number, (entity, priority, conflate, expires) in enumerate(came, 1)
    ]
    followed, anew = DeliveryQueue(limit, followed=True), DeliveryQueue(limit)
    for number, entity, priority, more in deliveries:
        if len(followed.waiting) < 2 * limit:
            assert [] == followed.insert(delivery(number, entity, **more), priority, 0.0)
            if number in ended:
                assert followed.settle(number, "acknowledged", 0.0)
            else:
                anew.insert(delivery(number, entity, **more), priority, 5.0)
    assert [] == followed.expire(5.0) and followed.next_expiry() is None
    priorities = {number: priority for number, _, priority, _ in deliveries}
    followed.adopt(lambda one: priorities[one.sequence], 5.0)
    anew.expire(5.0)
    # What expires by then is conflated with nothing that comes later, for it is gone before.
    if all(expires > 5.0 for *_, expires in came):
        assert anew.waiting.keys() == followed.waiting.keys()
        assert drained(anew, 5.0) == drained(followed, 5.0)
    assert 0 == followed.balance()
    assert not followed.settle(99, "acknowledged", 5.0)


def test_a_queue_that_is_followed_has_a_bound_too() -> None:
    """Should nobody say how deliveries end, twice the limit are kept."""
    waiting = DeliveryQueue(2, followed=True)
    for position in range(1, 10):
        waiting.insert(delivery(position), 0, 0.0)
    assert [6, 7, 8, 9] == [*waiting.waiting]
    assert {"overflowed": 5} == waiting.settled
