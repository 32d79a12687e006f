"""Who hears an event, by which subscription, and from when to when (semantics §3)."""

from __future__ import annotations

from collections.abc import Sequence

from nearcast.errors import Mark
from nearcast.language.control_events import changes
from nearcast.language.cql2 import parse
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    SettingsChange,
    SubscriptionChange,
    SubscriptionRemoval,
)
from nearcast.model.event import Event
from nearcast.model.subscription import Roles, Settings, Subscription
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from tests.stages.test_stages import as_table

HERE = Mark("here")
EVENT = Event("e", "t", "s", attributes=(("a", 1), ("b", 1)))
ANN = ClientChange("ann")
Heard = list[tuple[int, str, str, int]]


def subscribed(id: str, *clients: str, text: str = "a = 1", relevance: float | None = None) -> SubscriptionChange:
    weights = None if relevance is None else (relevance,)
    return SubscriptionChange(Subscription(id, clients or ("ann",), parse(text, HERE), weights))


def heard(*history: Event | Change) -> Heard:
    """(position, client, subscription, level) of a history that is one batch."""
    found = []
    for batch in StateFold().fold(as_table(history), changes):
        for row in decide(batch, batch.events).to_pylist():
            found.append((row["position"], row["client"], row["subscription"], row["level"]))
    return found


def by_role(*history: Event | Change) -> list[Sequence[dict[str, object]] | None]:
    """The levels under other roles of each delivery."""
    batches = list(StateFold().fold(as_table(history), changes))
    return [row["by_role"] for batch in batches for row in decide(batch, batch.events).to_pylist()]


def test_the_most_urgent_subscription_brings_the_event_once() -> None:
    """A client gets an event once, whatever the order of its subscriptions."""
    low, high = subscribed("low", relevance=0.3), subscribed("high", relevance=1)
    assert [(4, "ann", "high", 2)] == heard(ANN, low, high, EVENT)
    assert [(4, "ann", "high", 2)] == heard(ANN, high, low, EVENT)


def test_a_tie_goes_to_the_subscription_that_was_added_first() -> None:
    """Not to the first by name."""
    assert [(4, "ann", "z", 2)] == heard(ANN, subscribed("z"), subscribed("a"), EVENT)


def test_a_replaced_subscription_goes_behind() -> None:
    """It counts from its replacement: of equal ones, the other was there before."""
    assert [(5, "ann", "a", 2)] == heard(ANN, subscribed("z"), subscribed("a"), subscribed("z"), EVENT)


def test_a_replaced_subscription_sees_exactly_the_events_after_it() -> None:
    """Events before see the old filter, those after the new one."""
    history = [ANN, subscribed("s"), EVENT, subscribed("s", text="a = 2"), EVENT, subscribed("s", relevance=0.5), EVENT]
    assert [(3, "ann", "s", 2), (7, "ann", "s", 1)] == heard(*history)


def test_a_subscription_hears_from_its_own_position_to_its_end() -> None:
    """Neither an event before it nor one after it."""
    assert [(4, "ann", "s", 2)] == heard(ANN, EVENT, subscribed("s"), EVENT, SubscriptionRemoval("s"), EVENT)


def test_a_removed_client_gets_nothing_until_it_comes_again() -> None:
    """Its subscriptions stay, for the others and for its return."""
    both = subscribed("s", "ann", "bob")
    history = [ANN, ClientChange("bob"), both, EVENT, ClientRemoval("ann"), EVENT, ANN, EVENT]
    expected = [(4, "ann"), (4, "bob"), (6, "bob"), (8, "ann"), (8, "bob")]
    assert expected == [(position, client) for position, client, _, _ in heard(*history)]


def test_a_subscription_may_name_a_client_that_comes_later() -> None:
    """It hears once both are there."""
    assert [(4, "ann", "s", 2)] == heard(subscribed("s"), EVENT, ANN, EVENT)


def test_a_client_named_twice_gets_an_event_once() -> None:
    """Also if the subscription reached the journal so."""
    assert [(3, "ann", "s", 2)] == heard(ANN, subscribed("s", "ann", "ann"), EVENT)


def test_events_that_change_the_system_reach_nobody() -> None:
    """Even a filter for all of them."""
    assert [] == heard(ANN, subscribed("s", text="type LIKE 'nearcast.%'"), ClientChange("ann", role="x"))


ROLES = Roles({("boss", "day"): {"s": (1, 0)}, ("cook", "day"): {"s": (0, 0.5)}}, ("boss", "day"))


def test_a_role_counts_as_of_the_events_position() -> None:
    """A change of role holds for the events after it."""
    start = [SettingsChange(Settings(roles=ROLES)), ANN, subscribed("s", text="a = 1 OR b = 1")]
    history = [*start, EVENT, ClientChange("ann", "cook", "day"), EVENT, ClientChange("ann", "boss", "day"), EVENT]
    assert [(4, "ann", "s", 2), (6, "ann", "s", 1), (8, "ann", "s", 2)] == heard(*history)


def test_the_levels_under_every_role_travel_with_a_delivery() -> None:
    """So a change of role is a look-up for what waits; for any other one it is ("", "")."""
    start = [SettingsChange(Settings(roles=ROLES)), ANN]
    levels = {("boss", "day"): 2, ("cook", "day"): 1, ("", ""): 2}
    expected = [{"role": role, "task": task, "level": level} for (role, task), level in levels.items()]
    assert [expected] == by_role(*start, subscribed("s", text="a = 1 OR b = 1"), EVENT)
    assert [None] == by_role(*start, subscribed("other"), EVENT)
