"""A bridge: nodes ask the server, the server asks nodes, each hears the other's answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

import pytest

from nearcast.client import Delivery
from nearcast.errors import Mark, SetupError
from nearcast.foraging.forager import ForagingNode, ForagingSettings
from nearcast.foraging.foraging_rules import ForagingRule
from nearcast.foraging.requestor import NodeSituation
from nearcast.language.cql2 import parse
from nearcast.model.filter import Atom, Operator
from nearcast.model.foraging import MessageId, Request
from nearcast.node.bridge import Bridge
from nearcast.node.definition import BridgeDefinition
from nearcast.node.event_loop import NodeEventLoop
from nearcast.node.sensors import SimulatedSensor
from tests.node.conftest import HERE, running, until
from tests.node.radio import Radio
from tests.server.conftest import Running
from tests.server.conftest import running as serving

MANNER = ForagingSettings(fresh=120.0, at_once=True)
FIRE = ForagingRule("fire", "Fire", parse("Temperature > 80 AND Humidity < 10", Mark("rule")), 100.0, 60.0)


def awaited(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Runs an asynchronous test in an event loop of its own."""

    @wraps(test)
    def whole() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    return whole


@asynccontextmanager
async def bridged(
    server: Running, classes: Sequence[str], radio: Radio, name: str = "gate", repeat: float = 10.0
) -> AsyncIterator[NodeEventLoop]:
    """A bridge that runs, with a radio."""
    node = ForagingNode("gate", manner=MANNER, serves=classes)
    runtime = NodeEventLoop(node, radio.transport("gate", lambda: HERE), HERE)
    definition = BridgeDefinition(server.url, name, tuple(classes), repeat=repeat)
    async with Bridge(definition, runtime) as bridge:
        runtime.taken = bridge.bridge_message
        async with running(runtime):
            yield runtime


