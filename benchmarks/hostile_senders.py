"""Kinds of hostile senders: what they send is small and looks ordinary; it is how much, how often, or how slowly."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

DEFINITIONS: dict[str, Any] = {
    "clients": [{"id": "talker"}],
    "relations": [{"id": "together", "a": "type = 'device'", "b": "type = 'device'", "when": "distance(a, b) <= 50"}],
}
"""What is defined beside the ordinary work, for kinds to meet."""

DEVICES = 200
CONNECTIONS = 400
MESSAGES = 2_000
SECONDS = 2.0


def devices(url: str, **more: Any) -> None:
    """Devices of new names at one place, in one request."""
    place, run = {"lon": 0, "lat": 0}, uuid.uuid4().hex
    head = {"specversion": "1.0", "type": "device", "source": "hostile", "data": place, **more}
    batch = [{**head, "id": f"{run} {number}", "subject": f"{run} {number}"} for number in range(DEVICES)]
    headers = {"Content-Type": "application/cloudevents-batch+json"}
    httpx.post(f"{url}/events", content=json.dumps(batch).encode(), headers=headers, timeout=120.0)


def one_place(url: str) -> None:
    """All of whom are within 50 m of all others."""
    devices(url)


def clocks_ahead(url: str) -> None:
    """The same, from senders whose clocks are 23 hours ahead."""
    devices(url, time=(datetime.now(UTC) + timedelta(hours=23)).isoformat())


def talker(url: str, messages: int = MESSAGES) -> None:
    """A receiver that tells of itself as fast as it can: roles, and readings of new names."""
    with suppress(WebSocketException, OSError), connect(f"ws{url[4:]}/clients/talker/stream?takeover=true") as stream:
        for number in range(messages):
            stream.send(json.dumps({"role": f"role {number % 2}", "readings": {f"r{number}": number}}))


def half_headers(url: str, connections: int = CONNECTIONS, seconds: float = SECONDS) -> None:
    """Connections on which half a header comes, and nothing more, for so long."""
    where = urlsplit(url)
    with ExitStack() as stack:
        for _ in range(connections):
            with suppress(OSError):
                one = stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=5.0))
                one.sendall(b"GET /health HTTP/1.1\r\nHos")
        time.sleep(seconds)


def long_names(url: str) -> None:
    """Events whose ids, types and subjects take nearly all of an event."""
    for name in ("id", "type", "subject", "source"):
        head = {"specversion": "1.0", "id": uuid.uuid4().hex, "type": "device", "source": "hostile", "data": {}}
        body = json.dumps({**head, name: "n" * 900_000}).encode()
        headers = {"Content-Type": "application/cloudevents+json"}
        httpx.post(f"{url}/events", content=body, headers=headers, timeout=120.0)


KINDS: list[tuple[str, Callable[[str], None]]] = [
    ("devices at one place", one_place),
    ("clocks that are ahead", clocks_ahead),
    ("a receiver that talks", talker),
    ("half a header", half_headers),
    ("names of a megabyte", long_names),
]
