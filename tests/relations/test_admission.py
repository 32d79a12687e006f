"""How many pairs of a relation begin: limits of partners and of pairs, the same however the journal is cut."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.importers import ais
from nearcast.language.cloudevents import read_event
from nearcast.model.arrays import Integers, Truths
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.relations import admission, pairs
from nearcast.relations.evaluations import PredicateEvaluator
from nearcast.relations.stage import RelationStage
from nearcast.testing.relations import Reference
from tests.relations.stories import HERE, Restarted, Step, defined, events_told, report
from tests.relations.test_stage import shards, stories
from tests.shared import shared

limited = st.builds(
    lambda partners, total, looks, begins, burst: Limits(
        relation_partners=partners,
        relation_pairs=total,
        relation_looks=looks,
        relation_begins=begins,
        relation_burst=burst,
    ),
    st.sampled_from([1, 2, 3, 1000]),
    st.sampled_from([1, 2, 4, 1000]),
    st.sampled_from([0, 1, 2, 1000, 1000]),
    st.sampled_from([0, 1, 2, 1000]),
    st.sampled_from([0, 1, 2, 5, 1000]),
)


@settings(max_examples=50, deadline=None)
@given(stories, limited, st.data())
def test_within_limits_the_stage_tells_what_the_reference_tells(
    story: Sequence[Step], limits: Limits, data: st.DataObject
) -> None:
    """Whatever the batches, the shards and the stretches: which pairs begin depends on the journal alone."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    expected = events_told(Reference(), story, limits=limits)
    assert expected == events_told(RelationStage(data.draw(shards)), story, cuts, limits)
    assert expected == events_told(Restarted(data.draw(shards)), story, cuts, limits)


def crowd(count: int, rounds: int = 1, seed: int = 0) -> list[Step]:
    """Cars that report from one place, again and again, and sometimes from far away."""
    chance = random.Random(seed)
    names = [f"car{number:03}" for number in range(count)]
    story: list[Step] = [defined("near", when="distance(a, b) <= 10")]
    for step in range(rounds * count):
        away = chance.random() < 0.2 and step > count
        story.append(report(chance.choice(names) if step >= count else names[step], 5000.0 if away else 0.0, 0, step))
    return story


def standing(told: Sequence[Event]) -> set[tuple[str, str]]:
    """The pairs that hold after what was told; each begins and ends in turn."""
    there: set[tuple[str, str]] = set()
    for event in told:
        data = dict(event.attributes)
        pair = str(data["a"]), str(data["b"])
        assert (data["detect"] == "enter") == (pair not in there), "only what has begun ends, and begins once"
        there ^= {pair}
    return there


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 100), st.lists(st.integers(0, 120), max_size=5), shards)
def test_a_crowd_is_told_of_partners_up_to_the_limit(seed: int, cuts: list[int], count: int) -> None:
    """Everybody has some, nobody brings about more than may be, and what never began never ends."""
    story, limits = crowd(30, 4, seed), Limits(relation_partners=4)
    told = events_told(RelationStage(count), story, cuts, limits)
    assert events_told(Reference(), story, limits=limits) == told
    pairs_there = standing(told)
    assert len(pairs_there) <= 4 * 30


def test_when_the_crowd_thins_what_holds_begins_with_the_next_report() -> None:
    """Room that became free is used by whoever reports next."""
    names, limits = ("a", "b", "c", "d"), Limits(relation_partners=1)
    story: list[Step] = [defined("near")] + [report(name, 0, 0, second) for second, name in enumerate(names)]
    before = events_told(RelationStage(), story, limits=limits)
    assert {("a", "b"), ("a", "c"), ("a", "d")} == standing(before), "who has nobody has the first by name"
    gone = [*story, report("a", 1000, 0, 10)]
    assert set() == standing(events_told(RelationStage(), gone, limits=limits))
    again = [*gone, report("c", 0, 0, 11)]
    assert {("b", "c"), ("c", "d")} == standing(events_told(RelationStage(), again, limits=limits))


def test_a_zone_may_have_everybody_in_it() -> None:
    """Who has one partner only may have a common one with all: the limit is of crowds, not of those that many meet."""
    story: list[Step] = [defined("in", a="type = 'car'", b="type = 'zone'", when="distance(a, b) <= 10")]
    story += [report("zone", 0, 0, 0, type="zone"), *(report(f"car{number}", 0, 0, 1) for number in range(20))]
    assert 20 == len(standing(events_told(RelationStage(), story, limits=Limits(relation_partners=2))))


def test_what_did_not_begin_is_known() -> None:
    """Of a relation how many pairs did not begin, and of which entities."""
    stage = RelationStage()
    events_told(stage, crowd(10), limits=Limits(relation_partners=2))
    crowding = stage.pairing.admission.crowded["near"]
    # The fourth finds three that are full, and begins with two of them.
    assert {f"car{number:03}": number - 2 for number in range(3, 10)} == crowding.entities
    assert 28 == crowding.refused


def test_so_many_begin_as_reports_make_room_for() -> None:
    """What is beyond the burst waits for room; of who reports again the first by name begin."""
    limits = Limits(relation_begins=1, relation_burst=3)
    story: list[Step] = [defined("near"), *(report(name, 0, 0, 0) for name in "abcd")]
    stage = RelationStage()
    before = events_told(stage, story, limits=limits)
    # b takes one of three, c brings it back and takes two, d brings one and takes the two that are left.
    assert {("a", "b"), ("a", "c"), ("b", "c"), ("a", "d"), ("b", "d")} == standing(before)
    crowding = stage.pairing.admission.crowded["near"]
    assert ({"d": 1}, {"d"}) == (crowding.entities, crowding.hurried)
    again = events_told(RelationStage(), [*story, report("c", 0, 0, 0)], limits=limits)
    assert ("c", "d") in standing(again)


