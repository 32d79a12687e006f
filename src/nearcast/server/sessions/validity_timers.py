"""When clients' readings lapse: one heap for a server, by the steady time (semantics §3, validity of readings).

A reading that comes again and again does not fill it: of each there is one entry that counts, which is put off when its
turn comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from nearcast.model.subscription import ClientProfile
from nearcast.server import clock
from nearcast.state.registry import UNKNOWN_MOMENT, Registry

SLACK = 64
"""Entries that do not count any more, besides as many as do, before the heap is made anew."""


@dataclass(frozen=True, slots=True)
class LapsedReading:
    """A reading that held for long enough: whose, which, of which moment; `ended` in microseconds since 1970."""

    client: str
    name: str
    moment: int
    ended: int


class ValidityTimers:
    """The readings of a registry that have a validity, by when they lapse."""

    def __init__(self) -> None:
        self._validities: dict[str, float] = {}
        self._heap: list[tuple[float, str, str]] = []
        self._due: dict[tuple[str, str], float] = {}
        self._retried: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        """Entries, those that do not count any more too."""
        return len(self._heap)

    def next_in(self) -> float | None:
        """Seconds until the next entry has its turn; None: there is none."""
        return max(0.0, self._heap[0][0] - clock.steady()) if self._heap else None

    def restart(self, registry: Registry) -> None:
        """Begins anew with all that is known, if settings have other validities than before."""
        validities = registry.settings.space.validities()
        if validities != self._validities:
            self._validities = validities
            self._heap.clear()
            self._due.clear()
            self._retried.clear()
            # Once for all of them: there may be a hundred thousand.
            steady, now = clock.steady(), clock.now()
            for client in registry.clients.values() if validities else ():
                self._note(client, steady, now)

    def note(self, client: ClientProfile) -> None:
        """Takes note of the readings that a client has now."""
        if self._validities and client.readings:
            self._note(client, clock.steady(), clock.now())

    def _note(self, client: ClientProfile, steady: float, now: float) -> None:
        for name, valid in self._validities.items():
            known = client.moments.get(name, UNKNOWN_MOMENT)
            if name in client.readings and self._retried.get((client.id, name)) != known:
                # Where the clock was set since it may be too early: its exact age is asked at its turn.
                age = max(0.0, now - known / 1e6) if name in client.moments else 0.0
                self._await(client.id, name, steady + valid - age)

    def _await(self, client: str, name: str, due: float) -> None:
        """An earlier entry stays: it is put off at its turn."""
        if due < self._due.get((client, name), float("inf")):
            self._due[client, name] = due
            heapq.heappush(self._heap, (due, client, name))
            if len(self._heap) > 2 * len(self._due) + SLACK:
                self._heap = [(at, *key) for key, at in self._due.items()]
                heapq.heapify(self._heap)

    def forget(self, client: str) -> None:
        """A client was removed."""
        for name in self._validities:
            self._due.pop((client, name), None)
            self._retried.pop((client, name), None)

    def due(self, registry: Registry) -> Iterator[LapsedReading]:
        """The readings that have lapsed, each once; what reads on puts back what it could not withdraw (`retry`)."""
        now = clock.steady()
        while self._heap and self._heap[0][0] <= now:
            due, id, name = heapq.heappop(self._heap)
            if self._due.get((id, name)) != due:
                continue
            del self._due[id, name]
            self._retried.pop((id, name), None)
            client = registry.clients.get(id)
            if client is None or name not in client.readings:
                continue
            moment, valid = client.moments.get(name, UNKNOWN_MOMENT), self._validities[name]
            left = valid - clock.age(moment / 1e6) if name in client.moments else 0.0
            if left > 0:
                self._await(id, name, now + left)
                continue
            ended = moment + round(valid * 1e6) if name in client.moments else round(clock.now() * 1e6)
            yield LapsedReading(id, name, moment, ended)

    def retry(self, reading: LapsedReading, seconds: float) -> None:
        """Looks at a reading again after so long: it is withdrawn then, if it is there still."""
        if reading.name in self._validities:
            self._retried[reading.client, reading.name] = reading.moment
            self._await(reading.client, reading.name, clock.steady() + seconds)
