"""`nearcast node`: a foraging node on this device, without server or Spark."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import click

from nearcast.cli.output import pluralize, print_json, warn
from nearcast.errors import NearcastError, first_error
from nearcast.foraging.forager import ForagingNode
from nearcast.foraging.requestor import NodeSituation
from nearcast.node.bridge import Bridge
from nearcast.node.definition import NodeDefinition, load_node
from nearcast.node.event_loop import NodeEventLoop
from nearcast.node.multicast import MulticastTransport
from nearcast.node.transport import FaultyTransport, Transport
from nearcast.node.wire import placed


@click.command("node")
@click.argument("definition", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="End after so long.")
@click.option("--check", "only_check", is_flag=True, help="Only read the definition.")
def command(definition: Path, seconds: float | None, only_check: bool) -> None:
    """Be a node: measure, ask other nodes for what is missing, answer them, and print the situations that follow.

    DEFINITION is a YAML file. Nodes of one network link hear each other by UDP multicast. What the node has counted is
    printed at its end.
    """
    found = load_node(definition)
    if only_check:
        parts = (pluralize(len(found.sensors), "sensor"), pluralize(len(found.known.rules), "rule"))
        warn("note", f"{definition}: node {found.id}, {', '.join(parts)}")
        return
    runtime = runtime_of(found)
    # What tasks raise comes in groups; what a person is to read is the first reason of it.
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(_run(runtime, found, seconds))
    except* NearcastError as errors:
        raise first_error(errors) from None
    finally:
        print_json({"node": found.id, **runtime.counted()})


def runtime_of(found: NodeDefinition) -> NodeEventLoop:
    """A node as it is defined, ready to run."""
    # Numbers of messages go on after a restart: others remember those from before.
    first = time.time_ns() // 1_000_000
    serves = found.bridge.classes if found.bridge else ()
    known = found.known
    situations = known.situations()
    node = ForagingNode(found.id, known.rules, found.measured, found.manner, known.above, first, serves, situations)
    transport: Transport = MulticastTransport(found.group)
    if found.weather:
        transport = FaultyTransport(transport, found.weather, seed=first)
    return NodeEventLoop(node, transport, found.place, found.sensors, _told, ranges=known.ranges())


async def _run(runtime: NodeEventLoop, found: NodeDefinition, seconds: float | None) -> None:
    """Runs a node until its time is over, or it is told to end: then too it takes leave of the server it bridges to."""
    running = asyncio.ensure_future(_bridged(runtime, found))
    # Not everywhere can a loop hear of signals; there the process just ends.
    with suppress(NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    with suppress(TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(seconds):
            await running


async def _bridged(runtime: NodeEventLoop, found: NodeDefinition) -> None:
    async with AsyncExitStack() as stack:
        if found.bridge:
            bridge = await stack.enter_async_context(Bridge(found.bridge, runtime))
            runtime.taken = bridge.bridge_message
        await runtime.run()


def _told(change: NodeSituation) -> None:
    print_json(situation_shown(change))
    sys.stdout.flush()


def situation_shown(change: NodeSituation) -> dict[str, Any]:
    """A change of a situation as JSON: with the readings it follows from, whose they are, and how old (seconds)."""
    readings = [
        {
            "class": name,
            "value": known.value,
            "provider": known.provider,
            "age": max(0.0, round(change.time - known.time, 3)),
            **({"position": placed(known.place)} if known.place else {}),
        }
        for name, known in change.readings
    ]
    return {
        "situation": change.situation,
        "rule": change.rule,
        "phase": change.phase,
        "position": placed(change.place),
        "time": change.time,
        "readings": readings,
    }
