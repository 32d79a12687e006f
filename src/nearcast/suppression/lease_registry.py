"""Leases as an entry node gives them: what it told the publishers of subjects that they need not send.

Under a lease the publisher keeps what would be kept here. So before anything enters that rests on where the subject is,
the lease has to come back, with what is kept under it, which is taken first, as if it had come in time:

- any event of the subject itself, whoever sends it;
- an event by which the other side of one of its relations leaves its guard;
- whatever changes definitions.

While a lease lasts, the guards that it tells stay in force; then the same is emitted as if every report had come. A
publisher that is not heard for `seconds` holds nothing back any more by its own clock, so after that nobody waits for
it: what it kept is its own to lose. A subject that somebody else publishes too is not lent.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import count

from nearcast.model.event import Event
from nearcast.suppression.ingest_filter import IngestFilter
from nearcast.suppression.leases import Lease

SHARED_SECONDS = 60.0
"""So long after somebody else has published a subject it is not lent."""


@dataclass(frozen=True, slots=True)
class OpenLease:
    """A lease that has not come back, and whose it is."""

    lease: Lease
    holder: str


class LeaseRegistry:
    """The leases of an entry node. Holders are the connections of publishers; times are seconds of one clock.

    `first` is the number of the first lease; that of another node, or of one before, must not come again.
    """

    def __init__(self, entry: IngestFilter, seconds: float, first: int = 1) -> None:
        self.seconds = seconds
        self._entry = entry
        self._ids = count(first)
        self._asked: dict[str, tuple[str, frozenset[str]]] = {}
        self._open: dict[int, OpenLease] = {}
        self._of: dict[str, int] = {}
        self._until: dict[str, float] = {}
        self._shared: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._open)

    def heard(self, holder: str, now: float) -> None:
        """A holder was heard, and is told so: it may hold back for `seconds` from when it spoke."""
        self._until[holder] = now + self.seconds

    def until(self, id: int) -> float:
        """Until when a lease has to be waited for; 0 for one that has come back."""
        found = self._open.get(id)
        return 0.0 if found is None else self._until.get(found.holder, 0.0)

    def ask(self, holder: str, subject: str, types: Iterable[str], now: float) -> None:
        """The publisher of a subject would like to hold back events of these types."""
        asked = self._asked.get(subject)
        found = self._open.get(self._of.get(subject, 0))
        if any(other not in (None, holder) for other in (asked and asked[0], found and found.holder)):
            self._share(subject, now)
            return
        self._asked[subject] = (holder, frozenset(types))

    def _share(self, subject: str, now: float) -> None:
        self._shared[subject] = now + SHARED_SECONDS
        self._asked.pop(subject, None)

    def offers(self, now: float) -> list[OpenLease]:
        """New leases, to be sent to their holders: where guards are in force, and nobody else wants the types."""
        self._shared = {subject: until for subject, until in self._shared.items() if until > now}
        found: list[OpenLease] = []
        for subject, (holder, types) in list(self._asked.items()):
            if subject in self._of or subject in self._shared or self._until.get(holder, 0.0) <= now:
                continue
            lent = self._entry.lease_for(subject, types)
            if lent is None:
                continue
            del self._asked[subject]
            lease = Lease(next(self._ids), subject, *lent)
            self._open[lease.id] = OpenLease(lease, holder)
            self._of[subject] = lease.id
            self._entry.leased.add(subject)
            found.append(self._open[lease.id])
        return found

    def needed(self, event: Event, holder: str | None, returned: Set[int], now: float) -> list[OpenLease]:
        """The leases that have to come back before an event is taken, which itself brings back those `returned`."""
        # Also under another name than when it was lent: the connection may be a new one.
        for id in returned & self._open.keys():
            self.end(id)
        if event.control:
            return list(self._open.values())
        asked = self._asked.get(event.entity)
        own = self._open.get(self._of.get(event.entity, 0))
        if any(other not in (None, holder) for other in (asked and asked[0], own and own.holder)):
            self._share(event.entity, now)
        if not self._open:
            return []
        resting = {event.entity, *self._entry.left_by(event)}
        return [self._open[self._of[one]] for one in sorted(resting & self._of.keys())]

    def all(self) -> list[OpenLease]:
        """Every lease that has not come back."""
        return list(self._open.values())

    def end(self, id: int) -> bool:
        """A lease has come back, or nobody waits for it any more; whether it was open."""
        found = self._open.pop(id, None)
        if found is None:
            return False
        del self._of[found.lease.subject]
        self._entry.leased.discard(found.lease.subject)
        return True

    def gone(self, holder: str) -> None:
        """A holder is not connected any more; it may hold back until its time is over."""
        self._asked = {subject: asked for subject, asked in self._asked.items() if asked[0] != holder}

    def overdue(self, now: float) -> list[OpenLease]:
        """The leases of holders that hold nothing back any more; they are over."""
        found = [one for one in self._open.values() if self._until.get(one.holder, 0.0) <= now]
        for one in found:
            self.end(one.lease.id)
        held = {one.holder for one in self._open.values()} | {holder for holder, _ in self._asked.values()}
        self._until = {holder: until for holder, until in self._until.items() if until > now or holder in held}
        return found
