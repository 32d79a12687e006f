"""Runs of many seeds as means with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

from experiments.foraging.run import Measured, Run


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean and how far its 95 % confidence interval reaches to either side."""

    value: float
    spread: float
    count: int

    def __str__(self) -> str:
        digits = 0 if abs(self.value) >= 100 else 3
        return f"{self.value:,.{digits}f} ± {self.spread:,.{digits}f}"


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a line: what was measured with each seed."""

    study: str
    line: str
    x: float
    nodes: int
    runs: dict[int, Measured]

    def mean(self, measure: Callable[[Measured], float]) -> Mean:
        """The mean of a measure over the seeds for which there is one."""
        return mean(measure(one) for one in self.runs.values())


def mean(values: Iterable[float]) -> Mean:
    """The mean with its 95 % confidence interval by Student's t."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Mean(math.nan, math.nan, 0)
    spread = student(len(known) - 1) * stdev(known) / math.sqrt(len(known)) if len(known) > 1 else 0.0
    return Mean(fmean(known), spread, len(known))


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: exact up to 4 degrees of freedom, else to a few thousandths (Fisher)."""
    if freedom <= 4:
        return {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}.get(freedom, math.nan)
    z, n = NormalDist().inv_cdf(0.975), float(freedom)
    terms = (
        z,
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
    )
    return sum(terms)


def points(runs: Sequence[Run], outcomes: Sequence[Measured]) -> list[Point]:
    """The points of all lines, in the order of study, line and x; lines in the order in which they were planned."""
    found: dict[tuple[str, str, float], Point] = {}
    for run, outcome in zip(runs, outcomes, strict=True):
        key = (run.study, run.line, run.x)
        point = found.setdefault(key, Point(*key, run.setting.nodes, {}))
        point.runs[run.seed] = outcome
    return sorted(found.values(), key=lambda point: (point.study, point.x))


def line(all_points: Iterable[Point], study: str, name: str) -> list[Point]:
    """The points of one line, x ascending."""
    return [point for point in all_points if (point.study, point.line) == (study, name)]


def lines(all_points: Iterable[Point], study: str) -> dict[str, list[Point]]:
    """The lines of a study by name."""
    found: dict[str, list[Point]] = {}
    for point in all_points:
        if point.study == study:
            found.setdefault(point.line, []).append(point)
    return found
