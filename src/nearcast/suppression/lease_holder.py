"""What a publisher need not send: the leases it has, and of each subject the newest report that it kept.

A lease is over as soon as anything of its subject is sent, is called for, or the server was not heard for too long.
Then what is kept goes first, and the server is notified which lease has come back. See `suppression.lease_registry` for
the other end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from nearcast.model.event import Event
from nearcast.suppression.leases import Lease

Form = TypeVar("Form")
"""What a publisher sends of an event."""


@dataclass(frozen=True, slots=True)
class ReturnedLease(Generic[Form]):
    """A lease that has come back, and what was kept under it."""

    lease: int
    kept: Form | None


class LeaseHolder(Generic[Form]):
    """The leases of one publisher. Times are seconds of its own clock."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._unsent: dict[str, Form] = {}
        self._given: dict[int, tuple[str, Form]] = {}
        self._under_way: Counter[str] = Counter()
        self._asked: set[str] = set()
        self._until = 0.0

    def heard(self, until: float) -> None:
        """The server is sure to wait for what is kept until then."""
        self._until = max(self._until, until)

    def begin_lease(self, lease: Lease) -> bool:
        """Takes a lease; not while something of its subject is under way, which the lease may not know of."""
        self._asked.discard(lease.subject)
        if self._under_way[lease.subject]:
            return False
        self._leases[lease.subject] = lease
        return True

    def permits(self, event: Event, now: float) -> bool:
        """Whether an event may be kept."""
        lease = self._leases.get(event.entity)
        return lease is not None and now < self._until and lease.permits(event)

    def hold_back(self, event: Event, form: Form, now: float) -> bool:
        """Keeps an event if that is allowed; else it has to be sent, behind what `give_back` gives."""
        if event.time is None or not self.permits(event, now):
            return False
        # From now on only what is later.
        self._leases[event.entity] = replace(self._leases[event.entity], after=event.time)
        self._unsent[event.entity] = form
        return True

    def give_back(self, subject: str) -> ReturnedLease[Form] | None:
        """Ends the lease of a subject, if there is one."""
        lease = self._leases.pop(subject, None)
        if lease is None:
            return None
        unsent = self._unsent.pop(subject, None)
        if unsent is not None:
            self._given[lease.id] = (subject, unsent)
        return ReturnedLease(lease.id, unsent)

    def recalled(self, id: int) -> ReturnedLease[Form]:
        """Ends a lease that is called for; one that is over already comes back once more, with what is on its way.

        What is on its way may stand behind the very event for which the server calls, and has to go before it.
        """
        for subject, lease in self._leases.items():
            if lease.id == id:
                return self.give_back(subject) or ReturnedLease(id, None)
        return ReturnedLease(id, self._given[id][1] if id in self._given else None)

    def overdue(self, now: float) -> list[ReturnedLease[Form]]:
        """Ends all leases if the server was not heard for too long."""
        return self.give_back_all() if now >= self._until else []

    def give_back_all(self) -> list[ReturnedLease[Form]]:
        """Ends all leases: the connection is lost, or the publisher ends."""
        found = [self.give_back(subject) for subject in list(self._leases)]
        self._asked.clear()
        return [one for one in found if one is not None]

    def sending(self, subjects: Iterable[str]) -> None:
        """Says that events of these subjects, each as often as there are some, are on their way."""
        self._under_way.update(subjects)

    def sent(self, subjects: Iterable[str]) -> list[str]:
        """Says that they have arrived, or never will; the subjects whose guards should be asked for."""
        subjects = list(subjects)
        self._under_way.subtract(subjects)
        free = [one for one in dict.fromkeys(subjects) if not self._under_way[one]]
        for subject in free:
            del self._under_way[subject]
        self._given = {id: given for id, given in self._given.items() if given[0] not in free}
        asking = [one for one in free if one not in self._leases and one not in self._asked]
        self._asked.update(asking)
        return asking
