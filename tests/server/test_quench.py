"""Which types nobody wants."""

from __future__ import annotations

import pytest
from hypothesis import given

from nearcast.errors import Mark
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.language.cql2 import parse
from nearcast.model.changes import SubscriptionChange
from nearcast.model.event import Event
from nearcast.model.filter import Filter
from nearcast.model.subscription import Subscription
from nearcast.state.registry import Registry
from nearcast.suppression.interest_index import InterestIndex
from tests.random_filters import events, filters


def interest_index(filter: Filter) -> InterestIndex:
    registry = Registry()
    registry.apply(SubscriptionChange(Subscription("s", ("a",), filter)))
    return InterestIndex(registry)


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
    found = interest_index(parse(text, Mark("here")))
    assert (unit, chat) == (found.wants_type("unit"), found.wants_type("chat"))


@given(filters, events())
def test_no_event_that_is_selected_has_a_type_that_nobody_wants(filter: Filter, event: Event) -> None:
    """Quenching loses nothing."""
    if truth(filter, event, NO_CONTEXT):
        assert interest_index(filter).wants_type(event.type)
