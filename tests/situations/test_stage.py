"""The stage infer: outcomes do not depend on batches, on when late readings come, or on indexes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.changes import SettingsChange, SituationChange, SituationRemoval
from nearcast.model.event import Event, Place
from nearcast.model.limits import Limits
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings
from nearcast.situations.instances import SituationScene
from nearcast.situations.rule_plan import RulePlan
from nearcast.situations.stage import SituationStage
from nearcast.situations.store import SituationStore
from nearcast.situations.stored_situations import situations_document, situations_of
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.testing.situations import PlainScene
from tests.situations.scenes import (
    FIRE,
    ONTOLOGY,
    START,
    advanced,
    data_of,
    defined,
    ends,
    inferred,
    phases,
    rule,
    table_of,
    told,
)
from tests.state.stored import read_again


def _limited(most: int, events: list[Event]) -> tuple[SituationStage, list[Event]]:
    """What a rule that waits for five seconds tells where so many reports may wait."""
    stage, known = SituationStage(), Registry(Settings(limits=Limits(waiting_reports=most)))
    patient = replace(FIRE, lateness=5.0)
    return stage, stage.derive(StageInput(defined([patient]), {}, table_of(events), known, Repository()))


def test_of_more_than_may_wait_the_earliest_counts_early() -> None:
    """It is told at the event by which there were too many, and counted; ordinary reports wait until it is time."""
    events = [told(0, "a", Temperature=90), told(0.5, "b", Humidity=5), told(1, "c"), told(1.5, "d"), told(7, "e")]
    stage, found = _limited(2, events)
    assert ([(4, "fire", "begin")], 3) == (phases(found), stage.early)
    stage, found = _limited(1_000, events)
    assert ([(5, "fire", "begin")], 0) == (phases(found), stage.early)


CONDITIONS = (
    "Temperature > 80 AND Humidity < 10",
    "Temperature > 80 AND NOT Humidity > 10",
    "Smoke = TRUE OR Temperature BETWEEN 85 AND 95",
    "Weather > 80",
    "Temperature - Humidity > 80",
    "NOT (Smoke = TRUE AND Humidity < 50)",
    "Air = TRUE AND NOT Temperature < 50",
    "Temperature > 80 AND Temperature < 95",
    "AVG(Temperature, 8 s) > 60 AND Humidity < 50",
    "COUNT(Weather, 5 s, 2) >= 2 OR NOT MAX(Temperature, 12 s) > 20",
    "RATE(Temperature, 20 s) > 3 AND MIN(Temperature, 4 s) > 15",
    "MAX(Temperature, 10 s) - MIN(Temperature, 10 s) > 15 AND NOT SUM(Humidity, 6 s) > 20",
)
UPPER = (
    "Fire",
    "Hazard AND Button = TRUE",
    "NOT Fire AND Smoke = TRUE",
    "Fire AND NOT Drill",
    "Emergency AND NOT Drill",
    "NOT Emergency AND Air = TRUE",
)

seconds = st.integers(0, 40)
values = st.fixed_dictionaries(
    {},
    optional={
        "Temperature": st.sampled_from([20, 81, 90, 96]),
        "Humidity": st.sampled_from([4, 12, 60]),
        "Smoke": st.booleans(),
        "Button": st.booleans(),
        "Drill": st.booleans(),
        "Emergency": st.booleans(),
        "Fire": st.booleans(),
    },
)
readings = st.builds(
    lambda second, entity, x, read: told(second, entity, x, **read),
    seconds,
    st.sampled_from("abcd"),
    st.sampled_from([None, 0, 30, 60, 110, 400]),
    values,
)
traces = st.lists(readings, max_size=25).map(lambda found: sorted(found, key=lambda one: one.time))
rules = st.builds(
    lambda lower, upper, necessary, wide, valid, area, lateness, lasting, margins: [
        rule(
            "fire", "Fire", lower, within=wide, valid=valid, lateness=lateness, begin=lasting[0], end=lasting[1],
            margins=margins,
        ),
        rule(
            "alarm", "Alarm", upper, within=None if area else wide, valid=2 * valid,
            area="building-7" if area else None, begin=lasting[2],
        ),
        rule("drill", "Drill", "Button = TRUE", within=wide),
        *([rule("needed", "Fire", "Smoke = TRUE", within=50, sufficient=False)] if necessary else []),
    ],
    st.sampled_from(CONDITIONS),
    st.sampled_from(UPPER),
    st.booleans(),
    st.sampled_from([0, 50, 100]),
    st.sampled_from([3, 10]),
    st.booleans(),
    st.sampled_from([0, 2]),
    st.sampled_from([(0, 0, 0), (0, 0, 0), (2, 0, 1), (0, 3, 0), (2, 3, 1)]),
    st.sampled_from([(), (), (("Temperature", 10.0),), (("Humidity", 50.0),), (("AVG(Temperature, 8 s)", 15.0),)]),
)  # fmt: skip


def outcome(events: list[Event]) -> list[tuple[int, object]]:
    """What is told, in order."""
    return [(one.position, one.payload) for one in events]


def restarted(stage: SituationStage) -> SituationStage:
    """The stage that is read from what another was stored as."""
    registry = registry_of(stage)
    return situations_of(read_again(situations_document(stage, registry)), registry)


def registry_of(stage: SituationStage) -> Registry:
    """What is defined, as the stage goes by it."""
    rules = {id: one.rule for id, one in stage._rules.items()}
    return Registry(Settings(ontology=stage._ontology), situations=rules, actions=dict(stage._actions))


def kept_bytes(stage: SituationStage) -> int:
    """How long the document of what a stage keeps is, and its tables."""
    document = situations_document(stage, registry_of(stage))
    return len(orjson.dumps(document.values)) + sum(one.nbytes for one in document.tables.values())


@given(rules, traces, st.lists(st.integers(0, 25), max_size=5))
@settings(max_examples=60, deadline=None)
def test_batches_do_not_matter(found: list[Situation], events: list[Event], cuts: list[int]) -> None:
    """Events cut into any tables give the same, also by a stage that was put away and taken up again."""
    stage = SituationStage()
    told_ = advanced(stage, defined(found), table_of([]))
    bounds = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    table = table_of(events)
    for first, last in pairwise(bounds):
        stage = restarted(stage)
        told_ += advanced(stage, [], table.slice(first, last - first))
    assert outcome(inferred(found, events)) == outcome(told_)


@given(rules, traces, st.data())
@settings(max_examples=60, deadline=None)
def test_lateness_gives_what_order_would_have(found: list[Situation], events: list[Event], data: st.DataObject) -> None:
    """Readings that come late by no more than the lateness give what they would have given in order."""
    patient = [Situation(**{**{name: getattr(one, name) for name in one.__slots__}, "lateness": 6.0}) for one in found]
    last = told(1000, "z", 9999)
    delays = data.draw(st.lists(st.integers(0, 6), min_size=len(events), max_size=len(events)))
    # Two events of one entity and moment have no order but that in which they came.
    unique = list({(one.time, one.subject): one for one in events}.values())
    timed = [(one, delay) for one, delay in zip(unique, delays, strict=False)]
    in_order = [told_again(one, 0) for one, _ in timed]
    late = [told_again(one, delay) for one, delay in sorted(timed, key=lambda pair: came(pair[0], pair[1]))]
    assert [shown(one) for one in inferred(patient, [*in_order, last])] == [
        shown(one) for one in inferred(patient, [*late, last])
    ]


def came(event: Event, delay: int) -> float:
    """When an event comes that is late by some seconds."""
    assert event.time is not None
    return event.time.timestamp() + delay


def told_again(event: Event, delay: int) -> Event:
    """The same event, later."""
    assert event.time is not None and event.subject is not None
    second = int(event.time.timestamp()) - int(told(0, "a").time.timestamp())  # type: ignore[union-attr]
    x = None if event.place is None else event.place.x
    return told(second, event.subject, x, came=second + delay, **dict(event.attributes))


def shown(event: Event) -> dict[str, object]:
    """What is told, without positions: those are another matter where events come in another order."""
    data = data_of(event)
    data.pop("id")
    for one in data["evidence"]:
        one.pop("event", None)
        one.pop("situation", None)
    return data


def plainly(found: list[Situation], events: list[Event]) -> list[Event]:
    """What the plain reference derives."""
    return inferred(found, events, SituationStage(PlainScene))


@given(rules, traces)
@settings(max_examples=100, deadline=None)
def test_indexes_change_nothing(found: list[Situation], events: list[Event]) -> None:
    """What is found in cells is what looking at everything finds."""
    assert outcome(plainly(found, events)) == outcome(inferred(found, events))


def somewhere(event: Event, longitude: float, latitude: float) -> Event:
    """The same event, as many metres away from there as it was from the planar origin, about."""
    if event.place is None:
        return event
    degrees = longitude + event.place.x / 111_320
    return replace(event, place=Place("geographic", degrees - 360 if degrees > 180 else degrees, latitude))


@given(rules, traces, st.sampled_from([(0, 0), (179.9995, 5), (-0.0003, 89.9999), (11.5, -48.1)]))
@settings(max_examples=100, deadline=None)
def test_indexes_change_nothing_anywhere_on_earth(
    found: list[Situation], events: list[Event], where: tuple[float, float]
) -> None:
    """Nor at the antimeridian and the poles."""
    there = [somewhere(event, *where) for event in events]
    assert outcome(plainly(found, there)) == outcome(inferred(found, there))


def evidence(events: list[Event]) -> list[tuple[int, list[tuple[str, str]]]]:
    """The position of what is told, and the conditions that it rests on, by class and entity."""
    return [(one.position, [(it["condition"], it["entity"]) for it in data_of(one)["evidence"]]) for one in events]


@pytest.mark.parametrize("scene", [PlainScene, SituationStore])
def test_what_a_rule_does_not_ask_for_updates_nothing(scene: Callable[[RulePlan], SituationScene]) -> None:
    """A condition keeps its reading, though the same one of a rule below, where readings age sooner, took another."""
    found = [
        rule("fire", "Fire", "NOT (Smoke = TRUE AND Humidity < 50)", within=0, valid=10),
        rule("alarm", "Alarm", "NOT Fire AND Smoke = TRUE", within=0, valid=20),
        rule("drill", "Drill", "Button = TRUE", within=0),
    ]
    events = [
        told(0, "b", 400, Smoke=True, Humidity=4),
        told(1, "a", 400, Smoke=True, Humidity=4),
        told(11, "a", None, Button=False),
    ]
    assert [
        (1, [("Smoke", "b"), ("Humidity", "b")]),
        (3, [("Smoke", "a"), ("Humidity", "a"), ("Smoke", "b")]),
    ] == evidence(inferred(found, events, SituationStage(scene)))


@pytest.mark.parametrize("scene", [PlainScene, SituationStore])
def test_conditions_on_one_class_keep_a_reading_each(scene: Callable[[RulePlan], SituationScene]) -> None:
    """Two conditions of one rule on one class do not take over each other's readings when it is looked at again."""
    found = [
        rule("fire", "Fire", "Temperature > 80 AND Temperature < 95", valid=None),
        rule("drill", "Drill", "Button = TRUE"),
    ]
    events = [
        told(0, "a", Temperature=96),
        told(1, "b", Temperature=20),
        told(2, "c", Temperature=90),
        told(3, "b", 400, Temperature=20),
        told(4, "z", 0, Button=False),
    ]
    assert [
        (2, [("Temperature", "a"), ("Temperature", "b")]),
        (4, [("Temperature", "a"), ("Temperature", "c")]),
    ] == evidence(inferred(found, events, SituationStage(scene)))


