"""Sessions that a server sends away: all when it drains, some when it has more than its share."""

from __future__ import annotations

import asyncio
import logging

from nearcast.errors import JournalError
from nearcast.server import clock
from nearcast.server.domain.balance import least_loaded
from nearcast.server.domain.server_domain import ServerDomain
from nearcast.server.sessions.session import Session

log = logging.getLogger(__name__)

PAUSE = 0.05


async def drain(domain: ServerDomain) -> None:
    """Lets no new session in, and sends every client that follows to another server; what is in flight is waited for.

    Returns when none is left, there is no server to send them to, or time is over.
    """
    domain.directory.leaving()
    try:
        # Before the first is sent away: else another might send it back.
        await domain.look()
    except JournalError as error:
        log.warning("draining, and others may not know it error=%s", error)
    until, told = clock.steady() + domain.limits.drain_seconds, 0.0
    log.info("draining node=%s sessions=%d others=%s", domain.config.node, domain.connected(), domain.directory.present)
    while clock.steady() < until and least_loaded(domain.directory.rooms()) is not None:
        sessions = _connected(domain)[: domain.limits.moved_together]
        if not sessions:
            break
        await _send_away(domain, sessions, "drain", until)
        if clock.steady() - told >= 1.0:
            told = clock.steady()
            log.info("draining node=%s left=%d", domain.config.node, domain.connected())
        await asyncio.sleep(PAUSE)
    log.info("drained node=%s left=%d", domain.config.node, domain.connected())


async def level(domain: ServerDomain) -> None:
    """Sends away some of the sessions that this server has more than its share."""
    count = min(domain.surplus(), domain.limits.moved_together)
    if count > 0 and not domain.directory.own.draining:
        # Those to whom nothing is on its way are moved in no time.
        sessions = sorted(_connected(domain), key=lambda one: len(one.waiting.in_flight))[:count]
        log.info("too many sessions node=%s sessions=%d moved=%d", domain.config.node, domain.connected(), count)
        await _send_away(domain, sessions, "balance", clock.steady() + domain.limits.drain_seconds)


def _connected(domain: ServerDomain) -> list[Session]:
    sessions = domain.session_manager.sessions.values()
    return [one for one in sessions if one.connection and one.connection.follows and not one.leaving]


async def _send_away(domain: ServerDomain, sessions: list[Session], reason: str, until: float) -> None:
    until = min(until, clock.steady() + domain.limits.acknowledge_seconds)
    await asyncio.gather(*(domain.send_away(one, reason, until) for one in sessions), return_exceptions=True)
