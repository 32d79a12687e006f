"""From publishing to an acknowledged delivery, through a real server."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson
import pytest
from starlette.requests import Request
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from nearcast.errors import JournalError, SessionError
from nearcast.language.control_events import to_event
from nearcast.model.changes import ClientChange
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event
from nearcast.model.sequence import sequence
from nearcast.server.config import ServerLimits
from nearcast.server.sessions import manager, stream
from nearcast.server.sessions.session import CONFIRMED, Connection, Pump
from tests.server.conftest import Running, received, run, running, unit, until


def outcomes(server: Running) -> dict[int, str]:
    """How the deliveries ended, by the event's position."""
    rows = server.journal.read("outcomes", 0, 1_000_000).to_pylist()
    assert len(rows) == len({(row["client"], row["event"]) for row in rows}), "a delivery ends once"
    return {row["event"]: row["outcome"] for row in rows}


def stored(server: Running) -> list[Event]:
    return to_events(server.journal.read("events", 0, 1_000_000))


def waiting(server: Running, client: str = "a") -> Any:
    return server.service.session_manager.session(client).waiting


async def raw(socket: ClientConnection, kind: str) -> Any:
    """The next message of this kind, of a client that does only what the test does."""
    async with asyncio.timeout(60):
        while kind not in (message := orjson.loads(await socket.recv())):
            pass
    return message


def socket_of(server: Running, client: str = "a", query: str = "") -> Any:
    return connect(f"ws{server.url[4:]}/clients/{client}/stream{query}", max_queue=None)


def test_an_event_goes_from_the_publisher_to_the_client_and_its_outcome_into_the_journal() -> None:
    """Published over HTTP, decided, delivered over a WebSocket, acknowledged, settled in the journal."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            async with server.client("a") as client:
                [position] = await server.publish(unit("e1", size=10))
                [delivery] = await received(client, 1)
                assert (position, 0, "all-a", 2, 1) == (
                    delivery.position,
                    delivery.priority,
                    delivery.subscription,
                    delivery.level,
                    delivery.attempt,
                )
                assert {"size": 10} == delivery.event["data"]
                await until(lambda: server.journal.end("outcomes"))
            [outcome] = server.journal.read("outcomes", 0, 10).to_pylist()
            assert ("a", position, "acknowledged", 0, 1) == tuple(
                outcome[name] for name in ("client", "event", "outcome", "priority", "attempts")
            )
            assert outcome["queued"] <= outcome["sent"] <= outcome["settled"]

    run(test)


def test_who_acknowledges_what_the_journal_cannot_look_up_is_asked_to_come_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is closed with why, not cut off by an error; what it says again then is confirmed."""

    def fail(*_: object) -> set[int]:
        raise JournalError("the journal does not answer")

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            await server.publish(unit("e1"))
            async with socket_of(server) as socket:
                acknowledgement = orjson.dumps({"ack": [(await raw(socket, "delivery"))["delivery"]]}).decode()
                await socket.send(acknowledgement)
                await raw(socket, "settled")
                with monkeypatch.context() as patch:
                    patch.setattr(manager, "delivered", fail)
                    await socket.send(acknowledgement)
                    with pytest.raises(ConnectionClosed) as closed:
                        await raw(socket, "settled")
                assert closed.value.rcvd and stream.GOING_AWAY == closed.value.rcvd.code
                assert "does not answer" in closed.value.rcvd.reason
            async with socket_of(server) as socket:
                await socket.send(acknowledgement)
                await raw(socket, "settled")
        assert [] == [one.message for one in caplog.records if one.name == "uvicorn.error" and one.levelname == "ERROR"]

    run(test)


SETTINGS = {
    "awareness": {"bandwidth": {"maximum": 3750}},
    "roles": {
        "leader": {"attack": {"all-a": [1, 1]}},
        "scout": {"attack": {"all-a": [0.3, 1]}},
        "cook": {"lunch": {"all-a": [0, 1]}},
    },
}


async def declare_roles(server: Running, role: str = "leader", task: str = "attack", bandwidth: float = 1000) -> None:
    """Client a in a role, in the worst context; its subscription's two atoms: type, and a size."""
    (await server.http.put("/settings", json=SETTINGS)).raise_for_status()
    body = {"role": role, "task": task, "readings": {"bandwidth": bandwidth}}
    (await server.http.put("/clients/a", json=body)).raise_for_status()
    filter = "type = 'unit' OR size > 1000"
    (await server.http.put("/subscriptions/all-a", json={"client": "a", "filter": filter})).raise_for_status()


