"""Strategies by name: what cannot be is a located fault; a plug-in that fails is cut off, and nothing is lost by it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from nearcast.errors import Fault, Mark
from nearcast.runtime import plug_ins as runtime_plug_ins
from nearcast.suppression.strategies import choice
from nearcast.suppression.strategies.builtin import RangeRing, SpeedBound
from nearcast.suppression.strategies.choice import chosen
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.guards import Guard, Ring, TakenReport
from nearcast.suppression.strategies.seam import PairKnowledge, Strategy, ThresholdPredicate
from nearcast.suppression.strategies.watched import WatchedStrategy
from nearcast.testing.strategy_trials import every_report, run
from tests.suppression.traces import walk

NEAR = ThresholdPredicate(DIMENSIONS["planar"], 10.0)
CHEAP = ThresholdPredicate(DIMENSIONS["ratio"], 15.0)
HERE = Mark("relations.yaml", 3)


@dataclass(frozen=True)
class Cautious(Strategy):
    """The plug-in of the seam's docstring."""

    name = "cautious"
    share: float = 0.25

    def guards(self, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
        assert known.a and known.b
        radius = self.share * bound.room(known)
        return Ring(bound.dimension, known.a, radius), Ring(bound.dimension, known.b, radius)


class Failing(Strategy):
    """A plug-in that works for a while."""

    name = "failing"

    def __init__(self, fail: Callable[[], Any] = lambda: 1 / 0, after: int = 5) -> None:
        self.left, self.fail = after, fail

    def guards(self, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
        self.left -= 1
        return self.fail() if self.left < 0 else Cautious().guards(known, bound)


class Sleepy:
    """A guard that never answers."""

    def permits(self, report: TakenReport) -> bool:
        while True:
            pass


def endless() -> None:
    while True:
        pass


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch, **plug_ins: str) -> Iterator[None]:
    """Plug-ins by name and where they are, as if their packages were installed."""
    points = [EntryPoint(name, value, choice.GROUP) for name, value in plug_ins.items()]
    monkeypatch.setattr(runtime_plug_ins, "entry_points", lambda group: points if group == choice.GROUP else [])
    runtime_plug_ins.plug_ins.cache_clear()
    yield
    runtime_plug_ins.plug_ins.cache_clear()


def test_a_strategy_is_found_by_its_name_and_parameters() -> None:
    """Those left out have their defaults."""
    assert RangeRing(0.3) == chosen("range-ring", {"share": 0.3}, NEAR)
    assert SpeedBound(a=1, b=20) == chosen("speed-bound", {"a": 1, "b": 20}, NEAR)


@pytest.mark.parametrize(
    ("name", "parameters", "bound", "said"),
    [
        ("ring", {}, NEAR, "expected a strategy: common-node, parallel-line, range-ring, "),
        ("range-ring", {"radius": 3}, NEAR, "expected parameters of the strategy range-ring: share, got 'radius'"),
        ("range-ring", {"share": 1.5}, NEAR, "expected a number from 0 to 1 for `share`, got 1.5"),
        ("range-ring", {"share": True}, NEAR, "expected a number from 0 to 1 for `share`, got True"),
        ("parallel-line", {"share": "half"}, NEAR, "expected a number from 0 to 1 for `share`, got 'half'"),
        ("speed-bound", {"speed": -1}, NEAR, "expected a speed of at least 0 for `speed`, in units per second, got -1"),
        ("speed-bound", {"a": float("nan")}, NEAR, "expected a speed of at least 0 for `a`"),
        ("speed-bound", {}, NEAR, "expected a top speed above 0: `speed` for both sides, or `a` and `b`, got none"),
        ("speed-bound", {"speed": 1, "trust": 1}, NEAR, "expected true or false for `trust`, got 1"),
        ("common-node", {"share": 1}, NEAR, "expected parameters of the strategy common-node: none, got 'share'"),
        ("parallel-line", {}, CHEAP, "expected a distance of places or a difference of numbers, for the strategy"),
        (
            "range-ring",
            {},
            None,
            "expected a comparison of a distance, difference or ratio of both sides",
        ),
    ],
)
def test_what_cannot_be_is_a_fault_at_its_place(
    name: str, parameters: dict[str, Any], bound: ThresholdPredicate | None, said: str
) -> None:
    """Names, parameters, and predicates that a strategy cannot serve."""
    with pytest.raises(Fault) as caught:
        chosen(name, parameters, bound, HERE)
    assert str(caught.value).startswith(f"relations.yaml:3: {said}")


@pytest.mark.parametrize("name", ["common-node", "subscriber"])
def test_any_predicate_can_be_evaluated_where_all_reports_arrive(name: str) -> None:
    """It need not be a comparison of one reading."""
    assert name == chosen(name, {}, None).name


@pytest.mark.parametrize(("limit", "margin"), [(float("nan"), 0.0), (float("inf"), 0.0), (1.0, -1.0)])
def test_a_bound_is_finite_and_its_margin_is_not_negative(limit: float, margin: float) -> None:
    """Nothing else can be kept apart by a guard."""
    with pytest.raises(Fault):
        ThresholdPredicate(DIMENSIONS["planar"], limit, "<", margin)


def test_a_plug_in_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its parameters, and under watch; its faults are located as ours are."""
    with installed(monkeypatch, cautious=f"{__name__}:Cautious", broken=f"{__name__}:nothing", odd=f"{__name__}:HERE"):
        found = chosen("cautious", {"share": 0.125}, NEAR, HERE)
        assert isinstance(found, WatchedStrategy)
        assert Cautious(0.125) == found.strategy
        for name, parameters, said in (
            ("cautious", {"shore": 1}, "parameters of the strategy cautious: share"),
            ("broken", {}, "got AttributeError"),
            ("odd", {}, "expected the strategy odd to be a class"),
            ("none", {}, "broken, cautious, common-node, odd"),
        ):
            with pytest.raises(Fault, match=said) as caught:
                chosen(name, parameters, NEAR, HERE)
            assert HERE == caught.value.where


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: exit(3), "SystemExit: 3"),
        (lambda: None, "TypeError: cannot unpack"),
        (endless, "TooLong: more than 20,000 lines of Python for one answer"),
        (lambda: (Sleepy(), Sleepy()), "TooLong: "),
        (lambda: ("no", "guards"), "AttributeError: "),
    ],
    ids=["raises", "exits", "gives nothing", "endless", "endless guard", "no guards"],
)
def test_a_plug_in_that_fails_is_cut_off_and_the_outcome_stays(
    fail: Callable[[], Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """From then on nothing is held back, as at the common node; why is a value, and in the log once."""
    trace = walk(random.Random(1), 300, 20.0)
    watched = WatchedStrategy(Failing(fail))
    with caplog.at_level(logging.WARNING):
        trial = run(watched, NEAR, trace)
    assert every_report(NEAR, trace) == trial.changes
    assert len(trial.changes) > 0
    assert watched.reason is not None
    assert watched.reason.startswith(reason)
    assert ("common", 1) == (watched.evaluated, len(caplog.records))
    assert trial.facts > 250


def test_an_interruption_by_the_user_is_no_failure_of_a_plug_in() -> None:
    """It ends what runs."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(WatchedStrategy(Failing(interrupted, 0)), NEAR, walk(random.Random(3), 10, 20.0))


def test_a_plug_in_that_works_is_asked_to_the_end() -> None:
    """And holds back as it would without a watch."""
    trace = walk(random.Random(1), 300, 20.0)
    watched = WatchedStrategy(Cautious())
    assert run(Cautious(), NEAR, trace) == run(watched, NEAR, trace)
    assert watched.reason is None
