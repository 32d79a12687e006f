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