def test_a_rule_sees_what_comes_after_it() -> None:
    """Like a subscription, a rule is about the events behind its own position."""
    stage = SituationStage()
    changes = [(0, SettingsChange(Settings(ontology=ONTOLOGY))), (1, SituationChange(FIRE))]
    found = advanced(stage, changes, table_of([told(0, "a", Temperature=90), told(1, "b", Humidity=5)]))
    assert [] == phases(found)


def test_a_rule_that_is_removed_ends_its_situations() -> None:
    """Who hears of a situation hears of its end, whyever it ends."""
    stage = SituationStage()
    events = table_of([told(0, "a", Temperature=90, Humidity=5)])
    found = advanced(stage, [*defined([FIRE]), (5, SituationRemoval("fire"))], events)
    assert [(1, "fire", "begin"), (5, "fire", "end")] == phases(found)
    assert [(5, "removed")] == ends(found)


def test_a_rule_that_stands_on_itself_is_not_taken() -> None:
    """A rule that would close a cycle is refused and counted; those that were there go on."""
    stage = SituationStage()
    found = inferred(
        [rule("alarm", "Alarm", "Fire"), FIRE, rule("fire", "Fire", "Alarm")],
        [told(0, "a", Temperature=90, Humidity=5)],
        stage,
    )
    assert ["fire", "alarm"] == [one for _, one, _ in phases(found)]
    assert {("fire", "stands on itself"): 1} == dict(stage.refused)