def event(id: str, type: str = "weather", **data: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": id, "type": type, "source": "station 4", "data": {"x": 20, "y": 0, **data}}


@awaited
async def test_a_node_finds_at_the_server_what_it_misses() -> None:
    """Its request is a subscription there for as long as it holds; the situation tells from which station it is."""
    changes: list[NodeSituation] = []
    radio = Radio(50.0)
    warm = SimulatedSensor("Temperature", 85, 95, every=0.1)
    node = ForagingNode("a", [FIRE], ["Temperature"], MANNER)
    asking = NodeEventLoop(node, radio.transport("a", lambda: HERE), HERE, [warm], changes.append)
    async with serving() as server, bridged(server, ["Humidity"], radio) as gate:
        async with running(asking):
            await until(lambda: gate.counts["bridge subscribed"])
            await server.publish(event("1", Humidity=50), event("2", Humidity=5))
            await until(lambda: changes)
        providers = {known.provider for _, known in changes[0].readings}
        assert {"a", "station 4"} == providers
        assert 1 == gate.counts["bridge answered"]
        assert 2 == len(subscriptions(server))
        # A minute and more later nobody asks any more.
        gate.clock = lambda: time.time() + 100
        await until(lambda: {"gate-requests"} == subscriptions(server))


def subscriptions(server: Running) -> set[str]:
    """What there is to decide for, now."""
    server.pipeline.decide()
    return set(server.pipeline.registry.subscriptions)


@awaited
async def test_the_server_finds_at_nodes_what_it_asks_for() -> None:
    """An event that asks becomes a request; the answers are events, about their providers."""
    radio = Radio(50.0)
    dry = SimulatedSensor("Humidity", 3, 8, every=0.1)
    node = ForagingNode("b", (), ["Humidity"], MANNER)
    answering = NodeEventLoop(node, radio.transport("b", lambda: HERE), HERE, [dry])
    async with serving() as server, bridged(server, [], radio) as gate, running(answering):
        await server.declare("watcher", filter="type = 'context.response' AND Humidity < 10")
        asked = event("9", "context.request", when="Humidity < 10", within=100, valid=120)
        await server.publish(asked)
        await until(lambda: gate.counts["bridge published"])
        server.pipeline.decide()
        async with server.client("watcher") as watcher, asyncio.timeout(60):
            delivery = await anext(watcher.deliveries())
        assert ("context.response", "b") == (delivery.event["type"], delivery.event["subject"])
        assert 3 <= delivery.event["data"]["Humidity"] <= 8


@awaited
async def test_a_provider_that_begins_anew_is_asked_again_and_its_end_is_told() -> None:
    """The server asks once; the fire of a node that came later is published, and its end when that is silent."""
    radio = Radio(50.0)
    manner = ForagingSettings(fresh=1.0, at_once=True)
    rule = ForagingRule("fire", "Fire", parse("Temperature > 80", Mark("rule")), 100.0, 60.0)
    async with serving() as server, bridged(server, [], radio, repeat=0.1) as gate:
        await server.declare("watcher", filter="type = 'context.response' AND (Fire OR ended = 'Fire')")
        await server.publish(event("9", "context.request", when="Fire", within=100, valid=120))
        await until(lambda: gate.counts["bridge asked"])
        warm = SimulatedSensor("Temperature", 85, 95, every=0.1)
        node = ForagingNode("b", [rule], ["Temperature"], manner)
        async with running(NodeEventLoop(node, radio.transport("b", lambda: HERE), HERE, [warm])):
            await until(lambda: gate.counts["bridge published"])
        await until(lambda: gate.counts["bridge ended"])
        server.pipeline.decide()
        async with server.client("watcher") as watcher, asyncio.timeout(60):
            told = [delivery.event["data"] async for delivery in first(watcher.deliveries(), gate.counts)]
    assert (True, ["Fire"]) == (told[0]["Fire"], told[-1]["ended"])
    assert told[0]["valid"] <= 1.0 and "valid" not in told[-1]
    assert gate.counts["bridge repeated"]


async def first(deliveries: AsyncIterator[Delivery], counts: Mapping[str, int]) -> AsyncIterator[Delivery]:
    """As many deliveries as a bridge has published."""
    for _ in range(counts["bridge published"] + counts["bridge ended"]):
        yield await anext(deliveries)


@awaited
async def test_what_the_server_brings_late_is_not_told_as_if_it_were_new() -> None:
    """An event, or a request, of hours ago; one of another clock is."""
    radio = Radio(50.0)
    async with serving() as server, bridged(server, ["Humidity"], radio) as gate:
        body = {"client": "gate", "filter": "type = 'weather'"}
        (await server.http.put("/subscriptions/all", json=body)).raise_for_status()
        asked = (Atom("Humidity", Operator.LT, 10),)
        gate.node.provider.register(Request(MessageId("n1", 1), HERE, 100.0, gate.clock(), 60.0, asked), gate.clock())
        for hours, minute in ((3, "old"), (0, "new")):
            moment = datetime.now(UTC) - timedelta(hours=hours, seconds=50)
            late = {"time": moment.isoformat()}
            await server.publish(event(minute, Humidity=9) | late)
            await server.publish(event(f"{minute} one", "context.request", when="Wind > 3", within=9, valid=600) | late)
        await until(lambda: gate.counts["bridge answered"] and gate.counts["bridge asked"])
        counts = [gate.counts[f"bridge {what}"] for what in ("outdated", "answered", "asked")]
        assert [2, 1, 1] == counts


@awaited
async def test_a_request_event_that_is_none_is_counted_and_harmless() -> None:
    """A filter that cannot be read, a reach without end, data that are none: the next one is asked."""
    radio = Radio(50.0)
    async with serving() as server, bridged(server, [], radio) as gate:
        await server.publish(
            *[
                event("1", "context.request", when="Humidity <", within=100, valid=120),
                event("2", "context.request", when="Humidity < 10", within=1e12, valid=120),
                event("3", "context.request", within=100, valid=120),
                {"specversion": "1.0", "id": "4", "type": "context.request", "source": "s", "data": "text"},
                event("6", "context.request", when=f"Wind IN ({', '.join(map(str, range(65)))})", within=9, valid=9),
                event("5", "context.request", when="Humidity < 10", within=100, valid=120),
            ]
        )
        await until(lambda: gate.counts["bridge asked"])
        assert (5, 1) == (gate.counts["bridge faults"], gate.counts["bridge asked"])


@awaited
async def test_an_event_whose_readings_are_none_is_harmless() -> None:
    """Somebody else publishes an object, or nothing, under the name of a class: the bridge goes on."""
    radio = Radio(50.0)
    async with serving() as server, bridged(server, ["Humidity"], radio, "gate #1") as gate:
        body = {"client": "gate #1", "filter": "type = 'weather'"}
        (await server.http.put("/subscriptions/all", json=body)).raise_for_status()
        asked = (Atom("Humidity", Operator.LT, 10),)
        gate.node.provider.register(Request(MessageId("n1", 1), HERE, 100.0, gate.clock(), 60.0, asked), gate.clock())
        for humidity in ({"percent": 9}, None, [9, "wet"]):
            await server.publish(event(f"none {humidity}", Humidity=humidity))
        await server.publish(event("one", Humidity=9))
        await until(lambda: gate.counts["bridge answered"])


@awaited
async def test_what_nodes_ask_each_other_does_not_go_to_the_server() -> None:
    """Neither requests for classes it is not asked for, nor answers that it has not asked for."""
    radio = Radio(50.0)
    dry = SimulatedSensor("Humidity", 3, 8, every=0.1)
    warm = SimulatedSensor("Temperature", 85, 95, every=0.1)
    changes: list[NodeSituation] = []
    one = ForagingNode("a", [FIRE], ["Temperature"], MANNER)
    asking = NodeEventLoop(one, radio.transport("a", lambda: HERE), HERE, [warm], changes.append)
    two = ForagingNode("b", (), ["Humidity"], MANNER)
    answering = NodeEventLoop(two, radio.transport("b", lambda: HERE), HERE, [dry])
    async with serving() as server, bridged(server, ["Wind"], radio) as gate, running(asking, answering):
        await until(lambda: changes and gate.node.message_filter.taken > 2)
        assert (0, 0) == (gate.counts["bridge subscribed"], gate.counts["bridge published"])


@awaited
async def test_a_bridge_to_nothing_is_told_at_once() -> None:
    """With the address; a node that should bridge does not run as if it did."""
    runtime = NodeEventLoop(ForagingNode("gate"), Radio(50.0).transport("gate", lambda: HERE), HERE)
    with pytest.raises(SetupError, match=r"an access server at http://127\.0\.0\.1:9 to bridge to"):
        async with Bridge(BridgeDefinition("http://127.0.0.1:9", "gate", ()), runtime):
            pass
