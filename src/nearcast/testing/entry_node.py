"""The protocol at an entry node: one side of a pair, its own reports and messages in, messages and notices out.

Published reports are *facts*, each with its place in the order of all reports. What is known of a pair is a fold over
the facts of both sides in that order, and so are the guards. A side publishes every report of its own that its guard,
at the report's place, does not permit. A fact that arrives late is folded in at its place: the reports kept since are
looked at again under the guards that were in force, and what turns out to lie outside is published late. Facts only
ever join, so this ends; when nothing is under way, both sides have the same facts and every report that is not one was
permitted by its guard. So the fold changes where evaluating every report would (the one obligation of a strategy), no
sooner and no later, however long messages took, in whatever order and how often they came.

A notice must wait until its place is *settled*: no fact can come before it any more. Each message says how far its
sender has looked at its own reports (`through`), how many facts it had received (`seen`) and sent (`sent`). That
settles everything before the first fact it had not seen. A side whose silence the other waits for acknowledges with a
message that has no facts. Where the surroundings know that all has arrived, `settle` says so instead.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from operator import attrgetter
from typing import Any, Literal

from nearcast.suppression.strategies.guards import Guard, TakenReport
from nearcast.suppression.strategies.seam import PairKnowledge, SideName, Strategy, ThresholdPredicate, guards

KEEP = 10_000
"""Reports that are kept before the other side is asked how far it is."""

_order = attrgetter("order")


@dataclass(frozen=True, slots=True)
class SideMessage:
    """From one side to the other: new facts, if any, and how far the sender is. Without facts it is an answer."""

    sender: SideName
    facts: tuple[TakenReport, ...]
    sent: int
    seen: int
    through: float
    ask: bool = False


@dataclass(frozen=True, slots=True)
class PairTransition:
    """The relation began (`enter`) or ended (`exit`) with the report at this place of the order; both values then."""

    order: int
    detect: Literal["enter", "exit"]
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class _Point:
    """What a side knows at a place of the order: the pair, its own newest report, what has changed up to here."""

    order: float
    known: PairKnowledge
    current: TakenReport | None = None
    changes: tuple[PairTransition, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the relation changes right here."""
        return bool(self.changes) and self.changes[-1].order == self.order


