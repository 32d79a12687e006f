"""A relation where every report arrives: at the common node, at the subscriber, or as the reference of strategies."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, Protocol

from nearcast.suppression.strategies.guards import TakenReport
from nearcast.suppression.strategies.seam import SideName
from nearcast.suppression.strategies.side import Transition


class PairPredicate(Protocol):
    """Anything that says of two values whether a relation holds: a `ThresholdPredicate`, or a filter over both sides.
    """

    def holds(self, a: Any, b: Any, before: bool) -> bool:
        """Whether it holds between two values, None where there is none, given whether it held before."""


class CommonEvaluator:
    """Reports of both sides, in any order and repeated, evaluated in theirs."""

    def __init__(self, predicate: PairPredicate) -> None:
        self._predicate = predicate
        self._waiting: list[tuple[int, SideName, TakenReport]] = []
        self._newest: dict[SideName, TakenReport] = {}
        self._holds = False

    def take(self, side: SideName, report: TakenReport) -> None:
        """Takes a report of a side."""
        heappush(self._waiting, (report.order, side, report))

    def settle(self, order: float) -> list[Transition]:
        """What changes with the reports up to `order`, once all of them have arrived."""
        found = []
        while self._waiting and self._waiting[0][0] <= order:
            _, side, report = heappop(self._waiting)
            before = self._newest.get(side)
            if before is None or before.order < report.order:
                found += self._evaluated(side, report)
        return found

    def _evaluated(self, side: SideName, report: TakenReport) -> list[Transition]:
        self._newest[side] = report
        a, b = self._newest.get("a"), self._newest.get("b")
        values = a and a.value, b and b.value
        holds = self._predicate.holds(*values, self._holds)
        if holds == self._holds:
            return []
        self._holds = holds
        return [Transition(report.order, "enter" if holds else "exit", *values)]


def every_report(predicate: PairPredicate, reports: Iterable[tuple[SideName, TakenReport]]) -> list[Transition]:
    """What evaluating every report gives: the outcome that every strategy must have."""
    node = CommonEvaluator(predicate)
    for side, report in reports:
        node.take(side, report)
    return node.settle(float("inf"))
