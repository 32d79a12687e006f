"""What this server decided before the pipeline did, until the pipeline has decided it too (semantics §10).

For each client deliveries of events that are decided early come in the order of the log: an event waits here where one
before it, of a channel that is decided early, is left to the pipeline and not decided there yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from nearcast.delivery.queue import RoleLevels
from nearcast.model.sequence import part_of, position_of
from nearcast.server.sessions.journal_tailer import DecidedDelivery

Decided = tuple[str, int, RoleLevels | None, tuple[tuple[str, int], ...]]
"""What deciding says of a delivery: subscription, level, levels by role, other subscriptions."""


@dataclass(slots=True)
class _EarlyDelivery:
    """A delivery that was decided early; with its row as long as it waits here."""

    decided: Decided
    waits: DecidedDelivery | None = None


@dataclass(frozen=True, slots=True)
class DecisionDifference:
    """Where this server and the pipeline did not decide alike: `kind` is "missing" here, "surplus" here, or "other"."""

    kind: str
    position: int
    client: str


class EarlyDeliveries:
    """Unconfirmed early decisions, of which about `limit` are kept; beyond it events are left to the pipeline until
    half of them are confirmed (`resting`).

    `serves`: whether this server ends what waits for a client. Events are decided early through `through`, and by the
    pipeline through `confirmed`.
    """

    def __init__(self, limit: int, serves: Callable[[str], bool]) -> None:
        self.limit, self._serves = limit, serves
        self.through, self.confirmed, self.size = 0, 0, 0
        self.resting = False
        # By position, ascending, then client; None: that is left to the pipeline.
        self._early: dict[int, dict[str, _EarlyDelivery | None]] = {}
        self._gate = 0
        self._gates: dict[str, deque[int]] = {}
        self._held: dict[str, deque[_EarlyDelivery]] = {}

    def leave_through(self, position: int) -> None:
        """Events up to a position are left to the pipeline: none behind it is sent before it has decided those."""
        self._gate = max(self._gate, position)
        self.through = max(self.through, position)

    def decide(
        self,
        positions: Sequence[int],
        rows: Iterable[DecidedDelivery],
        unsure: Collection[tuple[int, str]],
        through: int,
    ) -> list[DecidedDelivery]:
        """Takes what was decided of some events, all of which lie behind those before; gives what may be queued now.

        `rows` are their deliveries, ascending; `unsure` the positions and clients that are left to the pipeline.
        """
        fresh = [position for position in positions if position > self.confirmed]
        if self.resting and fresh:
            self.leave_through(fresh[-1])
        else:
            self._early.update((position, {}) for position in fresh)
            self.size += len(fresh)
        for position, client in sorted(unsure):
            if position in self._early:
                self._early[position][client] = None
                self._gates.setdefault(client, deque()).append(position)
                self.size += 1
        released = [row for row in rows if self._admit(row)]
        self.through = max(self.through, through)
        self.resting = self.size >= self.limit or (self.resting and self.size > self.limit // 2)
        return released

    def _admit(self, row: DecidedDelivery) -> bool:
        """Takes note of a delivery; whether it may be queued now."""
        own = self._early.get(position_of(row.sequence))
        if own is None:
            return False
        early = own[row.client] = _EarlyDelivery(_decided(row))
        self.size += 1
        if not self._serves(row.client):
            return False
        if self._blocked(row):
            early.waits = row
            self._held.setdefault(row.client, deque()).append(early)
            return False
        return True

    def confirm(self, rows: Iterable[DecidedDelivery]) -> list[DecisionDifference]:
        """Compares what the pipeline decided, ascending, with what was decided here; gives where they differ.

        All of it is to be queued: a queue knows what it has.
        """
        found = []
        for row in rows:
            position = position_of(row.sequence)
            own = self._early.get(position)
            if own is None or part_of(row.sequence):
                continue
            if row.client not in own:
                found.append(DecisionDifference("missing", position, row.client))
                continue
            early = own.pop(row.client)
            self.size -= 1
            if early is not None:
                early.waits = None
                if early.decided != _decided(row):
                    found.append(DecisionDifference("other", position, row.client))
        return found

    def confirm_through(self, through: int) -> tuple[list[DecidedDelivery], list[DecisionDifference]]:
        """Hears that the pipeline has decided through a position, all of which was confirmed; gives what may be queued
        now, and what the pipeline did not decide.
        """
        self.confirmed = max(self.confirmed, through)
        surplus = []
        for position in self._passed():
            own = self._early.pop(position)
            self.size -= 1 + len(own)
            for client, early in own.items():
                if early is not None:
                    early.waits = None
                    surplus.append(DecisionDifference("surplus", position, client))
        self.resting = self.resting and self.size > self.limit // 2
        self._open_gates()
        return [row for client in [*self._held] for row in self._released(client)], surplus

    def _passed(self) -> list[int]:
        return list(takewhile(lambda position: position <= self.confirmed, self._early))

    def _open_gates(self) -> None:
        for client, gates in [*self._gates.items()]:
            while gates and gates[0] <= self.confirmed:
                gates.popleft()
            if not gates:
                del self._gates[client]

    def _released(self, client: str) -> Iterator[DecidedDelivery]:
        """What waits for a client and need not any more, in order."""
        held = self._held[client]
        while held and ((row := held[0].waits) is None or not self._blocked(row)):
            held.popleft().waits = None
            if row is not None:
                yield row
        if not held:
            del self._held[client]

    def _blocked(self, row: DecidedDelivery) -> bool:
        """Whether the pipeline has yet to decide something before a delivery."""
        gates = self._gates.get(row.client, ())
        return self._gate > self.confirmed or bool(gates and gates[0] < position_of(row.sequence))

    def adopt(self, client: str) -> None:
        """From now on this server ends what waits for a client: what was decided before comes from the pipeline."""
        if self.through > self.confirmed:
            self._gates.setdefault(client, deque()).append(self.through)


def _decided(row: DecidedDelivery) -> Decided:
    return row.subscription, row.level, row.by_role, row.others