def test_a_change_of_role_reorders_what_waits() -> None:
    """By one look-up each: to a scout the same events matter little; said over the WebSocket, it holds at once."""

    async def test() -> None:
        async with running() as server:
            await declare_roles(server)
            positions = await server.publish(*(unit(str(number)) for number in range(3)))
            await until(lambda: len(waiting(server).waiting) == 3)
            assert {0: 3} == waiting(server).by_priority()
            async with socket_of(server) as socket:
                await socket.send('{"role": "scout", "task": "attack"}')
                await until(lambda: {2: 3} == waiting(server).by_priority() or waiting(server).in_flight)
            await until(lambda: {2: 3} == waiting(server).by_priority())
            positions += await server.publish(unit("urgent", size=2000))
            await until(lambda: len(waiting(server).waiting) == 4)
            async with server.client("a") as client:
                assert [(positions[3], 0), *((one, 2) for one in positions[:3])] == [
                    (one.position, one.priority) for one in await received(client, 4)
                ]
            events = to_events(server.journal.read("events", 0, 100))
            assert "nearcast/server/said" in [event.source for event in events]
            assert "scout" == (await server.http.get("/clients/a")).json()["role"]

    run(test)


def test_a_role_that_does_not_select_it_withholds_it_until_another_does() -> None:
    """Nothing is dropped: the cook becomes a leader and gets what waited."""

    async def test() -> None:
        async with running() as server:
            await declare_roles(server)
            await server.publish(unit("e"))
            await until(lambda: len(waiting(server).waiting) == 1)
            (await server.http.put("/clients/a", json={"role": "cook", "task": "lunch"})).raise_for_status()
            assert {-1: 1} == waiting(server).by_priority()
            async with server.client("a") as client:
                await client.connected()
                await client.say(role="leader", task="attack")
                assert ["e"] == [one.event["id"] for one in await received(client, 1)]

    run(test)


def test_readings_change_priorities_at_once_and_are_journaled_when_a_class_changes() -> None:
    """Many readings of one class make few events; the newest counts here all the same."""

    async def test() -> None:
        async with running(limits=ServerLimits(reading_seconds=60.0)) as server:
            await declare_roles(server, role="scout", bandwidth=3750)
            async with server.client("a") as client:
                await client.connected()
                for number in range(50):
                    await client.say(readings={"bandwidth": 100.0 + number})
                await until(lambda: server.service.session_manager.registry.clients["a"].readings["bandwidth"] == 149.0)
                await server.publish(unit("e"))
                [delivery] = await received(client, 1)
                assert (0, 2) == (delivery.level, delivery.priority)
            said = [
                event for event in to_events(server.journal.read("events", 0, 100)) if event.source.endswith("said")
            ]
            assert 1 <= len(said) <= 2

    run(test)


def test_the_last_reading_reaches_the_journal_when_the_server_ends() -> None:
    """What was held back for want of urgency is written at the end."""

    async def test() -> None:
        async with running(limits=ServerLimits(reading_seconds=60.0)) as server:
            await server.declare("a")
            async with server.client("a") as client:
                await client.connected()
                for battery in (90.0, 80.0, 70.0):
                    await client.say(readings={"battery": battery})
                await until(
                    lambda: server.service.session_manager.registry.clients["a"].readings.get("battery") == 70.0
                )
            journal = server.journal
        async with running(journal) as server:
            assert 70.0 == (await server.http.get("/clients/a")).json()["readings"]["battery"]

    run(test)


def test_what_outlives_its_time_expires() -> None:
    """Also where nobody is connected, with its outcome."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a", ttl=0.2)
            [position] = await server.publish(unit("e"))
            await until(lambda: outcomes(server) == {position: "expired"})
            assert 0 == waiting(server).balance()

    run(test)


def test_of_an_entity_only_the_newest_waits() -> None:
    """The older ones end as conflated; the client gets one event of each."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a", conflate=True)
            positions = await server.publish(*(unit(str(number), f"u{number % 2}") for number in range(10)))
            await until(lambda: len(waiting(server).waiting) == 2)
            async with server.client("a") as client:
                found = await received(client, 2)
            assert {"8", "9"} == {one.event["id"] for one in found}
            await until(lambda: len(outcomes(server)) == 10)
            assert dict.fromkeys(positions[:-2], "conflated").items() <= outcomes(server).items()

    run(test)


