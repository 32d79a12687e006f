"""What the paper says of its results (§4.2), each sentence beside what our data says of it.

A claim in words needs a measure to be judged by; each verdict's text has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from experiments.foraging.run import Measured
from experiments.foraging.setting import SCHEMES
from experiments.foraging.summary import Mean, Point, line, mean

Verdict = Literal["supported", "partly", "not supported"]

CLOSE = 0.05
"""Detection ratios that differ by less count as similar."""

FITTING = 0.8
"""A curve that explains less of the variance is not the shape of the data."""

SIMILAR = ("CFor1", "CFor2", "CFor5", "CFor10")
VARIED = ("CFor2", "CFor10")
"""CFor with a short and a long temporal validity."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper, whether our data supports it, and the numbers."""

    said: str
    verdict: Verdict
    numbers: str


def claims(points: Sequence[Point]) -> list[Claim]:
    """The claims for which the points have what it takes."""
    parts = {point.study for point in points}
    found: list[Claim] = []
    if {"A1", "A2"} <= parts:
        found += [*_foraging(points), *_growth(points)]
    if {"B1", "B2"} <= parts:
        found += _lazy(points)
    if {"A1", "A2", "B1", "B2"} <= parts:
        found.append(_as_before(points))
    if "values" in parts:
        found.append(_inertia(points))
    return found


def messages(one: Measured) -> float:
    """Requests, responses and all forwards."""
    return one.messages


def asdr(one: Measured) -> float:
    """The average situation detection ratio."""
    return one.asdr


def asdr_own(one: Measured) -> float:
    """The same of what two of three conditions at the requestor itself made possible."""
    return one.asdr_own


def _verdict(*parts: bool) -> Verdict:
    if all(parts):
        return "supported"
    return "partly" if any(parts) else "not supported"


def _foraging(points: Sequence[Point]) -> Iterator[Claim]:
    same, factors = _apart(points, "A1", "CFor1", "CPol1", asdr), _factors(points, "A1", "CPol1", "CFor1")
    yield Claim(
        "With a temporal validity of one, CFor is identical to CPol with period one in terms of ASDR, but transmits"
        " much fewer messages.",
        _verdict(same == 0.0, min(factors) >= 2),
        f"Greatest difference of ASDR in any run: {same:.3f}. CPol1 sends {_range(factors)} times as many.",
    )
    apart = {name: _greatest(points, "A1", name, "CPol1") for name in (*SIMILAR, "CPol2")}
    yield Claim(
        "All schemes except for CPol2 have similar ASDR.",
        _verdict(*(apart[name] <= CLOSE for name in SIMILAR), apart["CPol2"] > CLOSE),
        "Greatest difference of the mean from CPol1's in A1: "
        + ", ".join(f"{name} {value:.3f}" for name, value in apart.items())
        + f" (similar: up to {CLOSE}).",
    )
    fewer = {name: _factors(points, "A1", "CPol1", name) for name in ("CFor2", "CFor5", "CFor10")}
    yield Claim(
        "CFor exchanges considerably fewer messages than CPol.",
        _verdict(*(min(factors) >= 2 for factors in fewer.values())),
        "CPol1 sends "
        + ", ".join(f"{_range(found)} times what {name} does" for name, found in fewer.items())
        + f"; CPol2 {_range(_factors(points, 'A1', 'CPol2', 'CFor5'))} times what CFor5 does.",
    )
    yield _validity(points)


def _validity(points: Sequence[Point]) -> Claim:
    foraged, polled = (_mean_change(points, "A1", *pair) for pair in (VARIED, ("CPol1", "CPol2")))
    saved = _factors(points, "A1", *VARIED)
    return Claim(
        "Increasing TV for CFor does not affect ASDR significantly and reduces messages substantially; CPol is more"
        " sensitive.",
        _verdict(abs(foraged.value) <= CLOSE, min(saved) >= 1.5, polled.value < foraged.value - CLOSE),
        f"ASDR from CFor2 to CFor10: {foraged}; CFor2 sends {_range(saved)} times what CFor10 does. From CPol1 to"
        f" CPol2: {polled}.",
    )


