"""Running nodes: they find each other's readings through bad air, and nothing that they hear can harm them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.foraging.forager import ForagingNode, ForagingSettings
from nearcast.foraging.foraging_rules import ForagingRule
from nearcast.foraging.message_filter import MessageBounds, MessageRates, MessageVerdict
from nearcast.foraging.requestor import NodeSituation
from nearcast.language.cql2 import parse
from nearcast.model.event import Place
from nearcast.model.filter import Atom, Operator
from nearcast.model.foraging import MessageId, Request, Response
from nearcast.node.event_loop import NodeEventLoop
from nearcast.node.sensors import Sensor, SensorReading, SimulatedSensor
from nearcast.node.transport import ChannelFaults, Datagram, Transport
from nearcast.node.wire import encode
from tests.node.conftest import HERE, Make, running, until
from tests.node.radio import Radio

FIRE = ForagingRule("fire", "Fire", parse("Temperature > 80 AND Humidity < 10", Mark("rule")), 100.0, 0.5)
MANNER = ForagingSettings(fresh=2.0, at_once=True, bounds=MessageBounds(rates=MessageRates()))
WARM = SimulatedSensor("Temperature", 85, 95, every=0.1, seed=1)
DRY = SimulatedSensor("Humidity", 3, 8, every=0.1, seed=2)


def node(
    name: str,
    transport: object,
    place: Place = HERE,
    rules: Sequence[ForagingRule] = (),
    sensors: Sequence[Sensor] = (),
    told: Callable[[NodeSituation], None] = lambda _: None,
) -> NodeEventLoop:
    measured = [one.name for one in sensors if isinstance(one, SimulatedSensor)]
    return NodeEventLoop(ForagingNode(name, rules, measured, MANNER), transport, place, sensors, told)  # type: ignore[arg-type]


def test_nodes_find_what_they_miss_at_each_other(make: Make) -> None:
    """Over every transport: the situation begins, with a reading of each."""

    async def find() -> None:
        changes: list[NodeSituation] = []
        asking = node("a", make("a"), rules=[FIRE], sensors=[WARM], told=changes.append)
        async with running(asking, node("b", make("b"), Place("planar", 30.0, 0.0), sensors=[DRY])):
            await until(lambda: changes)
        assert ("Fire", "begin") == (changes[0].situation, changes[0].phase)
        assert {"a", "b"} == {known.provider for _, known in changes[0].readings}

    asyncio.run(find())


def test_a_situation_is_found_through_relays_in_bad_air() -> None:
    """Half is lost, some comes twice, all of it late and mixed: asking again makes up for it."""

    async def find() -> None:
        radio = Radio(50.0, ChannelFaults(loss=0.4, twice=0.3, late=0.05), seed=3)
        changes: list[NodeSituation] = []
        places = {name: Place("planar", x, 0.0) for name, x in (("a", 0.0), ("b", 45.0), ("c", 90.0))}
        sets = {name: radio.transport(name, lambda name=name: places[name]) for name in places}  # type: ignore[misc]
        asking = node("a", sets["a"], places["a"], [FIRE], [WARM], changes.append)
        others = [node("b", sets["b"], places["b"]), node("c", sets["c"], places["c"], (), [DRY])]
        async with running(asking, *others):
            await until(lambda: changes)
        assert {"a", "c"} == {known.provider for _, known in changes[0].readings}
        assert asking.node.message_filter.counts[MessageVerdict.OWN] > 0

    asyncio.run(find())


def test_a_situation_ends_when_its_provider_falls_silent(make: Make) -> None:
    """What it said last is stale after a while: the condition is unknown again."""

    async def leave() -> None:
        changes: list[NodeSituation] = []
        asking = node("a", make("a"), rules=[FIRE], sensors=[WARM], told=changes.append)
        async with running(asking):
            async with running(node("b", make("b"), sensors=[DRY])):
                await until(lambda: changes)
            await until(lambda: changes[-1].phase == "end")
        assert {"fire": None} == asking.node.requestor.truths(HERE, asking.clock())

    asyncio.run(leave())


def deaf() -> NodeEventLoop:
    """A node whose transport is never opened: what it says goes nowhere."""
    return node("z", Radio(50.0).transport("z", lambda: HERE), rules=[FIRE])


REQUEST = Request(MessageId("n1", 1), HERE, 100.0, 0.0, 10.0, (Atom("Humidity", Operator.LT, 10),))


def heard(runtime: NodeEventLoop, *messages: Request | Response) -> dict[str, int]:
    """The verdicts on some messages."""
    for message in messages:
        runtime.receive(Datagram(encode(message, message.id.origin), "somewhere"))
    return {verdict.name: count for verdict, count in runtime.node.message_filter.counts.items()}


@given(st.lists(st.binary(max_size=100), max_size=20))
@settings(deadline=None)
def test_random_datagrams_are_counted_and_harmless(datagrams: list[bytes]) -> None:
    """A message among them is heard as if they were not there."""

    async def hear() -> None:
        runtime = deaf()
        for data in datagrams:
            runtime.receive(Datagram(data, "noise"))
        assert len(datagrams) == runtime.counts["malformed"]
        assert {"TAKEN": 1} == heard(runtime, replace(REQUEST, time=runtime.clock()))

    asyncio.run(hear())


def test_wrong_clocks_places_and_replays_are_counted_and_harmless() -> None:
    """One of each, and the right one is taken."""

    async def hear() -> None:
        runtime = deaf()
        now = runtime.clock()
        right = replace(REQUEST, time=now)
        found = heard(
            runtime,
            right,
            right,
            replace(REQUEST, id=MessageId("behind", 1), time=now - 3_600),
            replace(REQUEST, id=MessageId("ahead", 1), time=now + 3_600),
            replace(REQUEST, id=MessageId("away", 1), time=now, place=Place("planar", 1e9, 1e9)),
            replace(REQUEST, id=MessageId("on earth", 1), time=now, place=Place("geographic", 1.0, 1.0)),
            replace(REQUEST, id=MessageId("greedy", 1), time=now, within=1e300),
        )
        assert {"TAKEN": 1, "DUPLICATE": 1, "STALE": 1, "EARLY": 1, "AWAY": 2, "EXCESSIVE": 1} == found

    asyncio.run(hear())


def test_an_oversized_datagram_is_counted_and_harmless() -> None:
    """However much UDP carries; the next message is taken."""

    async def hear() -> None:
        runtime = deaf()
        runtime.receive(Datagram(b"[" * 65_507, "somewhere"))
        runtime.receive(Datagram(encode(replace(REQUEST, time=runtime.clock()), "n1") + b" " * 8_192, "somewhere"))
        assert 2 == runtime.counts["malformed"]
        assert {"TAKEN": 1} == heard(runtime, replace(REQUEST, time=runtime.clock()))

    asyncio.run(hear())


def test_an_old_value_under_a_new_id_does_not_count() -> None:
    """Of a node that does not say how old it is: what was recorded and is said again, within the tolerance for clocks,
    is heard and stale, and that is counted; later it is refused.
    """

    async def hear() -> None:
        runtime = deaf()
        now = runtime.clock()
        runtime.node.measure([("Temperature", 90)], HERE, now)
        old = Response(MessageId("n2", 1), "n2", HERE, 100.0, now - 30, 5.0, (("Humidity", 5),), age=None)
        assert {"TAKEN": 1} == heard(runtime, old)
        assert {"TAKEN": 1, "STALE": 1} == heard(runtime, replace(old, id=MessageId("n2", 2), time=now - 65))
        assert {"fire": None} == runtime.node.requestor.truths(HERE, now)
        assert 1 == runtime.counted()["outdated when heard"]
        heard(runtime, replace(old, id=MessageId("n2", 3), time=now))
        assert {"fire": True} == runtime.node.requestor.truths(HERE, now)

    asyncio.run(hear())


def test_a_clock_that_differs_by_more_than_is_allowed_is_counted_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line for each sender, with how far it is behind; however many, the log has few."""
    runtime = deaf()
    now = runtime.clock()
    told = Response(MessageId("n2", 1), "n2", HERE, 100.0, now, 5.0, (("Humidity", 5),))
    for number in range(40):
        late = replace(told, id=MessageId("n2", number), time=now + (-70 if number % 2 else 70))
        runtime.receive(Datagram(encode(late, "n2"), f"address {number // 2}"))
    counted = runtime.counted()
    assert (20, 20) == (counted[str(MessageVerdict.STALE)], counted[str(MessageVerdict.EARLY)])
    lines = [record.getMessage() for record in caplog.records if "of another clock" in record.getMessage()]
    assert 10 == len(lines)
    assert "old, or of another clock: sender=address 0 origin=n2 seconds behind=-70.0" == lines[0]


