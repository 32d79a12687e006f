"""Every strategy tells what evaluating every report tells, whatever the trace and however late its messages."""

from __future__ import annotations

import math
import random
from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.event import Coordinates, Place
from nearcast.suppression.strategies.builtin import CommonNode, RangeRing, SpeedBound
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.guards import Guard, Ring, TakenReport
from nearcast.suppression.strategies.seam import PairKnowledge, Strategy, ThresholdPredicate, guards
from nearcast.testing.entry_node import PairSide
from nearcast.testing.strategy_trials import Trace, differences, every_report, run
from tests.suppression.traces import STRATEGIES, bounds, late, traces, walk

PLANAR = DIMENSIONS["planar"]


def named(strategy: Strategy) -> str:
    return str(strategy)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=named)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_outcome_is_that_of_every_report(strategy: Strategy, data: st.DataObject) -> None:
    """Where messages arrive at once: jumps, returns, equal and missing values, D = 0, the antimeridian, the poles."""
    dimension = data.draw(st.sampled_from([*DIMENSIONS]))
    bound = data.draw(bounds(dimension))
    assert [] == differences(strategy, bound, data.draw(traces(dimension)))


def farthest(guard: Guard, start: Place, east: float, north: float) -> Place:
    """The last place that a guard permits on the way straight from one, to 60 binary digits."""

    def reached(way: float) -> Place:
        return Place(start.coordinates, start.x + way * east, start.y + way * north)

    permitted, refused = 0.0, 4.0
    for _ in range(60):
        middle = (permitted + refused) / 2
        permitted, refused = (
            (middle, refused) if guard.permits(TakenReport(2, reached(middle))) else (permitted, middle)
        )
    return reached(permitted)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=named)
@pytest.mark.parametrize(("dimension", "coordinates"), [("planar", "planar"), ("geodesic", "geographic")])
@given(
    east=st.floats(-20, 20),
    north=st.floats(-20, 20),
    factor=st.sampled_from([0.3, 0.9, 1.1, 3.0]),
    margin=st.sampled_from([0.0, 0.5]),
    ways=st.lists(st.floats(-1, 1), min_size=4, max_size=4),
)
@settings(max_examples=15, deadline=None)
def test_at_the_very_edges_of_both_guards_the_relation_is_as_it_was(
    strategy: Strategy,
    dimension: str,
    coordinates: Coordinates,
    east: float,
    north: float,
    factor: float,
    margin: float,
    ways: list[float],
) -> None:
    """Straight at one another, straight away, and aside: the one obligation of a strategy."""
    a, b = Place(coordinates, 0.0, 0.0), Place(coordinates, east, north)
    apart = DIMENSIONS[dimension].reading(a, b)
    bound = ThresholdPredicate(DIMENSIONS[dimension], apart / factor, "<", margin * apart / factor)
    known = PairKnowledge(TakenReport(0, a), TakenReport(1, b), bound.holds(a, b, False))
    mine, theirs = guards(strategy, known, bound)
    straight = [(east, north, -east, -north), (-east, -north, east, north)]
    for x1, y1, x2, y2 in [*straight, [20 * way for way in ways]]:
        at_the_edge = farthest(mine, a, x1, y1), farthest(theirs, b, x2, y2)
        assert known.holds == bound.holds(*at_the_edge, known.holds)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=named)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_it_is_so_however_late_messages_are(strategy: Strategy, data: st.DataObject) -> None:
    """They overtake one another, come late and twice: what was held back wrongly is sent when that is known."""
    dimension = data.draw(st.sampled_from(["planar", "numeric", "signed difference", "geodesic"]))
    bound = data.draw(bounds(dimension))
    delays = data.draw(st.builds(lambda: late(data.draw)))
    assert [] == differences(strategy, bound, data.draw(traces(dimension)), delays)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=named)
@pytest.mark.parametrize("delay", [None, 5])
def test_long_walks_come_to_the_same_and_most_of_them_is_held_back(strategy: Strategy, delay: int | None) -> None:
    """Changes that there are, told in order."""
    trace = walk(random.Random(1), 1_000, 60.0)
    bound = ThresholdPredicate(PLANAR, 10.0, "<", 2.0)
    trial = run(strategy, bound, trace, None if delay is None else repeat((delay,)))
    wanted = every_report(bound, trace)
    assert wanted == trial.changes
    assert len(wanted) > 3
    assert (trial.facts == len(trace)) == isinstance(strategy, CommonNode)


@given(trace=traces("planar"), bound=bounds("planar"))
@settings(max_examples=50, deadline=None)
def test_reports_of_the_same_value_are_held_back(trace: Trace, bound: ThresholdPredicate) -> None:
    """Where every report is repeated, no ring sends more."""
    twice = [
        (side, TakenReport(order, one.value)) for order, (side, one) in enumerate(each for each in trace for _ in "12")
    ]
    assert run(RangeRing(), bound, trace).facts == run(RangeRing(), bound, twice).facts


