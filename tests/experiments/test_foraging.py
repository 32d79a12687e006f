"""The foraging experiment: what it counts, what its page says, and that it runs as a command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from experiments.foraging.claims import claims
from experiments.foraging.kernel import Simulated
from experiments.foraging.run import Measured, Run, measured, rated
from experiments.foraging.setting import CFOR5, CFOR10, EXPERIMENTS, Setting
from experiments.foraging.studies import MANNERS, Plan, runs
from experiments.foraging.summary import Point, mean, points, student
from nearcast.errors import Fault
from nearcast.foraging.forager import ForagingSettings
from tests.experiments.command import experiment
from tests.shared import shared

QUICK = Plan(seeds=2, duration=20, beyond=False)


def flags(*rows: str) -> np.ndarray:
    """(time, requestor, rule): a text per time, a character per requestor; all of the first rule."""
    first = np.array([[mark == "x" for mark in row] for row in rows])
    return np.stack([first, np.zeros_like(first)], axis=2)


def test_the_detection_ratio_is_the_mean_over_requestors_that_had_something_to_detect() -> None:
    """A half, all, and none to count."""
    fired, every = flags("x--", "-x-"), flags("xx-", "xx-")
    fired[0, 1] = [True, False]
    outcome = rated(Simulated(3, 4, fired), every, every)
    assert (7, 0.75, 0.75, 3, 0.0) == (
        outcome.messages,
        outcome.asdr,
        outcome.asdr_own,
        outcome.fired,
        outcome.outdated,
    )


def test_what_fires_on_values_that_no_longer_hold_detects_nothing() -> None:
    """It is told apart."""
    outcome = rated(Simulated(0, 0, flags("xx")), flags("x-"), flags("x-"))
    assert (1.0, 0.5) == (outcome.asdr, outcome.outdated)


def test_nothing_to_detect_is_no_ratio() -> None:
    """Not zero, which would say that all was missed."""
    assert math.isnan(rated(Simulated(0, 0, flags("--")), flags("--"), flags("--")).asdr)


def test_confidence_intervals_are_student_s() -> None:
    """Quantiles as printed in tables, and a mean by hand."""
    assert [12.706, 4.303, 3.182, 2.093, 1.984] == [pytest.approx(student(n), abs=0.015) for n in (1, 2, 3, 19, 99)]
    found = mean([1.0, 2.0, 3.0, math.nan])
    assert (2.0, pytest.approx(4.303 / math.sqrt(3)), 3) == (found.value, found.spread, found.count)


def test_a_plan_has_every_point_of_the_paper_with_each_seed() -> None:
    """Twenty by default."""
    planned = runs(Plan(beyond=False))
    assert set(EXPERIMENTS) == {run.study for run in planned}
    assert {20} == {len({run.seed for run in planned if run.line == "CFor5" and run.x == x}) for x in (0, 4, 30, 110)}
    assert len(planned) == len({(run.study, run.line, run.x, run.seed) for run in planned})


@cache
def quick_points() -> list[Point]:
    planned = runs(QUICK)
    return points(planned, [measured(run) for run in planned])


def test_each_claim_has_a_verdict_and_numbers() -> None:
    """Also where a quick run leaves points at which there was nothing to detect."""
    found = claims(quick_points())
    assert len(found) >= 10
    assert {"supported", "partly", "not supported"} >= {one.verdict for one in found}
    assert [] == [one.numbers for one in found if "nan" in one.numbers or not any(map(str.isdigit, one.numbers))]


def test_verdicts_follow_the_data() -> None:
    """If polling sent fewer messages, the page would say that the claim does not hold."""

    def turned(point: Point) -> Point:
        swapped = {
            seed: replace(one, requests=one.requests // 99, responses=one.responses // 99)
            for seed, one in point.runs.items()
        }
        return replace(point, runs=swapped) if point.line.startswith("CPol") else point

    before, after = ({one.said: one.verdict for one in claims(some)} for some in _both(turned))
    said = next(said for said in before if "considerably fewer" in said)
    assert ("supported", "not supported") == (before[said], after[said])


def _both(turned: object) -> tuple[list[Point], list[Point]]:
    found = quick_points()
    return found, [turned(point) for point in found]  # type: ignore[operator]


@pytest.mark.parametrize(
    "shape, verdict",
    [
        (lambda x: 1_000 * math.exp(x / 20), "supported"),
        (lambda x: 40 * x**2 + 5_000, "partly"),
        (lambda x: 900 * x, "partly"),
    ],
)
def test_growth_is_exponential_only_if_no_other_shape_fits_better(
    shape: Callable[[float], float], verdict: str
) -> None:
    """Over a reach there is also its area."""

    def grown(point: Point) -> Point:
        if point.study != "A2" or point.line not in ("CPol1", "CFor5"):
            return point
        sent = round(shape(point.x)) if point.line == "CPol1" else round(100 * point.x)
        return replace(point, runs={seed: replace(one, requests=sent, responses=0) for seed, one in point.runs.items()})

    (found,) = [one for one in claims([grown(point) for point in quick_points()]) if "figure 6" in one.said]
    assert verdict == found.verdict
    assert "the area: CPol1" in found.numbers


def test_a_sentence_about_part_b_is_judged_on_every_scheme_of_it() -> None:
    """One that breaks it is enough."""

    def turned(name: str, point: Point) -> Point:
        ratio = 0.2 if (point.study, point.line) == ("B1", f"{name} lazy") else 0.6
        return replace(point, runs={seed: replace(one, asdr=0.6, asdr_own=ratio) for seed, one in point.runs.items()})

    for name, verdict in (("none", "supported"), ("CFor5", "partly"), ("CPol2", "partly")):
        turned_points = [turned(name, point) for point in quick_points()]
        (found,) = [one for one in claims(turned_points) if "approximately ASDR in part A" in one.said]
        assert verdict == found.verdict
        assert {"CFor2", "CFor5", "CFor10", "CPol1", "CPol2"} <= set(found.numbers.split())


@pytest.mark.parametrize("name", MANNERS)
def test_a_manner_costs_messages_but_detects_no_less(name: str) -> None:
    """None of the options makes nodes blind; the paper's own is the compiled simulation's."""
    setting = Setting(CFOR10, speed=4.0, duration=20)
    base = measured(Run("manners", "base", 0, setting, 1))
    found = measured(Run("manners", name, 0, setting, 1, MANNERS[name]))
    assert found.asdr >= base.asdr - 0.02
    assert found == base or name != "as the paper"


def test_a_flood_is_limited() -> None:
    """Most of what it sends is not passed on, and the others detect what they did."""
    quiet, flood = Setting(CFOR10, duration=20), Setting(CFOR10, duration=20, flooding=30)
    before = measured(Run("flood", "quiet", 0, quiet, 1, ForagingSettings()))
    free, limited = (
        measured(Run("flood", name, 0, flood, 1, MANNERS[name])) for name in ("as the paper", "rates are limited")
    )
    assert before.asdr == free.asdr == limited.asdr
    own = 30 * flood.duration
    assert 0 < limited.requests - before.requests - own < (free.requests - before.requests - own) / 3


@pytest.mark.data
@pytest.mark.parametrize("part", ["A", "B"])
def test_rules_are_quiet_on_real_readings_and_not_deaf(part: str) -> None:
    """There was no fire that day; one that is planted among them is detected."""
    source = str(shared("data", "iot_telemetry_gas", "raw_data_xlarge.json.zip"))
    setting = Setting(CFOR5, part, values="real", duration=100)  # type: ignore[arg-type]
    real, planted = (
        measured(Run("recorded", part, 0, setting, 1, source=source, planted=each)) for each in (False, True)
    )
    assert (0, True) == (real.fired, math.isnan(real.asdr))
    assert planted.fired > 100


def test_a_file_that_holds_no_readings_is_a_fault(tmp_path: Path) -> None:
    """It says what was expected."""
    path = tmp_path / "readings.zip"
    path.write_bytes(b"no zip")
    with pytest.raises(Fault, match="a zip of one JSON array of readings"):
        measured(Run("recorded", "A", 0, Setting(), 1, source=str(path)))


def test_the_command_writes_page_data_and_pictures(tmp_path: Path) -> None:
    """The figures of the experiments asked for, each well-formed, and a page with a verdict for each claim."""
    ran = experiment(
        "foraging", "--quick", "--experiment", "A2", "--experiment", "B1", "--json", "--out", str(tmp_path)
    )
    assert "" == ran.stderr.partition("note:")[0]
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {"A2", "B1"} == {row["study"] for row in rows}
    names = [f"figure-{number:02}.svg" for number in (6, 7, 8, 9)]
    assert names == sorted(path.name for path in tmp_path.glob("*.svg"))
    assert all(ElementTree.parse(tmp_path / name).getroot().tag.endswith("svg") for name in names)
    page = (tmp_path / "foraging.html").read_text(encoding="utf-8")
    document = json.loads((tmp_path / "foraging.json").read_bytes())
    assert len(document["claims"]) == page.count('<td class="verdict')
    assert len(names) == page.count("<figure")
    assert not re.search(r"\bnan\b", page)


def test_a_seed_gives_one_outcome() -> None:
    """Whatever runs before it; another seed another."""
    run = Run("A1", "CFor5", 2, Setting(duration=20), 3)
    first, other, again = measured(run), measured(replace(run, seed=4)), measured(run)
    assert first == again != other
    assert isinstance(first, Measured)
