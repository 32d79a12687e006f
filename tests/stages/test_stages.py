"""A whole history decided in batches, against the plain reading of it event by event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.delivery.priority import priority
from nearcast.errors import EventError, Mark
from nearcast.filters.evaluate import EmptyContext, level_of
from nearcast.filters.relevance import by_role, classes_of, role_relevance
from nearcast.language.control_events import changes as parse
from nearcast.language.control_events import to_event
from nearcast.language.cql2 import parse as parse_filter
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    RelationChange,
    SettingsChange,
    SubscriptionChange,
    SubscriptionRemoval,
)
from nearcast.model.columns import to_table
from nearcast.model.context import Awareness, ContextSpace, delay_matrix, restriction_matrix
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom, Filter, Operator, atoms
from nearcast.model.subscription import ANY_SUBSCRIPTION, Roles, Settings, Subscription
from nearcast.stages import fold
from nearcast.stages.decide import decide, priorities
from nearcast.stages.fold import StateFold
from nearcast.state.registry import Registry
from tests.random_filters import events, filters, places

HERE = Mark("here")
ANY = {"id": "r0", "a": "type LIKE '%'", "b": "type LIKE '%'", "when": "distance(a, b) < 1000"}
CLIENTS = ("ann", "bob")
KEYS = (("boss", "attack"), ("boss", "defend"))
relevances = st.sampled_from([0.0, 0.3, 0.5, 1.0])
vectors = st.lists(relevances, min_size=1, max_size=3).map(tuple)


@st.composite
def all_settings(draw: st.DrawFn) -> Settings:
    keys = st.sampled_from(["s0", "s1", ANY_SUBSCRIPTION])
    tables = {key: draw(st.dictionaries(keys, vectors, max_size=2)) for key in KEYS}
    return Settings(
        space=ContextSpace((Awareness("bandwidth", (1250.0, 2500.0)),)),
        matrix=draw(st.sampled_from([delay_matrix(3), restriction_matrix(3)])),
        roles=Roles(tables, draw(st.sampled_from([None, KEYS[0]]))) if draw(st.booleans()) else Roles(),
    )


@st.composite
def subscriptions(draw: st.DrawFn) -> Subscription:
    filter: Filter = draw(filters)
    count = sum(1 for _ in atoms(filter))
    exact = st.lists(relevances, min_size=count, max_size=count).map(tuple)
    return Subscription(
        draw(st.sampled_from(["s0", "s1"])),
        draw(st.sampled_from([("ann",), ("bob", "ann")])),
        filter,
        draw(st.one_of(st.none(), exact)),
    )


client_changes = st.builds(
    ClientChange,
    st.sampled_from(CLIENTS),
    role=st.sampled_from([None, "boss"]),
    task=st.sampled_from([None, "attack", "defend"]),
    readings=st.sampled_from([None, {"bandwidth": 100.0}, {"bandwidth": 1250.0}, {"bandwidth": 3000.0}]),
    place=st.one_of(st.none(), places),
)
lapses = st.builds(ClientChange, st.sampled_from(CLIENTS), lapsed=st.just({"bandwidth": 0}))
every_change = st.one_of(
    client_changes,
    client_changes,
    lapses,
    st.builds(SubscriptionChange, subscriptions()),
    st.builds(SubscriptionChange, subscriptions()),
    st.builds(SubscriptionRemoval, st.sampled_from(["s0", "s1"])),
    st.builds(ClientRemoval, st.sampled_from(CLIENTS)),
    st.builds(SettingsChange, all_settings()),
)


class AsOf(EmptyContext):
    """Surroundings from the registry and the events so far."""

    def __init__(self, registry: Registry, newest: dict[str, Event]) -> None:
        self._registry, self._newest = registry, newest

    def user(self, name: str) -> Place | None:
        client = self._registry.clients.get(name)
        return client.place if client else None

    def entities(self) -> Iterable[Event]:
        return self._newest.values()


Found = dict[tuple[int, str], tuple[str, int, int, list[tuple[str, int]]]]


def plainly(history: Sequence[Event | Change]) -> Found:
    """(position, client) to (subscription, level, priority, other subscriptions), one event after the other."""
    registry, newest, found = Registry(), dict[str, Event](), {}
    for position, item in enumerate(history, 1):
        if not isinstance(item, Event):
            with suppress(EventError):
                for change in parse(to_event(item, str(position), "test"), registry.settings):
                    registry.apply(change)
            continue
        for name, client in registry.clients.items():
            levels = [(one.id, _level(registry, one, name, item, newest)) for one in registry.subscriptions.values()]
            selected = [(id, level) for id, level in levels if level is not None]
            if selected:
                best, *others = sorted(selected, key=lambda each: -each[1])
                found[position, name] = (*best, priority(registry.settings, client, best[1]), others)
        before = newest[item.entity].moment if item.entity in newest else None
        # What is late is decided, and moves nothing.
        if item.moment is None or before is None or item.moment >= before:
            newest[item.entity] = item
    return found


def _level(
    registry: Registry, subscription: Subscription, name: str, event: Event, newest: dict[str, Event]
) -> int | None:
    if name not in subscription.clients:
        return None
    client, roles = registry.clients[name], registry.settings.roles
    relevance = subscription.relevance
    if by_role(subscription, roles):
        relevance = role_relevance(subscription, roles, client.role, client.task)
    count = sum(1 for _ in atoms(subscription.filter))
    classes = classes_of(relevance, count, registry.settings.levels)
    return level_of(subscription.filter, classes, event, AsOf(registry, newest))


def as_table(history: Sequence[Event | Change]) -> pa.Table:
    numbered = enumerate(history, 1)
    return to_table(
        replace(item if isinstance(item, Event) else to_event(item, str(position), "test"), position=position)
        for position, item in numbered
    )


def in_batches(table: pa.Table, cuts: Sequence[int], part: int) -> Found:
    """What the stages give for these batch cuts, each batch decided in parts of so many events."""
    known, found = StateFold(), {}
    for first, last in zip([0, *cuts], [*cuts, len(table)], strict=True):
        for batch in known.fold(table.slice(first, last - first), parse):
            for start in range(0, len(batch.events), part):
                deliveries = decide(batch, batch.events.slice(start, part))
                rows = zip(deliveries.to_pylist(), priorities(batch, deliveries).tolist(), strict=True)
                for row, urgency in rows:
                    others = [(other["subscription"], other["level"]) for other in row["others"] or ()]
                    found[row["position"], row["client"]] = row["subscription"], row["level"], urgency, others
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(events(), events(), every_change), max_size=14), st.data())
def test_the_outcome_is_that_of_reading_one_by_one_however_batches_are_cut(
    history: list[Event | Change], data: st.DataObject
) -> None:
    """Subscriptions, clients, roles, places and settings change on the way."""
    history = [SettingsChange(data.draw(all_settings())), ClientChange("ann"), *history]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(history)), max_size=4)))
    part = data.draw(st.sampled_from([1, 2, 1000]))
    assert plainly(history) == in_batches(as_table(history), cuts, part)


near = st.builds(
    lambda id, metres: RelationChange(
        relation_document(
            {"id": id, **dict.fromkeys("ab", "type LIKE '%'"), "when": f"distance(a, b) < {metres}"}, HERE
        )
    ),
    st.sampled_from(["r0", "r1"]),
    st.sampled_from([5, 100]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(events(), events(), events(), near, every_change), max_size=14), st.integers(1, 3))
def test_the_outcome_is_the_same_however_many_derived_events_are_in_memory_together(
    history: list[Event | Change], most: int
) -> None:
    """Whatever else changes in the batch that is cut for them."""
    told = Subscription("told", ("ann",), parse_filter("type = 'nearcast.relation' OR a = 1", HERE), None)
    story = [RelationChange(relation_document(ANY, HERE)), ClientChange("ann"), SubscriptionChange(told), *history]
    expected = _decided(story)
    with patch.object(fold, "DERIVED", most):
        assert expected == _decided(story)


def _decided(story: Sequence[Event | Change]) -> list[tuple[object, ...]]:
    """Who gets what, and what changed nothing."""
    known, found = StateFold(), list[tuple[object, ...]]()
    for batch in known.fold(as_table(story), parse):
        found += [tuple(row.values()) for row in decide(batch, batch.events).to_pylist()]
    return [*found, *sorted((one.event.position, str(one.error)) for one in known.refusals)]


def test_subscriptions_of_unknown_clients_reach_nobody_until_these_come() -> None:
    """However many there are, whether they end before, and however batches are cut."""
    event = Event("1", "type", "source", "car", attributes=(("size", 1),))
    listed = [
        Subscription(f"s{number}", ("nobody",), Atom("size", Operator.GT, -1 - number), (1.0,)) for number in range(300)
    ]
    history: list[Event | Change] = [*map(SubscriptionChange, listed), event, SubscriptionRemoval("s299"), event]
    history += [ClientChange("nobody"), event, ClientRemoval("nobody"), event]
    for cuts in ([], [300], [150, 301, 302], list(range(len(history)))):
        found = in_batches(as_table(history), cuts, 1000)
        assert plainly(history) == found
        assert [(305, "nobody")] == list(found)
        assert 298 == len(found[305, "nobody"][3])


def test_stages_in_which_nothing_is_defined_are_not_asked_what_they_derive() -> None:
    """Relations, zones and situations note that a batch was there; from its first definition on one is asked."""
    reports = [Event(str(number), "t", "s", f"car {number}") for number in range(3)]
    relation = RelationChange(relation_document({**ANY, "id": "near"}, HERE))
    table, known = as_table([*reports, relation, *reports]), StateFold()
    asked = []
    for first, count in ((0, 1), (1, 2), (3, 2), (5, 2)):
        with ExitStack() as watched:
            counted = [
                watched.enter_context(patch.object(stage, "derive", wraps=stage.derive)) for stage in known.stages
            ]
            list(known.fold(table.slice(first, count), parse))
            asked.append([one.call_count for one in counted])
    # The first batch comes with the settings, and with what was known before.
    assert [[1, 0, 1], [0, 0, 0], [1, 0, 0], [1, 0, 0]] == asked
