"""Margins of conditions: what holds already holds on within them (semantics §8)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.cli.explain_rule import rule_data, rule_lines
from nearcast.errors import Mark
from nearcast.language.cql2 import parse, write
from nearcast.model.event import Event
from nearcast.model.filter import Atom, Not
from nearcast.model.situation import Situation
from nearcast.situations.condition_margins import subject_of, widened
from nearcast.situations.stage import SituationStage
from nearcast.testing.situations import PlainScene
from tests.situations.scenes import data_of, inferred, rule, told
from tests.situations.test_lasting import END, hot, seen

SCENES = pytest.mark.parametrize("scene", [None, PlainScene], ids=["indexed", "plain"])


def warm(when: str = "Temperature > 40", **fields: object) -> Situation:
    return rule("hot", "Fire", when, **{"valid": None, "margins": (("Temperature", 2.0),), **fields})


def phases(found: list[Event]) -> list[tuple[float, str]]:
    """When it begins and ends, and why."""
    return [(at, phase) for at, _, phase in seen(found) if phase != "update"]


@SCENES
def test_what_holds_ends_beyond_the_margin(scene: type[PlainScene] | None) -> None:
    """Above 40 it begins, and at 38 it ends; between them neither does."""
    stage = SituationStage(scene) if scene else None
    events = [hot(second, degrees=value) for second, value in enumerate([39, 40, 41, 39, 38.5, 38, 39, 40.5, 37])]
    assert [(2.0, "begin"), (5.0, "false"), (7.0, "begin"), (8.0, "false")] == phases(
        inferred([warm()], [*events, END], stage)
    )


@pytest.mark.parametrize(
    ("expected", "when"),
    [
        ("Temperature > 38", "Temperature > 40"),
        ("Temperature >= 38", "Temperature >= 40"),
        ("Temperature < 42", "Temperature < 40"),
        ("Temperature <= 42", "40 >= Temperature"),
        ("NOT Temperature > 42", "NOT Temperature > 40"),
        ("Temperature BETWEEN 8 AND 42", "Temperature BETWEEN 10 AND 40"),
        ("NOT Temperature BETWEEN 12 AND 38", "NOT Temperature BETWEEN 10 AND 40"),
        ("AVG(Temperature, 5 s) > 38", "AVG(Temperature, 5 s) > 40"),
        ("42 > AVG(Temperature, 5 s)", "40 > AVG(Temperature, 5 s)"),
        ("AVG(Temperature, 5 s) BETWEEN 8 AND 42", "AVG(Temperature, 5 s) BETWEEN 10 AND 40"),
        ("Temperature = 40", "Temperature = 40"),
        ("Temperature - Humidity > 40", "Temperature - Humidity > 40"),
        ("MAX(Temperature, 5 s) > AVG(Temperature, 5 s)", "MAX(Temperature, 5 s) > AVG(Temperature, 5 s)"),
    ],
)
def test_limits_move_so_that_more_holds(expected: str, when: str) -> None:
    """Of comparisons with numbers alone, and of those that are to be false the other way."""
    found = parse(when, Mark("here"), over_time=True)
    negated = isinstance(found, Not)
    atom = found.child if isinstance(found, Not) else found
    assert isinstance(atom, Atom)
    wider = widened(atom, negated, {str(subject_of(atom)): 2.0})
    assert expected == write(Not(wider) if negated else wider)


def test_limits_are_exact_on_the_decimals_that_were_written() -> None:
    """0.3 less 0.1 is 0.2."""
    atom = parse("Temperature > 0.3", Mark("here"))
    assert isinstance(atom, Atom)
    assert 0.2 == widened(atom, False, {"Temperature": 0.1}).value


@SCENES
def test_it_moves_with_what_it_rests_on_within_the_margin(scene: type[PlainScene] | None) -> None:
    """Though the rule would not begin there."""
    stage = SituationStage(scene) if scene else None
    events = [hot(0, x=0, degrees=41), hot(1, x=500, degrees=39), hot(2, x=900, degrees=37), END]
    found = inferred([warm()], events, stage)
    assert [(0.0, "begin"), (1.0, "update"), (2.0, "unknown")] == [(at, phase) for at, _, phase in seen(found)]
    assert [0, 500, 500] == [data_of(one)["position"]["x"] for one in found]


@SCENES
def test_another_reading_within_the_margin_keeps_it(scene: type[PlainScene] | None) -> None:
    """The condition is about any reading around; what has ended begins without a margin."""
    stage = SituationStage(scene) if scene else None
    events = [hot(0, degrees=41), hot(1, "b", 50, 39), hot(2, degrees=20), hot(3, "b", 50, 20), hot(4, degrees=39), END]
    assert [(0.0, "begin"), (3.0, "false")] == phases(inferred([warm()], events, stage))


@SCENES
def test_margins_and_times_go_together(scene: type[PlainScene] | None) -> None:
    """What has yet to hold on holds within the margin; what is ending must be beyond the limit to hold again."""
    stage = SituationStage(scene) if scene else None
    values = [(0, 41), (2, 39), (10, 37), (12, 39), (14, 37), (30, 41), (31, 37), (33, 41), (40, 37)]
    events = [hot(second, degrees=value) for second, value in values]
    assert [(5.0, "begin"), (16.0, "false"), (38.0, "begin"), (46.0, "false")] == phases(
        inferred([warm(begin=5, end=6)], [*events, END], stage)
    )


@SCENES
def test_a_necessary_rule_has_a_margin_too(scene: type[PlainScene] | None) -> None:
    """While something is, it must fail beyond it to refute."""
    stage = SituationStage(scene) if scene else None
    needed = rule("dry", "Fire", "Humidity < 30", sufficient=False, valid=None, margins=(("Humidity", 5.0),))
    wet = [told(second, "h", 0, Humidity=value) for second, value in [(0, 29), (2, 34), (3, 35), (4, 32), (5, 29)]]
    events = sorted([hot(1, degrees=50), *wet, hot(6, degrees=51), END], key=lambda one: str(one.time))
    assert [(1.0, "begin"), (3.0, "refuted by dry"), (6.0, "begin")] == phases(
        inferred([warm(), needed], events, stage)
    )


def test_explaining_shows_the_margin() -> None:
    """Beside the condition, as long as something is there."""
    stage, events = SituationStage(), [hot(0, degrees=41), hot(1, degrees=39)]
    inferred([warm()], events, stage)
    finding = stage.find("hot", events[-1])
    text = "\n".join(rule_lines(finding))
    assert "TRUE     Temperature > 40  (holds on while Temperature > 38; Temperature 39" in text
    assert "Temperature > 38" == rule_data(finding)["conditions"][0]["held"]
    inferred([warm()], events[1:], stage := SituationStage())
    assert "FALSE    Temperature > 40  (Temperature 39" in "\n".join(rule_lines(stage.find("hot", events[-1])))


@given(st.lists(st.integers(30, 50), max_size=30), st.integers(0, 6), st.booleans())
@settings(max_examples=100, deadline=None)
def test_of_one_sensor_it_is_a_switch_with_two_limits(values: list[int], margin: int, negated: bool) -> None:
    """One to begin, one to end."""
    when = "NOT Temperature <= 40" if negated else "Temperature > 40"
    fields = {"margins": (("Temperature", float(margin)),)} if margin else {"margins": ()}
    events = [hot(second, degrees=value) for second, value in enumerate(values)]
    expected, is_ = [], False
    for second, value in enumerate(values):
        if is_ != (value > 40 - margin if is_ else value > 40):
            is_ = not is_
            expected.append((float(second), "begin" if is_ else "false"))
    assert expected == phases(inferred([warm(when, **fields)], [*events, END]))