def test_beyond_the_limit_the_oldest_of_the_least_urgent_overflow() -> None:
    """Memory is bounded, and everything dropped has its reason."""

    async def test() -> None:
        async with running(limits=ServerLimits(waiting=5)) as server:
            await server.declare("a")
            positions = await server.publish(*(unit(str(number)) for number in range(20)))
            await until(lambda: len(outcomes(server)) == 15)
            assert dict.fromkeys(positions[:15], "overflowed") == outcomes(server)

    run(test)


def test_what_cannot_be_taken_does_not_take_along_what_comes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither changes nor deliveries that are read together with it are lost; it is counted."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a", "b")
            session_manager = server.service.session_manager
            apply, queue = session_manager.apply, session_manager._queue

            def fails_for_x(change: Any) -> None:
                """Applies a change."""
                if getattr(change, "client", None) == "x":
                    raise ArithmeticError("cannot be applied")
                apply(change)

            def fails_for_b(session: Any, *more: Any) -> None:
                """Queues a delivery."""
                if session.client.id == "b":
                    raise ArithmeticError("cannot be queued")
                queue(session, *more)

            monkeypatch.setattr(session_manager, "apply", fails_for_x)
            monkeypatch.setattr(session_manager, "_queue", fails_for_b)
            changes = [to_event(ClientChange(one), one, "s") for one in ("x", "y")]
            server.journal.append("events", to_table([*changes, Event("e", "unit", "s")]))
            server.pipeline.decide()
            await until(lambda: waiting(server).waiting)
            assert (True, False) == (session_manager.known("y"), session_manager.known("x"))
            assert 'nearcast_errors_total{part="reader"} 2.0' in (await server.http.get("/metrics")).text

    run(test)


def test_ended_subscriptions_and_removed_clients_get_nothing_more() -> None:
    """What waits for them ends as unsubscribed; what is decided later, too."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a", "b")
            first, second = await server.publish(unit("1"), unit("2"))
            await until(lambda: len(waiting(server).waiting) == 2)
            await server.http.delete("/subscriptions/all-a")
            await server.http.delete("/clients/b")
            await until(lambda: server.journal.end("outcomes") == 4)
            rows = server.journal.read("outcomes", 0, 10).to_pylist()
            assert {("a", first), ("a", second), ("b", first), ("b", second)} == {
                (row["client"], row["event"]) for row in rows if row["outcome"] == "unsubscribed"
            }
            await until(lambda: not server.service.session_manager.sessions.keys() & {"b"})
            status = (await server.http.get("/status")).json()
            assert (4, 4, 0) == (status["queued"], status["outcomes"]["unsubscribed"], status["balance"])

    run(test)


def test_what_another_subscription_selected_too_is_not_lost_with_the_first() -> None:
    """It waits on for the other one; when that ends as well, it ends."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            await server.http.put("/subscriptions/more", json={"client": "a", "filter": "type = 'unit'"})
            [position] = await server.publish(unit("1"))
            await until(lambda: len(waiting(server).waiting) == 1)
            first = waiting(server).waiting[sequence(position, 0)].subscription
            await server.http.delete(f"/subscriptions/{first}")
            await until(lambda: waiting(server).waiting[sequence(position, 0)].subscription != first)
            assert {"more", "all-a"} == {first, waiting(server).waiting[sequence(position, 0)].subscription}
            await server.http.delete(f"/subscriptions/{waiting(server).waiting[sequence(position, 0)].subscription}")
            await until(lambda: outcomes(server) == {position: "unsubscribed"})

    run(test)


def test_a_new_connection_takes_the_session_over() -> None:
    """The old one is closed with a code, and the new one gets what is not acknowledged, as second attempts."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            old, new = server.client("a", automatic=False), server.client("a")
            await server.publish(unit("1"), unit("2"))
            assert ["1", "2"] == [one.event["id"] for one in await received(old, 2)]
            found = await received(new, 2)
            assert [("1", 2), ("2", 2)] == [(one.event["id"], one.attempt) for one in found]
            with pytest.raises(SessionError, match="took over"):
                await received(old, 1)
            await new.close()

    run(test)


class DeadLink(Connection):
    """A connection over a link that takes nothing more, until the test opens it again."""

    def __init__(self) -> None:
        self.open, self.texts = asyncio.Event(), list[str]()

    async def send(self, text: str, position: int | str | None) -> None:
        await self.open.wait()
        self.texts.append(text)

    async def close(self, code: int, reason: str) -> None:
        await self.open.wait()


def test_a_dead_link_does_not_hold_up_the_connection_that_takes_over() -> None:
    """Who comes anew is served, also while the old connection cannot even be closed."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            dead = DeadLink()
            server.service.session_manager.connect("a", dead, "test")
            async with socket_of(server, query="?takeover=true") as socket:
                assert 2 == (await raw(socket, "hello"))["hello"]["session"]
            dead.open.set()

    run(test)