def test_a_neighbour_that_fills_its_share_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With what was refused; another one is heard, and asked."""
    runtime = node("z", Radio(50.0).transport("z", lambda: HERE), sensors=[DRY])
    runtime.node.message_filter.shares.most = 8
    heard(runtime, *(replace(REQUEST, id=MessageId("n1", number), time=runtime.clock()) for number in range(9)))
    assert {"no room: ids": 5, "taken": 4} == {name: runtime.counted()[name] for name in ("no room: ids", "taken")}
    runtime.receive(Datagram(encode(replace(REQUEST, id=MessageId("n3", 1), time=runtime.clock()), "n3"), "elsewhere"))
    assert 5 == runtime.node.message_filter.taken
    for _ in range(2):
        runtime._tell_full()
    assert 1 == sum("share of what is remembered is full" in record.getMessage() for record in caplog.records)


def test_a_node_whose_clock_is_set_back_begins_anew() -> None:
    """It asks again, and what it measures counts, though it measured later by its clock before."""
    moments = [1_000_000.0]
    silent = Radio(50.0).transport("z", lambda: HERE)
    runtime = NodeEventLoop(ForagingNode("z", [FIRE], ["Temperature"], MANNER), silent, HERE, clock=lambda: moments[0])
    runtime.measure(SensorReading((("Temperature", 20),)))
    assert 1 == len(runtime.node.ask(HERE, runtime.clock()))
    moments[0] -= 3_600
    runtime.measure(SensorReading((("Temperature", 90),)))
    assert 1 == runtime.counts["clock set back"]
    assert 1 == len(runtime.node.ask(HERE, runtime.clock()))
    heard(runtime, Response(MessageId("n2", 1), "n2", HERE, 100.0, moments[0], 5.0, (("Humidity", 5),)))
    assert {"fire": True} == runtime.node.requestor.truths(HERE, moments[0])
    assert {"fire": None} == runtime.node.requestor.truths(HERE, moments[0] + 60)


def test_noise_and_replays_on_the_link_harm_nobody(make: Make) -> None:
    """Somebody says everything again, twice, and nonsense between: the situation begins, and all that is counted."""

    async def find() -> None:
        changes: list[NodeSituation] = []
        asking = node("a", make("a"), rules=[FIRE], sensors=[WARM], told=changes.append)
        answering = node("b", make("b"), Place("planar", 30.0, 0.0), sensors=[DRY])
        async with make("noise") as noise, running(asking, answering):
            echoing = asyncio.create_task(echo(noise))
            await until(
                lambda: (
                    changes
                    and asking.node.message_filter.counts[MessageVerdict.DUPLICATE]
                    and asking.counts["malformed"]
                )
            )
            echoing.cancel()
        assert {"a", "b"} == {known.provider for _, known in changes[0].readings}
        assert not any(
            asking.node.message_filter.counts[verdict] for verdict in (MessageVerdict.STALE, MessageVerdict.EARLY)
        )

    async def echo(noise: Transport) -> None:
        said = set[bytes]()
        while heard_ := await noise.receive():
            # What it says itself comes back to it.
            if heard_.data not in said and len(said) < 50:
                said.add(heard_.data)
                for data in (heard_.data, heard_.data, heard_.data[:-3], b"[" * 9_000):
                    said.add(data)
                    noise.send(data)

    asyncio.run(find())


def test_a_flood_does_not_keep_a_node_from_hearing_others() -> None:
    """A thousand requests of one; another's is taken."""

    async def flood() -> None:
        runtime = deaf()
        now = runtime.clock()
        many = (replace(REQUEST, id=MessageId("flooder", number), time=now) for number in range(1_000))
        refused = heard(runtime, *many)["FLOODING"]
        assert refused > 900
        before = runtime.node.message_filter.taken
        runtime.receive(Datagram(encode(replace(REQUEST, time=now), "n1"), "elsewhere"))
        assert before + 1 == runtime.node.message_filter.taken

    asyncio.run(flood())


