"""What publishers are told to send: never less than anybody may want, and soon as it is wanted now."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from nearcast.client.wanted_events import WantedFilters, selects
from nearcast.errors import EventError, Mark
from nearcast.filters.evaluate import NO_CONTEXT, EmptyContext, truth
from nearcast.journal.memory import MemoryJournal
from nearcast.language.cloudevents import read_event
from nearcast.language.cql2 import parse
from nearcast.model.changes import Change, SubscriptionChange
from nearcast.model.event import Event, Place
from nearcast.model.filter import And, Atom, Distance, Filter, Operator, PlainNot, This
from nearcast.model.subscription import Subscription
from nearcast.server.ingest import wanted_filters
from nearcast.server.ingest.wanted_filters import EVERYTHING, InterestTable
from nearcast.state.registry import Registry
from nearcast.suppression.interest_index import Demand, InterestIndex, outward
from tests import random_filters
from tests.server.conftest import Running, run, running, unit
from tests.server.test_rules import ONTOLOGY
from tests.suppression.test_interest_index import changes, demands
from tests.written_events import write_event

HERE = Mark("here")
HTTP = httpx.AsyncClient(verify=False)
"""Never asked. One for all examples: to make one takes longer than an example."""
ENDS = {"a": {"entity": "u1"}, "b": {"entity": "u2"}, "when": "distance(a, b) < 10"}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(changes, st.booleans()), max_size=12),
    st.lists(random_filters.events(), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.7, 1.0]),
)
def test_no_event_that_anybody_may_want_is_held_back(
    told: list[tuple[Change, bool]], events: list[Event], precision: float
) -> None:
    """Whatever is defined, replaced and removed; read from the text and held against the event as it is sent."""
    registry, heard = Registry(), dict[str, Demand | None]()
    interest_index, table = InterestIndex(registry, guards=False), InterestTable(MemoryJournal(), precision)
    interest_index.heard = heard.__setitem__
    for number, (change, look) in enumerate(told, 1):
        registry.apply(change)
        if look or number == len(told):
            interest_index.follow_definitions(registry)
            table.update_demands(heard)
            heard.clear()
    texts = EVERYTHING if interest_index.all else table.texts()
    index = WantedFilters("http://test", {})._read(texts)
    for event in events:
        with suppress(EventError):
            document = write_event(event)
            if interest_index.wants(read_event(document, HERE)):
                assert selects(index, document)


@dataclass(frozen=True)
class Around(EmptyContext):
    """What only the server's side knows."""

    place: Place | None

    def user(self, name: str) -> Place | None:
        return self.place

    def entities(self) -> Iterable[Event]:
        return ()


@settings(deadline=None)
@given(random_filters.filters, random_filters.events(), st.one_of(st.none(), random_filters.places))
def test_what_a_filter_rests_on_beside_the_event_may_be_so(filter: Filter, event: Event, place: Place | None) -> None:
    """Wherever users are, whatever the filter selects then is told to be wanted."""
    if truth(filter, event, Around(place)):
        found = outward(Demand((filter,)))
        assert found is None or any(truth(one, event, NO_CONTEXT) for one in found)


@settings(deadline=None)
@given(st.lists(demands, max_size=6), random_filters.events())
def test_of_events_alone_nothing_else_is_told(wanted: list[Filter], event: Event) -> None:
    """With the precision 1 what nobody's filter selects is selected by none that is forwarded."""
    table = InterestTable(MemoryJournal(), 1.0)
    table.update_demands({str(number): Demand((filter,)) for number, filter in enumerate(wanted)})
    found = [parse(text, HERE) for text in table.texts()]
    expected = any(truth(filter, event, NO_CONTEXT) for filter in wanted)
    assert expected == any(truth(filter, event, NO_CONTEXT) for filter in found)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (
            "distance(user('a'), this) <= 10 AND (type = 'x' OR type = 'y' AND n > 3)",
            ["type = 'x'", "type = 'y' AND n > 3"],
        ),
        ("distance(user('a'), this) <= 10 OR type = 'x'", None),
        ("NOT (distance(user('a'), this) <= 10 OR type = 'x')", ["NOT type = 'x'"]),
        ("type = 'x' AND (n < 3 OR n > 7)", ["type = 'x' AND (n < 3 OR n > 7)"]),
        ("count(uform(), this, 10) > 3 AND type = 'x'", ["type = 'x'"]),
    ],
)
def test_filters_are_told_as_far_as_they_rest_on_the_event(filter: str, expected: list[str] | None) -> None:
    """In their alternatives; None is any event."""
    found = outward(Demand((parse(filter, HERE),)))
    assert (None if expected is None else [parse(text, HERE) for text in expected]) == (found and list(found))