def test_the_greeting_of_a_new_connection_does_not_go_to_the_old_one() -> None:
    """That one may just be getting rid of what it had to say before."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            old, new = DeadLink(), DeadLink()
            session = server.service.session_manager.connect("a", old, "test")
            pump = asyncio.create_task(Pump(session, old, server.service.payloads, print, print).run())
            await until(lambda: not session.notices)
            server.service.session_manager.connect("a", new, "test")
            old.open.set()
            await pump
            assert ([1], [2]) == (
                [orjson.loads(text)["hello"]["session"] for text in old.texts],
                [notice["hello"]["session"] for notice in session.notices],
            )
            server.service.session_manager.disconnect(session, new)

    run(test)


def test_what_is_not_acknowledged_comes_again_in_its_order_and_before_newer_ones() -> None:
    """After a lost connection."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            positions = await server.publish(*(unit(str(number)) for number in range(4)))
            async with socket_of(server) as socket:
                assert positions == [(await raw(socket, "delivery"))["delivery"] for _ in range(4)]
                await socket.send(orjson.dumps({"ack": [positions[1]]}).decode())
                assert {"settled": [positions[1]]} == await raw(socket, "settled")
            positions += await server.publish(unit("new"))
            async with socket_of(server) as socket:
                found = [await raw(socket, "delivery") for _ in range(4)]
            assert [(positions[0], 2), (positions[2], 2), (positions[3], 2), (positions[4], 1)] == [
                (one["delivery"], one["attempt"]) for one in found
            ]

    run(test)


def test_an_acknowledgement_from_before_a_reconnection_counts() -> None:
    """Also one for what the server does not know as sent; one for nothing is confirmed, so that it may be forgotten."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            [position] = await server.publish(unit("1"))
            await until(lambda: len(waiting(server).waiting) == 1)
            await server.http.post("/clients/a/acks", json={"ack": [position, 999]})
            assert {position: "acknowledged"} == outcomes(server)

    run(test)


def test_a_slow_client_gets_the_urgent_first_and_little_is_in_flight() -> None:
    """With a stated bandwidth of 16 kbit/s, 2,000 bytes a second, an urgent event overtakes what waits."""

    async def test() -> None:
        async with running() as server:
            (await server.http.put("/clients/a", json={"readings": {"bandwidth": 16}})).raise_for_status()
            body = {"client": "a", "filter": "type = 'unit' OR size > 5", "relevance": [0.3, 1]}
            (await server.http.put("/settings", json=SETTINGS)).raise_for_status()
            (await server.http.put("/subscriptions/s", json=body)).raise_for_status()
            await server.publish(*(unit(str(number), text="x" * 400) for number in range(30)))
            async with server.client("a") as client:
                await received(client, 2)
                await server.publish(unit("urgent", size=10))
                found = await received(client, 4)
                assert "urgent" in [one.event["id"] for one in found]
                assert len(waiting(server).in_flight) <= 8
                assert len(waiting(server).waiting) > 10

    run(test)


def test_a_fast_client_gets_many_at_once() -> None:
    """Thousands of deliveries, each once, in order."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            async with server.client("a") as client:
                await client.connected()
                positions = await server.publish(*(unit(str(number)) for number in range(3_000)))
                assert positions == [one.position for one in await received(client, 3_000, 30.0)]
                await until(lambda: server.journal.end("outcomes") == 3_000)
            assert (0, 0) == (client.duplicates, waiting(server).balance())

    run(test)


def test_payloads_that_are_not_in_memory_are_read_from_the_journal() -> None:
    """Memory holds few of them; what waits is complete all the same."""

    async def test() -> None:
        async with running(limits=ServerLimits(cache_bytes=2_000)) as server:
            await server.declare("a")
            await server.publish(*(unit(str(number), text="x" * 300) for number in range(200)))
            await until(lambda: len(waiting(server).waiting) == 200)
            async with server.client("a") as client:
                assert [str(number) for number in range(200)] == [
                    one.event["id"] for one in await received(client, 200)
                ]

    run(test)