def test_values_of_another_kind_do_not_trip_a_rule() -> None:
    """A text where a number is expected leaves the condition unknown."""

    async def hear() -> None:
        runtime = deaf()
        now = runtime.clock()
        for number, value in enumerate(["wet", True, ""]):
            heard(runtime, Response(MessageId("n2", number), "n2", HERE, 100.0, now, 5.0, (("Humidity", value),)))
        runtime.report_changes()
        assert runtime.node.requestor.truths(HERE, now) == {"fire": None}

    asyncio.run(hear())


def test_readings_of_classes_that_a_node_does_not_declare_are_counted() -> None:
    """And a reading may say where the node is."""
    runtime = node("a", Radio(50.0).transport("a", lambda: HERE), sensors=[WARM])
    runtime.measure(SensorReading((("Temperature", 90), ("Preassure", 3)), Place("planar", 5.0, 5.0)))
    assert (1, 1) == (runtime.counts["readings"], runtime.counts["unknown classes"])
    assert Place("planar", 5.0, 5.0) == runtime.place


def test_a_node_under_random_fire_keeps_answering() -> None:
    """Noise, replays and real requests mixed: each new request on a dry place is answered."""

    async def fire() -> None:
        chance = random.Random(5)
        runtime = node("z", Radio(50.0).transport("z", lambda: HERE), sensors=[DRY])
        runtime.measure(SensorReading((("Humidity", 5),)))
        asked: list[bytes] = []
        for number in range(200):
            asked.append(encode(replace(REQUEST, id=MessageId(f"n{number}", 1), time=runtime.clock()), f"n{number}"))
            runtime.receive(Datagram(chance.randbytes(60), "noise"))
            runtime.receive(Datagram(chance.choice(asked[:-1] or asked), "replay"))
            runtime.receive(Datagram(asked[-1], f"n{number}"))
        assert (200, 200) == (runtime.node.message_filter.taken, runtime.counts["malformed"])

    asyncio.run(fire())


def test_a_class_that_nobody_answers_for_is_reported() -> None:
    """After three requests in vain, once; an answer begins the count anew."""

    async def ask() -> None:
        moments = count(1_000_000.0, 0.5)
        runtime = node("z", Radio(50.0).transport("z", lambda: HERE), rules=[FIRE])
        runtime._clock = lambda: next(moments)
        async with running(runtime):
            await until(lambda: runtime.counts["unanswered Humidity"])
        assert 3 <= runtime.counts["said"]
        assert {"unanswered Humidity": 1, "unanswered Temperature": 1} == {
            name: times for name, times in runtime.counts.items() if name.startswith("unanswered")
        }

    asyncio.run(ask())
