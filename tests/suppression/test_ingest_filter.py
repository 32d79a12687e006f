"""What enters, where much is held back: relations are told as if every report had entered."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.language import cql2
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import ClientChange, RelationChange
from nearcast.model.columns import EVENTS, to_table
from nearcast.model.event import Event
from nearcast.model.relation import Relation
from nearcast.model.subscription import Roles, Settings, Subscription
from nearcast.relations.stage import RelationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.suppression.guarded import GuardedStates
from nearcast.suppression.ingest_filter import IngestFilter
from nearcast.suppression.interest_index import InterestIndex
from tests.relations.stories import as_events, report

HERE = Mark("here")


def named(id: str, a: str, b: str, when: str, strategy: Any = "range-ring", **more: Any) -> Relation:
    """A relation between two named entities."""
    data = {"id": id, "a": {"entity": a}, "b": {"entity": b}, "when": when, "strategy": strategy, **more}
    return relation_document(data, HERE)


RELATIONS = (
    named("near", "a", "b", "distance(a, b) < 10", margin=2),
    named("apart", "b", "c", "distance(a, b) > 15", {"name": "range-ring", "share": 0.2}, **{"for": 3}),
    named("line", "a", "c", "distance(a, b) <= 12", "parallel-line"),
    named("faster", "a", "d", "a.v - b.v > 2", {"name": "speed-bound", "a": 3, "b": 1}),
    named("dearer", "d", "c", "b.v / a.v < 2", "shared-ring", margin=0.25),
)


def registry(relations: Iterable[Relation] = RELATIONS, *filters: str) -> Registry:
    """Relations, and a subscription for each filter."""
    found = Registry(relations={one.id: one for one in relations})
    for number, text in enumerate(filters):
        found.subscriptions[str(number)] = Subscription(str(number), ("x",), cql2.parse(text, HERE))
    return found


class Journal:
    """A journal, and the stage that relates what is in it, in batches."""

    def __init__(self, relations: Iterable[Relation] = RELATIONS) -> None:
        self.events: list[Event] = []
        self.told: list[dict[str, Any]] = []
        self._positions: dict[tuple[str, str], int] = {}
        self._relating, self._guarded_states, self._repository = RelationStage(), GuardedStates(), Repository()
        self._decided = 0
        defined = [(0, RelationChange(one)) for one in relations]
        self._relate(defined, EVENTS.empty_table())

    def _relate(self, changes: Sequence[tuple[int, RelationChange]], table: pa.Table) -> list[Event]:
        return list(as_events(self._relating.derive(StageInput(changes, {}, table, Registry(), self._repository))))

    def append(self, events: Iterable[Event]) -> list[int]:
        """Takes events, each once; their positions."""
        found = []
        for event in events:
            position = self._positions.setdefault((event.source, event.id), len(self.events) + 1)
            if position > len(self.events):
                self.events.append(replace(event, position=position))
            found.append(position)
        return found

    def decide(self) -> list[Any]:
        """Relates what is new; how relations stand where that changed."""
        if self._decided == len(self.events) > 0:
            return []
        table = to_table(self.events[self._decided :])
        derived = self._relate([], table)
        self.told += [orjson.loads(event.payload)["data"] for event in derived]
        self._repository.fold_events(table)
        self._decided = len(self.events)
        return self._guarded_states.changes_until(self._relating.pairing, max(self._decided, 1))


def told_of_all(events: Sequence[Event]) -> list[dict[str, Any]]:
    """What is told where every event enters."""
    journal = Journal()
    journal.append(events)
    journal.decide()
    return journal.told


def by_relation(told: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    """What is told of each relation, in order: who, where, how far apart, since when."""
    found: dict[str, list[Any]] = {}
    for data in told:
        found.setdefault(data["relation"], []).append(data)
    return found


def told_at_entry(events: Sequence[Event], chance: random.Random, relaxed: float) -> tuple[Journal, IngestFilter]:
    """What is told where an entry node holds back, and hears of the pipeline late; `relaxed`: how seldom it does."""
    journal, entry = Journal(), IngestFilter()
    entry.define(registry(), 0)
    unwritten: list[tuple[list[Event], list[int]]] = []
    late: list[Any] = []
    for event in events:
        published = entry.admit(event)
        unwritten.append((published, journal.append(published)))
        if chance.random() > relaxed:
            for written in unwritten:
                entry.written(*written)
            unwritten = []
        if chance.random() > relaxed:
            late += journal.decide()
        if chance.random() > relaxed:
            entry.learn(late)
            late = []
    journal.append(entry.release())
    journal.decide()
    return journal, entry


@st.composite
def stories(draw: st.DrawFn) -> list[Event]:
    """Reports of four entities that stand, walk, jump, lose their place, come late, at equal times, and repeated."""
    at, time = {one: [draw(st.integers(0, 40)), 5.0] for one in "abcd"}, 0.0
    events: list[Event] = []
    for number in range(draw(st.integers(0, 60))):
        if events and draw(st.integers(0, 9)) == 0:
            events.append(draw(st.sampled_from(events)))
            continue
        who = draw(st.sampled_from("abcd"))
        step = draw(st.sampled_from([0.0, 0.5, -0.5, 1.0, -1.0, 5.0, -30.0, 30.0]))
        at[who] = [at[who][0] + step, at[who][1] + step / 10]
        time += draw(st.sampled_from([0.0, 1.0, 1.0, 1.0]))
        early = draw(st.sampled_from([0.0, 0.0, 0.0, 2.5]))
        x = None if draw(st.integers(0, 19)) == 0 else float(at[who][0])
        values = {} if draw(st.integers(0, 19)) == 0 else {"v": at[who][1]}
        told = report(who, x, second=time - early, accepted=float(number), **values)
        events.append(replace(told, id=str(number), source="s"))
    return events


@settings(max_examples=60, deadline=None)
@given(stories(), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.3, 0.8]))
def test_relations_are_told_as_if_every_report_had_entered(
    events: list[Event], chance: random.Random, relaxed: float
) -> None:
    """Whatever comes late: guards, word of positions, reports; the same begins and ends, at the same places."""
    found, _ = told_at_entry(events, chance, relaxed)
    assert by_relation(without_dwell(told_of_all(events))) == by_relation(without_dwell(found.told))


def without_dwell(told: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Without the last word on what lasts: that waits for time, which what is held back does not bring."""
    return (data for data in told if data["detect"] != "dwell")