def test_large_payloads_are_read_ahead_as_far_as_memory_should_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one client about a megabyte; all arrive."""

    async def test() -> None:
        async with running(limits=ServerLimits(cache_bytes=0)) as server:
            await server.declare("a")
            asked, load = list[int](), server.service.payloads.load

            def counted(sequences: list[int]) -> Any:
                """Loads payloads."""
                asked.append(len(sequences))
                return load(sequences)

            await server.publish(*(unit(str(number), text="x" * 200_000) for number in range(30)))
            await until(lambda: len(waiting(server).waiting) == 30)
            monkeypatch.setattr(server.service.payloads, "load", counted)
            async with server.client("a") as client:
                assert 30 == len({one.event["id"] for one in await received(client, 30)})
            assert 2 <= max(asked) <= 6

    run(test)


def test_a_message_that_means_nothing_is_answered_and_the_connection_goes_on() -> None:
    """A notice says what was expected."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            async with socket_of(server) as socket:
                for bad in (
                    "{",
                    "[]",
                    '{"ack": [1.5]}',
                    f'{{"ack": [{(1 << 63) - 1}]}}',
                    f'{{"ping": "{"long" * 1_000}"}}',
                    f'{{"{"colour" * 1_000}": 1}}',
                    '{"colour": 1}',
                    '{"readings": {"bandwidth": "fast"}}',
                    '{"position": {"x": 1}}',
                ):
                    await socket.send(bad)
                    fault = (await raw(socket, "notice"))["notice"]["fault"]
                    assert {"expected", "came"} <= fault.keys()
                    # Up to a thousand of them are kept for who does not read.
                    assert len(fault["came"]) < 500
                await socket.send('{"ping": 1.5}')
                assert {"pong": 1.5} == await raw(socket, "pong")

    run(test)


def test_a_binary_frame_is_a_message_like_a_text() -> None:
    """What is no JSON in it is answered too, and the connection goes on."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            async with socket_of(server) as socket:
                await socket.send(b"\xff")
                assert "notice" in await raw(socket, "notice")
                await socket.send(b'{"ping": 1.5}')
                assert {"pong": 1.5} == await raw(socket, "pong")

    run(test)


def test_what_was_never_delivered_is_not_confirmed() -> None:
    """Neither positions of nothing nor those of others; they are counted and told, and what is right is settled."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            await server.declare("b", filter="type = 'unit' AND size > 5")
            [small, large] = await server.publish(unit("1", size=1), unit("2", size=9))
            async with socket_of(server, "b") as socket:
                await raw(socket, "delivery")
                await socket.send(f'{{"ack": [{small}, {large}, 999999, "{large}.1"]}}')
                fault = (await raw(socket, "notice"))["notice"]["fault"]
                assert f"{small}, {large}.1, 999999" == fault["came"]
                assert {"settled": [large]} == await raw(socket, "settled")
                # Repeated, as by who has not heard of it: that is confirmed again.
                await socket.send(f'{{"ack": [{large}]}}')
                assert {"settled": [large]} == await raw(socket, "settled")
            answer = await server.http.post("/clients/b/acks", json={"ack": [small]})
            assert (422, str(small)) == (answer.status_code, answer.json()["came"])
            assert "\nnearcast_unknown_acknowledgements_total 4.0" in (await server.http.get("/metrics")).text
            [outcome] = server.journal.read("outcomes", 0, 9).to_pylist()
            assert ("b", large, "acknowledged") == (outcome["client"], outcome["event"], outcome["outcome"])

    run(test)


