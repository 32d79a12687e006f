"""Control events and the changes they bring about."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from nearcast.errors import EventError, Mark
from nearcast.language.cloudevents import read_event, read_line
from nearcast.language.control_events import changes, to_event
from nearcast.model.changes import Change, ClientChange, ClientRemoval, SubscriptionRemoval
from nearcast.model.event import Place
from nearcast.model.subscription import Channel, Roles, Settings
from tests.language import strategies

ROLES = Roles({("leader", "offense"): {}, ("leader", "defense"): {}, ("scout", "offense"): {}})
SETTINGS = Settings(roles=ROLES, channels=(Channel("ops", "planar"),))


def changed(type_: str, data: Any) -> list[Change]:
    """What a control event of this type with this data changes."""
    document = {"specversion": "1.0", "id": "c1", "type": type_, "source": "s", "data": data}
    return changes(read_event(document, Mark("f")), SETTINGS)


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (ClientChange("a"), {"client": "a"}),
        (ClientChange("a"), {"id": "a"}),
        (ClientChange("a", "leader", "defense"), {"client": "a", "role": "leader", "task": "defense"}),
        (ClientChange("a", task="defense"), {"client": "a", "task": "defense"}),
        (ClientChange("a", readings={"bandwidth": 0.5}), {"client": "a", "readings": {"bandwidth": 0.5}}),
        (ClientChange("a", place=Place("planar", 1, 2)), {"client": "a", "position": {"x": 1, "y": 2}}),
    ],
)
def test_any_part_of_a_client(change: ClientChange, data: dict[str, Any]) -> None:
    """A client's change states any subset of what a client has."""
    assert [change] == changed("nearcast.client", data)


def test_removals() -> None:
    """Removals name what ends."""
    assert [ClientRemoval("a")] == changed("nearcast.client.removed", {"client": "a"})
    assert [SubscriptionRemoval("s")] == changed("nearcast.subscription.removed", {"subscription": "s"})


def test_other_events_change_nothing() -> None:
    """An event that tells of the world changes nothing of the system."""
    assert changed("unit", {"client": "a"}) == []


@pytest.mark.parametrize(
    ("expected", "type_", "data"),
    [
        ("a client: a mapping", "nearcast.client", None),
        ("id in a client", "nearcast.client", {}),
        ("client: a client's id: a text", "nearcast.client", {"client": 5}),
        ("a field of a client", "nearcast.client", {"client": "a", "rol": "leader"}),
        ("role: a defined role", "nearcast.client", {"client": "a", "role": "boss"}),
        ("task: a defined task of scout", "nearcast.client", {"client": "a", "role": "scout", "task": "defense"}),
        ("readings.b: the reading b", "nearcast.client", {"client": "a", "readings": {"b": -1}}),
        ("readings.b: the reading b", "nearcast.client", {"client": "a", "readings": {"b": "fast"}}),
        ("readings: readings: a mapping", "nearcast.client", {"client": "a", "readings": [1]}),
        ("a latitude", "nearcast.client", {"client": "a", "position": {"lon": 0, "lat": 91}}),
        ("position: a planar position", "nearcast.client", {"client": "a", "position": {"lon": 0, "lat": 0}}),
        ("position: y in a position", "nearcast.client", {"client": "a", "position": {"x": 1}}),
        ("client in data", "nearcast.client.removed", {}),
        ("filter in a subscription", "nearcast.subscription", {"id": "s", "client": "a"}),
        ("a name, a number, a text", "nearcast.subscription", {"id": "s", "client": "a", "filter": "a ="}),
        ("levels: levels: an integer", "nearcast.settings", {"levels": -3}),
        ("roles: roles, tasks and their vectors", "nearcast.settings", {"roles": "roles.xml"}),
    ],
)
def test_bad_control_events(expected: str, type_: str, data: Any) -> None:
    """A control event that cannot act is refused, with the field that is wrong."""
    with pytest.raises(EventError) as caught:
        changed(type_, data)
    assert caught.value.fault.expected.startswith(expected)
    assert str(caught.value.fault.where).startswith("event c1")


@limits(max_examples=50)
@given(strategies.changes, st.none() | strategies.times)
def test_a_change_travels_as_an_event(change: Change, time: datetime | None) -> None:
    """An event made of a change brings about the same change, also after its journey as bytes."""
    event = to_event(change, "c1", "s", time)
    assert [change] == changes(event, Settings())
    assert event == read_line(event.payload, Mark("f"))
