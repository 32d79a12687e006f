"""What must be true while rows within a log are lost: nobody reads over them as if it were whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nearcast.journal.memory import Gap

if TYPE_CHECKING:
    from tests.simulation.simulated_system import SimulatedSystem

QUICK = 0.01
"""Seconds that a call takes of a journal that is not slow: then it is soon seen that it cannot be read."""

PATIENCE = 10
"""Looks after which who has to read what is lost has to have said so."""


class GapWatch:
    """Looks at those who read a log of which some rows are lost, from the moment on at which they are."""

    def __init__(self, system: SimulatedSystem, gap: Gap) -> None:
        self._system, self._gap = system, gap
        # What somebody had read before may be taken in later.
        self._before = {name for name, position in self._positions() if max(position, self._read_by(name)) < gap.first}
        self._deaths = len(system.deaths)
        self._waits: dict[str, int] = {}

    def _read_by(self, name: str) -> int:
        """Up to which position the processes have read that run on hosts of a name, which there may be two of."""
        hosts = [host for host in self._system.processes if host.startswith(name.partition(" ")[0])]
        ends = self._system.journal.read_ends
        return max(ends.get((self._system.processes[host], self._gap.log), 0) for host in hosts)

    def _positions(self) -> Iterator[tuple[str, int]]:
        """How far those have read who are here: runs of servers, whoever is the pipeline, the archive."""
        for one in self._system.readers():
            if one.log == self._gap.log:
                yield one.reader, one.position
        if self._gap.log == "events":
            yield "pipeline", self._system.journal.end("deliveries")

    def look(self) -> Iterator[str]:
        """Those who have read over what is lost, and those who have to and do not say that they cannot."""
        gap, there = self._gap, self._system.journal.end(self._gap.log) >= self._gap.last
        for name, position in self._positions():
            if name not in self._before:
                continue
            if position >= gap.last:
                yield f"{name} has read {gap.log} up to {position}, though {gap.first} to {gap.last} are lost"
            self._waits[name] = self._waits.get(name, 0) + 1 if there and not self._says_so(name) else 0
            if self._waits[name] == PATIENCE:
                yield f"{name} does not say that it cannot read {gap.log} from {gap.first} to {gap.last}"

    def _says_so(self, name: str) -> bool:
        """Whether a reader says that it fails; nothing is expected of one that is held up."""
        # The archive reads no more than is decided, and the log of outcomes is read by who is not alone.
        if name == "archive" or self._gap.log == "outcomes":
            return True
        host = name.partition(" ")[0]
        process = self._system.processes[host]
        if process.paused or host in self._system.journal.unreached or self._system.journal.latency > QUICK:
            return True
        if name == "pipeline":
            return any(one.startswith(name) and "damaged" in one for one in self._system.deaths[self._deaths :])
        return "reading the journal" in self._system.services[host].failing()