def test_who_acknowledges_and_never_reads_does_not_fill_the_memory() -> None:
    """The oldest that are settled give way."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            session = server.service.session_manager.session("a")
            session.confirmed += range(CONFIRMED + 5)
            assert (CONFIRMED, 5) == (len(session.confirmed), session.confirmed[0])

    run(test)


def test_the_measured_bandwidth_becomes_a_reading_and_changes_the_class() -> None:
    """A client that takes 40 events of 500 bytes a second is in the worst class, whatever it stated."""

    async def test() -> None:
        async with running() as server:
            await declare_roles(server, role="scout", bandwidth=3750)
            await server.publish(*(unit(str(number), text="x" * 400) for number in range(400)))
            async with socket_of(server) as socket, asyncio.timeout(120):
                while server.service.session_manager.registry.clients["a"].readings["bandwidth"] == 3750:
                    taken = (await raw(socket, "delivery"))["delivery"]
                    await asyncio.sleep(0.025)
                    await socket.send(orjson.dumps({"ack": [taken]}).decode())
            assert {2} == set(waiting(server).by_priority())
            measured = server.service.session_manager.registry.clients["a"].readings["bandwidth"]
            assert 0 < measured < 1250
            await until(lambda: any(event.source.endswith("measured") for event in stored(server)))
            assert 3750 == server.service.session_manager.session("a").stated

    run(test)


def test_positions_reach_the_journal_but_not_each_of_them() -> None:
    """The newest is in the registry at once, and in the journal soon."""

    async def test() -> None:
        async with running(limits=ServerLimits(place_seconds=0.3)) as server:
            await server.declare("a")
            async with server.client("a") as client:
                await client.connected()
                began = time.monotonic()
                for x in range(20):
                    await client.say(position={"x": x, "y": 0})
                registry = server.service.session_manager.registry
                await until(lambda: registry.clients["a"].place and registry.clients["a"].place.x == 19)
                said = [event for event in stored(server) if event.source.endswith("said")]
                assert len(said) <= 2 + (time.monotonic() - began) / 0.3
                await until(lambda: b'"x":19' in stored(server)[-1].payload)

    run(test)


def test_settings_that_make_a_clients_own_matrix_unfit_do_not_stop_its_deliveries() -> None:
    """Then the matrix of all counts."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            matrix = [[2, 2, 2], [2, 2, 2], [2, 2, 2]]
            (await server.http.put("/clients/a", json={"matrix": matrix})).raise_for_status()
            (await server.http.put("/settings", json={"levels": 2})).raise_for_status()
            async with server.client("a") as client:
                await server.publish(unit("e"))
                [delivery] = await received(client, 1)
            assert 0 == delivery.priority

    run(test)


def test_streams_end_with_a_code_when_the_server_ends() -> None:
    """So that clients come back at once, and the server's end does not wait for them."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a", "b")
            async with socket_of(server) as socket, server.http.stream("GET", "/clients/b/events") as response:
                await raw(socket, "hello")
                server.server.should_exit = True
                with pytest.raises(ConnectionClosed) as caught:
                    await raw(socket, "never")
                lines = [line async for line in response.aiter_lines()]
            assert caught.value.rcvd and 1012 == caught.value.rcvd.code
            assert 'data: {"code":1012' in "".join(lines).replace(" {", " {")

    run(test)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_payload_of_several_lines_is_several_data_lines(newline: str) -> None:
    """A client joins them again (HTML, 9.2.6): JSON that was published with line breaks arrives whole."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            body = orjson.dumps(unit("1", text="two\nlines"), option=orjson.OPT_INDENT_2)
            body = body.replace(b"\n", newline.encode())
            headers = {"Content-Type": "application/cloudevents+json"}
            (await server.http.post("/events", content=body, headers=headers)).raise_for_status()
            server.pipeline.decide()
            data: list[str] = []
            async with asyncio.timeout(60), server.http.stream("GET", "/clients/a/events") as response:
                async for line in response.aiter_lines():
                    data += [line[6:]] if line.startswith("data: ") else []
                    if not line and data:
                        if "delivery" in orjson.loads("\n".join(data)):
                            break
                        data.clear()
            assert unit("1", text="two\nlines") == orjson.loads("\n".join(data))["event"]

    run(test)


def test_server_sent_events_carry_the_same_and_acknowledgements_come_by_post() -> None:
    """The id is the position; only the explicit acknowledgement settles."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            positions = await server.publish(unit("1"), unit("2"))
            async with asyncio.timeout(60), server.http.stream("GET", "/clients/a/events") as response:
                assert "text/event-stream" in response.headers["content-type"]
                ids: list[int] = []
                async for line in response.aiter_lines():
                    ids += [int(line[4:])] if line.startswith("id: ") else []
                    if len(ids) == 2:
                        break
            answer = await server.http.post("/clients/a/acks", json={"ack": ids[:1]})
            assert (positions, 200, {positions[0]: "acknowledged"}) == (ids, answer.status_code, outcomes(server))
            await until(lambda: server.service.session_manager.session("a").connection is None)
            assert [positions[1]] == [
                one["position"] for one in (await server.http.get("/clients/a/waiting")).json()["first"]
            ]
            assert 422 == (await server.http.post("/clients/a/acks", json={"ack": "all"})).status_code

    run(test)


def test_who_leaves_before_the_first_event_was_never_connected() -> None:
    """A response that is not begun has no end either, and a session must not count on one."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            request = Request({"type": "http", "query_string": b"", "headers": []})
            await stream.events("a", request, None, server.service)
            assert server.service.session_manager.session("a").connection is None

    run(test)