def _growth(points: Sequence[Point]) -> Iterator[Claim]:
    for study, over, number in (("A1", "speed", 4), ("A2", "spatial validity", 6)):
        polled, foraged = (_fits(points, study, name) for name in ("CPol1", "CFor5"))
        yield Claim(
            f"The message overhead of CPol increases exponentially with the {over}, that of CFor linearly"
            f" (figure {number}).",
            _verdict(_best(polled) == "an exponential", _best(foraged) == "a straight line"),
            "R² "
            + "; ".join(f"of {shape}: CPol1 {polled[shape]:.3f}, CFor5 {foraged[shape]:.3f}" for shape in polled)
            + f" (the best is the shape, if it is {FITTING} or more).",
        )
    yield _grows(
        points,
        "A1",
        "Mobility has a big impact on the messages of CPol, a slight one on those of CFor, and does not affect the"
        " detection of situations.",
        "from speed 0 to 20",
    )
    yield _grows(
        points,
        "A2",
        "So has the spatial validity of the rules; CFor is much more robust and does not degrade ASDR.",
        "from SV 30 to 110",
    )


def _grows(points: Sequence[Point], study: str, said: str, over: str) -> Claim:
    ends = {name: _ends(points, study, name) for name in ("CPol1", "CFor5")}
    more = {name: last - first for name, (first, last) in ends.items()}
    times = {name: last / first for name, (first, last) in ends.items()}
    ratios = _known(point.mean(asdr).value for point in line(points, study, "CFor5"))
    apart = _greatest(points, study, "CFor5", "CPol1")
    return Claim(
        said,
        _verdict(
            more["CPol1"] >= 3 * more["CFor5"], times["CPol1"] > times["CFor5"], max(ratios) - min(ratios) <= CLOSE
        ),
        f"Messages {over}: CPol1 {more['CPol1']:+,.0f} ({times['CPol1']:.2f} times), CFor5 {more['CFor5']:+,.0f}"
        f" ({times['CFor5']:.2f} times). ASDR of CFor5: {_range(ratios, 3)}, at most {apart:.3f} from CPol1's.",
    )


def _lazy(points: Sequence[Point]) -> Iterator[Claim]:
    names = [scheme.name for scheme in SCHEMES if scheme.name not in ("CFor1",)]
    saved = {name: [f for s in ("B1", "B2") for f in _factors(points, s, name, f"{name} lazy")] for name in names}
    every = [factor for found in saved.values() for factor in found]
    yield Claim(
        "With lazy requesting the volume of messages is about 3–10 times lower.",
        _verdict(*(2.5 <= factor <= 11 for factor in every)),
        "Without it are sent " + ", ".join(f"{_range(found)} times ({name})" for name, found in saved.items()) + ".",
    )
    kept = {name: _mean_change(points, "B1", name, f"{name} lazy", asdr_own) for name in names}
    yield Claim(
        "The nodes have the same sensitivity to events with lazy requesting.",
        _verdict(*(found.value >= -CLOSE for found in kept.values())),
        "Change of ASDR′ by it in B1: " + ", ".join(f"{name} {found}" for name, found in kept.items()) + ".",
    )
    lazy = [point for study in ("B1", "B2") for name in names for point in line(points, study, f"{name} lazy")]
    # At a small reach few things are to be detected, or none with some seeds.
    low = _known(point.mean(asdr).value for point in lazy)
    yield Claim(
        "The standard ASDR falls to about 20 % in part B.",
        _verdict(all(value <= 0.3 for value in low), 0.15 <= float(np.mean(low)) <= 0.25),
        f"It lies at {_range(low, 3)}, {np.mean(low):.3f} on average.",
    )


def _as_before(points: Sequence[Point]) -> Claim:
    apart = {
        f"{scheme.name} in {study}": max(
            _known(
                abs(a.mean(asdr).value - b.mean(asdr_own).value)
                for a, b in zip(
                    line(points, f"A{study[1]}", scheme.name), line(points, study, f"{scheme.name} lazy"), strict=True
                )
            )
        )
        for study in ("B1", "B2")
        for scheme in SCHEMES
        if line(points, f"A{study[1]}", scheme.name) and line(points, study, f"{scheme.name} lazy")
    }
    return Claim(
        "ASDR′ in part B is approximately ASDR in part A.",
        _verdict(*(value <= 2 * CLOSE for value in apart.values())),
        "Greatest difference: " + ", ".join(f"{name} {value:.3f}" for name, value in apart.items()) + ".",
    )


