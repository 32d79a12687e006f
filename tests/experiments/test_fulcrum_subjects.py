"""Subjects with many partners: each pair comes to what every report gives, by one ring for all or one for each."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.fulcrum.subject import Sent, Subject
from nearcast.model.event import Place
from nearcast.suppression.strategies.builtin import RangeRing, SharedRing
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.guards import TakenReport
from nearcast.suppression.strategies.seam import Strategy, ThresholdPredicate
from nearcast.testing.entry_node import PairSide, PairTransition, SideMessage
from nearcast.testing.strategy_trials import every_report

Reports = list[tuple[str, TakenReport]]
LAST = 10**6
NEAR = ThresholdPredicate(DIMENSIONS["planar"], 10.0, "<", 1.0)


class Town:
    """Subjects at one place each, whose messages arrive at once or after some reports."""

    def __init__(self, pairs: list[tuple[str, str]], strategy: Strategy, delay: int) -> None:
        sides: dict[str, dict[str, PairSide]] = defaultdict(dict)
        for a, b in pairs:
            sides[a][b] = PairSide("a", strategy, NEAR, acknowledge=delay > 0)
            sides[b][a] = PairSide("b", strategy, NEAR, acknowledge=delay > 0)
        self.subjects = {name: Subject(of, strategy.shared) for name, of in sides.items()}
        self.delay = delay
        self.waiting: list[tuple[float, str, str, SideMessage]] = []
        self.bound = NEAR
        self.published: Counter[str] = Counter()
        self.changes: dict[tuple[str, str], list[PairTransition]] = {pair: [] for pair in pairs}

    def run(self, reports: Reports) -> None:
        for name, report in reports:
            self.arrive(report.order - 1)
            self.send(name, self.subjects[name].report(report), report.order)
            self.arrive(report.order)
            self.settle(report.order)
        for _ in range(20):
            self.arrive(math.inf)
            for name, subject in self.subjects.items():
                self.send(name, subject.tick(LAST), LAST)
            self.settle(LAST)
        assert [] == self.waiting

    def send(self, name: str, sent: Sent, now: float) -> None:
        # Pairs that get the same facts at once get them by one message.
        self.published[name] += len({fact.order for _, message in sent for fact in message.facts})
        self.waiting += [(now + self.delay, name, partner, message) for partner, message in sent]

    def arrive(self, clock: float) -> None:
        while due := [one for one in self.waiting if one[0] <= clock]:
            self.waiting = [one for one in self.waiting if one[0] > clock]
            for _, sender, receiver, message in due:
                self.send(receiver, self.subjects[receiver].receive(sender, message, clock), clock)

    def settle(self, order: float) -> None:
        for name, subject in self.subjects.items():
            settle: Any = PairSide.settled if self.delay else partial(PairSide.settle, order=order)
            for partner, change in subject.settled(settle):
                if name < partner:
                    self.changes[name, partner].append(change)


def strolls(chance: random.Random, names: str, steps: int) -> Reports:
    """Reports of several subjects that walk and sometimes jump."""
    places = {name: [chance.uniform(-40, 40), chance.uniform(-40, 40)] for name in names}
    reports = []
    for order in range(steps):
        name = chance.choice(names)
        far = 60.0 if chance.random() < 0.02 else 4.0
        places[name] = [at + chance.gauss(0, far) for at in places[name]]
        reports.append((name, TakenReport(order, Place("planar", *places[name]))))
    return reports


def wanted(pair: tuple[str, str], reports: Reports) -> list[PairTransition]:
    side: dict[str, Any] = {pair[0]: "a", pair[1]: "b"}
    return every_report(NEAR, [(side[name], report) for name, report in reports if name in side])


@pytest.mark.parametrize("strategy", [RangeRing(), SharedRing()], ids=str)
@given(
    seed=st.integers(0, 2**32),
    pairs=st.sets(st.sampled_from([(a, b) for a in "pqrst" for b in "pqrst" if a < b]), min_size=1),
    delay=st.sampled_from([0, 0, 3]),
)
@settings(max_examples=30, deadline=None)
def test_each_pair_comes_to_what_every_report_gives(
    strategy: Strategy, seed: int, pairs: set[tuple[str, str]], delay: int
) -> None:
    """Whoever else its subjects are in pairs with."""
    reports = strolls(random.Random(seed), "pqrst", 120)
    town = Town(sorted(pairs), strategy, delay)
    town.run([(name, report) for name, report in reports if name in town.subjects])
    assert {pair: wanted(pair, reports) for pair in pairs} == town.changes


def test_what_is_shared_is_published_once_for_all_partners() -> None:
    """A walker among many who stand: one ring and one message for all, instead of one for each."""
    standing: Reports = [(name, TakenReport(at, Place("planar", 30.0 * at, 40.0))) for at, name in enumerate("bcdefgh")]
    walker: Reports = [("a", TakenReport(order, Place("planar", float(order - 50), 0.0))) for order in range(10, 300)]
    pairs = [("a", name) for name, _ in standing]
    counts = {}
    for strategy in (RangeRing(), SharedRing()):
        town = Town(pairs, strategy, 0)
        town.run(standing + walker)
        counts[strategy.name] = town.published.total()
    assert counts["shared-ring"] < counts["range-ring"]


def test_a_subject_may_be_silent_where_all_its_rings_allow_it() -> None:
    """The smallest decides."""
    town = Town([("a", "b"), ("a", "c")], SharedRing(), 0)
    places = {"a": 0.0, "b": 30.0, "c": 110.0}
    town.run([(name, TakenReport(order, Place("planar", x, 0.0))) for order, (name, x) in enumerate(places.items())])
    allowed = [town.subjects["a"].permits(TakenReport(9, Place("planar", x, 0.0))) for x in (-9.0, 9.0, 11.0, math.inf)]
    assert [True, True, False, False] == allowed
