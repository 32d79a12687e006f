"""What must be true of a run, whatever was done to it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Set
from typing import Any

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.archive.archive_files import LOGS, read_manifest
from nearcast.journal.archive.archived_journal import ArchivedJournal
from nearcast.language.control_events import changes
from nearcast.language.definitions.registry_rows import apply_event
from nearcast.model.changes import SettingsChange
from nearcast.model.columns import DELIVERIES, EVENTS, control_events
from nearcast.model.subscription import Settings
from nearcast.stages.decide import replay
from nearcast.stages.early import decentralised
from nearcast.stages.fold import SETTINGS_TYPE, StateFold
from nearcast.state.registry import Registry
from tests.simulation.disturbed_journal import DisturbedJournal
from tests.simulation.plain_reading import plainly_derived
from tests.simulation.simulated_system import Received, SimulatedSystem
from tests.simulation.webhook_checks import unrun, webhook_faults

FAULTY = "faulty change "
"""What the ids of control events begin with that the pipeline refuses."""

Key = tuple[str, str]
"""A client, and the position of an event as it is sent."""


def rows(journal: DisturbedJournal, log: str) -> list[dict[str, Any]]:
    """All rows of a log, also those that were let go of."""
    return journal.history[log]


def key_of(row: dict[str, Any], position: str = "position") -> Key:
    """Which delivery a row is of."""
    return row["client"], _position(row, position)


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
    if unrun(system):
        return False
    ended = {key_of(row, "event") for row in rows(journal, "outcomes")}
    return all(key_of(row) in ended for row in rows(journal, "deliveries"))


def faults(system: SimulatedSystem) -> Iterator[str]:
    """What is not as it must be, once all is settled."""
    yield from system.loop.errors
    yield from system.journal.too_early
    yield from unbalanced(system)
    yield from lost_events(system)
    yield from other_decisions(system.journal)
    yield from otherwise_derived(system.journal)
    yield from otherwise_defined(system)
    yield from otherwise_archived(system)
    yield from repeated_dead_letters(system)
    yield from unsettled(system)
    yield from webhook_faults(system)
    gone = {key_of(row, "event") for row in system.journal.gone["outcomes"]}
    told, prompt = told_at(system.journal), decided_at_once(system.journal)
    for found in system.received:
        yield from without_text(found)
        yield from repeated(found, gone)
        yield from out_of_order(found, told, prompt)


def lost_events(system: SimulatedSystem) -> Iterator[str]:
    """Events that publishers were told are taken, and which are not at that position, or twice."""
    written = rows(system.journal, "events")
    there = {(row["source"], row["id"]): row["position"] for row in written}
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in written:
        places[row["source"], row["id"]].append(row["position"])
    # Of what was let go of nobody knows any more that it was there.
    if len(there) != len(written) and not system.journal.trimmed("events"):
        yield f"{len(written) - len(there)} events are in the journal twice"
    # What a loss of power took was taken, though it is there no more.
    gone = {(row["source"], row["id"]) for row in system.journal.gone["events"]}
    for key, position in system.accepted.items():
        if key not in gone and position not in places[key]:
            yield f"event {key} was accepted at {position}, and is at {places[key]}"


def other_decisions(journal: DisturbedJournal) -> Iterator[str]:
    """Deliveries that differ from what one process decides that nobody disturbs."""
    names = ["position", "part", "client", "subscription", "level"]
    events = pa.Table.from_pylist(rows(journal, "events"), EVENTS)
    tables = [deliveries for _, deliveries in replay(StateFold(), iter([events]), changes)]
    expected = pa.concat_tables([DELIVERIES.empty_table(), *tables]).select(names).to_pylist()
    found = [{name: row[name] for name in names} for row in rows(journal, "deliveries")]
    if expected != found:
        other = next((pair for pair in zip(expected, found, strict=False) if pair[0] != pair[1]), None)
        yield f"{len(found)} deliveries were decided instead of {len(expected)}; the first that differs: {other}"


def otherwise_derived(journal: DisturbedJournal) -> Iterator[str]:
    """Derived events that differ from what the plain references read from the journal's events."""
    expected = plainly_derived(pa.Table.from_pylist(rows(journal, "events"), EVENTS)).to_pylist()
    found = rows(journal, "derived")
    if expected != found:
        other = next((pair for pair in zip(expected, found, strict=False) if pair[0] != pair[1]), None)
        yield f"{len(found)} events were derived instead of {len(expected)}; the first that differs: {other}"


def otherwise_defined(system: SimulatedSystem) -> Iterator[str]:
    """Servers that know other definitions than the events make that they have read."""
    control = control_events(pa.Table.from_pylist(rows(system.journal, "events"), EVENTS))
    for host, service in system.services.items():
        manager, expected = service.session_manager, Registry()
        for event in control:
            if event.position <= manager.events_through:
                apply_event(expected, event)
        for name in ("settings", "subscriptions", "relations", "situations", "actions", "zones"):
            if getattr(manager.registry, name) != getattr(expected, name):
                yield f"{host} knows other {name} than the events up to {manager.events_through} make"


