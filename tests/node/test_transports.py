"""What every transport does, and what only some do."""

from __future__ import annotations

import asyncio

import pytest

from nearcast.errors import Fault, SetupError
from nearcast.model.event import Place
from nearcast.node.multicast import Group, MulticastTransport
from nearcast.node.transport import LARGEST, MOST_WAITING, ChannelFaults, Datagram, Transport
from tests.node.conftest import HERE, PORTS, Make
from tests.node.radio import Radio


async def heard(transport: Transport, count: int, seconds: float = 60.0) -> list[bytes]:
    """The next datagrams from others than oneself."""
    found: list[bytes] = []
    async with asyncio.timeout(seconds):
        while len(found) < count:
            one = await transport.receive()
            assert one is not None
            found.append(one.data)
    return found


def test_what_one_says_all_others_hear(make: Make) -> None:
    """Whole, and everyone else."""

    async def say() -> None:
        async with make("a") as a, make("b") as b, make("c") as c:
            a.send(b"hello")
            assert [[b"hello"]] * 2 == [await heard(one, 1) for one in (b, c)]

    asyncio.run(say())


def test_a_sender_is_told_from_another_and_is_the_same_each_time() -> None:
    """By the transport, whatever stands in the datagram; over a network by its address."""
    radio, port = Radio(50.0), next(PORTS)
    of_radio = [radio.transport(name, lambda: HERE) for name in "abc"]
    asyncio.run(_told_apart(*of_radio))
    addresses = ("127.0.0.1", "127.0.0.2", "127.0.0.1")
    asyncio.run(_told_apart(*(MulticastTransport(Group(port=port, interface=one)) for one in addresses)))


async def _told_apart(first_of_all: Transport, second_of_all: Transport, hearing: Transport) -> None:
    async with first_of_all as a, second_of_all as b, hearing as c:
        for sender in (a, b, a):
            sender.send(b"I am b")
            await asyncio.sleep(0.02)
        first, second, third = [await c.receive() for _ in range(3)]
        assert first and second and third
        assert first.sender == third.sender != second.sender


def test_who_opens_many_ports_is_one_neighbour() -> None:
    """A sender over a network is its address."""

    async def say() -> None:
        group = Group(port=next(PORTS), interface="127.0.0.1")
        async with MulticastTransport(group) as a, MulticastTransport(group) as b, MulticastTransport(group) as c:
            a.send(b"one")
            b.send(b"two")
            assert {"127.0.0.1"} == {heard_.sender for heard_ in (await c.receive(), await c.receive()) if heard_}

    asyncio.run(say())


@pytest.mark.parametrize("size", [1, 1_400, 9_000])
def test_a_datagram_comes_whole(make: Make, size: int) -> None:
    """Also one that the network must cut into pieces."""

    async def say() -> None:
        async with make("a") as a, make("b") as b:
            a.send(bytes(size))
            assert [bytes(size)] == await heard(b, 1)

    asyncio.run(say())


def test_what_is_too_large_is_a_fault_at_once(make: Make) -> None:
    """And what comes after it is heard."""

    async def say() -> None:
        async with make("a") as a, make("b") as b:
            with pytest.raises(Fault, match="a datagram of at most 65,507 bytes"):
                a.send(bytes(LARGEST + 1))
            a.send(b"small")
            assert [b"small"] == await heard(b, 1)

    asyncio.run(say())


def test_closing_ends_receiving(make: Make) -> None:
    """For whoever waits, and for whoever asks later; saying something is then in vain."""

    async def close() -> None:
        transport = make("a")
        async with transport:
            waiting = asyncio.create_task(transport.receive())
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            assert (None, None) == (await waiting, await transport.receive())
        transport.send(b"hello")

    asyncio.run(close())


def test_a_node_that_takes_nothing_loses_what_is_too_much(make: Make) -> None:
    """Counted, no memory without end, and room is left for others than who floods."""

    async def flood() -> None:
        async with make("a") as transport:
            for _ in range(MOST_WAITING // 2 + 3):
                transport._hear(b"x", "b")
            assert 3 == transport.dropped
            transport._hear(b"y", "c")
            assert 3 == transport.dropped

    asyncio.run(flood())


def test_a_radio_reaches_as_far_as_it_reaches() -> None:
    """And follows a node that moves."""

    async def move() -> None:
        radio, place = Radio(50.0), [Place("planar", 60.0, 0.0)]
        async with radio.transport("a", lambda: HERE) as a, radio.transport("b", lambda: place[0]) as b:
            a.send(b"far")
            place[0] = Place("planar", 40.0, 0.0)
            a.send(b"near")
            assert [b"near"] == await heard(b, 1)

    asyncio.run(move())


def test_bad_weather_loses_doubles_and_mixes() -> None:
    """About as much as it says."""

    async def storm() -> None:
        radio = Radio(50.0, ChannelFaults(loss=0.3, twice=0.2, late=0.02), seed=7)
        async with radio.transport("a", lambda: HERE) as a, radio.transport("b", lambda: HERE) as b:
            for number in range(1_000):
                a.send(number.to_bytes(2, "big"))
            await asyncio.sleep(0.2)
            found = [int.from_bytes(one.data, "big") for one in _waiting(b)]
        assert 0.55 < len(set(found)) / 1_000 < 0.9
        assert len(found) > len(set(found))
        assert found != sorted(found)

    asyncio.run(storm())


def _waiting(transport: Transport) -> list[Datagram]:
    return [transport._heard.get_nowait() for _ in range(transport._heard.qsize())]


@pytest.mark.parametrize(
    "group, expected",
    [
        ({"address": "10.0.0.1"}, "expected a multicast address"),
        ({"address": "nowhere"}, "expected IPv4 addresses"),
        ({"interface": "eth0"}, "expected IPv4 addresses"),
    ],
)
def test_a_group_that_is_none_is_told(group: dict[str, str], expected: str) -> None:
    """Before anything is opened."""
    with pytest.raises(SetupError, match=expected):
        Group(**group)  # type: ignore[arg-type]


def test_an_interface_that_is_not_there_is_told() -> None:
    """With what to look at; nothing stays open."""

    async def join() -> None:
        async with MulticastTransport(Group(port=next(PORTS), interface="192.0.2.1")):
            pass

    with pytest.raises(SetupError, match="is that the address of one of its interfaces"):
        asyncio.run(join())
