"""Receivers that do not read: what is kept for one is bounded, the others are served, and its connection ends."""

from __future__ import annotations

import socket

import pytest

from nearcast.server.config import ServerLimits
from tests.server.conftest import received, run, running, unit, until

WEB_SOCKET = (
    "GET /clients/a/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
SERVER_SENT = "GET /clients/a/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LARGE = "x" * 900_000


def deaf(url: str, request: str) -> socket.socket:
    """A connection that asks, has room for a few kilobytes, and reads nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", int(url.rpartition(":")[2])))
    made.sendall(request.encode())
    return made


@pytest.mark.parametrize("request_", [WEB_SOCKET, SERVER_SENT], ids=["websocket", "sse"])
def test_a_receiver_that_does_not_read_is_closed_and_gets_what_it_is_owed_when_it_comes_back(request_: str) -> None:
    """Of twenty large events no more is under way to it than a link may hold, and another client gets what it wants."""

    async def test() -> None:
        async with running(limits=ServerLimits(stall_seconds=2.0)) as server:
            await server.declare("a")
            await server.declare("other", filter="type = 'other'")
            with deaf(server.url, request_):
                session = server.service.session_manager.session("a")
                await until(lambda: session.connection)
                await server.publish(*(unit(str(number), note=LARGE) for number in range(20)))
                await until(lambda: session.waiting.in_flight)
                # A window of the pace, or one event that is larger.
                assert 1_048_576 >= sum(one.size for one in session.waiting.in_flight.values())
                async with server.client("other") as other:
                    await server.publish({**unit("o"), "type": "other"})
                    assert "o" == (await received(other, 1))[0].event["id"]
                await until(lambda: session.connection is None)
            assert (20, 0) == (len(session.waiting.waiting), len(session.waiting.in_flight))
            async with server.client("a") as client:
                found = await received(client, 20)
            assert {str(number) for number in range(20)} == {one.event["id"] for one in found}

    run(test)