async def told(server: Running) -> list[str]:
    """The filters that are forwarded, once the table is made."""
    async with asyncio.timeout(60):
        while True:
            answer = (await server.http.get("/wanted/filters")).raise_for_status()
            if not answer.headers["etag"].endswith('all"'):
                return sorted(answer.json()["filters"])


async def subscribe(server: Running, **filters: str) -> None:
    for id, filter in filters.items():
        (await server.http.put(f"/subscriptions/{id}", json={"client": "a", "filter": filter})).raise_for_status()


async def measured(server: Running) -> tuple[float, float, float]:
    """Filters, forwarded, precision."""
    text = (await server.http.get("/metrics")).text
    found = {family.name: family.samples[0].value for family in text_string_to_metric_families(text) if family.samples}
    return tuple(found[f"nearcast_routing_{name}"] for name in ("filters", "forwarded", "precision"))


def test_filters_are_forwarded_covered_and_merged() -> None:
    """What is added counts from then on, what is removed no more; the size of the table is in the metrics."""

    async def test() -> None:
        async with running() as server:
            await server.http.put("/clients/a", json={})
            await subscribe(server, one="type = 'unit' AND size = 1", two="type = 'unit' AND size = 2")
            assert (0, 0, 1) == await measured(server)
            assert ["type = 'unit' AND size IN (1, 2)"] == await told(server)
            assert (2, 1, 1) == await measured(server)
            await subscribe(server, all="type = 'unit'", chat="type = 'chat' OR tag = 'x'", one="size = 1")
            assert ["size = 1", "tag = 'x'", "type IN ('chat', 'unit')"] == await told(server)
            assert (5, 3, 1) == await measured(server)
            for gone in ("all", "chat"):
                await server.http.delete(f"/subscriptions/{gone}")
            assert ["size = 1", "type = 'unit' AND size = 2"] == await told(server)
            assert (2, 2, 1) == await measured(server)

    run(test)


def test_an_answer_is_not_told_twice() -> None:
    """304 as long as the same filters are forwarded, also when one came that is covered."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            await told(server)
            tag = (await server.http.get("/wanted/filters")).headers["etag"]
            await subscribe(server, narrower="type = 'unit' AND size > 3")
            await told(server)
            again = await server.http.get("/wanted/filters", headers={"If-None-Match": tag})
            assert (304, b"", tag) == (again.status_code, again.content, again.headers["etag"])
            await subscribe(server, other="type = 'chat'")
            await told(server)
            again = await server.http.get("/wanted/filters", headers={"If-None-Match": tag})
            assert 200 == again.status_code and tag != again.headers["etag"]

    run(test)


@pytest.mark.parametrize(
    ("kind", "definition"),
    [
        ("subscriptions", {"client": "a", "filter": "distance(user('a'), this) <= 10"}),
        ("subscriptions", {"client": "a", "filter": "count(uform(tag = 'x'), this, 10) > 3 AND type = 'x'"}),
        ("subscriptions", {"client": "a", "filter": "CHANGED(size)"}),
        ("relations", {"a": {"entity": "u1"}, "b": "type = 'car'", "when": "distance(a, b) < 10"}),
        ("relations", {"among": "type = 'car'", "within": 10, "count": 3}),
        (
            "relations",
            {**ENDS, "detect": ["dwell"], "for": 9},
        ),
        ("situations", {"class": "Fire", "when": "Alarm", "within": 100}),
    ],
)
def test_everything_is_wanted_where_any_event_may_count(kind: str, definition: dict[str, Any]) -> None:
    """As long as it is so."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            (await server.http.put("/settings", json={"ontology": ONTOLOGY})).raise_for_status()
            (await server.http.put(f"/{kind}/one", json=definition)).raise_for_status()
            await until_answered(server, ["TRUE"])
            assert (1, 1) == (await measured(server))[1:]
            await server.http.delete(f"/{kind}/one")
            await until_answered(server, ["type = 'unit'"])

    run(test)


async def until_answered(server: Running, expected: list[str]) -> None:
    """Asks until these filters are forwarded; fails after a minute."""
    async with asyncio.timeout(60):
        while expected != sorted((await server.http.get("/wanted/filters")).json()["filters"]):
            pass


def test_whoever_a_relation_names_is_wanted() -> None:
    """Every event about them, by subject or source."""

    async def test() -> None:
        async with running() as server:
            (await server.http.put("/relations/near", json=ENDS)).raise_for_status()
            assert ["source IN ('u1', 'u2')", "subject IN ('u1', 'u2')"] == await told(server)

    run(test)


def test_what_cql2_cannot_say_is_wanted() -> None:
    """The plain negation of the XML form also holds of what is unknown, so it may hold of anything."""
    table = InterestTable(MemoryJournal(), 1.0)
    negated, planar = PlainNot(parse("size > 3", HERE)), Atom(Distance(This(), Place("planar", 1, 2)), Operator.LT, 3)
    for filter in (negated, planar):
        table.update_demands({"one": Demand((And((parse("type = 'x'", HERE), filter)),))})
        assert ("type = 'x'",) == table.texts()


