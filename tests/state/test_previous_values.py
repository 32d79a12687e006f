"""What filters ask of previous events, followed through batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.language.control_events import changes
from nearcast.language.cql2 import parse
from nearcast.model.changes import ClientChange, SubscriptionChange
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.subscription import Subscription
from nearcast.stages.fold import StateFold
from nearcast.state.previous_values import PreviousValues
from nearcast.state.repository import Repository
from tests.stages.test_stages import as_table, in_batches, plainly

HERE = Mark("here")
FILTERS = (
    "CHANGED(level)",
    "level > PREVIOUS(level)",
    "NOT CHANGED(tag) OR PREVIOUS(tag) IS NULL",
    "level + PREVIOUS(level) = 3",
)


def told(name: str, level: int | None, tag: str | None, hour: int | None = None) -> Event:
    values = (("level", level), ("tag", tag))
    attributes = tuple((key, value) for key, value in values if value is not None)
    return Event(
        "e", "t", "s", name, None if hour is None else datetime(2026, 1, 1, hour, tzinfo=UTC), None, attributes
    )


events = st.builds(
    told,
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, "x", "y"]),
    st.sampled_from([None, 1, 2, 3]),
)
subscriptions = st.builds(
    lambda number, text: SubscriptionChange(Subscription(f"s{number}", ("ann",), parse(text, HERE))),
    st.integers(0, 1),
    st.sampled_from(FILTERS),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(events, events, events, subscriptions), max_size=14), st.data())
def test_the_previous_event_is_the_same_however_batches_are_cut(
    history: Sequence[Event | SubscriptionChange], data: st.DataObject
) -> None:
    """Also for a subscription that comes later, whose attributes nobody has asked for before."""
    story = [ClientChange("ann"), *history]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(story)), max_size=5)))
    assert plainly(story) == in_batches(as_table(story), cuts, data.draw(st.sampled_from([1, 2, 1000])))


def test_what_nobody_asks_for_is_not_remembered() -> None:
    """Only attributes in use are kept, and of a batch only its own entities are sent along."""
    first, second = to_table([told("a", 1, "x"), told("b", 2, None)]), to_table([told("b", 3, "y")])
    remembered, repository = PreviousValues(), Repository()
    assert {} == remembered.values_over((), first, repository)
    repository.fold_events(first)
    found = remembered.values_over(("level",), second, repository)
    assert {"level": {"b": (2,)}} == {name: track.base for name, track in found.items()}


def test_a_batch_without_events_remembers_all() -> None:
    """Control events alone change nothing of it."""
    known = StateFold()
    story = [
        ClientChange("ann"),
        SubscriptionChange(Subscription("s", ("ann",), parse(FILTERS[0], HERE))),
        told("a", 1, "x"),
    ]
    for start in range(3):
        for batch in known.fold(as_table(story).slice(start, 1), changes):
            assert set(batch.around.previous) == ({"level"} if start == 2 else set())
