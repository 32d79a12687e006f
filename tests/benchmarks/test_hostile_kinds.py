"""Every kind of hostile input reaches a server as it is meant: one that is refused where it should enter measures
nothing.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from benchmarks import hostile_kinds, hostile_senders
from benchmarks.hostile_senders import DEVICES
from tests.server.conftest import run, running, until

KINDS = dict([hostile_kinds.CONTROL, *hostile_kinds.KINDS, *hostile_senders.KINDS])

SMALL: dict[str, dict[str, Any]] = {
    "the largest filters": {"beyond": 2},
    "sums and patterns": {"beyond": 2},
    "a dear outline under many areas": {"filters": 1},
    "a receiver that talks": {"messages": 5},
    "half a header": {"connections": 5, "seconds": 0.05},
}
"""Arguments of kinds that take long with their own."""

ENTERED = {
    "nothing": 0,
    "a ring that crosses itself": 1,
    "16,000 teeth": 2,
    "squares within each other": 1,
    "a hundred geometries": 1,
    "a megabyte of corners": 1,
    # Those that a filter may have are defined and removed, the others refused.
    "the largest filters": 4,
    "sums and patterns": 4,
    "outlines in filters": 0,
    "a dear outline under many areas": 3,
    "devices at one place": DEVICES,
    "clocks that are ahead": DEVICES,
    "a receiver that talks": 5,
    "half a header": 0,
    "names of a megabyte": 0,
}
"""How many events of each enter, those of definitions among them."""


def test_every_kind_reaches_a_server() -> None:
    """It sends what it should, and the server answers others afterwards."""
    entered = dict.fromkeys(KINDS, -1)

    async def test() -> None:
        async with running() as server:
            for client in ("watcher", "talker"):
                (await server.http.put(f"/clients/{client}", json={})).raise_for_status()
            for name, kind in KINDS.items():
                before = server.journal.end("events")
                sent = partial(kind, server.url, **SMALL.get(name, {}))
                await asyncio.get_running_loop().run_in_executor(None, sent)
                await until(lambda end=before + ENTERED[name]: server.journal.end("events") >= end)
                assert 200 == (await server.http.get("/health")).status_code
                entered[name] = server.journal.end("events") - before

    run(test)
    assert ENTERED == entered