def test_a_report_looks_at_so_many_others() -> None:
    """Of those near it; the same for all, by the codes of names, and what is not looked at is known."""
    limits, names = Limits(relation_looks=5), [f"car{number:02}" for number in range(30)]
    story: list[Step] = [defined("near"), *(report(name, 0, 0, 0) for _ in range(3) for name in names)]
    stage, looks = RelationStage(1), list[int]()
    evaluated = PredicateEvaluator.__call__

    def counted(evaluator: PredicateEvaluator, rule: Integers, *points: Any) -> tuple[Truths, Truths]:
        looks.append(len(rule))
        return evaluated(evaluator, rule, *points)

    with patch.object(PredicateEvaluator, "__call__", counted):
        told = events_told(stage, story, list(range(30, 91)), limits)
    assert events_told(Reference(), story, limits=limits) == told
    # In the third round everybody is held against those it is in pairs with, and five at most besides.
    partners = Counter(name for pair in standing(told) for name in pair)
    assert max(looks[-29:]) <= 5 + max(partners.values())
    assert dict.fromkeys(names, 24) == stage.pairing.admission.crowded["near"].unseen


def test_others_bring_no_room() -> None:
    """Only what is of a side of the relation does: traffic beside a crowd lets no more of it begin."""
    limits = Limits(relation_begins=1, relation_burst=1)
    others: list[Step] = [report(f"bus{number}", 0, 0, 1, type="bus") for number in range(20)]
    story = [defined("near"), *(report(name, 0, 0, 0) for name in "abc"), *others, report("d", 0, 0, 2)]
    assert {("a", "b"), ("a", "c"), ("a", "d")} == standing(events_told(RelationStage(), story, limits=limits))


@pytest.mark.parametrize("cuts", [[], [7, 50, 51, 100]])
def test_a_crowd_that_reports_on_is_told_of_in_full(cuts: list[int]) -> None:
    """Spread over its reports: the same at the same positions, whatever the batches."""
    limits, names = Limits(relation_begins=2, relation_burst=10), [f"car{number:02}" for number in range(20)]
    story: list[Step] = [defined("near"), *(report(name, 0, 0, 0) for _ in range(9) for name in names)]
    told = events_told(RelationStage(), story, cuts, limits)
    assert events_told(Reference(), story, limits=limits) == told
    assert 20 * 19 // 2 == len(standing(told))
    assert 20 * 2 + 10 >= sum(event.position <= 1 + 20 for event in told)


def test_ordinary_crowds_meet_no_limit() -> None:
    """As many as there are at one place in a harbour begin with each other, all of them."""
    stage = RelationStage()
    told = events_told(stage, crowd(100))
    assert 100 * 99 // 2 == len(told)
    assert {} == stage.pairing.admission.crowded


@pytest.mark.data
def test_ships_meet_no_limit() -> None:
    """Also where a feed begins, everybody within 5 km of the first 5,000 reports, and times fall back: a tenth of the
    burst is room enough.
    """
    documents = islice(ais.events(shared("data/ais_us_20220103/AISdata.csv.gz")), 5_000)
    stage, limits = RelationStage(), Limits(relation_burst=2_000)
    vessels = "type = 'vessel'"
    relation = defined("near", a=vessels, b=vessels, when="distance(a, b) <= 5000", detect=["exit"])
    events_told(stage, [relation, *(read_event(one, HERE) for one in documents)], limits=limits)
    assert sum(int(shard.pairs["held"].sum()) for shard in stage.pairing.shards) > 5_000
    assert {} == stage.pairing.admission.crowded


def test_what_begins_nothing_is_not_held_against_all_pairs_of_a_crowd() -> None:
    """Others report beside a relation that has not all its room: only the room is followed, and comes back."""
    stage, limits = RelationStage(), Limits(relation_begins=1, relation_burst=100)
    events_told(stage, crowd(10), limits=limits)
    assert {"near": 100 - 45 + 8} == stage.pairing.admission.rooms
    others = [report("bus", 0, 0, 20, type="bus"), report("car000", 0, 0, 21)]
    with patch.object(admission, "_may_exceed", lambda *_: pytest.fail("looked at all pairs")):
        assert [] == events_told(stage, others, limits=limits)
    assert {"near": 100 - 45 + 8 + 1} == stage.pairing.admission.rooms


def test_a_crowd_is_looked_at_in_stretches_of_bounded_size() -> None:
    """So many pairs are in memory together and no more, and the outcome is the same."""
    story, looks = crowd(60, 3), list[int]()
    expected = events_told(RelationStage(), story)
    evaluated = PredicateEvaluator.__call__

    def counted(evaluator: PredicateEvaluator, rule: Integers, *points: Any) -> tuple[Truths, Truths]:
        looks.append(len(rule))
        return evaluated(evaluator, rule, *points)

    with patch.object(pairs, "MOST_PAIRS", 500), patch.object(PredicateEvaluator, "__call__", counted):
        assert expected == events_told(RelationStage(1), story)
    assert 500 >= max(looks)
