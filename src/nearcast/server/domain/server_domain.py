"""One access server among those of its domain: who else is there, whose sessions are whose, and how they move.

Alone it writes nothing of this, and reads now and then whether it is alone still. Beside others it claims a session in
the log `sessions` before it sends anything, having taken in all that others wrote of it: so what was acknowledged
elsewhere is not sent again, and who had the session before stops when it reads the claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from nearcast.errors import JournalError
from nearcast.journal.seam import Journal
from nearcast.journal.server_register import ServerRecord, ServerRegister
from nearcast.runtime.error_log import RateLimitedErrorLog
from nearcast.server import clock
from nearcast.server.config import ServerConfig
from nearcast.server.domain.balance import better_server, least_loaded, surplus
from nearcast.server.domain.directory import ServerDirectory
from nearcast.server.domain.outcome_follower import OutcomeFollower
from nearcast.server.domain.session_places import SessionClaim, SessionPlaces, keeper_of
from nearcast.server.error_responses import SessionTaken
from nearcast.server.ingest.group_commit import GroupCommit
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions.manager import SessionManager
from nearcast.server.sessions.session import GOING_AWAY, TAKEN_OVER, Session

log = logging.getLogger(__name__)

LINGER_SECONDS = 60.0
"""So long after the last other server is gone it is looked whether it writes after all."""

MOVE_SECONDS = 30.0
"""Who comes within so long after the connection to another server has moved: the link is the one it had there."""

REVIEWED_TOGETHER = 1_000
"""Sessions that are looked at before others have their turn."""

PART = "the register of servers"


async def _nothing() -> None:
    return None


class ServerDomain:
    """Used from one event loop. `lost` is called where another server has this one's name by now."""

    def __init__(
        self,
        config: ServerConfig,
        journal: Journal,
        register: ServerRegister,
        session_manager: SessionManager,
        claims: GroupCommit[SessionClaim],
        metrics: ServerMetrics,
        error_log: RateLimitedErrorLog,
    ) -> None:
        self.config, self.limits, self.journal, self.metrics = config, config.limits, journal, metrics
        self.session_manager, self.claims, self.error_log = session_manager, claims, error_log
        limits, instance = config.limits, session_manager.instance
        self.directory = ServerDirectory(
            register, config.node, instance, config.url, limits.renew_seconds, limits.lapse_seconds
        )
        self.places = SessionPlaces()
        self.follower = OutcomeFollower(journal, session_manager, self._claimed, error_log, limits.follow_seconds)
        self.lost: Callable[[], None] = lambda: None
        self.leveled: Callable[[], Awaitable[None]] = _nothing
        """Sends away what this server has too much, each time that it has looked at the others."""
        self.beside = False
        self._others_seen = 0.0
        self._covering: dict[str, int] = {}
        self._moved = set[str]()
        self._seen: frozenset[tuple[str, str, bool]] = frozenset()
        session_manager.keeps, session_manager.left = self.keeps, self._left
        session_manager.greeting = self._greeting

    # Who is there

    async def begin(self) -> None:
        """Takes this server's name; before deliveries are read. Raises SetupError, JournalError."""
        await self.directory.take_name()
        # What ended later than this is followed: what is read at the start may not know of it.
        self.follower.outcomes = await asyncio.to_thread(self.journal.end, "outcomes")
        self._look_who_is_beside()

    async def run(self) -> None:
        """Says anew what this server does and looks what the others do, on and on."""
        following = asyncio.ensure_future(self.follower.run())
        try:
            while True:
                await asyncio.sleep(self.limits.renew_seconds)
                try:
                    await self.look()
                    await self.leveled()
                    self.error_log.works(PART)
                except JournalError as error:
                    self.metrics.errors.labels("servers").inc()
                    self.error_log.failed(PART, error)
                except Exception:
                    self.metrics.errors.labels("servers").inc()
                    log.exception("other servers not looked at")
        finally:
            following.cancel()

    async def look(self) -> None:
        """Puts this server's record anew and reads the others; what changes with them takes effect."""
        # Before the others are read: where none is there, all up to here is this server's own.
        ended = await asyncio.to_thread(self.journal.end, "outcomes")
        alone = not self.directory.sought
        if not await self._renew():
            return
        gone = await self.directory.look()
        self._look_who_is_beside()
        # Who has come waits until this server has put its record twice, and it said nothing while it was alone.
        if alone and self.directory.sought and not await self._renew():
            return
        if not self.beside:
            self.follower.outcomes = ended
        seen = frozenset((one.record.name, one.record.instance, one.record.draining) for one in self.directory.others)
        if seen != self._seen:
            self._seen = seen
            await self._review_all()
        for record in gone:
            await self._release(record)
        if self.beside:
            await self._keep_claims()

    async def _renew(self) -> bool:
        """Puts this server's record anew; False where another has its name, and this one is to end."""
        if await self.directory.renew(self.connected()):
            return True
        log.error("another server has this name by now node=%s; ending", self.config.node)
        self.lost()
        return False

    def _look_who_is_beside(self) -> None:
        now = clock.steady()
        others = bool(self.directory.others)
        if others:
            self._others_seen = now
        beside = others or (self.beside and now - self._others_seen < LINGER_SECONDS)
        if beside and not self.beside:
            log.info("beside other servers node=%s others=%s", self.config.node, self.directory.present)
            self.beside = True
            self.follower.switch(True)
            self._state([session for session in self.session_manager.sessions.values() if session.connection])
        elif self.beside and not beside:
            log.info("alone node=%s", self.config.node)
            self.beside = False
            self.follower.switch(False)

    def _state(self, sessions: list[Session]) -> None:
        """Says which sessions this server has, where nobody claimed them meanwhile."""
        for session in sessions:
            self._submit(self._claim_of(session.client.id, session.holder, None))

    async def _keep_claims(self) -> None:
        """States anew what would be among the oldest claims soon, and lets the oldest go."""
        behind = self.follower.sessions - self.limits.session_rows // 2
        sessions = self.session_manager.sessions
        places = {client: self.places.of(client) for client, one in sessions.items() if one.connection}
        self._state([sessions[client] for client, place in places.items() if place and place.position < behind])
        if min(self.directory.present) == self.config.node and behind > 0:
            trim = partial(self.journal.trim, "sessions", self.limits.session_rows, self.limits.session_rows << 8)
            await asyncio.to_thread(trim)
        self.places.forget(self.places.abandoned(self.session_manager.registry.clients))

    async def _release(self, record: ServerRecord) -> None:
        """What a server held back that is gone enters now: it was accepted. By the first of those that are there."""
        if min(self.directory.present) == self.config.node:
            released = await asyncio.to_thread(self.journal.release, record.name)
            if released:
                log.info("events released that a server held back name=%s events=%d", record.name, released)

    async def _review_all(self) -> None:
        clients = [*self.session_manager.sessions]
        for first in range(0, len(clients), REVIEWED_TOGETHER):
            for client in clients[first : first + REVIEWED_TOGETHER]:
                self.session_manager.review(client)
            await asyncio.sleep(0)

    def connected(self) -> int:
        """How many sessions are connected here."""
        return sum(one.connection is not None for one in self.session_manager.sessions.values())

    def keeps(self, client: str) -> bool:
        """Whether this server ends what waits for a client: who has its session, or else one that is there."""
        session = self.session_manager.sessions.get(client)
        if not self.beside or (session and session.connection):
            return True
        place = self.places.of(client)
        if place and self.directory.is_there(place.server, place.instance):
            return place.instance == self.session_manager.instance
        return keeper_of(client, self.directory.present) == self.config.node

    # Sessions that come and go

    async def claim(self, client: str, holder: str | None, takeover: bool) -> None:
        """Returns when this server has the session of a client, and knows all that others wrote of it. Raises
        SessionTaken.
        """
        manager = self.session_manager
        if not self.beside:
            if not (takeover or manager.free(client, holder)):
                raise SessionTaken
            return
        self._covering[client] = manager.events_through
        try:
            # Who was alone until now, and does not know that this server is there, would not look for the claim.
            while not self.directory.noticed:
                await asyncio.sleep(min(0.1, self.limits.renew_seconds))
            await self.follower.caught_up()
            place = self.places.of(client)
            own = place is not None and place.instance == manager.instance
            if not (takeover or (manager.free(client, holder) if own else self._claimable(client, holder))):
                raise SessionTaken
            if place is None or not own or not place.connected or place.holder != holder:
                force = takeover or (place is not None and not self.directory.is_alive(place.server, place.instance))
                [position] = await self.claims.submit([self._claim_of(client, holder, force)])
                await self.follower.caught_up()
                place = self.places.of(client)
                if place is None or place.position != position:
                    raise SessionTaken
        finally:
            self._covering.pop(client, None)

    def _claimable(self, client: str, holder: str | None) -> bool:
        place = self.places.of(client)
        return (
            place is None
            or self.places.free(client, holder)
            or not self.directory.is_alive(place.server, place.instance)
        )

    async def known(self, client: str) -> bool:
        """Whether a client is known, also where it was declared at another server a moment ago."""
        if not self.session_manager.known(client) and self.beside:
            await self.session_manager.reached(await asyncio.to_thread(self.journal.end, "events"))
        return self.session_manager.known(client)

    def _claim_of(self, client: str, holder: str | None, takeover: bool | None) -> SessionClaim:
        return SessionClaim(client, self.config.node, self.session_manager.instance, holder, takeover)

    def _submit(self, claim: SessionClaim) -> None:
        written = self.claims.submit([claim], beyond=True)
        written.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _claimed(self, claim: SessionClaim) -> None:
        """A row of the log of sessions takes effect."""
        before = self.places.fold(claim)
        place, own = self.places.of(claim.client), self.session_manager.instance
        if claim.ends is None:
            self._moved.discard(claim.client)
        if before and claim.instance == own:
            alive = self.directory.is_alive(before.server, before.instance)
            self._note_move(claim.client, alive, before.server)
            lately = alive if before.connected else clock.age(before.left) < MOVE_SECONDS
            if lately and claim.takeover is not None:
                self._moved.add(claim.client)
        elif place and place.instance != own and claim.ends is None:
            # Of the same holder it is an old connection: should it live, it is to come again instead of giving up.
            session = self.session_manager.sessions.get(claim.client)
            same = session is not None and session.holder is not None and session.holder == place.holder
            reason = f"another connection took over this session, at server {place.server[:40]}"
            self.session_manager.lose(claim.client, GOING_AWAY if same else TAKEN_OVER, reason)
        self.session_manager.review(claim.client)

    def moved_here(self, client: str) -> bool:
        """Whether a session that was claimed just now was connected at another server a moment ago; told once."""
        moved = client in self._moved
        self._moved.discard(client)
        return moved

    def _note_move(self, client: str, handed_over: bool, server: str) -> None:
        known = self.session_manager.membership.changed(client) <= self._covering.get(client, 0)
        counter = self.metrics.handovers if handed_over else self.metrics.takeovers
        counter.labels("yes" if known else "no").inc()
        log.info("session came client=%s from=%s gone=%s covered=%s", client, server, not handed_over, known)

    def _left(self, client: str) -> None:
        place = self.places.of(client)
        if self.beside and place and place.connected and place.instance == self.session_manager.instance:
            self._submit(SessionClaim(client, place.server, place.instance, ends=place.position))

    def _greeting(self) -> dict[str, object]:
        """Which era of the journal it is, and where else a client may go, should this server die."""
        urls = [one.record.url for one in self.directory.others if one.record.url and not one.record.draining]
        return {"era": self.journal.era, **({"servers": urls} if urls else {})}

    # Sending clients elsewhere

    def other_server(self, redirects: int | None) -> tuple[str, str] | None:
        """Where a client that connects is sent, and why; None: it is taken here. `redirects`: how often it was sent on
        before; None for one that does not say that it follows.
        """
        rooms = self.directory.rooms()
        own = self.connected()
        if self.directory.own.draining:
            reason, found = "drain", least_loaded(rooms)
        elif own >= self.limits.sessions:
            reason, found = "full", least_loaded([one for one in rooms if one.sessions < self.limits.sessions])
        elif redirects is None or redirects >= self.limits.redirects:
            return None
        else:
            margin, slack = self.limits.balance_margin, self.limits.balance_slack
            reason, found = "balance", better_server(own + 1, rooms, margin, slack)
        if found is None:
            return None
        self._note_sent(found.name, reason)
        return self.directory.url_of(found.name), reason

    def elsewhere(self) -> str | None:
        """Where publishers are sent by a server that drains; None: they are heard here."""
        if not self.directory.own.draining:
            return None
        found = least_loaded(self.directory.rooms())
        return None if found is None else self.directory.url_of(found.name).rstrip("/")

    def _note_sent(self, name: str, reason: str) -> None:
        self.directory.note_sent(name)
        self.metrics.redirects.labels(reason).inc()

    def full(self) -> bool:
        """Whether no session has room here."""
        return self.connected() >= self.limits.sessions

    def surplus(self) -> int:
        """How many sessions this server has too many, beside the others."""
        rooms, own = self.directory.rooms(), self.connected()
        own -= sum(one.leaving for one in self.session_manager.sessions.values() if one.connection)
        return surplus(own, rooms, self.limits.balance_margin, self.limits.balance_slack)

    async def send_away(self, session: Session, reason: str, until: float) -> bool:
        """Sends a connected client to the server that has the most room, once it has acknowledged what it was sent, or
        that is waited for no longer; whether there was one.
        """
        connection = session.connection
        if connection is None:
            return True
        session.leaving = True
        while session.waiting.in_flight and clock.steady() < until and session.connection is connection:
            await asyncio.sleep(0.02)
        # What it acknowledged is durable before it goes: the next server knows of it then.
        await self.session_manager.outcomes.submit([])
        if session.connection is not connection:
            return True
        found = least_loaded(self.directory.rooms())
        if found is None or not connection.follows:
            session.leaving = False
            session.wake()
            return False
        url = self.directory.url_of(found.name)
        self._note_sent(found.name, reason)
        await connection.send_elsewhere(url, reason)
        return True

    # What people see

    def servers(self) -> list[dict[str, object]]:
        """The servers of the domain, this one among them, by name."""
        own = self.directory.own
        records = [one.record for one in self.directory.others] + [own]
        return [
            {
                "name": one.name,
                "url": one.url,
                "sessions": self.connected() if one is own else one.sessions,
                "load": one.load,
                "draining": one.draining,
                "here": one is own,
            }
            for one in sorted(records, key=lambda one: one.name)
        ]
