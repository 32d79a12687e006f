"""What domains want of each other, told over links that are cut, healed and taken away."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Fault
from nearcast.routing.interest_exchange import (
    ALL_FILTERS,
    LONGEST_FILTER,
    MOST_DOMAINS,
    MOST_FILTERS,
    PART_CHARACTERS,
    InterestExchange,
)

NAMES = "abcde"
FILTERS = [f"type = '{number}'" for number in range(4)]


class Network:
    """Domains and links between them, over each of which messages come in order, as long as it is not cut."""

    def __init__(self, links: set[tuple[str, str]]) -> None:
        self.domains = {name: InterestExchange(name, 1) for name in NAMES}
        self.stated: dict[str, frozenset[str]] = dict.fromkeys(NAMES, frozenset())
        self.links = {frozenset(link) for link in links}
        self.ways: dict[tuple[str, str], deque[str]] = {}
        self.sent = 0
        for link in self.links:
            self.heal(link)

    def heal(self, link: frozenset[str]) -> None:
        """Connects two domains that are not connected."""
        for one, other in (sorted(link), sorted(link, reverse=True)):
            if (one, other) not in self.ways:
                self.ways[one, other] = deque()
                self.domains[one].connect(other)

    def cut(self, link: frozenset[str]) -> None:
        """What is on its way is lost."""
        for one, other in (sorted(link), sorted(link, reverse=True)):
            self.ways.pop((one, other), None)

    def remove(self, link: frozenset[str]) -> None:
        """The link is gone for good."""
        self.cut(link)
        self.links.remove(link)
        for one, other in (sorted(link), sorted(link, reverse=True)):
            self.domains[one].remove_link(other)

    def tell(self, one: str) -> None:
        """A domain tells its neighbours what is new."""
        for (sender, receiver), way in self.ways.items():
            if sender == one:
                way.extend(orjson.dumps(message).decode() for message in self.domains[one].news_for(receiver))

    def deliver(self, one: str, other: str) -> bool:
        """One message arrives."""
        way = self.ways.get((one, other))
        if not way:
            return False
        self.sent += 1
        self.domains[other].hear(one, orjson.loads(way.popleft()))
        return True

    def settle(self) -> None:
        """Until nobody has anything to tell."""
        for _ in range(200):
            for name in NAMES:
                self.tell(name)
            before = self.sent
            for one, other in [*self.ways]:
                while self.deliver(one, other):
                    pass
            if self.sent == before:
                return
        raise AssertionError("they go on telling each other")

    def neighbours(self, name: str) -> Iterator[str]:
        return (other for link in self.links if name in link for other in link - {name})

    def reached(self, name: str) -> set[str]:
        """Who is joined with a domain, over whatever links."""
        found, queue = {name}, [name]
        while queue:
            new = set(self.neighbours(queue.pop())) - found
            found |= new
            queue += new
        return found


LINKS = [frozenset(pair) for pair in combinations(NAMES, 2)]
STEP = st.one_of(
    st.tuples(st.just("state"), st.sampled_from(NAMES), st.frozensets(st.sampled_from(FILTERS))),
    st.tuples(st.just("tell"), st.sampled_from(NAMES)),
    st.tuples(st.just("deliver"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["cut", "heal", "remove"]), st.sampled_from(LINKS)),
    st.tuples(st.just("restart"), st.sampled_from(NAMES)),
)


def run(network: Network, step: tuple[Any, ...]) -> None:
    """One thing that happens."""
    kind, *what = step
    if kind == "state":
        network.stated[what[0]] = what[1]
        network.domains[what[0]].state(what[1])
    elif kind == "tell":
        network.tell(what[0])
    elif kind == "deliver":
        network.deliver(*what)
    elif kind == "restart":
        _restart(network, what[0])
    elif what[0] in network.links:
        getattr(network, kind)(what[0])


def _restart(network: Network, name: str) -> None:
    """A domain begins anew: all that it knew is gone, and its connections."""
    for other in [*network.neighbours(name)]:
        network.cut(frozenset({name, other}))
    run_before = network.domains[name].version[0]
    network.domains[name] = InterestExchange(name, run_before + 1)
    network.domains[name].state(network.stated[name])


@settings(deadline=None)
@given(st.sets(st.sampled_from([tuple(sorted(link)) for link in LINKS])), st.lists(STEP, max_size=60))
def test_once_all_is_told_what_anybody_wants_draws_events_to_it_from_everywhere_and_nothing_else_does(
    links: set[tuple[str, str]], steps: list[tuple[Any, ...]]
) -> None:
    """Whatever was cut, healed, begun anew or taken away on the way: over the links that there are every event finds to
    every domain that is joined, and nobody is told of what is wanted no more.
    """
    network = Network(links)
    for step in steps:
        run(network, step)
    for link in network.links:
        network.heal(link)
    network.settle()
    for wanting in NAMES:
        draws = {
            (name, other)
            for name in NAMES
            for other in network.neighbours(name)
            if wanting in network.domains[name].behind(other)
        }
        for name, other in draws:
            interest = network.domains[name].behind(other)[wanting]
            assert network.stated[wanting] == interest.filters
            assert network.stated[wanting] <= network.domains[name].wanted_by(other)
            joined = zip((name, *interest.way), interest.way, strict=False)
            assert all(frozenset(pair) in network.links for pair in joined)
        for name in network.reached(wanting) - {wanting}:
            assert _finds(name, wanting, draws)
        for name in set(NAMES) - network.reached(wanting):
            assert not any(one == name for one, _ in draws)


def _finds(name: str, wanting: str, draws: set[tuple[str, str]]) -> bool:
    """Whether an event comes from one domain to another, each passing it on to all that want it."""
    found, queue = {name}, [name]
    while queue:
        one = queue.pop()
        new = {other for sender, other in draws if sender == one} - found
        found |= new
        queue += new
    return wanting in found


def joined() -> tuple[InterestExchange, InterestExchange]:
    """Two domains, a and b, that are connected and have told nothing yet."""
    one, other = InterestExchange("a", 1), InterestExchange("b", 1)
    one.connect("b")
    other.connect("a")
    return one, other


def tell(one: InterestExchange, other: InterestExchange) -> list[bool]:
    """One tells the other all that is new; for each message whether it changes anything there."""
    return [other.hear(one.domain, message) for message in one.news_for(other.domain)]


def test_one_subscription_among_many_tells_only_itself() -> None:
    """Of five thousand filters one that comes and one that goes are one message that has the two."""
    one, other = joined()
    many = {f"id = '{number}'" for number in range(5_000)}
    one.state(many)
    tell(one, other)
    one.state(many - {"id = '7'"} | {"id = 'new'"})
    (message,) = one.news_for("b")
    assert (["id = 'new'"], ["id = '7'"]) == (message["add"], message["remove"])
    other.hear("a", message)
    assert many - {"id = '7'"} | {"id = 'new'"} == other.wanted_by("a")


def test_many_filters_come_in_messages_of_bounded_size() -> None:
    one, other = joined()
    many = {f"id = '{number}' AND {'x' * 200} = 1" for number in range(5_000)}
    one.state(many)
    messages = [*one.news_for("b")]
    assert len(messages) > 5
    assert all(sum(map(len, message["add"])) <= PART_CHARACTERS for message in messages)
    assert [False] * (len(messages) - 1) + [True] == [other.hear("a", message) for message in messages]
    assert many == other.wanted_by("a")


@pytest.mark.parametrize(
    "filters", [{f"id = '{number}'" for number in range(MOST_FILTERS + 1)}, {"x" * (LONGEST_FILTER + 1)}]
)
def test_who_states_too_much_is_taken_to_want_everything(filters: set[str]) -> None:
    """More is sent, and nothing is lost; when it wants less it is told again."""
    one, other = joined()
    one.state(filters)
    tell(one, other)
    assert ALL_FILTERS == other.wanted_by("a")
    one.state({"id = '1'"})
    tell(one, other)
    assert {"id = '1'"} == other.wanted_by("a")


GOOD = {"domain": "a", "way": ["a"], "version": [1, 1], "base": None, "add": ["TRUE"], "remove": []}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"domain": 7}, "the name of a domain"),
        ({"domain": "x" * 41}, "the name of a domain"),
        ({"way": []}, "a way of at most 32 domains"),
        ({"way": ["c", "a"]}, "a way from a to a"),
        ({"domain": "c", "way": ["a"]}, "a way from a to c"),
        ({"domain": "c", "way": ["a", "d", "d", "c"]}, "each domain once"),
        ({"version": [1]}, "a version"),
        ({"version": [1, -1]}, "a version"),
        ({"base": [1, 1], "add": ["a = 1"]}, "filters from version [1, 1] on"),
        ({"add": "TRUE"}, "a list of filters"),
        ({"remove": [1]}, "a list of filters"),
    ],
)
def test_what_no_neighbour_should_say_is_refused_and_changes_nothing(change: dict[str, Any], expected: str) -> None:
    other = InterestExchange("b", 1)
    other.connect("a")
    with pytest.raises(Fault) as raised:
        other.hear("a", {**GOOD, **change})
    assert expected in str(raised.value)
    assert not other.behind("a")


def test_a_neighbour_that_makes_up_domains_without_end_is_refused() -> None:
    other = InterestExchange("b", 1)
    other.connect("a")
    for number in range(MOST_DOMAINS):
        other.hear("a", {**GOOD, "domain": f"d{number}", "way": ["a", f"d{number}"]})
    with pytest.raises(Fault, match="at most 1,000 domains behind a"):
        other.hear("a", {**GOOD, "domain": "more", "way": ["a", "more"]})
    with pytest.raises(Fault, match="at most 1,000 domains behind a"):
        other.hear("a", {"domain": "more", "add": ["TRUE"], "more": True})
    assert MOST_DOMAINS == len(other.behind("a"))
