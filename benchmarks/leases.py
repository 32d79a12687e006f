"""What publishers need not send, and what calling for it costs: `python -m benchmarks.leases [--subjects 40] …`.

A server in this process with the stages beside it; subjects move slowly, each is to meet one other, and each is
published by one of some publishers, a report a call. Beside it the same where the server alone holds back.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.machine import machine
from benchmarks.suppression import relation_of, reports
from nearcast.client import Publisher
from nearcast.journal.memory import MemoryJournal
from nearcast.language.control_events import changes, to_event
from nearcast.model.changes import RelationChange
from nearcast.model.columns import DELIVERIES, SOURCE_FILTERS, to_table
from nearcast.model.event import Event
from nearcast.relations.lanes.scopes import Scope
from nearcast.server.app import listen, server_of
from nearcast.server.config import ServerConfig
from nearcast.stages.fold import StateFold
from nearcast.suppression.guarded import GuardedStates


def main() -> None:
    """Prints requests, what entered, and how long calls took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=60, help="reports of each subject")
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.25, help="seconds between two rounds")
    options = parser.parse_args()
    print(machine())
    for holding in (False, True):
        asyncio.run(_measure(options, holding))


async def _measure(options: argparse.Namespace, holding: bool) -> None:
    journal = MemoryJournal()
    relations = [RelationChange(relation_of(pair)) for pair in range(options.subjects // 2)]
    journal.append("events", to_table([to_event(one, str(number), "test") for number, one in enumerate(relations)]))
    before = journal.end("events")
    config = ServerConfig(Path("unused"), port=0, suppress=True)
    listening = listen(config)
    server = server_of(config, journal)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    deciding = asyncio.create_task(_decide(journal))
    while not server.started:
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    publishers = [Publisher(url, suppress=holding) for _ in range(options.publishers)]
    every = list(reports(options.subjects, options.rounds))
    rounds = [every[start : start + options.subjects] for start in range(0, len(every), options.subjects)]
    began = time.process_time()
    for round in rounds:
        await asyncio.gather(*(_publish(each, number, publishers, round) for number, each in enumerate(publishers)))
        await asyncio.sleep(options.pause)
    seconds = time.process_time() - began
    entered, metrics = journal.end("events") - before, server.config.app.state.service.metrics  # type: ignore[union-attr]
    for publisher in publishers:
        await publisher.close()
    server.should_exit = True
    await serving
    deciding.cancel()
    with suppress(asyncio.CancelledError):
        await deciding
    _print(options, holding, sum(one.requests for one in publishers), entered, metrics, seconds)


async def _publish(publisher: Publisher, number: int, publishers: list[Publisher], round: list[Event]) -> None:
    for index, event in enumerate(round):
        if index % len(publishers) == number:
            await publisher.publish([_document(event)])


def _document(event: Event) -> dict[str, Any]:
    assert event.place
    assert event.time
    data = {"x": event.place.x, "y": event.place.y}
    own = {"id": event.id, "type": event.type, "source": event.source, "subject": event.subject}
    return {"specversion": "1.0", **own, "time": event.time.isoformat(), "data": data}


async def _decide(journal: MemoryJournal) -> None:
    known, guarded_states = StateFold(), defaultdict[Scope, GuardedStates](GuardedStates)
    while True:
        after, end = known.position, journal.end("events")
        if end > after:
            for _ in known.fold(journal.read("events", after, end - after), changes):
                pass
            pairings = known.pairings.items()
            rows = [asdict(one) for scope, each in pairings for one in guarded_states[scope].changes_until(each, end)]
            journal.commit_range("source filters", pa.Table.from_pylist(rows, SOURCE_FILTERS), end)
            journal.commit_range("deliveries", DELIVERIES.empty_table(), end)
        await asyncio.sleep(0.05)


def _print(
    options: argparse.Namespace, holding: bool, requests: int, entered: int, metrics: Any, seconds: float
) -> None:
    count = options.subjects * options.rounds
    print("publishers hold back too" if holding else "the server alone holds back")
    print(f"  {count} reports, {requests} requests ({1 - requests / count:.1%} fewer), {entered} entered")
    print(f"  {1e6 * seconds / count:.0f} us of CPU a report, of publishers, server and stages together")
    found = {one.name: one.value for one in next(iter(metrics.recalls.collect())).samples if not one.labels}
    calls = found["nearcast_recall_seconds_count"]
    if calls:
        print(
            f"  {calls:.0f} calls for a lease, {1e3 * found['nearcast_recall_seconds_sum'] / calls:.1f} ms in the mean"
        )


if __name__ == "__main__":
    main()
