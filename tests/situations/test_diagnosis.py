"""Why there is a situation around an event, or not."""

from __future__ import annotations

import pytest

from nearcast.errors import Fault
from nearcast.model.event import Event
from nearcast.model.situation import Situation
from nearcast.model.values import Value
from nearcast.situations.diagnosis import RuleFinding
from nearcast.situations.extract import UnusableReading
from nearcast.situations.stage import SituationStage
from tests.situations.scenes import FIRE, inferred, rule, told


def found(rules: list[Situation], *events: Event, about: str = "fire") -> RuleFinding:
    """What a rule finds around the last of some events."""
    stage = SituationStage()
    inferred(rules, events, stage)
    return stage.find(about, events[-1])


def missing(finding: RuleFinding) -> list[str]:
    """Why conditions are unknown."""
    return [one.missing for one in finding.conditions if one.missing]


def test_what_held_and_from_which_readings() -> None:
    """Of each condition the readings that made it so, whose, how old, how far away."""
    finding = found([FIRE], told(0, "a", 0, Temperature=90), told(3, "b", 60, Humidity=5))
    assert (True, "fire@2", "") == (finding.truth, finding.situation, finding.refuted)
    shown = [(one.truth, r.reading.entity, r.age, r.metres) for one in finding.conditions for r in one.readings]
    assert [(True, "a", 3.0, 60.0), (True, "b", 0.0, 0.0)] == shown


OLD = "the newest Humidity around, of b, is 20 s old, and valid for 10 s"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "no reading of Humidity has come"),
        ([told(0, "b", 150, Humidity=5)], "the nearest Humidity, of b, is 150.0 m away, and the rule reaches 100 m"),
        ([told(0, "b", 5, Humidity=5), told(19, "z", 9999)], OLD),
        ([told(0, "b", None, Humidity=5)], "nobody knows where the readings of Humidity are"),
    ],
)
def test_what_was_missing(events: list[Event], expected: str) -> None:
    """A condition is unknown for want of a reading: there was none, or too far away, too old, nowhere."""
    finding = found([FIRE], *events, told(20, "a", 0, Temperature=90))
    assert finding.truth is None and finding.situation is None
    assert [expected] == missing(finding)


def test_what_was_false() -> None:
    """The reading that does not satisfy a condition is shown."""
    finding = found([FIRE], told(0, "a", Temperature=90, Humidity=50))
    assert [True, False] == [one.truth for one in finding.conditions]
    assert [50] == [one.reading.value for one in finding.conditions[1].readings]


def test_situations_that_others_rest_on() -> None:
    """A condition on a situation names it, or says what is unknown of it."""
    rules = [FIRE, rule("drill", "Drill", "Button = TRUE"), rule("alarm", "Alarm", "Fire AND NOT Drill")]
    finding = found(rules, told(0, "a", Temperature=90, Humidity=5), about="alarm")
    assert ("fire@1",) == finding.conditions[0].situations
    assert ["the rules for Drill are unknown themselves: drill"] == missing(finding)


def test_what_refuted() -> None:
    """A necessary rule that is false is named, with its own conditions."""
    smoke = rule("smoke", "Fire", "Smoke = TRUE", sufficient=False)
    finding = found([FIRE, smoke], told(0, "s", Smoke=False), told(0, "a", Temperature=90, Humidity=5))
    assert (False, "smoke") == (finding.truth, finding.refuted)
    assert ["smoke"] == [id for id, _ in finding.necessary]


def test_a_rule_that_is_not_there() -> None:
    """Those that are there are told."""
    with pytest.raises(Fault, match="known then: fire"):
        found([FIRE], told(0, "a", Temperature=90), about="fyre")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"Temperature.value": 90, "Temperature.unit": "furlong"}, ("Temperature", 90, "furlong", "the unit furlong")),
        ({"Temperature": 9e9}, ("Temperature", 9e9, "degC", "out of range")),
        ({"Fire": 5}, ("Fire", 5, None, "neither true nor false")),
    ],
)
def test_what_is_no_reading_is_shown_with_its_value_and_unit(
    values: dict[str, Value], expected: UnusableReading
) -> None:
    """And why; it is not counted again."""
    stage = SituationStage()
    upper = rule("upper", "Hazard", "Fire AND Humidity < 90")
    events = [told(0, "a", 0, **values)]
    inferred([FIRE, upper], events, stage)
    before = stage.refused.copy()
    assert (expected,) == stage.find("fire", events[0]).unusable
    assert 1 == before.total() and before == stage.refused


def test_values_that_do_not_compare_are_shown() -> None:
    """A text where numbers are compared, and whose it is."""
    finding = found([FIRE], told(0, "b", 0, Temperature="hot"), told(1, "a", 0, Humidity=5))
    assert ["the values are of kinds that do not compare: Temperature 'hot' of b"] == missing(finding)


def test_readings_have_the_unit_of_their_class() -> None:
    """Numbers have; a text has none."""
    for value, unit in ((90, "degC"), ("hot", None)):
        stage, events = SituationStage(), [told(0, "a", 0, Temperature=value)]
        inferred([FIRE], events, stage)
        assert [unit] == [one.unit for one in stage.find("fire", events[0]).conditions[0].readings]