def test_the_first_report_is_published_and_then_nothing_until_the_other_is_heard_of() -> None:
    """A subject whose partner is unknown has a ring without end."""
    side = PairSide("a", RangeRing(), ThresholdPredicate(PLANAR, 10.0))
    sent = [side.report(TakenReport(order, Place("planar", 100.0 * order, 0.0))) for order in range(3)]
    assert [1, 0, 0] == [len(messages) for messages in sent]


def test_the_rings_are_half_of_what_is_between_and_mirrored_while_near() -> None:
    """(|AB| - D) / 2 outside, (D + margin - |AB|) / 2 while the relation holds."""
    a, b = (TakenReport(order, Place("planar", 100.0 * order, 0.0)) for order in range(2))
    for limit, holds, radius in ((10.0, False, 45.0), (120.0, True, 12.5)):
        ring, other = guards(RangeRing(), PairKnowledge(a, b, holds), ThresholdPredicate(PLANAR, limit, margin=5.0))
        assert isinstance(ring, Ring)
        assert isinstance(other, Ring)
        assert pytest.approx((radius, radius)) == (ring.radius, other.radius)


def test_speeds_share_out_the_room_and_say_how_long_nobody_can_have_left() -> None:
    """90 m between a walker of 1 m/s and a car of 9 m/s: 9 s, in which they come 9 m and 81 m far."""
    known = PairKnowledge(TakenReport(0, Place("planar", 0.0, 0.0)), TakenReport(1, Place("planar", 100.0, 0.0)))
    walker, car = guards(SpeedBound(a=1.0, b=9.0), known, ThresholdPredicate(PLANAR, 10.0))
    assert isinstance(walker, Ring)
    assert isinstance(car, Ring)
    assert pytest.approx((9.0, 9.0, 81.0)) == (walker.quiet, walker.radius, car.radius)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(-1, 1)), max_size=60), bounds("numeric"))
@settings(max_examples=40, deadline=None)
def test_trusted_speeds_are_right_for_whoever_keeps_to_them(
    steps: list[tuple[str, float]], bound: ThresholdPredicate
) -> None:
    """At most 1 per second, one report a second: reports within the quiet time are not looked at."""
    at = {"a": 0.0, "b": 20.0}
    trace: Trace = []
    for order, (side, step) in enumerate(steps):
        at[side] += step
        trace.append((side, TakenReport(order, at[side], float(order))))
    assert [] == differences(SpeedBound(speed=1.0, trust=True), bound, trace)


def test_an_approach_head_on_takes_the_logarithm_of_the_way_in_messages() -> None:
    """From S to D, halving what is between each time: about log2(2(S - D)), whatever the rate of reports."""
    counts = []
    for per_metre in (1, 10):
        walker = [Place("planar", step / per_metre, 0.0) for step in range(1_015 * per_metre)]
        trace: Trace = [("a", TakenReport(0, Place("planar", 1_034.0, 0.0)))]
        trace += [("b", TakenReport(order, place)) for order, place in enumerate(walker, 1)]
        counts.append(run(RangeRing(), ThresholdPredicate(PLANAR, 10.0), trace).facts)
    assert all(8 <= count <= 18 for count in counts)
    assert counts[0] + 4 >= counts[1]


def test_a_side_that_keeps_much_asks_and_the_answer_lets_it_forget() -> None:
    """Without word of the other side nothing is settled, so nothing can be dropped."""
    trace: Trace = [("a", TakenReport(0, 0.0)), ("b", TakenReport(1, 1_000.0))]
    trace += [("b", TakenReport(order, 1_000.0 + order % 7)) for order in range(2, 300)]
    bound = ThresholdPredicate(DIMENSIONS["numeric"], 10.0)
    much, little = (run(RangeRing(), bound, trace, repeat((1,)), keep) for keep in (10_000, 20))
    assert much.changes == little.changes == []
    assert much.kept > 250
    assert little.kept < 30
    assert little.answers > 5


def test_a_ratio_beyond_all_numbers_is_no_error_and_holds_nothing_back() -> None:
    """A factor between two values, or between reading and limit, may lie beyond all doubles, or below them."""
    ratio = DIMENSIONS["ratio"]
    ring = Ring(ratio, TakenReport(1, 1e300), 2.0)
    assert [False, False, True] == [ring.permits(TakenReport(2, value)) for value in (1e-300, 0.0, 2e300)]
    assert not Ring(ratio, TakenReport(1, 1e-300), math.inf).permits(TakenReport(2, 1e300))
    assert [pytest.approx(580 * math.log(10))] * 2 == [ratio.room(1e-280, 1e300), ratio.room(1e300, 1e-280)]