def otherwise_archived(system: SimulatedSystem) -> Iterator[str]:
    """Logs that with the archive before the journal are not as they were written."""
    if not system.archiving or read_manifest(system.archive) is None:
        return
    try:
        whole = ArchivedJournal(system.archive, system.journal)
    except JournalError as error:
        yield str(error)
        return
    for log in LOGS:
        expected = [row for row in rows(system.journal, log) if row["position"] > whole.trimmed(log)]
        found = whole.read(log, whole.trimmed(log), whole.end(log)).to_pylist()
        if found != expected:
            other = next((pair for pair in zip(expected, found, strict=False) if pair[0] != pair[1]), None)
            yield f"{log} has {len(found)} rows with the archive instead of {len(expected)}; the first other: {other}"


def repeated_dead_letters(system: SimulatedSystem) -> Iterator[str]:
    """Control events that were refused and are several dead letters."""
    found = Counter(row["where"] for row in rows(system.journal, "dead letters") if FAULTY in row["where"])
    twice = [where for where, count in found.items() if count > 1]
    # Two that decide at the same moment, which no lease lets be, may both write.
    if twice and "pipeline-2" not in system.processes:
        yield f"dead letters are there twice: {twice}"


def unsettled(system: SimulatedSystem) -> Iterator[str]:
    """Deliveries without an outcome, with several that differ, or whose outcome is not what the client knows of it."""
    ended: dict[Key, set[str]] = defaultdict(set)
    for row in rows(system.journal, "outcomes"):
        ended[key_of(row, "event")].add(row["outcome"])
    journal = system.journal
    told = told_at(journal)
    got = {(one.client, str(delivery.position)): set[Identity]() for one in system.received for delivery in one.all}
    for one in system.received:
        for delivery in one.all:
            got[one.client, str(delivery.position)].add(identity(delivery.event))
    owed = {key_of(row) for row in rows(journal, "deliveries")}
    for key in sorted(owed - ended.keys()):
        yield f"{key} has no outcome"
    for key, outcomes in ended.items():
        if len(outcomes) > 1:
            yield f"{key} has the outcomes {sorted(outcomes)}"
        if outcomes == {"acknowledged"} and told.get(_place(key[1])) not in got.get(key, ()):
            yield f"{key} is acknowledged, and nobody got it"
    gone = {key_of(row) for row in journal.gone["deliveries"]}
    # What is decided at once is sent before anybody wrote that it is decided.
    taken = {str(row["position"]) for row in journal.gone["events"]}
    for key in sorted(got.keys() - owed - gone):
        if key[1] not in taken:
            yield f"{key} was sent, and never decided"


Identity = tuple[str, str]


def identity(event: Mapping[str, Any]) -> Identity:
    """What tells an event from others that may have had its position; nothing of one that came without its text."""
    return event.get("source", ""), event.get("id", "")


def _position(row: dict[str, Any], name: str = "position") -> str:
    return f"{row[name]}.{row['part']}" if row["part"] else str(row[name])


def without_text(found: Received) -> Iterator[str]:
    """What a client got of which its server did not find the event any more."""
    for delivery in found.all:
        if not delivery.event:
            yield f"{found.client} got {delivery.position} without its event"


def repeated(found: Received, gone: set[Key]) -> Iterator[str]:
    """What one run of an application got twice, though it was not lost that it has it."""
    counts = Counter((str(delivery.position), identity(delivery.event)) for delivery in found.all)
    for (position, _), count in counts.items():
        if count > 1 and (found.client, position) not in gone:
            yield f"{found.client} got {position} {count} times"


def out_of_order(
    found: Received, told: Mapping[tuple[int, int], Identity], prompt: Set[tuple[int, int]]
) -> Iterator[str]:
    """What overtook something of the same level, which has the same priority at any moment, over one connection; but
    for what a loss of power took, the positions of which are given again. What is `prompt` may overtake what is not.
    """
    last: dict[tuple[int, int, bool], tuple[int, int]] = {}
    for _, connection, delivery in found.deliveries:
        place = _place(delivery.position)
        key = connection, delivery.level, place in prompt
        if told.get(place) != identity(delivery.event):
            continue
        if place < last.get(key, (0, 0)):
            yield f"{found.client} got {delivery.position} at level {delivery.level} after {last[key]}"
        last[key] = place


def decided_at_once(journal: DisturbedJournal) -> set[tuple[int, int]]:
    """The published events of channels that servers decide, too."""
    settings = Settings()
    for event in control_events(pa.Table.from_pylist(rows(journal, "events"), EVENTS)):
        if event.type == SETTINGS_TYPE:
            settings = next(one.settings for one in changes(event, settings) if isinstance(one, SettingsChange))
    names = decentralised(settings)
    return {(row["position"], 0) for row in rows(journal, "events") if row["channel"] in names}


def told_at(journal: DisturbedJournal) -> dict[tuple[int, int], Identity]:
    """Which event has a position and part in the end."""
    return {
        (row["position"], row["part"]): identity(row) for log in ("events", "derived") for row in rows(journal, log)
    }


def _place(position: int | str) -> tuple[int, int]:
    number, _, part = str(position).partition(".")
    return int(number), int(part or 0)
