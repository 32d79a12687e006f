"""Which access server has which session: a fold over the log `sessions`, the same at every server.

A claim counts where nobody is connected, where the same holder is, or where it says that it takes over. So of two that
claim one session at the same moment the log says which has it. A server that only states what it has, since it was
alone before or the claim is old, takes nothing from others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import pyarrow as pa

from nearcast.model.columns import SESSIONS
from nearcast.server import clock


@dataclass(frozen=True, slots=True)
class SessionClaim:
    """A row of the log: a server, in one run of it, claims a client's session; or, with `ends`, the connection of the
    claim at that position is gone. `takeover` of None: it states what it has. `time` is when it was written, in seconds
    since 1970.
    """

    client: str
    server: str
    instance: str
    holder: str | None = None
    takeover: bool | None = False
    ends: int | None = None
    position: int = 0
    time: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where a session is, by the claim at `position`; `connected`: somebody is, and by which name; else until when
    somebody was, in seconds since 1970.
    """

    server: str
    instance: str
    holder: str | None
    position: int
    connected: bool = True
    left: float = 0.0


class SessionPlaces:
    """The places of all sessions that were ever claimed."""

    def __init__(self) -> None:
        self._places: dict[str, SessionPlace] = {}

    def __len__(self) -> int:
        return len(self._places)

    def of(self, client: str) -> SessionPlace | None:
        """Where a client's session is; None if nobody claimed it."""
        return self._places.get(client)

    def free(self, client: str, holder: str | None) -> bool:
        """Whether a claim counts that does not take over."""
        place = self._places.get(client)
        return place is None or not place.connected or (holder is not None and holder == place.holder)

    def fold(self, claim: SessionClaim) -> SessionPlace | None:
        """Takes a row of the log; the place before, if the claim counts and the session moves to another run."""
        before = self._places.get(claim.client)
        if claim.ends is not None:
            if before and before.position == claim.ends:
                self._places[claim.client] = replace(before, connected=False, holder=None, left=claim.time)
            return None
        if not (claim.takeover or self._counts(claim, before)):
            return None
        self._places[claim.client] = SessionPlace(claim.server, claim.instance, claim.holder, claim.position)
        return before if before and before.instance != claim.instance else None

    def _counts(self, claim: SessionClaim, before: SessionPlace | None) -> bool:
        if claim.takeover is None:
            return before is None or not before.connected or before.instance == claim.instance
        return self.free(claim.client, claim.holder)

    def forget(self, clients: Iterable[str]) -> None:
        """Forgets where sessions of clients were that are no more."""
        for client in clients:
            self._places.pop(client, None)

    def abandoned(self, known: Iterable[str]) -> list[str]:
        """The clients that nobody knows any more, and is connected as."""
        there = set(known)
        return [client for client, place in self._places.items() if client not in there and not place.connected]


def keeper_of(client: str, servers: Iterable[str]) -> str:
    """Which of some servers keeps the session of a client that none has: the same at each, and few change with one."""
    return max(servers, key=lambda name: blake2b(f"{name}\0{client}".encode(), digest_size=8).digest())


def claim_table(claims: list[SessionClaim]) -> pa.Table:
    """Rows of the log of sessions."""
    now = clock.moment(clock.now())
    rows = [
        {
            "position": 0,
            "time": now,
            "client": one.client,
            "server": one.server,
            "instance": one.instance,
            "holder": one.holder,
            "takeover": one.takeover,
            "ends": one.ends,
        }
        for one in claims
    ]
    return pa.Table.from_pylist(rows, schema=SESSIONS)


def claims_in(rows: pa.Table) -> Iterator[SessionClaim]:
    """The claims of rows of the log, in order."""
    names = ("client", "server", "instance", "holder", "takeover", "ends", "position")
    columns = [rows.column(name).to_pylist() for name in names]
    times = [time.timestamp() for time in rows.column("time").to_pylist()]
    return (SessionClaim(*row) for row in zip(*columns, times, strict=True))
