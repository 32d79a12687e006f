"""What must be true of a run, whatever was done to it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from nearcast.journal.memory import MemoryJournal
from nearcast.language.control_events import changes
from nearcast.model.columns import DELIVERIES
from nearcast.stages.decide import replay
from nearcast.stages.fold import StateFold
from tests.simulation.simulated_system import Received, SimulatedSystem

Key = tuple[str, str]
"""A client, and the position of an event as it is sent."""


def rows(journal: MemoryJournal, log: str) -> list[dict[str, Any]]:
    """All rows of a log."""
    return journal.read(log, 0, journal.end(log)).to_pylist()


def key_of(row: dict[str, Any], position: str = "position") -> Key:
    """Which delivery a row is of."""
    return row["client"], f"{row[position]}.{row['part']}" if row["part"] else str(row[position])


def unbalanced(system: SimulatedSystem) -> Iterator[str]:
    """Queues of servers that have queued more, or fewer, than ended, waits or is in flight."""
    for host, service in system.services.items():
        for session in service.session_manager.sessions.values():
            if balance := session.waiting.balance():
                yield f"{host}: the balance of {session.client.id} is {balance}"


def is_settled(system: SimulatedSystem) -> bool:
    """Whether all that was to be published is, every event is decided, and every delivery has ended."""
    journal = system.journal
    if system.publishing or journal.end("deliveries") < journal.end("events"):
        return False
    ended = {key_of(row, "event") for row in rows(journal, "outcomes")}
    return all(key_of(row) in ended for row in rows(journal, "deliveries"))


def faults(system: SimulatedSystem) -> Iterator[str]:
    """What is not as it must be, once all is settled."""
    yield from system.loop.errors
    yield from unbalanced(system)
    yield from lost_events(system)
    yield from other_decisions(system.journal)
    yield from unsettled(system)
    for found in system.received:
        yield from repeated(found)
        yield from out_of_order(found)


def lost_events(system: SimulatedSystem) -> Iterator[str]:
    """Events that publishers were told are taken, and which are not at that position, or twice."""
    written = rows(system.journal, "events")
    there = {(row["source"], row["id"]): row["position"] for row in written}
    if len(there) != len(written):
        yield f"{len(written) - len(there)} events are in the journal twice"
    for key, position in system.accepted.items():
        if there.get(key) != position:
            yield f"event {key} was accepted at {position}, and is at {there.get(key)}"


def other_decisions(journal: MemoryJournal) -> Iterator[str]:
    """Deliveries that differ from what one process decides that nobody disturbs."""
    names = ["position", "part", "client", "subscription", "level"]
    events = journal.read("events", 0, journal.end("events"))
    tables = [deliveries for _, deliveries in replay(StateFold(), iter([events]), changes)]
    expected = pa.concat_tables([DELIVERIES.empty_table(), *tables]).select(names).to_pylist()
    found = journal.read("deliveries", 0, journal.end("deliveries")).select(names).to_pylist()
    if expected != found:
        other = next((pair for pair in zip(expected, found, strict=False) if pair[0] != pair[1]), None)
        yield f"{len(found)} deliveries were decided instead of {len(expected)}; the first that differs: {other}"


def unsettled(system: SimulatedSystem) -> Iterator[str]:
    """Deliveries without an outcome, with several that differ, or whose outcome is not what the client knows of it."""
    ended: dict[Key, set[str]] = defaultdict(set)
    for row in rows(system.journal, "outcomes"):
        ended[key_of(row, "event")].add(row["outcome"])
    got = {(one.client, str(delivery.position)) for one in system.received for _, _, delivery in one.deliveries}
    owed = {key_of(row) for row in rows(system.journal, "deliveries")}
    for key in sorted(owed - ended.keys()):
        yield f"{key} has no outcome"
    for key, outcomes in ended.items():
        if len(outcomes) > 1:
            yield f"{key} has the outcomes {sorted(outcomes)}"
        if outcomes == {"acknowledged"} and key not in got:
            yield f"{key} is acknowledged, and nobody got it"
    for key in sorted(got - owed):
        yield f"{key} was sent, and never decided"


def repeated(found: Received) -> Iterator[str]:
    """What one run of an application got twice."""
    counts = Counter(str(delivery.position) for _, _, delivery in found.deliveries)
    for position, count in counts.items():
        if count > 1:
            yield f"{found.client} got {position} {count} times"


def out_of_order(found: Received) -> Iterator[str]:
    """What overtook something of the same level, which has the same priority at any moment, over one connection."""
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for _, connection, delivery in found.deliveries:
        key, place = (connection, delivery.level), _place(delivery.position)
        if place < last.get(key, (0, 0)):
            yield f"{found.client} got {delivery.position} at level {delivery.level} after {last[key]}"
        last[key] = place


def _place(position: int | str) -> tuple[int, int]:
    number, _, part = str(position).partition(".")
    return int(number), int(part or 0)