def walks(steps: int) -> list[Event]:
    """Four that walk slowly, and sometimes far."""
    chance = random.Random(1)
    at = {one: chance.uniform(0, 60) for one in "abcd"}
    events = []
    for number in range(steps):
        who = chance.choice("abcd")
        at[who] += chance.gauss(0, 0.3) if chance.random() < 0.99 else chance.uniform(-40, 40)
        event = report(who, at[who], second=float(number), v=10 + abs(at[who]))
        events.append(replace(event, id=str(number)))
    return events


@pytest.mark.parametrize(("relaxed", "most"), [(0.0, 0.25), (0.6, 0.7)])
def test_of_slow_walks_little_enters(relaxed: float, most: float) -> None:
    """What lasts is told too, once its time has come; the later guards are, the more enters."""
    events = walks(600)
    found, entry = told_at_entry(events, random.Random(2), relaxed)
    assert by_relation(told_of_all(events)).keys() == by_relation(found.told).keys()
    assert list(without_dwell(told_of_all(events))) == list(without_dwell(found.told))
    assert len(found.events) <= most * len(events)
    assert len(events) - len(found.events) <= entry.held


@pytest.mark.parametrize(
    ("filter", "wanted"),
    [
        ("type = 'car'", True),
        ("type = 'bus'", False),
        ("v > 5 AND type = 'bus'", False),
        ("v > 5 OR speed > 2", True),
        ("NOT speed > 2", False),
        ("NOT (type = 'bus' AND distance(user('u'), this) < 5)", True),
        ("type = 'bus' AND distance(user('u'), this) < 5", False),
        ("type = 'car' AND distance(user('u'), this) < 5", True),
        ("type = 'bus' AND distance(uform(type = 'car'), user('u')) < 5", True),
        ("count(uform(type = 'bus')) > 3", True),
        ("CHANGED(v) AND type = 'bus'", True),
    ],
)
def test_who_may_want_an_event(filter: str, wanted: bool) -> None:
    """A filter that cannot select it does not; what rests on other events wants all."""
    assert wanted is InterestIndex(registry((), filter)).wants(report("a", 1.0, second=1, v=10))


