"""What a bridge tells the server of nodes: values that it asked for, and their ends."""

from __future__ import annotations

import pytest

from nearcast.errors import Mark
from nearcast.foraging.forager import ForagingNode, ForagingSettings
from nearcast.foraging.foraging_rules import ForagingRule, remote
from nearcast.foraging.neighbour_shares import NeighbourShares
from nearcast.language.cql2 import parse
from nearcast.model.event import Place
from nearcast.model.foraging import MessageId, Request, Response
from nearcast.node.published_values import PublishedValues, ValueReport
from nearcast.node.server_requests import MOST_AT_ONCE, ServerRequests

HERE = Place("planar", 0.0, 0.0)
WHEN = parse("Temperature > 80 AND Humidity < 10", Mark("rule"))
FIRE = ForagingRule("fire", "Fire", WHEN, 100.0, 10.0)


def asking(when: str, number: int = 1, valid: float = 100.0, now: float = 1_000.0) -> Request:
    """What a server asks."""
    wanted = remote(ForagingRule("asked", "asked", parse(when, Mark("asked")), 200.0, valid), frozenset())
    return Request(MessageId("gate", number), HERE, 200.0, now, valid, wanted)


def above(name: str) -> tuple[str, ...]:
    """A fire is a hazard."""
    return (name, "Hazard") if name == "Fire" else (name,)


class Asked:
    """A server that has asked, and what it was told."""

    def __init__(self, when: str) -> None:
        self.requests, self.published = ServerRequests(10.0), PublishedValues()
        self.request = asking(when)
        self.requests.hold(self.request, "server", 1_000.0)

    def told(self, responses: list[Response], now: float, late: float = 0.0) -> list[ValueReport]:
        """What it is told of responses."""
        found = []
        for one in responses:
            report = self.published.report(
                one,
                lambda name, value: self.requests.wants(name, value, now, above, frozenset({"Fire", "Hazard"})),
                "k",
                now - late,
                now,
            )
            if report:
                found.append(report)
                self.published.note(report, "k")
        return found


@pytest.mark.parametrize("when", ["Fire", "Hazard"])
@pytest.mark.parametrize("how, value", [("unknown", None), ("false", False)])
def test_whoever_asked_is_told_of_the_end(when: str, how: str, value: bool | None) -> None:
    """Of a situation that becomes unknown, and of one that becomes false; once."""
    server = Asked(when)
    manner = ForagingSettings(fresh=5.0, at_once=True)
    kitchen = ForagingNode("kitchen", [FIRE], ["Temperature"], manner, above=above)
    kitchen.hear(server.request, "g", HERE, 1_000.0)
    kitchen.measure([("Temperature", 90)], HERE, 1_000.0)
    kitchen.hear(
        Response(MessageId("hall", 1), "hall", HERE, 100.0, 1_000.0, 5.0, (("Humidity", 5),)), "h", HERE, 1_000.0
    )
    (begun,) = server.told(kitchen.conclude(HERE, 1_000.0), 1_000.0)
    assert ({"Fire": True}, [], 1_005.0) == (begun.values, begun.ended, begun.until)
    now = 1_005.0 if how == "unknown" else 1_003.0
    kitchen.measure([("Temperature", 90 if how == "unknown" else 20)], HERE, now)
    (ended,) = server.told(kitchen.conclude(HERE, now), now)
    assert ({"Fire": value}, ["Fire"]) == (ended.values, ended.ended)
    assert [] == server.published.lapsed(2_000.0)


def humidity(value: float, number: int = 1, time: float = 1_000.0, provider: str = "hall") -> Response:
    """A reading."""
    return Response(MessageId(provider, number), provider, HERE, 100.0, time, 5.0, (("Humidity", value),))


def test_what_is_heard_of_no_more_ends_when_it_no_longer_counts() -> None:
    """A provider that is gone says nothing; one that goes on has no end."""
    server = Asked("Humidity < 10")
    assert 2 == len(server.told([humidity(5), humidity(5, provider="attic")], 1_000.0))
    server.told([humidity(6, 2, 1_004.0)], 1_004.0)
    (ended,) = server.published.lapsed(1_005.0)
    assert ("attic", {"Humidity": None}, ["Humidity"]) == (ended.provider, ended.values, ended.ended)
    assert [ended] == server.published.lapsed(1_005.0)
    server.published.note(ended, "")
    assert [] == server.published.lapsed(1_008.9)
    assert ["hall"] == [one.provider for one in server.published.lapsed(1_009.0)]


def test_what_was_not_asked_for_has_no_end_either() -> None:
    """Nor what waited longer than it counts."""
    server = Asked("Humidity < 10")
    assert [] == server.told([humidity(50)], 1_000.0)
    assert [] == server.told([humidity(5)], 1_006.0, late=6.0)
    (late,) = server.told([humidity(5)], 1_002.0, late=2.0)
    assert (2.0, 1_005.0) == (late.age, late.until)


def test_a_neighbour_that_invents_providers_leaves_room_for_others() -> None:
    """What could not be ended is not begun."""
    server = Asked("Humidity < 10")
    server.published.shares = NeighbourShares(6)
    assert 3 == len(server.told([humidity(5, provider=f"n{number}") for number in range(9)], 1_000.0))
    assert server.published.shares.admits("another")


def test_a_request_is_said_again_for_as_long_as_it_still_holds() -> None:
    """Every ten seconds, with what is left of it; the same question again is one."""
    requests = ServerRequests(10.0)
    assert requests.hold(asking("Humidity < 10", valid=25.0), "server", 1_000.0)
    found = {now: [one.valid for one in requests.due(now)] for now in (1_000.0, 1_009.9, 1_010.0, 1_019.0, 1_020.0)}
    assert {1_000.0: [], 1_009.9: [], 1_010.0: [15.0], 1_019.0: [], 1_020.0: [5.0]} == found
    assert requests.hold(asking("Humidity < 10", valid=100.0, now=1_021.0), "server", 1_021.0)
    assert ([91.0], 1) == ([one.valid for one in requests.due(1_030.0)], len(requests))
    assert [] == requests.due(1_121.0)
    assert 0 == len(requests)


def test_many_requests_are_said_again_one_after_the_other() -> None:
    """A few at one time, each in its turn; a source that asks without end leaves room for others."""
    requests = ServerRequests(10.0, most=10)
    held = [requests.hold(asking(f"Humidity < {number}", number), "noisy", 1_000.0) for number in range(9)]
    assert (5, 4) == (sum(held), requests.shares.refused)
    assert requests.hold(asking("Wind > 3"), "another", 1_000.0)
    said = [one.conditions for step in range(3) for one in requests.due(1_010.0 + step)]
    assert 6 == len(set(said)) == 3 * MOST_AT_ONCE
    assert [] == requests.due(1_013.0)
