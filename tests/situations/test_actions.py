"""What situations call for: published events, and events that tell what is to be run."""

from __future__ import annotations

from typing import Any

from nearcast.errors import Mark
from nearcast.language.cql2 import parse
from nearcast.model.changes import ActionChange, ActionRemoval
from nearcast.model.event import Event
from nearcast.model.situation import Action, Effect, Publish, Run, Webhook
from nearcast.situations.stage import SituationStage
from tests.situations.scenes import FIRE, advanced, data_of, defined, rule, table_of, told

DRILL = rule("drill", "Drill", "Button = TRUE")
BURNING = told(0, "a", Temperature=90, Humidity=5)


def action(when: str, *effects: Effect, **fields: Any) -> Action:
    """An action whose conditions are CQL2."""
    return Action("act", parse(when, Mark("here")), effects, **fields)


def run(one: Action, events: list[Event]) -> list[Event]:
    """What an action yields beside situations."""
    changes = [*defined([FIRE, DRILL]), (0, ActionChange(one))]
    found = advanced(SituationStage(), changes, table_of(events))
    return [event for event in found if event.source == "nearcast:actions"]


def test_an_action_publishes_an_event() -> None:
    """The event has the type and data of the definition, its texts filled in, at the place of the situation."""
    text = "{class} near {place}: {readings.Temperature} degrees since {since}, {readings.Smoke}"
    (found,) = run(action("Fire", Publish("alert", '{"text": "' + text + '", "level": 3}')), [BURNING])
    assert ("alert", "fire@1", 1) == (found.type, found.subject, found.position)
    expected = "Fire near building-7: 90 degrees since 2026-01-01T00:00:00Z, unknown"
    assert {"text": expected, "level": 3} == data_of(found)
    assert BURNING.place == found.place


def test_a_place_without_a_name_is_a_position() -> None:
    """Where no named place is, its position says where it is."""
    event = told(0, "a", 1000.5, Temperature=90, Humidity=5)
    (found,) = run(action("Fire", Publish("alert", '{"text": "{place}"}')), [event])
    assert {"text": "1000.5, 0"} == data_of(found)


def test_an_action_asks_for_a_class() -> None:
    """A fire is a hazard, so what hazards call for is called for."""
    assert ["alert"] == [one.type for one in run(action("Hazard", Publish("alert")), [BURNING])]
    assert [] == run(action("Drill", Publish("alert")), [BURNING])


def test_what_is_to_be_run_is_told() -> None:
    """A webhook and a Python action are told of in events with ids of their own; what is called is not."""
    effects = (Webhook("https://example.org/x", "TOKEN"), Run("ring", '{"times": 3}'))
    hook, ring = run(action("Fire", *effects), [BURNING])
    assert {"nearcast.action"} == {hook.type, ring.type}
    assert [("act", "webhook"), ("act", "run")] == [
        (data_of(one)["action"], data_of(one)["effect"]) for one in (hook, ring)
    ]
    assert b"example.org" not in hook.payload
    assert "fire@1" == data_of(ring)["situation"]["id"]
    assert hook.id != ring.id


def test_phases_say_when() -> None:
    """By default an action is run when a situation begins; it may be run at updates and ends."""
    events = [BURNING, told(1, "a", Temperature=91), told(2, "a", Temperature=20)]
    assert [1] == [one.position for one in run(action("Fire", Publish("p")), events)]
    assert [3] == [one.position for one in run(action("Fire", Publish("p"), phases=("end",)), events)]
    assert [2, 3] == [one.position for one in run(action("Fire", Publish("p"), phases=("update", "end")), events)]


def test_several_situations_call_together() -> None:
    """Where an action asks for several situations, it is run once they are near each other, and known."""
    both = action("Fire AND NOT Drill", Publish("alert"), phases=("begin", "end"))
    events = [BURNING, told(1, "b", 50, Button=False), told(2, "b", 50, Button=True)]
    assert [2, 3] == [one.position for one in run(both, events)]
    assert [] == run(both, [BURNING, told(1, "b", 500, Button=False)])


def test_an_action_that_is_removed_is_not_run() -> None:
    """From its position on."""
    one = action("Fire", Publish("alert"))
    changes = [*defined([FIRE]), (0, ActionChange(one)), (2, ActionRemoval("act"))]
    again = [BURNING, told(1, "a", Temperature=20), told(2, "a", Temperature=90)]
    found = advanced(SituationStage(), changes, table_of(again))
    assert [1] == [event.position for event in found if event.type == "alert"]


def test_readings_tell_of_the_situations_that_an_action_asks_for() -> None:
    """Also where no rule asks for that class: what calls for an action is a rule of its own."""
    both = action("Fire AND NOT Drill", Publish("alert"), phases=("begin", "end"))
    changes = [*defined([FIRE]), (0, ActionChange(both))]
    events = [BURNING, told(1, "b", 50, Drill=False), told(2, "b", 50, Drill=True)]
    found = advanced(SituationStage(), changes, table_of(events))
    assert [2, 3] == [event.position for event in found if event.type == "alert"]


def test_an_action_that_is_defined_anew_sees_what_comes_after_that() -> None:
    """As every rule does; what was read while there was none does not count."""
    both = action("Fire AND NOT Drill", Publish("alert"))
    changes = [*defined([FIRE]), (0, ActionChange(both)), (2, ActionRemoval("act")), (2, ActionChange(both))]
    events = [told(0, "b", 50, Drill=False), told(1, "z", 9999), BURNING, told(1, "b", 50, Drill=False)]
    found = advanced(SituationStage(), changes, table_of(events))
    assert [4] == [event.position for event in found if event.type == "alert"]