class PairSide:
    """One side of a pair. `late` counts facts that newer reports had overtaken: what the delay of messages costs.

    With `acknowledge`, messages settle what is to be told; without, `settle` must be called.
    """

    def __init__(
        self, me: SideName, strategy: Strategy, bound: ThresholdPredicate, *, acknowledge: bool = True, keep: int = KEEP
    ) -> None:
        self.me: SideName = me
        self.other: SideName = "b" if me == "a" else "a"
        self.strategy, self.bound = strategy, bound
        self.clock: float = -math.inf
        self.late = 0
        self._acknowledge, self._keep, self._asked = acknowledge, keep, False
        self._base = self._tip = _Point(-math.inf, PairKnowledge())
        self._guarded = (self._tip.known, guards(strategy, self._tip.known, bound))
        self._own: list[TakenReport] = []
        self._theirs: list[TakenReport] = []
        self._sent = self._seen = 0
        self._facts: dict[int, int] = {}
        """The number of each own fact that may matter, by its place."""
        self._numbers: dict[int, int] = {}
        """The place of each fact received that the other side does not yet know to be."""
        self._told = SideMessage(me, (), 0, 0, -math.inf)
        self._heard = SideMessage(self.other, (), 0, 0, -math.inf)

    @property
    def kept(self) -> int:
        """How many reports of its own the side keeps."""
        return len(self._own)

    @property
    def known(self) -> PairKnowledge:
        """What the side knows of the pair now."""
        return self._tip.known

    @property
    def guard(self) -> Guard:
        """Where the side's subject may be now without a word."""
        return self._guard(self._tip.known)

    def report(self, report: TakenReport) -> list[SideMessage]:
        """Takes a report of the side's subject, later in the order than all before; what must be sent."""
        self.clock = report.order
        self._own.append(report)
        return self._messages(self._advance(self.me, report))

    def receive(self, message: SideMessage, clock: float) -> list[SideMessage]:
        """Takes a message; no own report will come at or before `clock` any more. What must be sent."""
        self.clock = max(self.clock, clock)
        if (message.through, message.sent, message.seen) > (self._heard.through, self._heard.sent, self._heard.seen):
            self._heard = message
        new: list[TakenReport] = []
        for number, fact in enumerate(message.facts, message.sent - len(message.facts) + 1):
            # What was received before is repeated; beyond the prefix some are missing between.
            if number > self._seen and number not in self._numbers:
                self._numbers[number] = fact.order
                new += self._take(fact)
        while self._seen + 1 in self._numbers:
            self._seen += 1
        return self._messages(new, message.ask)

    def tick(self, clock: float) -> list[SideMessage]:
        """Time passes: no own report will come at or before `clock` any more. What must be sent."""
        self.clock = max(self.clock, clock)
        return self._messages([])

    def publish(self, order: int) -> list[SideMessage]:
        """Sends the newest own report, if it is this one and was held back: another pair of its subject sends it."""
        current = self._tip.current
        if current is None or current.order != order or order in self._facts:
            return []
        self._note(current)
        return self._messages([current, *self._walk()])

    def settled(self) -> list[PairTransition]:
        """What has changed and is settled by messages, since this was asked last."""
        if self._seen < self._heard.sent:
            return []
        unseen = min((order for order, number in self._facts.items() if number > self._heard.seen), default=math.inf)
        # From the first fact on that the other side had not seen, it may have to speak once it sees it.
        return self.settle(min(self._heard.through, self.clock, unseen - 1))

    def settle(self, order: float) -> list[PairTransition]:
        """What has changed up to `order`, once all facts up to there have arrived; what was kept for it is dropped."""
        if order <= self._base.order:
            return []
        point = self._base
        for side, report in self._items(order):
            point = self._step(point, side, report)
        self._own = self._own[bisect_right(self._own, order, key=_order) :]
        self._theirs = self._theirs[bisect_right(self._theirs, order, key=_order) :]
        self._base = replace(point, order=order, changes=())
        self._tip = replace(self._tip, changes=tuple(one for one in self._tip.changes if one.order > order))
        self._asked = False
        self._forget(point.current)
        return list(point.changes)

    def _advance(self, side: SideName, report: TakenReport) -> list[TakenReport]:
        """Folds in a report or fact after all others; which own reports become facts because of it."""
        point, published = self._step(self._tip, side, report), []
        if point.current is report and self._outside(point):
            self._note(report)
            published.append(report)
            point = self._step(self._tip, side, report)
        if not self._outside(point):
            self._tip = point
            return published
        return published + self._walk()

    def _take(self, fact: TakenReport) -> list[TakenReport]:
        """Folds in a fact of the other side at its place; which own reports become facts because of it."""
        if fact.order <= self._base.order:
            # What is settled stays as it was; but from there on the other side is better known.
            self._base = replace(self._base, known=learnt(self._base.known, self.other, fact))
            return self._walk()
        insort(self._theirs, fact, key=_order)
        return self._advance(self.other, fact) if fact.order > self._tip.order else self._walk()

    def _walk(self) -> list[TakenReport]:
        """Folds everything anew until no own report lies outside; which became facts."""
        published = []
        while (report := self._fold()) is not None:
            self._note(report)
            published.append(report)
        return published

    def _fold(self) -> TakenReport | None:
        """Folds from what is settled to the newest, unless an own report lies outside: that one."""
        point = self._base
        # Where an own report follows at once, nothing can happen that the one before it would matter to.
        follows = bool(self._own) and self._own[0].order == point.order + 1
        if not follows and self._outside(point):
            return point.current
        for side, report in self._items():
            point = self._step(point, side, report)
            if self._outside(point):
                return point.current
        self._tip = point
        return None

    def _items(self, through: float = math.inf) -> Iterator[tuple[SideName, TakenReport]]:
        """Own reports and facts of the other side after what is settled, in their order."""
        own = ((self.me, report) for report in self._own if report.order <= through)
        theirs = ((self.other, report) for report in self._theirs if report.order <= through)
        return merge(own, theirs, key=lambda item: item[1].order)

    def _step(self, point: _Point, side: SideName, report: TakenReport) -> _Point:
        """The point after a report of this side, or a fact of the other."""
        current = report if side == self.me else point.current
        if side == self.me and report.order not in self._facts:
            return replace(point, order=report.order, current=current)
        known = learnt(point.known, side, report)
        a, b = known.a and known.a.value, known.b and known.b.value
        holds = self.bound.holds(a, b, known.holds)
        if holds == known.holds:
            return replace(point, order=report.order, known=known, current=current)
        change = PairTransition(report.order, "enter" if holds else "exit", a, b)
        return _Point(report.order, replace(known, holds=holds), current, (*point.changes, change))

    def _outside(self, point: _Point) -> bool:
        """Whether the own newest report at a point must be a fact and is none."""
        if point.current is None or point.current.order in self._facts:
            return False
        if not self._guard(point.known).permits(point.current):
            return True
        # Who is told of a change is told where both were, not where the guards allowed them to be.
        published = point.known.of(self.me)
        return point.changed and (published is None or published.value != point.current.value)

    def _guard(self, known: PairKnowledge) -> Guard:
        # Most reports change nothing of what is known, and asking the strategy costs more than asking the guard.
        if known is not self._guarded[0]:
            self._guarded = (known, guards(self.strategy, known, self.bound))
        return self._guarded[1][self.me == "b"]

    def _note(self, report: TakenReport) -> None:
        """An own report is a fact now."""
        newest = self._own[-1] if self._own else self._base.current
        self.late += report is not newest
        self._sent += 1
        self._facts[report.order] = self._sent
        if report.order <= self._base.order:
            self._base = replace(self._base, known=learnt(self._base.known, self.me, report))

    def _forget(self, current: TakenReport | None) -> None:
        """Drops facts by which nothing can be decided any more."""
        order, kept = self._base.order, current and current.order
        seen = self._heard.seen if self._acknowledge else self._sent
        self._facts = {at: number for at, number in self._facts.items() if at > order or number > seen or at == kept}
        if not self._acknowledge:
            self._numbers = {number: at for number, at in self._numbers.items() if number > self._seen}

    def _messages(self, facts: list[TakenReport], asked: bool = False) -> list[SideMessage]:
        """At most one message: if there are facts, if the other side waits for word, or if too much is kept."""
        ask = self._acknowledge and len(self._own) > self._keep and not self._asked
        if not (facts or asked or ask or self._awaited()):
            return []
        self._asked |= ask
        self._told = SideMessage(self.me, tuple(facts), self._sent, self._seen, self.clock, ask)
        self._numbers = {number: at for number, at in self._numbers.items() if number > self._seen}
        return [self._told]

    def _awaited(self) -> bool:
        """Whether side a, which tells of changes, cannot tell of one without word from this side."""
        if self.me == "a" or not self._acknowledge:
            return False
        unseen = min((at for number, at in self._numbers.items() if number > self._told.seen), default=math.inf)
        told = min(self._told.through, unseen - 1)
        return any(told < change.order <= self.clock for change in self._tip.changes)


def learnt(known: PairKnowledge, side: SideName, fact: TakenReport) -> PairKnowledge:
    """What is known once a fact is, unless a newer one of its side is."""
    before = known.of(side)
    if before is not None and before.order > fact.order:
        return known
    return replace(known, a=fact) if side == "a" else replace(known, b=fact)