def _inertia(points: Sequence[Point]) -> Claim:
    names = dict.fromkeys(point.line for point in points if point.study == "values")
    rows = {name: [point.mean(asdr_own) for point in line(points, "values", name)] for name in names}
    better = [means[2].value - means[1].value for means in rows.values()]
    return Claim(
        "If values are not random, ASDR′ is expected to improve: real situations do not vanish rapidly.",
        _verdict(*(found > 0.01 for found in better)),
        "ASDR′ with values that are noise, that wander (the paper's), and that keep their direction: "
        + "; ".join(f"{name} {', '.join(str(one) for one in means)}" for name, means in rows.items())
        + ".",
    )


def _pairs(points: Sequence[Point], study: str, a: str, b: str) -> Iterator[tuple[Point, Point]]:
    return zip(line(points, study, a), line(points, study, b), strict=True)


def _factors(points: Sequence[Point], study: str, more: str, less: str) -> list[float]:
    """How many times the messages of one line are those of another, for each x."""
    return [a.mean(messages).value / b.mean(messages).value for a, b in _pairs(points, study, more, less)]


def _apart(points: Sequence[Point], study: str, a: str, b: str, measure: Callable[[Measured], float]) -> float:
    """The greatest difference of two lines in any run."""
    return max(
        abs(measure(x.runs[seed]) - measure(y.runs[seed]))
        for x, y in _pairs(points, study, a, b)
        for seed in x.runs
        if not math.isnan(measure(x.runs[seed]))
    )


def _greatest(points: Sequence[Point], study: str, a: str, b: str) -> float:
    """The greatest difference of two lines' mean ASDR."""
    return max(_known(abs(x.mean(asdr).value - y.mean(asdr).value) for x, y in _pairs(points, study, a, b)))


def _known(values: Iterable[float]) -> list[float]:
    """Without those of points at which there was nothing to detect."""
    return [value for value in values if not math.isnan(value)]


def _mean_change(
    points: Sequence[Point], study: str, a: str, b: str, measure: Callable[[Measured], float] = asdr
) -> Mean:
    """How much a measure changes from one line to another, run by run; the interval is that of seeds' means."""
    pairs = list(_pairs(points, study, a, b))
    seeds = pairs[0][0].runs.keys()
    return mean(float(np.nanmean([measure(y.runs[seed]) - measure(x.runs[seed]) for x, y in pairs])) for seed in seeds)


def _ends(points: Sequence[Point], study: str, name: str) -> tuple[float, float]:
    found = line(points, study, name)
    return found[0].mean(messages).value, found[-1].mean(messages).value


def _fits(points: Sequence[Point], study: str, name: str) -> dict[str, float]:
    """How much of a line's messages each shape over x explains; over a reach also its area, as many nodes lie within.

    An exponential is fitted as a line through logarithms, but judged, as the others are, by messages.
    """
    found = line(points, study, name)
    x, y = np.array([point.x for point in found]), np.array([point.mean(messages).value for point in found])
    fitted = {
        "a straight line": np.polyval(np.polyfit(x, y, 1), x),
        "an exponential": np.exp(np.polyval(np.polyfit(x, np.log(y), 1), x)),
    }
    if study == "A2":
        fitted["the area"] = np.polyval(np.polyfit(x**2, y, 1), x**2)
    whole = ((y - y.mean()) ** 2).sum()
    return {shape: float(1 - ((y - values) ** 2).sum() / whole) for shape, values in fitted.items()}


def _best(fits: Mapping[str, float]) -> str:
    """The shape that explains most, if it explains enough."""
    best = max(fits, key=lambda shape: fits[shape])
    return best if fits[best] >= FITTING else "none"


def _range(values: Sequence[float], digits: int = 1) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low}–{high}"
