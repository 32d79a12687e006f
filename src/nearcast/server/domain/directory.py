"""The access servers of a domain as one of them knows them: it says now and then what it does, and reads the others.

Whoever does not put its record anew for `lapse` seconds, by this server's own steady clock, counts as gone; so does at
once whose process is known to have ended. One that is alone says nothing new, where its record stays: nobody reads it,
and a system in which nothing happens writes nothing. Whoever comes puts a record, and who wants its name asks for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from dataclasses import dataclass, field, replace
from time import process_time

from nearcast.errors import SetupError
from nearcast.journal.server_register import ServerRecord, ServerRegister, process_start
from nearcast.server import clock
from nearcast.server.domain.balance import ServerRoom

log = logging.getLogger(__name__)

NOTICED = 2

ON_THE_WAY_SECONDS = 3.0
"""So long a client that was sent to another server counts there, whether it has arrived or not."""


@dataclass(slots=True)
class KnownServer:
    """Another server: its newest record, since when that is known, and when clients were sent there."""

    record: ServerRecord
    since: float
    sent: deque[float] = field(default_factory=deque)
    lapsed: bool = False


class ServerDirectory:
    """Who is there, and this server's own record among them. Used from one event loop."""

    def __init__(
        self, register: ServerRegister, name: str, instance: str, url: str, renew: float, lapse: float
    ) -> None:
        self._register, self._renew, self._lapse = register, renew, lapse
        process = os.getpid()
        self.own = ServerRecord(name, instance, url, socket.gethostname(), process, process_start(process))
        self._known: dict[str, KnownServer] = {}
        self._first: dict[str, int] = {}
        self._put = False
        # This server's record as it was read last.
        self._there: ServerRecord | None = None
        self._used = (process_time(), clock.steady())
        self._turn = asyncio.Lock()

    @property
    def others(self) -> list[KnownServer]:
        """The servers that are there beside this one, by name."""
        return [one for _, one in sorted(self._known.items()) if not one.lapsed]

    @property
    def present(self) -> list[str]:
        """The names of all that are there and stay, this one among them unless it leaves."""
        names = [one.record.name for one in self.others if not one.record.draining]
        return [*names, self.own.name] if not (self.own.draining and names) else names

    def is_there(self, server: str, instance: str) -> bool:
        """Whether that run of a server is there."""
        if server == self.own.name:
            return instance == self.own.instance
        known = self._known.get(server)
        return known is not None and not known.lapsed and known.record.instance == instance

    def is_alive(self, server: str, instance: str) -> bool:
        """As `is_there`, and its process is not known to have ended since that was looked at."""
        return self.is_there(server, instance) and (
            server == self.own.name or not self._known[server].record.known_dead
        )

    @property
    def noticed(self) -> bool:
        """Whether all others have read that this server is there, since it put its record first.

        Each puts its own and then reads: who has put it twice since has read in between.
        """
        there = {one.record.instance: one.record.number for one in self.others}
        return all(there[one] >= number + NOTICED for one, number in self._first.items() if one in there)

    def rooms(self) -> list[ServerRoom]:
        """What the others have to do, with the clients that were sent to them a moment ago."""
        since = clock.steady() - max(2 * self._renew, ON_THE_WAY_SECONDS)
        for one in self.others:
            while one.sent and one.sent[0] < since:
                one.sent.popleft()
        return [
            ServerRoom(
                one.record.name, one.record.sessions + len(one.sent), bool(one.record.url) and not one.record.draining
            )
            for one in self.others
        ]

    def url_of(self, name: str) -> str:
        """Where clients reach a server that is there."""
        return self._known[name].record.url

    def note_sent(self, name: str) -> None:
        """A client was sent to that server."""
        self._known[name].sent.append(clock.steady())

    async def take_name(self) -> None:
        """Puts this server's record. Raises SetupError where another server of that name is there, and JournalError.

        One that may be dead is asked, and waited for: until its record is put anew, or has lapsed.
        """
        until = clock.steady() + self._lapse
        first: ServerRecord | None = None
        while True:
            found = await self._recorded()
            if found is not None and not found.known_dead:
                if first is None:
                    first = found
                    await asyncio.to_thread(self._register.put, replace(found, asked=True), found)
                if _version(found) != _version(first):
                    raise name_taken(found)
                if clock.steady() < until:
                    await asyncio.sleep(min(self._renew, self._lapse) / 4)
                    continue
            if await asyncio.to_thread(self._register.put, self.own, found):
                self._put = True
                await self.look()
                # Who comes later has read this server's record when it begins.
                self._first = {one.record.instance: one.record.number for one in self.others}
                return

    async def _recorded(self) -> ServerRecord | None:
        records = await asyncio.to_thread(self._register.records)
        return next((one for one in records if one.name == self.own.name), None)

    async def renew(self, sessions: int) -> bool:
        """Says anew what this server does; False where its name is another's by now. Raises JournalError."""
        async with self._turn:
            told = replace(self.own, sessions=sessions, load=self._load())
            if self._unread(told):
                self.own = told
                return True
            before, told = self.own if self._put else None, replace(told, number=told.number + 1)
            if not await asyncio.to_thread(self._register.put, told, before):
                found = await self._recorded()
                # Nobody has it: it was held up for so long that its record is gone.
                if found is not None and found.instance != self.own.instance:
                    return False
                if not await asyncio.to_thread(self._register.put, told, found):
                    return True
            self.own, self._put = replace(told, draining=self.own.draining), True
            return True

    @property
    def sought(self) -> bool:
        """Whether somebody waits for this server to put its record anew."""
        return not self._unread(self.own)

    def _unread(self, told: ServerRecord) -> bool:
        """Whether nobody would read what this server says, nor miss it."""
        there = self._there
        return (
            self._register.lasting
            and not self._known
            and there is not None
            and not there.asked
            and (there.instance, there.number, there.draining) == (told.instance, told.number, told.draining)
        )

    def _load(self) -> float:
        used, now = process_time(), clock.steady()
        before, since = self._used
        self._used = used, now
        return round((used - before) / max(now - since, 0.001), 3)

    async def look(self) -> list[ServerRecord]:
        """Reads what the others say; those that are gone since. Raises JournalError."""
        records = await asyncio.to_thread(self._register.records)
        now = clock.steady()
        there = {one.name: one for one in records}
        self._there = there.pop(self.own.name, None)
        gone = [one.record for name, one in self._known.items() if name not in there and not one.lapsed]
        self._known = {name: self._noted(record, now) for name, record in there.items()}
        for known in self._known.values():
            lapsed = known.record.known_dead or now - known.since > self._lapse
            if lapsed and not known.lapsed:
                gone.append(known.record)
                log.warning("server gone name=%s url=%s", known.record.name, known.record.url)
            known.lapsed = lapsed
        # A record of one that is gone is let go of by whoever sees it; of two the second finds none.
        for one in gone:
            await asyncio.to_thread(self._register.remove, one)
        return gone

    def _noted(self, record: ServerRecord, now: float) -> KnownServer:
        known = self._known.get(record.name)
        if known is None or known.record.instance != record.instance:
            log.info("server there name=%s url=%s", record.name, record.url)
            return KnownServer(record, now)
        if record.number == known.record.number:
            return known
        return KnownServer(record, now, known.sent)

    def leaving(self) -> None:
        """From now on it says that it takes no new sessions."""
        self.own = replace(self.own, draining=True)

    async def leave(self) -> None:
        """Removes this server's record."""
        if self._put:
            async with self._turn:
                await asyncio.to_thread(self._register.remove, self.own)

    def close(self) -> None:
        """Lets go of the register."""
        self._register.close()


def _version(record: ServerRecord) -> tuple[str, int]:
    return record.instance, record.number


def name_taken(other: ServerRecord) -> SetupError:
    """What is raised where a server of that name is there."""
    where = f"process {other.process} on {other.host}" if other.process else other.instance
    return SetupError(
        f"expected no other access server {other.name!r} on this journal, got one at {other.url} ({where});"
        " end that one, or give this one another name with --node"
    )