def test_relations_without_guards_want_their_sides() -> None:
    """By name, by filter, by list; of others nothing."""
    others = (
        named("plain", "a", "b", "distance(a, b) < 3", None),
        named("silent", "c", "d", "distance(a, b) < 3", time_to_live=5),
        relation_document({"id": "any", "a": "type = 'bus'", "b": "type = 'tram'", "when": "distance(a, b) < 3"}, HERE),
        relation_document({"id": "team", "among": {"client": "x", "list": "l"}, "within": 3, "count": 2}, HERE),
    )
    known = registry((*others, named("near", "e", "f", "distance(a, b) < 3")))
    known.apply(ClientChange("x", lists={"l": ("g",)}))
    interest_index = InterestIndex(known)
    assert list("abcdg") == [one for one in "abcdefgh" if interest_index.wants(report(one, 1.0, second=1))]
    assert interest_index.wants(report("h", 1.0, second=1, type="tram"))


def test_an_atom_that_may_be_absent_makes_its_subscription_want_all() -> None:
    """With a relevance of 0, also one by role, the rest of the filter selects more."""
    weighed = registry((), "type = 'bus' AND v > 3")
    weighed.settings = Settings(roles=Roles({("r", "t"): {"0": (0.0, 1.0)}}))
    assert InterestIndex(weighed).wants(report("a", 1.0, second=1))


def test_what_cannot_be_held_back() -> None:
    """No time of its own, no guards, definitions under way; and what takes the place of a wanted event."""
    entry = IngestFilter()
    entry.define(registry(RELATIONS[:1], "v > 5"), 0)
    journal = Journal()
    for event in (report("a", 0.0, second=0, v=1), report("b", 100.0, second=1, v=1)):
        one = replace(event, id=event.entity)
        entry.written(entry.admit(one), journal.append([one]))
    steps = [replace(report("a", 1.0, second=2 + n, v=1), id=f"a{n}") for n in range(5)]
    assert [steps[0]] == entry.admit(steps[0])
    entry.written([steps[0]], journal.append([steps[0]]))
    entry.learn(journal.decide())
    assert [] == entry.admit(steps[1])
    assert [steps[2]] == entry.admit(steps[2], holding=False)
    timeless = replace(steps[3], time=None)
    assert [timeless] == entry.admit(timeless)
    fast = replace(report("b", 100.0, second=9, v=9), id="fast")
    slow = replace(report("b", 100.0, second=10, v=1), id="slow")
    assert [[fast], [slow]] == [entry.admit(fast), entry.admit(slow)]


def far_apart() -> IngestFilter:
    """An entry node with guards in force: `a` and `b` are published, and how they stand was heard."""
    entry, journal = IngestFilter(), Journal()
    entry.define(registry(RELATIONS[:1]), 0)
    for event in (report("a", 0.0, second=0), report("b", 100.0, second=1)):
        one = replace(event, id=event.entity)
        entry.written(entry.admit(one), journal.append([one]))
    entry.learn(journal.decide())
    return entry


def test_what_the_journal_does_not_take_is_kept_again() -> None:
    """It is published with the next occasion."""
    entry = far_apart()
    step = replace(report("a", 1.0, second=2), id="step")
    jump = replace(report("b", 9.0, second=3), id="jump")
    assert ([], {"a": step}) == (entry.admit(step), entry.changes())
    assert ([step, jump], {"a": None}, 0) == (entry.admit(jump), entry.changes(), entry.kept)
    entry.lost([step, jump])
    assert {"a": step} == entry.changes()
    assert ([step], {"a": None}) == (entry.release(), entry.changes())


def test_what_is_kept_is_told_again_if_it_did_not_become_durable() -> None:
    """Also to who repeats it; and as it is by then."""
    entry = far_apart()
    first, second = (replace(report("a", 1.0, second=2 + n), id=f"step {n}") for n in range(2))
    assert ([], {"a": first}, {}) == (entry.admit(first), entry.changes(), entry.changes())
    assert ([], {"a": first}) == (entry.admit(first), entry.changes())
    assert [] == entry.admit(second)
    entry.unkept(["a"])
    assert {"a": second} == entry.changes()


def test_of_a_clock_that_stands_still_few_events_are_remembered() -> None:
    """A sender whose events are all of one time does not fill the memory; what it repeats is no newer one."""
    entry = far_apart()
    for number in range(5_000):
        entry.admit(replace(report("a", 1.0, second=2), id=f"again {number}"))
    held = entry.held
    assert [] == entry.admit(replace(report("a", 1.0, second=2), id="again 4999"))
    assert (held, True) == (entry.held, len(entry._subjects["a"].same_time) <= 1_000)
