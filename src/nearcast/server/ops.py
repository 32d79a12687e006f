"""Watching the server: health, Prometheus metrics, and a status for people."""

from __future__ import annotations

import asyncio
import collections
import logging
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST

from nearcast.errors import JournalError
from nearcast.journal.reader_marks import KEPT_NOTE
from nearcast.journal.seam import Journal
from nearcast.model.columns import OUTCOME_NAMES
from nearcast.server import clock
from nearcast.server.auth import Manager, Watcher, service_of
from nearcast.server.service import AccessServer

log = logging.getLogger(__name__)

router = APIRouter(tags=["watch"])

Here = Annotated[AccessServer, Depends(service_of)]


@router.get("/health")
async def health(response: Response, service: Here) -> dict[str, Any]:
    """Whether the server works: 503 if the journal cannot be written or read just now."""
    failing = service.failing()
    response.status_code = 503 if failing else 200
    return {"healthy": not failing, "failing": failing}


@router.get("/metrics")
async def metrics(token: Watcher, service: Here) -> Response:
    """The metrics in Prometheus' text format."""
    waiting = waiting_by_priority(service)
    # A priority at which nothing waits any more would keep its last count.
    service.metrics.waiting.clear()
    for priority, count in waiting.items():
        service.metrics.waiting.labels(priority).set(count)
    sessions = list(service.session_manager.sessions.values())
    connected = sum(session.connection is not None for session in sessions)
    service.metrics.clock_set_back.set(clock.set_back())
    service.metrics.in_flight.set(sum(len(session.waiting.in_flight) for session in sessions))
    service.metrics.kept.set(service.event_entry.kept)
    await service.routing.follow(service.session_manager.registry)
    service.routing.follow_definitions(service.session_manager.registry)
    routing = service.routing.measures()
    service.metrics.routing_filters.set(routing.filters)
    service.metrics.routing_forwarded.set(routing.forwarded)
    service.metrics.routing_precision.set(routing.precision)
    service.metrics.sessions.labels("connected").set(connected)
    service.metrics.sessions.labels("away").set(len(sessions) - connected)
    service.metrics.servers.set(1 + len(service.domain.directory.others))
    service.metrics.server_sessions.clear()
    for one in service.domain.servers():
        service.metrics.server_sessions.labels(one["name"]).set(int(str(one["sessions"])))
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@router.get("/status")
async def status(token: Watcher, service: Here) -> dict[str, Any]:
    """Counts since the start, what waits, latencies in seconds by priority, and a balance that must be zero."""
    sessions = list(service.session_manager.sessions.values())
    settled = collections.Counter(service.session_manager.past)
    for session in sessions:
        settled.update(session.waiting.settled)
    return {
        "server": service.session_manager.instance,
        "seconds": round(clock.steady() - service.started, 1),
        "read": {
            "events": service.session_manager.events_through,
            "deliveries": service.session_manager.deliveries_through,
        },
        "known": {
            "clients": len(service.session_manager.registry.clients),
            "subscriptions": len(service.session_manager.registry.subscriptions),
        },
        "sessions": {
            "connected": sum(session.connection is not None for session in sessions),
            "all": len(sessions),
            "connections": sum(session.connections for session in sessions),
        },
        "queued": service.session_manager.past["queued"] + sum(session.waiting.queued for session in sessions),
        "outcomes": {name: settled[name] for name in OUTCOME_NAMES},
        "waiting": {str(priority): count for priority, count in sorted(waiting_by_priority(service).items())},
        "in_flight": sum(len(session.waiting.in_flight) for session in sessions),
        "balance": sum(session.waiting.balance() for session in sessions),
        "latency": service.metrics.latencies(),
        "journal": {"failing": service.failing(), **_outage(service)},
        "kept": await asyncio.to_thread(kept_logs, service.journal),
        "unwritten": {"events": service.events.pending, "outcomes": service.outcomes.pending},
        "servers": service.domain.servers(),
    }


def _outage(service: AccessServer) -> dict[str, float]:
    seconds, total, times = service.journal.outage
    return {"unavailable_seconds": round(seconds, 1), "unavailable_seconds_total": round(total, 1), "outages": times}


@router.get("/servers")
async def servers(token: Watcher, service: Here) -> dict[str, Any]:
    """The access servers of the domain, this one among them, as each says of itself."""
    return {"servers": service.domain.servers()}


@router.post("/drain", status_code=202)
async def drain(token: Manager, service: Here) -> dict[str, Any]:
    """Ends this server: it lets no new session in, sends its clients to the others, finishes what is in flight. Where
    there is no other its clients are asked to come back.
    """
    log.info("asked to drain node=%s", service.config.node)
    service.domain.directory.leaving()
    service.ending()
    return {"draining": True, "sessions": service.domain.connected(), "server": service.config.node}


def kept_logs(journal: Journal) -> dict[str, Any]:
    """What is kept of each log, as the pipeline told last: its first position and when that is of, the last, bytes, and
    the reader that holds what would go; empty where it has not told, or the journal does not answer.
    """
    try:
        found: dict[str, Any] = orjson.loads(journal.notes.read(KEPT_NOTE) or "{}")
        return found
    except (JournalError, ValueError):
        return {}


def waiting_by_priority(service: AccessServer) -> collections.Counter[int]:
    """How many deliveries of all clients wait, by priority; −1: withheld."""
    found: collections.Counter[int] = collections.Counter()
    for session in service.session_manager.sessions.values():
        found.update(session.waiting.by_priority())
    return found
