"""The entry node of one subject with many partners: one report in, a message for each pair that needs one out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nearcast.suppression.strategies.guards import TakenReport
from nearcast.testing.entry_node import PairSide, PairTransition, SideMessage

Sent = list[tuple[str, SideMessage]]
"""Messages, each with the partner whose side is to get it."""


class Subject:
    """The sides of a subject by partner. With `shared`, what one of them publishes all do: the subject has one ring.

    Then all its guards are around the same report, and the smallest decides. A message that goes to several partners
    has the same facts, so an overlay of brokers carries it once over each link that they share.
    """

    def __init__(self, sides: dict[str, PairSide], shared: bool = False) -> None:
        self.sides = sides
        self._shared = shared

    def report(self, report: TakenReport) -> Sent:
        """Takes a report of the subject; what must be sent to whom."""
        return self._all((partner, side.report(report)) for partner, side in self.sides.items())

    def receive(self, partner: str, message: SideMessage, clock: float) -> Sent:
        """Takes a message from a partner's side; what must be sent to whom, see `PairSide.receive`."""
        return self._all([(partner, self.sides[partner].receive(message, clock))])

    def tick(self, clock: float) -> Sent:
        """Time passes, see `PairSide.tick`."""
        return self._all((partner, side.tick(clock)) for partner, side in self.sides.items())

    def settled(
        self, settle: Callable[[PairSide], list[PairTransition]] = PairSide.settled
    ) -> list[tuple[str, PairTransition]]:
        """What has changed with which partner, and is settled, since this was asked last."""
        return [(partner, change) for partner, side in self.sides.items() for change in settle(side)]

    def permits(self, report: TakenReport) -> bool:
        """Whether a report may be held back as far as is known now: whether it lies in every ring."""
        return all(side.guard.permits(report) for side in self.sides.values())

    def _all(self, first: Iterable[tuple[str, list[SideMessage]]]) -> Sent:
        """The messages, and those of the other sides which must publish the same."""
        sent = [(partner, message) for partner, messages in first for message in messages]
        # What is sent along is a side's newest report, so it makes no side publish yet another.
        for partner, message in sent.copy() if self._shared else ():
            for fact in message.facts:
                others = ((other, side) for other, side in self.sides.items() if other != partner)
                sent += [(other, along) for other, side in others for along in side.publish(fact.order)]
        return sent
