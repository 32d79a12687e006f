"""The registry: the fold of changes (semantics §3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.language.cql2 import parse
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    SettingsChange,
    SubscriptionChange,
    SubscriptionRemoval,
)
from nearcast.model.context import restriction_matrix
from nearcast.model.event import Place
from nearcast.model.filter import atoms
from nearcast.model.limits import Limits
from nearcast.model.subscription import ClientProfile, Settings, Subscription
from nearcast.state.registry import Registry

HERE = Mark("here")


def folded(*changes: Change) -> Registry:
    registry = Registry()
    for change in changes:
        registry.apply(change)
    return registry


def subscribed(id: str, text: str = "a = 1", client: str = "ann") -> SubscriptionChange:
    return SubscriptionChange(Subscription(id, (client,), parse(text, HERE)))


def test_what_a_change_gives_replaces_and_readings_merge_by_name() -> None:
    """What is not given stays."""
    registry = folded(
        ClientChange("ann", "leader", "offense", {"bandwidth": 100, "battery": 50}, Place("planar", 1, 2)),
        ClientChange("ann", task="defense", readings={"bandwidth": 200}),
    )
    expected = ClientProfile("ann", "leader", "defense", {"bandwidth": 200, "battery": 50}, Place("planar", 1, 2))
    assert expected == registry.clients["ann"]


def test_a_client_that_comes_again_begins_empty() -> None:
    """Its removal forgot it."""
    registry = folded(ClientChange("ann", "leader"), ClientRemoval("ann"), ClientChange("ann"))
    assert ClientProfile("ann") == registry.clients["ann"]


def test_removing_what_is_not_there_changes_nothing() -> None:
    """Whoever repeats a removal does no harm."""
    assert Registry() == folded(ClientRemoval("ann"), SubscriptionRemoval("s"))


def test_a_replaced_subscription_is_the_newest() -> None:
    """It counts from its replacement, so it goes behind those that were there meanwhile."""
    registry = folded(subscribed("first"), subscribed("second"), subscribed("first", "a = 2"))
    assert ["second", "first"] == list(registry.subscriptions)
    assert parse("a = 2", HERE) == registry.subscriptions["first"].filter


def test_a_copy_goes_its_own_way() -> None:
    """Changes of one are not seen in the other."""
    registry = folded(ClientChange("ann"), subscribed("s"))
    copy = registry.copy()
    copy.apply(ClientRemoval("ann"))
    copy.apply(SubscriptionRemoval("s"))
    assert folded(ClientChange("ann"), subscribed("s")) == registry


some_changes = st.one_of(
    st.builds(
        ClientChange,
        st.sampled_from(["ann", "bob"]),
        role=st.sampled_from([None, "leader"]),
        readings=st.sampled_from([None, {}, {"bandwidth": 1.0}, {"battery": 2.0}]),
    ),
    st.builds(ClientRemoval, st.sampled_from(["ann", "bob"])),
    st.builds(subscribed, st.sampled_from(["s", "t"]), st.sampled_from(["a = 1", "a = 2"])),
    st.builds(SubscriptionRemoval, st.sampled_from(["s", "t"])),
    st.builds(SettingsChange, st.sampled_from([Settings(), Settings(matrix=restriction_matrix(3))])),
)


@given(st.lists(some_changes, max_size=12))
def test_the_shortest_list_of_changes_gives_the_same_registry(history: list[Change]) -> None:
    """In the same order: which subscription came first decides ties."""
    registry = folded(*history)
    again = folded(*registry.changes())
    assert registry == again
    assert list(registry.subscriptions) == list(again.subscriptions)


LITTLE = SettingsChange(Settings(limits=Limits(expressions=3)))


def test_expressions_of_all_filters_together_have_a_limit() -> None:
    """What would be beyond it changes nothing; what is there is counted once, and makes room when it goes."""
    two, same, third = "a + b > 1 OR c LIKE 'x%'", "a + b > 1 AND d = 1", "count(uform(type = 'car')) > 2"
    registry = folded(LITTLE, subscribed("s", two), subscribed("t", same), subscribed("u", third))
    assert ["s", "t", "u"] == list(registry.subscriptions)
    beyond = subscribed("v", "e * 2 > 1")
    fault = registry.refusal(beyond)
    assert fault is not None and "at most 3 different expressions" in fault.expected
    registry.apply(beyond)
    assert registry.refusal(subscribed("w", "a = 1 AND b IN (1, 2)")) is None
    assert registry.refusal(subscribed("s", "e * 2 > 1 OR f * 2 > 1")) is not None
    assert registry.refusal(subscribed("u", "e * 2 > 1")) is None
    registry.apply(SubscriptionRemoval("u"))
    registry.apply(beyond)
    assert ["s", "t", "v"] == list(registry.subscriptions)


def test_what_is_about_its_receiver_counts_for_each_client() -> None:
    """For each it is another expression."""
    registry = folded(LITTLE)
    for clients, refused in ((("ann", "bob", "eve"), False), (("ann", "bob", "eve", "tom"), True)):
        filter = parse("S_DWITHIN(geom, me, 100)", HERE)
        change = SubscriptionChange(Subscription("s", clients, filter))
        assert refused is (registry.refusal(change) is not None)


def test_a_lower_limit_takes_nothing_away() -> None:
    """What is there stays, also where the registry is made of its changes; more does not come."""
    registry = folded(subscribed("s", "a + b > 1 OR a + c > 1"), subscribed("t", "a + d > 1 OR a + e > 1"), LITTLE)
    copy = Registry()
    for change in registry.changes():
        copy.apply(change, limited=False)
    assert registry == copy and ["s", "t"] == list(copy.subscriptions)
    assert copy.refusal(subscribed("u", "a + f > 1")) is not None
    assert copy.refusal(subscribed("t", "a + f > 1 OR a + g > 1")) is None


@given(st.lists(st.tuples(st.sampled_from("stu"), st.sets(st.sampled_from("abcd"), max_size=3))))
def test_expressions_are_counted_as_if_anew(steps: list[tuple[str, set[str]]]) -> None:
    """However subscriptions come, are replaced, and go."""
    registry = folded(LITTLE)
    for id, names in steps:
        text = " OR ".join(f"{name} + 1 > 2" for name in sorted(names))
        registry.apply(subscribed(id, text) if names else SubscriptionRemoval(id))
        found = {atom for one in registry.subscriptions.values() for atom in atoms(one.filter)}
        assert found == set(registry.expressions.uses) == set(registry.copy().expressions.uses)
        assert len(found) <= 3
