"""Pairs are shared among shards by their names alone, and how relations stand does not depend on how many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.changes import RelationRemoval
from nearcast.relations.entity_table import EntityTable
from nearcast.relations.lanes.scopes import Scopes
from nearcast.relations.lanes.stored_pairs import PAIRS, restore, stored
from nearcast.relations.shards import shards_of
from nearcast.relations.stage import RelationStage
from nearcast.state.derived import StageInput
from nearcast.suppression.guarded import GuardedState, GuardedStates
from nearcast.testing.relations import Reference
from tests.relations.stories import Step, at, defined, events_told, report
from tests.relations.test_relation_scopes import steps
from tests.relations.test_stage import ENTITIES, planar, shards

TWO = [(a, b) for a in ENTITIES for b in ENTITIES if a < b]
RINGED = {"when": "distance(a, b) < 10", "margin": 2, "strategy": {"name": "range-ring"}}

definitions = st.builds(
    lambda number, pair: defined(f"r{number}", a={"entity": pair[0]}, b={"entity": pair[1]}, **RINGED),
    st.integers(0, 5),
    st.sampled_from(TWO),
)
changes = st.one_of(definitions, st.integers(0, 5).map(lambda number: RelationRemoval(f"r{number}")))
stories = st.tuples(
    st.lists(definitions, max_size=6), st.lists(st.one_of(planar, planar, planar, changes), max_size=30)
)


def standings(count: int, story: Sequence[Step], cuts: Sequence[int]) -> list[list[GuardedState]]:
    """How guarded relations stand after each batch, as far as that changed."""
    found, relating, told = [], RelationStage(count), GuardedStates()
    for start, stop in pairwise([0, *sorted(cuts), len(story)]):
        events_told(relating, story[start:stop])
        found.append(told.changes_until(relating.pairing, stop))
    return found


@settings(max_examples=100, deadline=None)
@given(stories, st.data())
def test_how_relations_stand_does_not_depend_on_shards(
    parts: tuple[Sequence[Step], Sequence[Step]], data: st.DataObject
) -> None:
    """What access servers make guards of is told alike, in the same order."""
    story = [*parts[0], *parts[1]]
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=4))
    assert standings(1, story, cuts) == standings(data.draw(shards), story, cuts)


def test_the_shard_of_a_pair_rests_on_its_names() -> None:
    """Not on which is heard of first, nor on which is side a; another process finds the same."""
    names = ["deer-1", "deer-2", "ort-\u00e4", "price-x"]
    found = []
    for order in (names, names[::-1]):
        known = EntityTable()
        number = {name: known.number(name) for name in order}
        sides = [np.array([number[name] for name in side]) for side in (names[:-1], names[1:])]
        found += [shards_of(known, *each, 7).tolist() for each in (sides, sides[::-1])]
    assert [[2, 2, 0]] * 4 == found


def test_pairs_are_shared_evenly() -> None:
    """Also where their names differ by a number only."""
    known = EntityTable()
    numbers = np.array([known.number(f"e{one}") for one in range(2_000)])
    chance = np.random.default_rng(1)
    counts = np.bincount(shards_of(known, *(chance.permutation(numbers) for _ in range(2)), 4))
    assert 4 == len(counts) and 400 < counts.min() and counts.max() < 600


@pytest.mark.parametrize("count", [2, 5])
def test_every_pair_is_in_its_shard(count: int) -> None:
    """Named pairs and those that hold, whatever defined or brought them."""
    cars = [f"c{one}" for one in range(12)]
    named = [defined(f"{a}-{b}", a={"entity": a}, b={"entity": b}) for a, b in pairwise(cars)]
    relating = RelationStage(count)
    events_told(
        relating, [*named, defined("open"), *(report(car, one) for one, car in enumerate(cars)), defined("new")]
    )
    pairs = [shard.pairs for shard in relating.pairing.shards]
    known = relating.pairing.known
    for number, own in enumerate(pairs):
        assert {number} == set(shards_of(known, own["a"], own["b"], count).tolist())
    # Eleven named ones, and of each of two open relations those of the 66 that are at most ten metres apart.
    assert 11 + 2 * 65 == sum(own.length for own in pairs)


class Stored(Scopes):
    """A stage whose pairs are stored and loaded between any two batches, each time in another number of shards."""

    counts = (3, 1, 7, 2)

    def derive(self, stage_input: StageInput) -> Iterator[pa.Table]:
        tables = stored(self.pairings)
        self.counts = (*self.counts[1:], self.counts[0])
        for pairing in self.pairings.values():
            pairing.share(pairing.shards[0].pairs.chosen(np.zeros(0, np.int64)), 1)
        restore(self.pairings, tables, self.counts[0])
        return super().derive(stage_input)


@settings(max_examples=200, deadline=None)
@given(steps, st.data())
def test_pairs_that_were_stored_go_on_in_any_number_of_shards(story: Sequence[Step], data: st.DataObject) -> None:
    """The tables hold all that matters of a pair."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    assert events_told(Reference(), story) == events_told(Stored(), story, cuts)


def test_stored_pairs_can_be_read_by_people() -> None:
    """Names instead of numbers, and times."""
    named = defined("pair", a={"entity": "a"}, b={"entity": "c"}, when="distance(a, b) <= 9", lasting=30)
    scopes = Scopes(2)
    local = defined("here", scope={"local": "north"})
    story = [named, defined("near"), local, *(report(one, 5, second=2, node="north") for one in "ab"), report("c", 99)]
    events_told(scopes, [*story, report("c", 6, second=4, node="south")])
    tables = stored(scopes.pairings)
    assert [PAIRS, PAIRS] == [table.schema for table in tables]
    rows = [tuple(row.values()) for row in pa.concat_tables(tables).to_pylist() if row["relation"] != "near"]
    here = ("north", "here", "a", "b", True, False, at(2), None, 0)
    pair = (None, "pair", "a", "c", True, False, at(4), at(34), 0)
    assert [here, pair] == sorted(rows, key=lambda row: str(row[1]))
