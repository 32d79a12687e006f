"""Definitions that a stage cannot compile are left out; everything else is as if they had never been made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.language.cloudevents import read_event
from nearcast.language.control_events import changes
from nearcast.matching.atom_table import AtomTable
from nearcast.model.changes import RelationChange
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.filter import Atom
from nearcast.model.ontology import Ontology
from nearcast.model.subscription import Settings
from nearcast.relations import pairs, stage
from nearcast.situations import rule_lanes
from nearcast.situations import stage as infer
from nearcast.situations.readings import NamedAreas
from nearcast.situations.rule_plan import DefinedRule
from nearcast.situations.zones_around import ZoneAreas
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from tests.relations.stories import at, fail_on_bad

ONTOLOGY = {"classes": {"temperature": {"unit": "degC", "within": 50}}, "situations": {"hot": {}}}


def event(number: int, type_: str, data: dict[str, Any], subject: str | None = None) -> Event:
    """The event at a position, a second after the one before."""
    document = {"specversion": "1.0", "id": str(number), "type": type_, "source": "s", "time": at(number).isoformat()}
    document |= {"data": data} | ({"subject": subject} if subject else {})
    found = read_event(document, Mark("here"))
    return replace(found, position=number, accepted=at(number))


def relation(id: str) -> tuple[str, dict[str, Any]]:
    """The definition of a relation of everything within 10 m."""
    sides = {"a": "type = 'car'", "b": "type = 'car'", "when": "distance(a, b) < 10"}
    return "nearcast.relation.defined", {"id": id, **sides, "detect": ["enter", "exit"]}


def rule(id: str) -> tuple[str, dict[str, Any]]:
    """The definition of a rule for what is hot."""
    return "nearcast.situation.defined", {"id": id, "class": "hot", "when": "temperature > 40"}


def subscription(id: str, filter: str) -> tuple[str, dict[str, Any]]:
    """The definition of ann's subscription."""
    return "nearcast.subscription", {"id": id, "client": "ann", "filter": filter}


def report(number: int) -> tuple[str, dict[str, Any]]:
    """What one of three cars reports as they come and go."""
    return "car", {"x": number * 7 % 30, "y": 0, "temperature": number * 13 % 80, "bad": 1}


def history(*definitions: tuple[str, dict[str, Any]]) -> list[Event]:
    """Reports with definitions among them."""
    begin = [("nearcast.settings", {"ontology": ONTOLOGY}), ("nearcast.client", {"client": "ann"})]
    good = [relation("near"), rule("good"), subscription("all", "x >= 0")]
    steps = [*begin, *good, *(report(number) for number in range(4))]
    for number, one in enumerate(definitions):
        steps += [one, *(report(number * 3 + more) for more in range(3))]
    return [event(number, *step, subject=f"car-{number % 3}") for number, step in enumerate(steps, 1)]


def decided(events: Sequence[Event], cuts: Sequence[int] = ()) -> tuple[list[Any], list[Any], list[tuple[int, str]]]:
    """What is derived and delivered of a history in batches that are cut so, and what was refused where."""
    known, derived, deliveries = StateFold(), [], []
    for start, stop in pairwise([0, *sorted(cuts), len(events)]):
        for batch in known.fold(to_table(events[start:stop]), changes):
            derived += derived_of(batch.events).to_pylist()
            deliveries += decide(batch, batch.events).to_pylist()
    return derived, deliveries, sorted((one.event.position, str(one.error)) for one in known.refusals)


@pytest.fixture(autouse=True, scope="module")
def broken() -> Iterator[None]:
    """Stages that cannot compile whatever is called bad."""
    plan, number = rule_lanes.plan, AtomTable.number

    def planned(ontology: Ontology, rules: Iterable[DefinedRule]) -> Any:
        """Plans other rules."""
        listed = list(rules)
        if any(one.rule.id == "bad" for one in listed):
            raise RecursionError("too deep")
        return plan(ontology, listed)

    def added(self: AtomTable, atom: Atom) -> int:
        """Numbers other atoms."""
        if "bad" in repr(atom):
            raise ValueError("too much")
        return number(self, atom)

    with pytest.MonkeyPatch.context() as patch:
        fail_on_bad(patch)
        patch.setattr(rule_lanes, "plan", planned)
        patch.setattr(AtomTable, "number", added)
        yield


BAD = {
    "relate": relation("bad"),
    "infer": rule("bad"),
    "match": subscription("bad", "bad + 1 = 2"),
}


@pytest.mark.parametrize("stage", BAD)
def test_a_definition_that_a_stage_cannot_compile_is_refused(stage: str) -> None:
    """It says which stage, and what it raised; the events before and after are decided as if it were not there."""
    events, without = history(BAD[stage]), history(("nearcast.client.removed", {"client": "nobody"}))
    derived, deliveries, [(position, told)] = decided(events)
    assert (*decided(without)[:2], 10) == (derived, deliveries, position)
    assert derived and deliveries
    expected = f"event 10: expected a definition that the stage {stage} can take, got one on which it fails: "
    assert told.startswith(expected) and told.endswith("; it changes nothing; define it otherwise")


@limits(max_examples=30)
@given(cuts=st.lists(st.integers(1, 20), unique=True, max_size=6))
def test_where_batches_are_cut_changes_nothing(cuts: list[int]) -> None:
    """The same is refused, with the same words, and the same decided."""
    events = history(BAD["infer"], BAD["relate"], BAD["match"], relation("bad"))
    whole = decided(events)
    assert 4 == len(whole[2])
    assert whole == decided(events, cuts)


def test_settings_that_a_stage_cannot_compile_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes behind them is read under the settings before them."""

    def areas(ontology: Ontology, zones: ZoneAreas) -> NamedAreas:
        """Takes ontologies without places."""
        if ontology.areas:
            raise ValueError("no places")
        return NamedAreas(ontology, zones)

    monkeypatch.setattr(infer, "NamedAreas", areas)
    events = history(("nearcast.settings", {"ontology": {"places": {"yard": {}}}}), rule("another"))
    [(position, told)] = decided(events)[2]
    assert (10, True) == (position, "ValueError: no places" in told)


@pytest.mark.parametrize("removed", [False, True])
def test_a_relation_that_would_tell_too_much_at_once_is_refused(removed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told of the one before with that id goes on, and the registry has that one."""
    monkeypatch.setattr(pairs, "MOST_PARTS", 3)
    monkeypatch.setattr(stage, "MOST_PARTS", 3)
    name, data = relation("near")
    wide = data | {"when": "distance(a, b) < 1000"}
    first, last = (name, data), (name, wide)
    if removed:
        first, last = (name, wide | {"detect": ["exit"]}), ("nearcast.relation.removed", {"relation": "near"})
    steps = [first, *(("car", {"x": x, "y": 0}) for x in (0, 5, 50, 90)), last]
    events = [event(number, *step, subject=f"car-{number}") for number, step in enumerate(steps, 1)]
    known = StateFold()
    told = [len(derived_of(batch.events)) for batch in known.fold(to_table(events), changes)]
    [refused], [kept] = known.refusals, changes(events[0], Settings())
    expected = "event 6: expected a relation that tells of 3 pairs at once at most, got 6; ask for fewer pairs"
    assert (6, expected) == (refused.event.position, str(refused.error)[: len(expected)])
    assert [0 if removed else 1] == told
    assert [kept] == [RelationChange(one) for one in known.registry.relations.values()]
