"""Relations between any entities where they enter: told as if every report had entered, at the same places."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.geo.distance import distance
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event, Place
from nearcast.model.relation import Relation
from nearcast.relations.plain import EventwiseRelations
from nearcast.state.repository import Repository
from nearcast.suppression.guarded import proximity_relation
from nearcast.suppression.ingest_filter import IngestFilter
from nearcast.suppression.subject_spots import IndexedSpot, SubjectSpots, bounds
from tests.relations.stories import report
from tests.suppression.test_ingest_filter import Journal, by_relation, named, registry, without_dwell

CARS = dict.fromkeys("ab", "type = 'car'")


def between(id: str, when: str, strategy: str = "range-ring", **more: Any) -> Relation:
    """A relation between any two cars, or whoever else."""
    return relation_document({"id": id, **CARS, "when": when, "strategy": strategy, **more}, Mark("here"))


RELATIONS = (
    between("any", "distance(a, b) < 10"),
    between("margin", "S_DWITHIN(a.position, b.position, 6)", margin=3),
    between("unlike", "distance(a, b) < 12", "shared-ring", b="type = 'bus'"),
    between("same", "distance(a, b) <= 0"),
    between("one", "distance(a, b) < 15", a={"entity": "a"}, b="v > 10"),
    named("near", "a", "b", "distance(a, b) < 10", margin=2),
)


@dataclass
class Node:
    """An entry node before a journal, which may be late, fail, or be killed and started again."""

    chance: random.Random
    relaxed: float
    relations: Sequence[Relation] = RELATIONS
    journal: Journal = field(init=False)
    entry: IngestFilter = field(default_factory=IngestFilter)
    unwritten: list[tuple[list[Event], list[int]]] = field(default_factory=list)
    word: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = Journal(self.relations)
        self.start()

    def start(self) -> None:
        """Begins with what is in the journal."""
        self.write()
        self.journal.append(self.entry.release())
        self.entry, self.word = IngestFilter(), []
        self.entry.define(registry(self.relations), 0)
        newest = Repository()
        newest.fold_events(to_table(self.journal.events))
        for one in self.entry.unready:
            one.load(to_events(newest.newest()))

    def write(self) -> None:
        """Tells the entry node where events are."""
        for written in self.unwritten:
            self.entry.written(*written)
        self.unwritten = []

    def take(self, event: Event, restarts: float, failures: float) -> None:
        """Takes one event; now and then others hear of it."""
        if self.chance.random() < restarts:
            self.start()
        published = self.entry.admit(event)
        if published and self.chance.random() < failures:
            self.entry.lost(published)
            published = self.entry.admit(event)
        self.unwritten.append((published, self.journal.append(published)))
        if self.chance.random() >= self.relaxed:
            self.write()
        if self.chance.random() >= self.relaxed:
            self.word += self.journal.decide()
        if self.chance.random() >= self.relaxed:
            self.entry.learn(self.word)
            self.word = []

    def end(self) -> list[dict[str, Any]]:
        """What was told, once all that was kept is published."""
        self.journal.append(self.entry.release())
        self.journal.decide()
        return list(without_dwell(self.journal.told))


def told_of_all(events: Sequence[Event], relations: Sequence[Relation] = RELATIONS) -> list[dict[str, Any]]:
    """What is told where every event enters."""
    journal = Journal(relations)
    journal.append(events)
    journal.decide()
    return list(without_dwell(journal.told))


def story(chance: random.Random, steps: int) -> list[Event]:
    """Entities that stand, walk and jump, lose their place or their kind, come late, at equal times, and repeated.

    Half of the stories are about the antimeridian; odd things are seldom in some, and often in others.
    """
    odd, globe = chance.choice([0.003, 0.06]), chance.random() < 0.5
    size = chance.choice([20, 60, 200])
    at = {one: [chance.uniform(0, size), chance.uniform(0, size / 4)] for one in "abcdefg"[: chance.randint(2, 7)]}
    kind, speed, time = dict.fromkeys(at, "car"), dict.fromkeys(at, 10.0), 0.0
    events: list[Event] = []
    for number in range(steps):
        if events and chance.random() < 2 * odd:
            events.append(chance.choice(events[-10:]))
            continue
        who = chance.choice(list(at))
        at[who][0] += chance.gauss(0, 0.3) if chance.random() < 0.93 else chance.choice([-30, 30, 5, 0])
        at[who][1] += chance.gauss(0, 0.1)
        speed[who] += chance.gauss(0, 0.4)
        time += chance.choice([0, 1, 1, 1])
        if chance.random() < odd:
            kind[who] = chance.choice(["car", "bus"])
        values = {"v": speed[who]} if chance.random() > odd else {}
        early = 2.5 if chance.random() < 2 * odd else 0.0
        event = report(who, second=time - early, accepted=float(number), type=kind[who], **values)
        place = _place(chance, *at[who], odd, globe)
        moment = event.time if chance.random() > odd / 2 else None
        events.append(replace(event, id=str(number), source="s", place=place, time=moment))
    return events


def _place(chance: random.Random, x: float, y: float, odd: float, globe: bool) -> Place | None:
    """Metres as a place: seldom none, one of the other kind, or one with a height."""
    if chance.random() < odd:
        return None
    if globe == (chance.random() > odd):
        lon = 180 + (x - 20) / 111_319.49
        return Place("geographic", lon if lon <= 180 else lon - 360, y / 110_574)
    return Place("planar", x, y, chance.choice([0.0, 1.0, 8.0]) if chance.random() < odd else None)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.0, 0.3, 0.8]),
    st.sampled_from([0.0, 0.02]),
    st.sampled_from([0.0, 0.02]),
)
def test_relations_are_told_as_if_every_report_had_entered(
    seed: int, relaxed: float, restarts: float, failures: float
) -> None:
    """Whatever is late, repeated, jumps, is lost on its way or killed: the same begins and ends, at the same places."""
    chance = random.Random(seed)
    events = story(chance, 120)
    node = Node(chance, relaxed)
    for event in events:
        node.take(event, restarts, failures)
    assert by_relation(told_of_all(events)) == by_relation(node.end())


def test_of_slow_walks_little_enters() -> None:
    """Of ten who walk slowly, far from each other and some together."""
    chance = random.Random(4)
    at = {str(one): 60.0 * (one // 2) for one in range(10)}
    events = []
    for number in range(1000):
        who = chance.choice(list(at))
        at[who] += chance.gauss(0, 0.2)
        events.append(replace(report(who, at[who], second=float(number)), id=str(number), source="s"))
    node = Node(chance, 0.0, RELATIONS[:2])
    for event in events:
        node.take(event, 0.0, 0.0)
    assert len(node.journal.events) < 200
    assert told_of_all(events, RELATIONS[:2]) == node.end()


def moved(id: str, who: str, x: float, second: float, **more: Any) -> Event:
    """A report with an id."""
    return replace(report(who, x, second=second, **more), id=id, source="s")


def test_only_whom_it_may_matter_to_is_published_with_a_jump() -> None:
    """One is kept here, one there; a car jumps to where the first one has gone, and away again."""
    node = Node(random.Random(1), 0.0)
    for number, (who, x) in enumerate([("c", 0.0), ("d", 500.0), ("e", 2000.0)]):
        node.take(moved(str(number), who, x, number), 0.0, 0.0)
    for number, (who, x) in enumerate([("c", 0.5), ("d", 500.5)]):
        node.take(moved(f"step {number}", who, x, 3 + number), 0.0, 0.0)
    assert 3 == len(node.journal.events)
    node.take(moved("jump", "e", 505.0, 6), 0.0, 0.0)
    assert ["step 1", "jump"] == [event.id for event in node.journal.events[3:]]


@pytest.mark.parametrize(
    "next_",
    [
        moved("bus", "c", 0.0, 5, type="bus"),
        replace(moved("nowhere", "c", 0.0, 5), place=None),
        replace(moved("timeless", "c", 0.0, 5), time=None),
        replace(moved("high", "c", 0.0, 5), place=Place("planar", 0.0, 0.0, 3.0)),
        replace(moved("elsewhere", "c", 0.0, 5), place=Place("geographic", 0.0, 0.0)),
        moved("far", "c", 100.0, 5),
        moved("new", "z", 0.0, 5),
    ],
)
def test_what_always_enters(next_: Event) -> None:
    """Who is new, becomes something else, or is no more anywhere that could be compared; and what is far."""
    node = Node(random.Random(1), 0.0)
    for number, (who, x) in enumerate([("c", 0.0), ("d", 50.0)]):
        node.take(moved(str(number), who, x, number), 0.0, 0.0)
    node.take(moved("step", "c", 0.1, 3), 0.0, 0.0)
    assert 2 == len(node.journal.events)
    node.take(next_, 0.0, 0.0)
    assert next_.id == node.journal.events[-1].id


def test_nothing_is_held_back_before_all_are_known() -> None:
    """Nor while a report of the same subject is on its way."""
    entry = IngestFilter()
    entry.define(registry(RELATIONS[:1]), 0)
    events = [moved(str(number), "c", 0.0, number) for number in range(5)]
    assert [[one] for one in events[:2]] == [entry.admit(one) for one in events[:2]]
    [proximity_rings] = entry.unready
    entry.written(events[:2], [1, 2])
    proximity_rings.load([])
    assert [] == entry.unready
    assert [] == entry.admit(events[2])
    assert events[2:3] == entry.release()
    assert [events[3]] == entry.admit(events[3])
    entry.written(events[2:4], [3, 4])
    assert [] == entry.admit(events[4])


@pytest.mark.parametrize(
    "relation",
    [
        between("silent", "distance(a, b) < 3", time_to_live=5),
        between("beyond", "distance(a, b) > 3"),
        between("both", "distance(a, b) < 3 AND a.v > 3", "common-node"),
        between("line", "distance(a, b) < 3", "parallel-line"),
        named("named", "a", "b", "distance(a, b) < 3"),
        relation_document({"id": "plain", **CARS, "when": "distance(a, b) < 3"}, Mark("here")),
    ],
)
def test_relations_whose_every_report_must_enter(relation: Relation) -> None:
    """Without a strategy of rings, with a time to live, or with another predicate than being near."""
    assert proximity_relation(relation) is None


places = st.one_of(
    st.builds(Place, st.just("geographic"), st.floats(-180, 180), st.floats(-90, 90)),
    st.builds(Place, st.just("planar"), st.floats(-1e7, 1e7), st.floats(-1e7, 1e7), st.none() | st.floats(0, 1e4)),
)


def at(name: str, place: Place) -> IndexedSpot:
    """Somebody at a place."""
    return IndexedSpot(name, ("s", name), None, (True, True), place)


@given(places, places, st.floats(0, 1))
def test_a_distance_is_within_its_bounds(a: Place, b: Place, share: float) -> None:
    """Also of places close to each other; and those who are within reach of a spot are found near it."""
    assume(a.coordinates == b.coordinates)
    near = Place(a.coordinates, a.x + (b.x - a.x) * share**20, a.y + (b.y - a.y) * share**20, b.z)
    for other in (b, near):
        metres = distance(a, other)
        low, high = bounds(at("a", a), at("b", other))
        assert metres is not None
        assert low <= metres <= high
        spots = SubjectSpots(max(metres, 1.0))
        spots.add(at("b", other))
        assert ["b"] == [one.entity for one in spots.near(at("a", a))]


@given(st.integers(0, 2**32), st.lists(st.integers(0, 60)))
def test_the_newest_that_counts(seed: int, cuts: list[int]) -> None:
    """As relations take it, however the journal is cut."""
    events = [replace(event, position=n + 1) for n, event in enumerate(story(random.Random(seed), 60))]
    plain, newest = EventwiseRelations(), Repository()
    for event in events:
        plain.report(event)
    bounds = [0, *sorted(cuts), len(events)]
    for start, stop in pairwise(bounds):
        newest.fold_events(to_table(events[start:stop]))
    assert {name: one.event.id for name, one in plain.known.items()} == {
        e.entity: e.id for e in to_events(newest.newest())
    }


def test_the_newest_of_nothing() -> None:
    """There is none."""
    newest = Repository()
    newest.fold_events(pa.Table.from_batches([], to_table([]).schema))
    assert [] == to_events(newest.newest())


def test_a_repeated_report_beside_one_that_is_kept() -> None:
    """It is known already, and who is kept is where it was: told with whoever comes near."""
    node = Node(random.Random(1), 0.0)
    node.take(moved("c", "c", 0.0, 1), 0.0, 0.0)
    node.take(moved("e", "e", 100.0, 2), 0.0, 0.0)
    node.take(moved("again", "c", 0.0, 3), 0.0, 0.0)
    node.take(moved("first", "c", 50.0, 4), 0.0, 0.0)
    node.take(moved("step", "c", 50.5, 4), 0.0, 0.0)
    assert "first" == node.journal.events[-1].id
    node.take(moved("first", "c", 50.0, 4), 0.0, 0.0)
    node.take(moved("jump", "e", 55.0, 5), 0.0, 0.0)
    assert ["step", "jump"] == [event.id for event in node.journal.events[-2:]]


@pytest.mark.parametrize("first", ["c", "d"])
def test_who_cannot_be_compared_may_be_together_still(first: str) -> None:
    """After a restart nobody has told with whom; what ends when both can be compared again ends where both are."""
    events = [moved("1", "c", 0.0, 1), moved("2", "d", 5.0, 2), moved("3", "x", 5_000.0, 3)]
    events.append(replace(moved("4", "d", 0.0, 4), place=Place("geographic", 0.0, 0.0)))
    other = "d" if first == "c" else "c"
    there = _at(events, other)
    steps = [replace(there, x=there.x + number * 1e-6) for number in range(3)]
    events += [replace(moved(f"step {n}", other, 0.0, 5 + n), place=place) for n, place in enumerate(steps)]
    place = {"c": Place("geographic", 0.0, 1.0), "d": Place("planar", 500.0, 0.0)}[first]
    events.append(replace(moved("again", first, 0.0, 9), place=place))
    node = Node(random.Random(1), 0.0, RELATIONS[:1])
    for number, event in enumerate(events):
        node.take(event, float(number == 4), 0.0)
    assert ["step 0", "step 2", "again"] == [event.id for event in node.journal.events[4:]]
    assert told_of_all(events, RELATIONS[:1]) == node.end()


def _at(events: list[Event], who: str) -> Place:
    """Where somebody was last."""
    [*_, found] = [event.place for event in events if event.entity == who and event.place]
    return found
