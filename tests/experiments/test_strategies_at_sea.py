"""Strategies over real traces: ships that pass, moor, jump and report out of order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import combinations, cycle, islice
from pathlib import Path

import numpy as np
import pytest

from nearcast.geo.distance import geodesic
from nearcast.importers import ais
from nearcast.model.event import Place
from nearcast.suppression.strategies.builtin import ParallelLine, RangeRing, SharedRing, SpeedBound
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.guards import TakenReport
from nearcast.suppression.strategies.seam import SideName, Strategy, ThresholdPredicate
from nearcast.testing.strategy_trials import Trace, every_report, run

NEAR = ThresholdPredicate(DIMENSIONS["geodesic"], 500.0, "<=", 20.0)
PAIRS = 60


@pytest.fixture(scope="module")
def pairs(data: Callable[[str], Path]) -> list[Trace]:
    """Traces of pairs of vessels that come within some 500 m of one another, or leave, in the order of the file."""
    tracks: dict[str, list[TakenReport]] = defaultdict(list)
    for order, event in enumerate(ais.events(data("ais_us_20220103/AISdata.csv.gz"))):
        here = event["data"]
        tracks[event["subject"]].append(TakenReport(order, Place("geographic", here["lon"], here["lat"]), float(order)))
    cells: dict[tuple[float, float], list[list[TakenReport]]] = defaultdict(list)
    for track in tracks.values():
        if len({report.value for report in track}) > 15:
            cells[round(track[0].value.x, 1), round(track[0].value.y, 1)].append(track)
    near = (pair for cell in cells.values() for pair in combinations(cell, 2) if _pass(*pair))
    return [_trace(*pair) for pair in islice(near, PAIRS)]


def _pass(one: list[TakenReport], two: list[TakenReport]) -> bool:
    """Whether two tracks are near here and not near there."""
    x1, y1, x2, y2 = (np.array([getattr(r.value, axis) for r in track]) for track in (one, two) for axis in "xy")
    count = min(len(x1), len(x2))
    apart = geodesic(x1[:count], y1[:count], x2[:count], y2[:count])
    return bool(apart.min() < 500 < apart.max())


def _trace(one: list[TakenReport], two: list[TakenReport]) -> Trace:
    sides: list[tuple[SideName, list[TakenReport]]] = [("a", one), ("b", two)]
    return sorted(((side, report) for side, track in sides for report in track), key=lambda item: item[1].order)


@pytest.mark.data
@pytest.mark.parametrize(
    "strategy", [RangeRing(), ParallelLine(), SpeedBound(speed=10.0), SharedRing()], ids=lambda one: one.name
)
@pytest.mark.parametrize("late", [False, True])
def test_ships_enter_and_leave_as_if_every_report_was_sent(pairs: list[Trace], strategy: Strategy, late: bool) -> None:
    """Whatever the file's order, and however late messages are; with less than half of the messages."""
    sent = 0
    for trace in pairs:
        trial = run(strategy, NEAR, trace, cycle([(3_000,), (0, 9_000)]) if late else None)
        assert every_report(NEAR, trace) == trial.changes
        sent += trial.facts
    assert sum(bool(every_report(NEAR, trace)) for trace in pairs) > 30
    assert sent < sum(map(len, pairs)) / 2
