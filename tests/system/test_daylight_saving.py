"""A whole system in a place where clocks are put back and forward while it runs: nothing happens, as all is in UTC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from nearcast.client import Client, Publisher
from tests.system.test_clock_jumps import SHARE, Hook, Run, System, brief_expires, define, dwells, lapses, system

pytestmark = pytest.mark.spark

BERLIN = ZoneInfo("Europe/Berlin")
"""Where the processes of `system` are."""


def changes_after(moment: datetime) -> Iterator[datetime]:
    """When clocks are changed next in Berlin, on and on: at a full hour."""
    hour = moment.replace(minute=0, second=0, microsecond=0)
    while True:
        before, hour = hour.astimezone(BERLIN), hour + timedelta(hours=1)
        if hour.astimezone(BERLIN).utcoffset() != before.utcoffset():
            yield hour


def now_in(running: System) -> datetime:
    """What the machine's clock says."""
    return datetime.fromtimestamp(time.time() + running.clock.shifted, UTC)


def test_a_change_to_summer_time_and_back_does_nothing(tmp_path: Path) -> None:
    """While it comes events arrive once each in their order, a relation dwells when it has to, a reading lapses, what
    waits ends when it has to; and of what is accepted no time is missing, or there twice.
    """

    async def test(running: System) -> None:
        hook = Hook(failures=0)
        async with hook.serving(), Publisher(running.url) as publisher, Client(running.url, "ann") as ann:
            await define(running.url, hook.url)
            run = Run(running, publisher)
            publishing, receiving = asyncio.create_task(run.publish_on()), asyncio.create_task(run.receive(ann))
            changes = changes_after(now_in(running))
            for number in range(2):
                change = next(changes)
                await run.goes_on()
                running.clock.set((change - timedelta(seconds=3) - now_in(running)).total_seconds())
                await run.goes_on()
                first, began = run.published[-1], time.monotonic()
                while now_in(running) < change + timedelta(seconds=1):
                    names = f"pair {number} {len(run.got)}", f"brief {len(run.got)}"
                    await asyncio.gather(dwells(run, names[0]), lapses(running.url, ann), brief_expires(run, names[1]))
                last, passed = run.published[-1], time.monotonic() - began
                await run.goes_on()
                between = (run.accepted(last) - run.accepted(first)).total_seconds()
                assert SHARE * (passed - 1) < between < passed + 1
            await run.ends(publishing, receiving)

    with system(tmp_path) as running:
        asyncio.run(test(running))
