"""Truths of evaluations: in columns where a predicate is a plain bound of a distance, one by one where it is not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from nearcast.decision.relate.evaluations import FALSE, TRUE, UNKNOWN, Truths, near_or_far
from nearcast.decision.relate.predicate import Predicate
from nearcast.decision.relate.reports import Integers, Reports
from nearcast.decision.relate.rules import Rules
from nearcast.decision.truths import Truth
from nearcast.model.columns import to_events, without_payloads
from nearcast.model.event import Event

_CODES: dict[Truth, int] = {True: TRUE, False: FALSE, None: UNKNOWN}


class Judging:
    """Gives the truths of a stretch's evaluations; `newest` has each entity's newest event where rules ask for it."""

    def __init__(self, rules: Rules, reports: Reports, newest: Mapping[int, Event]) -> None:
        self._rules = rules
        self._reports = reports
        self._newest = newest
        self._read: dict[int, Event] = {}

    def __call__(self, rule: Integers, a: Integers, b: Integers) -> tuple[Truths, Truths]:
        """The truths of entering and of staying, of evaluations of some rules at points of both sides."""
        enter, stay = (np.full(len(rule), UNKNOWN, np.int8) for _ in range(2))
        bounded = self._rules.columns["bounded"][rule]
        plain = np.flatnonzero(bounded)
        with np.errstate(over="ignore", invalid="ignore"):
            enter[plain], stay[plain] = near_or_far(self._rules, self._reports, rule[plain], a[plain], b[plain])
        others = np.flatnonzero(~bounded)
        if len(others):
            self._read_events(np.concatenate([a[others], b[others]]))
        for at in others.tolist():
            found = self._rules.all[rule[at]]
            assert found and found.enter and found.stay, "a rule without a bound has its predicates"
            enter[at], stay[at] = (self._truth(one, int(a[at]), int(b[at])) for one in (found.enter, found.stay))
        return enter, stay

    def _truth(self, predicate: Predicate, a: int, b: int) -> int:
        return _CODES[predicate.truth(self._event(a), self._event(b))]

    def _event(self, point: int) -> Event:
        return self._newest[point] if point < self._reports.known else self._read[point]

    def _read_events(self, points: Integers) -> None:
        """The events of the points that are reports, each read once."""
        wanted = np.unique(points[points >= self._reports.known])
        rows = self._reports.row[wanted - self._reports.known]
        self._read = dict(zip(wanted.tolist(), read(self._reports.table, rows), strict=True))


def read(table: pa.Table, rows: Integers) -> list[Event]:
    """Some events of a table, without their payloads."""
    return to_events(without_payloads(table.take(pa.array(rows))))
