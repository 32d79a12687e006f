"""Strategies tried: both sides of a pair together, over a trace of reports, with messages that take their time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol

from nearcast.suppression.strategies.guards import TakenReport
from nearcast.suppression.strategies.seam import SideName, Strategy, ThresholdPredicate
from nearcast.testing.entry_node import KEEP, PairSide, PairTransition, SideMessage

Trace = Sequence[tuple[SideName, TakenReport]]
"""Reports of both sides, in their order."""

Delays = Iterator[tuple[int, ...]]
"""For each message, after how many reports it arrives; several times where it is repeated."""


@dataclass
class Trial:
    """What a trace came to: the changes in their order, and what was sent."""

    changes: list[PairTransition] = field(default_factory=list)
    facts: int = 0
    answers: int = 0
    late: int = 0
    kept: int = 0


def differences(strategy: Strategy, bound: ThresholdPredicate, trace: Trace, delays: Delays | None = None) -> list[str]:
    """Where a strategy's outcome is not that of evaluating every report; empty if it is."""
    wanted, found = every_report(bound, trace), run(strategy, bound, trace, delays).changes
    lacking = [f"missing: {one}" for one in wanted if one not in found]
    return lacking + [f"too much: {one}" for one in found if one not in wanted]


class PairPredicate(Protocol):
    """What says of two values whether a relation holds: a `ThresholdPredicate`, or a filter over both sides."""

    def holds(self, a: Any, b: Any, before: bool) -> bool:
        """Whether it holds between two values, None where there is none, given whether it held before."""


def every_report(predicate: PairPredicate, reports: Iterable[tuple[SideName, TakenReport]]) -> list[PairTransition]:
    """What evaluating every report gives, in whatever order and how often they come: what every strategy must have."""
    newest: dict[SideName, TakenReport] = {}
    changes: list[PairTransition] = []
    holds = False
    for side, report in sorted(reports, key=lambda one: one[1].order):
        newest[side] = report
        a, b = (newest[one].value if one in newest else None for one in ("a", "b"))
        before, holds = holds, predicate.holds(a, b, holds)
        if holds != before:
            changes.append(PairTransition(report.order, "enter" if holds else "exit", a, b))
    return changes


def run(
    strategy: Strategy, bound: ThresholdPredicate, trace: Trace, delays: Delays | None = None, keep: int = KEEP
) -> Trial:
    """A strategy over a trace; without `delays` messages arrive before the next report, and need no answer."""
    sides = {side: PairSide(side, strategy, bound, acknowledge=delays is not None, keep=keep) for side in ("a", "b")}
    trial, way = Trial(), _Way(sides, delays)
    for side, report in trace:
        way.arrive(report.order - 1)
        if delays is None:
            for one in sides.values():
                one.settle(report.order - 1)
        way.send(sides[side].report(report), report.order)
        way.arrive(report.order, instantly=True)
        if delays is None:
            trial.changes += sides["a"].settle(report.order)
            sides["b"].settle(report.order)
        else:
            trial.changes += sides["a"].settled()
            sides["b"].settled()
        trial.kept = max(trial.kept, *(one.kept for one in sides.values()))
    way.finish()
    trial.changes += sides["a"].settled() if delays is not None else []
    trial.facts, trial.answers = way.facts, way.answers
    trial.late = sum(one.late for one in sides.values())
    return trial


class _Way:
    """The messages between two sides, and when they arrive."""

    def __init__(self, sides: dict[str, PairSide], delays: Delays | None) -> None:
        self._sides, self._delays = sides, delays
        self._under_way: list[tuple[float, int, SideMessage]] = []
        self._number = count()
        self.facts = self.answers = 0

    def send(self, messages: list[SideMessage], now: float) -> None:
        """Sends messages at a place of the order."""
        for message in messages:
            self.facts += len(message.facts)
            self.answers += not message.facts
            for delay in next(self._delays) if self._delays else (0,):
                heappush(self._under_way, (now + delay, next(self._number), message))

    def arrive(self, clock: float, instantly: bool = False) -> None:
        """Lets arrive what is due, and what is sent in answer and due too."""
        while self._under_way and self._under_way[0][0] <= clock:
            due, _, message = heappop(self._under_way)
            receiver = self._sides["b" if message.sender == "a" else "a"]
            now = clock if instantly else max(due, receiver.clock)
            self.send(receiver.receive(message, now), now)

    def finish(self) -> None:
        """Lets everything arrive, and time pass, until nothing is sent any more."""
        last = max((side.clock for side in self._sides.values()), default=0)
        while True:
            self.arrive(float("inf"))
            for side in self._sides.values():
                self.send(side.tick(last), last)
            if not self._under_way:
                return