def test_what_nobody_provides_is_known() -> None:
    """The stage tells which classes a rule waits for in vain."""
    stage = SituationStage()
    inferred([FIRE, rule("alarm", "Alarm", "Fire AND Smoke = TRUE")], [told(0, "a", Temperature=90)], stage)
    assert {"fire": ("Humidity",), "alarm": ("Smoke",)} == stage.unprovided()


@given(st.lists(st.integers(0, 5), max_size=4))
@settings(max_examples=20, deadline=None)
def test_what_comes_too_late_is_of_no_earlier_event(cuts: list[int]) -> None:
    """A reading that is later than is awaited changes what is, from its own event on, wherever tables are cut."""
    patient = rule("fire", "Fire", "Temperature > 80 AND Humidity < 10", lateness=5, valid=None)
    events = [
        told(100, "a", Temperature=90),
        told(200, "z", 9999, Humidity=50),
        told(210, "z", 9999, Humidity=50),
        told(20, "a", came=211, Humidity=5),
        told(300, "z", 9999, Humidity=50),
    ]
    stage, table = SituationStage(), table_of(events)
    found = advanced(stage, defined([patient]), table_of([]))
    for first, last in pairwise([0, *sorted(cuts), len(events)]):
        found += advanced(stage, [], table.slice(first, last - first))
    assert [(4, "fire", "begin")] == phases(found)