def test_a_publisher_holds_back_what_nobody_wants() -> None:
    """By what its events say; whoever begins to want some gets them from a second later."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a", filter="type = 'unit' AND size > 3")
            await told(server)
            async with server.publisher(quench=True) as publisher:
                found = await publisher.publish([unit("1", size=5), unit("2", size=3), unit("3"), {"id": "bad"}])
                assert ({1, 2}, {3}) == (found.quenched, {*found.faults})
                await subscribe(server, small="size <= 3 AND speed = 1")
                await told(server)
                publisher._wanted._until = 0.0
                found = await publisher.publish([unit("2", size=3, speed=1), unit("3"), unit("4", size=math.nan)])
                assert ({1}, {2}) == (found.quenched, {*found.faults})
                await subscribe(server, without="type = 'unit' AND size IS NULL")
                await told(server)
                publisher._wanted._until = 0.0
                assert not (await publisher.publish([unit("4", size=None)])).quenched

    run(test)


def test_control_events_are_never_held_back() -> None:
    """Whoever wants what."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            await told(server)
            async with server.publisher(quench=True) as publisher:
                control = {**unit("1"), "type": "nearcast.client", "data": {"client": "b"}}
                found = await publisher.publish([{**unit("2"), "type": "chat"}, control])
                assert ({0}, True) == (found.quenched, found.positions[1] is not None)

    run(test)


def test_while_the_table_is_made_everything_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it."""
    going = threading.Event()
    put = InterestTable._put

    def slow(self: InterestTable, key: str, filters: tuple[Filter, ...]) -> None:
        going.wait(60)
        put(self, key, filters)

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            async with server.publisher(quench=True) as publisher:
                assert not (await publisher.publish([{**unit("1"), "type": "chat"}])).quenched
            assert ["TRUE"] == (await server.http.get("/wanted/filters")).json()["filters"]
            going.set()
            assert ["type = 'unit'"] == await told(server)

    monkeypatch.setattr(InterestTable, "_put", slow)
    run(test)


def test_a_server_ends_while_its_table_is_made() -> None:
    """The thread is told, and does not go on."""

    async def test() -> None:
        async with running() as server:
            registry = server.service.session_manager.registry
            for number in range(5_000):
                text = f"type = 't' AND size > {number} AND speed < {number}"
                registry.apply(SubscriptionChange(Subscription(str(number), ("a",), parse(text, HERE))))
            assert ["TRUE"] == (await server.http.get("/wanted/filters")).json()["filters"]
            thread = next(one for one in threading.enumerate() if one.name.startswith("nearcast-routing"))
        await asyncio.to_thread(thread.join, 60)
        assert not thread.is_alive()

    run(test)


@pytest.mark.parametrize("late", [False, True])
def test_a_table_that_fails_is_made_anew(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    """Meanwhile everything is wanted, and the failure is counted; also where nobody waited for it any more."""
    failing, going = [True], threading.Event()
    put = InterestTable._put

    def fail(self: InterestTable, key: str, filters: tuple[Filter, ...]) -> None:
        if failing:
            going.wait(60 if late else 0)
            raise RuntimeError(failing.pop())
        put(self, key, filters)

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            assert ["TRUE"] == (await server.http.get("/wanted/filters")).json()["filters"]
            await subscribe(server, chats="type = 'chat' AND size > 3")
            going.set()
            assert ["type = 'chat' AND size > 3", "type = 'unit'"] == await told(server)
            assert 'nearcast_errors_total{part="routing"} 1.0' in (await server.http.get("/metrics")).text

    monkeypatch.setattr(InterestTable, "_put", fail)
    run(test)


def test_precision_below_one_is_measured_on_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters merge imperfectly as far as the newest events bear it; enough new ones may show something else."""
    monkeypatch.setattr(wanted_filters, "SAMPLE", 20)
    monkeypatch.setattr(wanted_filters, "PAUSE", 0.0)
    monkeypatch.setattr(wanted_filters, "REST", 0)

    async def test() -> None:
        async with running(precision=0.6) as server:
            await server.http.put("/clients/a", json={})
            await subscribe(server, one="size < 5 AND speed < 5", two="size >= 5 AND speed >= 5")
            wanted = [unit(str(number), size=number % 10, speed=number % 10) for number in range(20)]
            await server.publish(*wanted)
            assert 1 == len(await told(server))
            assert (2, 1, 1) == await measured(server)
            await server.publish(*[unit(f"w{number}", size=number % 10, speed=9 - number % 10) for number in range(20)])
            await until_answered(server, ["size < 5 AND speed < 5", "size >= 5 AND speed >= 5"])

    run(test)
