"""The Fulcrum experiment: what must hold of any campus, and what the command prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from experiments.fulcrum.campus import EDGES, WEEK, Campus, Setting
from experiments.fulcrum.count import STRATEGIES, Count, Task, count
from experiments.fulcrum.late import LateTask, late
from experiments.fulcrum.laws import head_on, side_by_side
from experiments.fulcrum.overlay import Overlay, crossbar
from experiments.fulcrum.sea import sea
from experiments.fulcrum.setting import PUBLISHED_BROKERS, PUBLISHED_WEEK, Sweep, messages
from experiments.fulcrum.week import week
from tests.experiments.command import experiment

RINGS = ("range-ring", "parallel-line", "speed-bound", "shared-ring")


@cache
def counted(strategy: str, rate: float = 1.0) -> Count:
    return count(Task(strategy, rate, Sweep(quick=True).campus(1)))


@pytest.mark.parametrize(
    ("overlay", "source", "targets", "links"),
    [
        (crossbar(), "edge 0", ["edge 0"], 0),
        (crossbar(), "edge 0", ["edge 1"], 2),
        (crossbar(), "edge 0", ["edge 1", "edge 2", "edge 1"], 3),
        (crossbar(), "centre", ["edge 3"], 1),
        (Overlay({"a": "b", "b": "c", "d": "c", "e": "d"}), "a", ["e", "d", "b"], 4),
    ],
)
def test_a_message_crosses_each_link_of_the_tree_once(
    overlay: Overlay, source: str, targets: list[str], links: int
) -> None:
    """Whoever shares it."""
    assert links == overlay.links(source, targets)


def test_the_common_node_is_the_first_on_the_way_of_both() -> None:
    """The centre, or their own broker."""
    tree = Overlay({"a": "b", "b": "c", "d": "c"})
    assert ("b", "c", "a", "b") == tuple(
        tree.common(*pair) for pair in (("a", "b"), ("a", "d"), ("a", "a"), ("b", "a"))
    )


def test_the_campus_has_the_papers_numbers() -> None:
    """Users by broker and relations exactly, reports in the mean."""
    campus = Campus(Setting())
    assert EDGES == tuple(np.bincount(campus.edge))
    assert 2_165 == len(set(campus.relations))
    assert all(one != other for one, other in campus.relations)
    reports = sum(len(way.sampled(1.0)[0]) for way in campus.ways)
    assert pytest.approx(360_067, rel=0.05) == reports


def test_as_many_buddies_are_online_together_as_in_the_paper() -> None:
    """1,028 of 2,165 relations; most of those of whom both report at all; relations by broker are all of them."""
    found = week(Setting())
    assert pytest.approx(PUBLISHED_WEEK["together"], rel=0.03) == found.together
    assert found.together <= found.from_both < found.relations
    assert found.active < found.users
    assert pytest.approx(PUBLISHED_WEEK["related"], rel=0.05) == found.related <= found.reports
    assert 2_165 == sum(map(sum, found.at_brokers)) == sum(map(sum, PUBLISHED_BROKERS))


def test_spells_of_a_user_follow_each_other_within_the_week() -> None:
    """Also of one that is nearly always on; who does not log in reports nothing."""
    ways = Campus(Setting()).ways
    assert all((way.begins[1:] >= way.ends[:-1] - 1e-6).all() for way in ways)
    assert all(way.begins[0] >= -1e-6 and way.ends[-1] <= WEEK + 1e-6 for way in ways if len(way.begins))
    assert {0} == {len(way.sampled(2.0)[0]) for way in ways if not len(way.begins)}


def test_a_higher_rate_samples_the_same_movement() -> None:
    """Who is reported at one time is reported at the same place."""
    way = Campus(Sweep(quick=True).campus(1)).ways[0]
    (times, x, y), (finer, x8, y8) = way.sampled(1.0), way.sampled(8.0)
    assert len(finer) > 7 * len(times)
    both = np.isin(finer, times)
    assert both.sum() > len(times) / 2
    assert set(zip(finer[both], x8[both], y8[both], strict=True)) <= set(zip(times, x, y, strict=True))


@pytest.mark.parametrize("strategy", RINGS)
def test_rings_come_to_what_every_report_gives_and_do_not_grow_with_the_rate(strategy: str) -> None:
    """Four times the reports, less than twice the messages: what was missed between reports."""
    slow, fast = counted(strategy), counted(strategy, 4.0)
    assert slow.equal
    assert fast.equal
    assert fast.reports > 3.9 * slow.reports
    assert messages(fast) < 2 * messages(slow)
    assert slow.suppressed < fast.suppressed < 1


def test_where_reports_travel_messages_grow_with_them() -> None:
    """To the common node, and on to the subscriber."""
    for strategy in ("subscriber", "common-node"):
        assert messages(counted(strategy, 4.0)) > 3.9 * (messages(counted(strategy)) - counted(strategy).entered)


def test_each_strategy_needs_fewer_hops_than_the_one_before() -> None:
    """As in the paper: the subscriber, the common node, rings."""
    hops = [counted(strategy).per_event for strategy in ("subscriber", "common-node", "range-ring")]
    assert sorted(hops, reverse=True) == hops


def test_the_papers_formulas_with_its_shares_give_its_figures() -> None:
    """2.5, 0.773 and 0.27 hops per original event, from 16.5 % ring events and 1.33 % proximity events."""
    sums = {"report": 1, "ring": 1, "notice": 1}
    analytic = [
        Count(strategy, 1.0, 1, 10_000, 10_000, 1, 1_650, 133, sums, sums, True, 0.0).analytic()
        for strategy in ("subscriber", "common-node", "range-ring")
    ]
    assert pytest.approx([2.5, 0.773, 0.27], abs=0.001) == analytic


def test_the_laws_hold_about() -> None:
    """Head-on within two events and whatever the rate; side by side between one and two times the rate foretold."""
    for per_metre in (1.0, 10.0):
        one, abreast = head_on(1_010.0, per_metre), side_by_side(60.0, per_metre, 4_000.0)
        assert abs(one.counted - one.foretold) <= 4
        assert abreast.foretold * 0.9 < abreast.counted < abreast.foretold * 2.1


def test_slow_messages_cost_more_of_them_and_change_nothing() -> None:
    """Facts that were overtaken, answers, reports kept; the outcome stays."""
    setting = Sweep(quick=True).campus(1)
    at_once, slow = (late(LateTask(seconds, setting, pairs=4)) for seconds in (0.0, 60.0))
    assert at_once.equal
    assert slow.equal
    assert 0 == at_once.late + at_once.answers
    assert slow.late > 0
    assert slow.facts + slow.answers > at_once.facts
    assert slow.changes == at_once.changes


@pytest.mark.data
def test_ships_of_each_type_come_to_what_every_report_gives(data: Callable[[str], Path]) -> None:
    """With every strategy, across the whole file."""
    rows = list(sea(data("ais_us_20220103/AISdata.csv.gz"), pairs=15))
    assert 4 * 6 == len(rows)
    assert all(row.equal for row in rows)
    assert any(row.changes for row in rows)


def test_the_command_prints_rows_and_writes_files(tmp_path: Path) -> None:
    """Tables for people, JSON for programs, and a picture with a point for each strategy and rate."""
    quick = ["fulcrum", "--quick", "--engine", "local", "--rate", "1"]
    printed = experiment(*quick, "--rate", "2", "--out", str(tmp_path)).stdout
    assert all(name in printed for name in STRATEGIES)
    assert "the paper " in printed
    written = json.loads((tmp_path / "fulcrum.json").read_text())
    kinds = ("weeks", "counts", "late", "laws", "ships")
    assert (1, 2 * len(STRATEGIES), 4, 12, 0) == tuple(len(written[kind]) for kind in kinds)
    picture = ElementTree.fromstring((tmp_path / "fulcrum.svg").read_text())
    said = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert 2 * len(STRATEGIES) == len(said)
    rows = [json.loads(line) for line in experiment(*quick, "--json").stdout.splitlines()]
    assert {"weeks", "counts", "late", "laws"} == {row["kind"] for row in rows}
