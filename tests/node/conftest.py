"""Transports of each kind, and running nodes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from nearcast.model.event import Place
from nearcast.node.event_loop import NodeEventLoop
from nearcast.node.multicast import Group, MulticastTransport
from nearcast.node.transport import ChannelFaults, FaultyTransport, Transport
from tests.node.radio import Radio

Make = Callable[[str], Transport]
HERE = Place("planar", 0.0, 0.0)
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
PORTS = count(18_700 + 2_000 * WORKER)
"""Of multicast groups. Whoever opens the port hears the group, so each worker has ports of its own."""


@pytest.fixture(params=["radio", "multicast", "weathered multicast"])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes transports that hear each other."""
    if request.param == "radio":
        radio = Radio(50.0)
        return lambda name: radio.transport(name, lambda: HERE)
    group = Group(port=next(PORTS), interface="127.0.0.1")
    if request.param == "multicast":
        return lambda name: MulticastTransport(group)
    return lambda name: FaultyTransport(MulticastTransport(group), ChannelFaults())


@asynccontextmanager
async def running(*runtimes: NodeEventLoop) -> AsyncIterator[None]:
    """Nodes that run from the beginning of the block to its end."""
    tasks = [asyncio.create_task(runtime.run()) for runtime in runtimes]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    """Waits until something is so; fails if it does not become so."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)
