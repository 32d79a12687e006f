"""What nobody wants is not sent."""

from __future__ import annotations

import pytest
from hypothesis import given

from nearcast.decision.evaluate import NOTHING, truth
from nearcast.decision.registry import Registry
from nearcast.decision.wanted import Interest
from nearcast.errors import Mark
from nearcast.language.cql2 import parse
from nearcast.model.changes import SubscriptionChange
from nearcast.model.event import Event
from nearcast.model.filter import Filter
from nearcast.model.subscription import Subscription
from tests.decision.filters import events, filters
from tests.server.conftest import run, running, unit


def interest(filter: Filter) -> Interest:
    registry = Registry()
    registry.apply(SubscriptionChange(Subscription("s", ("a",), filter)))
    return Interest(registry)


@pytest.mark.parametrize(
    "text, unit, chat",
    [
        ("type = 'unit'", True, False),
        ("type <> 'unit'", False, True),
        ("type = 'unit' AND size > 3", True, False),
        ("type = 'unit' OR size > 3", True, True),
        ("NOT (type = 'unit' AND size > 3)", True, True),
        ("NOT (type = 'unit' OR size > 3)", False, True),
        ("type IN ('unit', 'chat')", True, True),
        ("size > 3", True, True),
    ],
)
def test_a_type_is_wanted_where_some_event_of_it_may_be_selected(text: str, unit: bool, chat: bool) -> None:
    """Whatever else the filter asks for may be so or not."""
    found = interest(parse(text, Mark("here")))
    assert (unit, chat) == (found.wants_type("unit"), found.wants_type("chat"))


@given(filters, events())
def test_no_event_that_is_selected_has_a_type_that_nobody_wants(filter: Filter, event: Event) -> None:
    """Quenching loses nothing."""
    if truth(filter, event, NOTHING):
        assert interest(filter).wants_type(event.type)


def test_a_publisher_that_quenches_sends_what_somebody_wants() -> None:
    """And says of the rest that it was not sent; when somebody wants it, it is sent a second later."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            chat = {**unit("2"), "type": "chat"}
            async with server.publisher(quench=True) as publisher:
                found = await publisher.publish([unit("1"), chat, unit("3")])
                assert frozenset({1}) == found.quenched
                assert [True, False, True] == [position is not None for position in found.positions]
                await server.http.put("/subscriptions/chats", json={"client": "a", "filter": "type = 'chat'"})
                publisher._wanted.clear()
                found = await publisher.publish([chat])
                assert found.positions[0] and not found.quenched

    run(test)