@given(st.lists(st.integers(0, 5), max_size=4))
@settings(max_examples=20, deadline=None)
def test_what_comes_too_late_is_of_the_time_that_had_passed(cuts: list[int]) -> None:
    """Also of that which passed while nothing was due, wherever tables are cut."""
    patient = rule("fire", "Fire", "Temperature > 80 AND Humidity < 10", lateness=5, valid=None)
    events = [
        told(100, "a", Temperature=90),
        told(107, "z", 9999, Humidity=50),
        told(109, "z", 9999, Humidity=50),
        told(20, "a", came=111, Humidity=5),
        told(300, "z", 9999, Humidity=50),
    ]
    stage, table = SituationStage(), table_of(events)
    found = advanced(stage, defined([patient]), table_of([]))
    for first, last in pairwise([0, *sorted(cuts), len(events)]):
        found += advanced(stage, [], table.slice(first, last - first))
    assert [(4, START + timedelta(seconds=104))] == [(one.position, one.time) for one in found]


@pytest.mark.parametrize("scene", [PlainScene, SituationStore])
def test_of_very_many_values_the_newest_count(scene: Callable[[RulePlan], SituationScene]) -> None:
    """Where there are more choices than are tried, which of them are does not rest on the order of an index."""
    found = [rule("fire", "Fire", "Temperature - Humidity > 80", valid=None)]
    many = [told(0, f"s{number}", Temperature=20, Humidity=60) for number in range(150)]
    assert [(151, "fire", "begin")] == phases(
        inferred(found, [*many, told(1, "z", Temperature=90, Humidity=5)], SituationStage(scene))
    )


def test_a_situation_that_goes_on_is_awaited_once() -> None:
    """Every fresh reading puts off when it lapses: what is kept of that does not grow with readings."""
    stage = SituationStage()
    advanced(stage, defined([replace(FIRE, valid=1000)]), table_of([]))
    events = [told(number, "a", Temperature=90, Humidity=5) for number in range(200)]
    advanced(stage, [], table_of(events))
    few = kept_bytes(stage)
    advanced(stage, [], table_of([told(number, "a", Temperature=90, Humidity=5) for number in range(200, 900)], 200))
    assert kept_bytes(stage) < few + 1000


def test_units_that_senders_think_of_are_counted_together() -> None:
    """Reasons are told apart only while they are few; every reading that is none is counted."""
    stage = SituationStage()
    events = [told(0, "a", **{"Temperature": 20, "Temperature.unit": f"u{number}"}) for number in range(1000)]
    inferred([FIRE], events, stage)
    assert 1000 == stage.refused.total()
    assert len(stage.refused) < 300
    assert stage.refused["Temperature", "another reason"] > 0


def test_what_was_before_1970_has_a_place_too() -> None:
    """An entity that told where it is before then is there, also for rules that await late readings."""
    patient = rule("fire", "Fire", "Temperature > 80 AND Humidity < 10", lateness=5, valid=None)
    old = -70 * 366 * 86_400
    events = [told(old, "a", 30), told(1, "a", None, Temperature=90, Humidity=5), told(50, "z", 9999)]
    (found,) = inferred([patient], events)
    assert 30 == data_of(found)["x"]
