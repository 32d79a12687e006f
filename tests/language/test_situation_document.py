"""Situation rules and actions in definitions and control events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.checks.file_check import check
from nearcast.language.cloudevents import read_event, read_line
from nearcast.language.control_events import changes, to_event
from nearcast.language.cql2 import parse
from nearcast.language.definitions.files import DefinitionSet, load
from nearcast.language.definitions.situation_documents import (
    action_data,
    action_document,
    situation_data,
    situation_document,
)
from nearcast.model.changes import ActionChange, ActionRemoval, Change, SituationChange, SituationRemoval
from nearcast.model.situation import Action, Publish, Run, Situation, Webhook
from nearcast.model.subscription import Settings
from tests.situations.scenes import ONTOLOGY

HERE = Mark("here")
SETTINGS = Settings(ontology=ONTOLOGY)

# The forms that nearcast promises to keep.
PROMISED = """\
ontology: weather.yaml                      # or a Turtle / RDF file
situations:
  - {id: fire, class: Fire, when: "Temperature > 80 AND Humidity < 10", within: 100, valid: 10 s}
actions:
  - {id: alert, when: Fire, publish: {type: alert, data: {text: "fire near {place}"}}}
"""
WEATHER = """\
classes: {Temperature: {unit: degC}, Humidity: {unit: percent}, Smoke: {}}
situations: {Fire: , Alarm: , Drill: }
places: {building-7: }
"""

OPERAND = "a name, a number, a text in quotes, a function or ("
BEHIND = "a value comes behind >, as a number or a text in single quotes"


def defined(text: str, folder: Path) -> DefinitionSet:
    """The definitions of a file with this text, beside an ontology."""
    (folder / "weather.yaml").write_text(WEATHER, encoding="utf-8")
    (folder / "d.yaml").write_text(text, encoding="utf-8")
    return load([folder / "d.yaml"])


def faults(text: str, folder: Path) -> list[Fault]:
    """What is wrong with definitions."""
    with pytest.raises(DefinitionError) as caught:
        defined(f"ontology: weather.yaml\n{text}", folder)
    return caught.value.faults


def test_the_promised_forms(tmp_path: Path) -> None:
    """The promised forms load."""
    found = defined(PROMISED, tmp_path)
    conditions = parse("Temperature > 80 AND Humidity < 10", HERE)
    assert (Situation("fire", "Fire", conditions, within=100, valid=10.0),) == found.situations
    published = Publish("alert", '{"text": "fire near {place}"}')
    assert (Action("alert", parse("Fire", HERE), (published,)),) == found.actions
    assert () == found.warnings
    assert {SituationChange, ActionChange} <= {type(one) for one in found.changes()}


RATE = "RATE(Humidity, 1 d)"
PEOPLE = "count(uform(type = 'person' AND role <> 'crew'))"
RULES = (
    Situation("a", "Fire", parse("Temperature > 80 AND NOT Humidity < 10", HERE), within=5.5),
    Situation("b", "Alarm", parse("Fire AND NOT Drill", HERE), area="building-7", valid=0.5, lateness=3.0),
    Situation("c", "Fire", parse("Temperature BETWEEN 1 AND 2", HERE), sufficient=False),
    Situation("d", "Fire", parse("Temperature > 1", HERE), begin=30.0),
    Situation("i", "Fire", parse("Temperature > 1 AND Humidity < 2", HERE), margins=(("Humidity", 2.5),)),
    Situation("j", "Fire", parse("RATE(Humidity, 1 d) < 1", HERE, over_time=True), margins=((RATE, 0.1),)),
    Situation("g", "Fire", parse("AVG(Temperature, 5 min, 3) - MIN(Temperature, 90 s) > 2", HERE, over_time=True)),
    Situation(
        "h", "Fire", parse("NOT COUNT(Smoke, 1 h) >= 20 OR RATE(Humidity, 0.5 d) < 1", HERE, over_time=True), 9.0
    ),
    Situation("e", "Fire", parse("Temperature > 1", HERE), end=0.25),
    Situation("l", "Fire", parse("Temperature > 1", HERE), layer="depots"),
    Situation("k", "Fire", parse(f"{PEOPLE} >= 20", HERE, over_time=True), 100.0, margins=((PEOPLE, 2.0),)),
    Situation("f", "Fire", parse("Temperature > 1", HERE), begin=30.0, end=120.0),
)
ACTIONS = (
    Action("a", parse("Fire", HERE), (Publish("alert", '{"n": 1}'), Webhook("https://example.org/x", "SECRET"))),
    Action("b", parse("Fire AND NOT Drill", HERE), (Run("ring", '{"times": 3}'),), ("begin", "end"), 50.0),
    Action("c", parse("Fire", HERE), (Webhook("http://localhost:1/x"),), ("update",)),
)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_as_a_document(rule: Situation) -> None:
    """A rule's document gives the rule again."""
    assert rule == situation_document(situation_data(rule), HERE, SETTINGS)


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_as_a_document(action: Action) -> None:
    """An action's document gives the action again."""
    assert action == action_document(action_data(action), HERE, SETTINGS)


@pytest.mark.parametrize(
    "change",
    [
        *(SituationChange(rule) for rule in RULES),
        *(ActionChange(action) for action in ACTIONS),
        SituationRemoval("a"),
        ActionRemoval("a"),
    ],
)
def test_a_change_travels_as_an_event(change: Change) -> None:
    """An event made of a change brings about the same change, also after its journey as bytes."""
    event = to_event(change, "c1", "s")
    assert [change] == changes(event, SETTINGS)
    assert event == read_line(event.payload, Mark("f"))


@pytest.mark.parametrize(
    ("valid", "seconds"), [("10 s", 10), ("10", 10), ("0.5", 0.5), ("250 ms", 0.25), ("5min", 300), ("2 h", 7200)]
)
def test_durations(valid: str, seconds: float, tmp_path: Path) -> None:
    """A duration is a number of seconds, or has its unit."""
    text = PROMISED.replace("valid: 10 s", f"valid: {valid}")
    assert seconds == defined(text, tmp_path).situations[0].valid


KNOWN = "a class or situation of the ontology"
OVER, NEAR = "a condition over classes and situations", "within says how near readings are"
ONE_EVENT = "a condition on one event alone"
REPORTED = "who counts is decided by each entity's newest report alone"
A_NUMBER = "a number to compare the count with"
COUNTED, NOBODY = "a count of entities, count(uform(conditions)) >= 20", "rules have no receiver"
PLACED = "within, or in, says where they are counted"
VALUES, MISSING = "a condition over values", "a missing reading makes a condition unknown"
UNKNOWN = "what is unknown counts neither as true nor as false"
IN_DEGREES, MORE = "a number to compare with Temperature, in degC", "for example: Temperature > 10"
TOLD, UNTIL = "for example: Smoke = TRUE", "leave it out: a reading then counts until the next"
GIVES = "a condition is a comparison: say how it compares, as in size * 2 > 10"
A_TIME = "a time above 0: a number and one of ms, s, min, h, d"
OVER_TIME = "for example: AVG(class, 5 min), or with how many readings there must be, AVG(class, 5 min, 3)"
TO_COMPARE = "a margin for conditions that compare with a number by < <= > >= or BETWEEN"
MEANT, AS_IN = "did you mean Temperature?", "for example: {Temperature: 2}"
COMPARED, OF_EACH = "a class or aggregate that is compared", "a margin for each of Temperature, Humidity"
ENDING = "end, in seconds or as in 10 s: a finite number, 0 or more"
DURATION = "valid: a number and one of ms, s, min, h, d, as in 10 s"


@pytest.mark.parametrize(
    ("written", "expected", "advice"),
    [
        ("class: Fire, when: 'Temprature > 8', within: 1", KNOWN, "did you mean Temperature?"),
        ("class: Fyre, when: 'Temperature > 8', within: 1", "a situation of the ontology", "did you mean Fire?"),
        ("class: Temperature, when: 'Humidity > 8', within: 1", "a situation", "move it to the ontology's situations"),
        ("class: Fire, when: 'Temperature > 8'", "within, in metres, or in, a place", ""),
        ("class: Fire, when: 'Temperature > 8', in: bilding-7", "a place of the ontology", "did you mean building-7?"),
        ("class: Fire, when: 'Temperature > 8', in: building-7, within: 1", "within or in", "leave out one of them"),
        ("class: Fire, when: 'Temperature > 8', in: {zone: x}", "a field of in", "did you mean zones?"),
        ("class: Fire, when: 'Temperature > 8', in: {zones: x}, within: 1", "within or in", "leave out one of them"),
        ("class: Fire, when: 'Drill > 8', within: 1", "Drill or NOT Drill", "a situation is or is not"),
        ("class: Fire, when: 'Temperature IS NULL', within: 1", VALUES, MISSING),
        ("class: Fire, when: 'distance(this, this) > 1', within: 1", OVER, NEAR),
        ("class: Fire, when: 'count(this) > 1', within: 1", COUNTED, ""),
        ("class: Fire, when: 'count(uform(a = 1), uform(b = 1), 9) > 1', within: 1", COUNTED, PLACED),
        ("class: Fire, when: 'count(uform(a = 1)) > me.least', within: 1", A_NUMBER, NOBODY),
        ("class: Fire, when: 'count(uform(count(uform(a = 1)) > 1)) > 1', within: 1", ONE_EVENT, REPORTED),
        ("class: Fire, when: 'count(uform(a = me.x)) > 1', within: 1", ONE_EVENT, REPORTED),
        ("class: Fire, when: 'count(uform(a = 1)) > 1'", "within, in metres, or in, a place", ""),
        ("class: Fire, when: 'count(uform(a = 1)) = 1', within: 1, margin: 2", TO_COMPARE, ""),
        ("class: Fire, when: 'CHANGED(Humidity)', within: 1", OVER, NEAR),
        ("class: Fire, when: {unless: 'Humidity > 1'}, within: 1", "not", UNKNOWN),
        ("class: Fire, when: 'Temperature > 8', within: 1, valid: 10 x", DURATION, ""),
        ("class: Fire, when: 'Temperature > 8', within: 1, valid: 0", "valid: a time above 0, as in 10 s", UNTIL),
        ("class: Fire, when: \"Temperature > 'hot'\", within: 1", IN_DEGREES, MORE),
        ("class: Fire, when: 'NOT Temperature = TRUE', within: 1", IN_DEGREES, MORE),
        ("class: Fire, when: \"Temperature IN (1, 'hot')\", within: 1", IN_DEGREES, MORE),
        ("class: Fire, when: 'NOT Temperature', within: 1", "a comparison, or a situation", MORE),
        ("class: Fire, when: 'Drill OR Smoke', within: 1", "a comparison, or a situation", TOLD),
        ("class: Fire, when: {all: [Drill, {not: Smoke}]}, within: 1", "a comparison, or a situation", TOLD),
        ("class: Fire, when: 'Temperature >', within: 1", OPERAND, BEHIND),
        ("class: Fire, when: 'Smoke = TRUE', within: 1, margin: 2", TO_COMPARE, ""),
        ("class: Fire, when: 'Temperature * 2 > 8', within: 1, margin: 2", TO_COMPARE, ""),
        ("class: Fire, when: 'Temperature > 8', within: 1, margin: -2", "margin: a finite number, 0 or more", ""),
        ("class: Fire, when: 'Temperature > 8', within: 1, margin: {Temprature: 2}", COMPARED, MEANT),
        ("class: Fire, when: 'Temperature > 8 AND Humidity < 9', within: 1, margin: 2", OF_EACH, AS_IN),
        ("class: Fire, when: 'AVG(Temprature, 5 min) > 8', within: 1", KNOWN, "did you mean Temperature?"),
        ("class: Fire, when: 'AVG(Temperature, 5 min)', within: 1", "a condition", GIVES),
        ("class: Fire, when: 'AVG(Temperature, soon) > 8', within: 1", A_TIME, OVER_TIME),
        ("class: Fire, when: 'AVG(Temperature, 0 s) > 8', within: 1", A_TIME, OVER_TIME),
        ("class: Fire, when: 'RATE(Temperature, 5 s, 1) > 8', within: 1", "a whole number of readings, 2 or more", ""),
        ("class: Fire, when: 'COUNT(Fire, 5 s) > 8', within: 1", "Fire or NOT Fire", "a situation is or is not"),
        ("class: Fire, when: 'Temperature > 8', within: 1, for: soon", DURATION.replace("valid", "for"), ""),
        ("class: Fire, when: 'Temperature > 8', within: 1, for: {start: 1}", "a field of for", "known are begin, end"),
        ("class: Fire, when: 'Temperature > 8', within: 1, for: {}", "begin or end in for", ""),
        ("class: Fire, when: 'Temperature > 8', within: 1, for: {end: -1}", ENDING, ""),
        ("class: Fire, when: 'Temperature > 8', with-in: 1", "a field of a situation rule", "did you mean within?"),
    ],
)  # fmt: skip
def test_bad_rules(written: str, expected: str, advice: str, tmp_path: Path) -> None:
    """What is wrong with a rule is told where it stands, with the closest name there is."""
    found = faults(f"situations:\n  - {{id: r, {written}}}\n", tmp_path)[0]
    assert (expected, advice) == (found.expected, found.advice)
    assert found.where is not None and found.where.line == 3


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("when: Fire", "one of publish, webhook, run in an action"),
        ("when: 'Temperature > 8', run: x", "a situation"),
        ("when: Temperature, run: x", "a situation"),
        ("when: Fyre, run: x", "a situation of the ontology"),
        ("when: Fire, publish: {type: nearcast.client}", "a type of events that tell of the world"),
        ("when: Fire, publish: {type: a, data: {t: 'at {plaec}'}}", "a name in braces that is known"),
        ("when: Fire, webhook: {url: 'ftp://x'}", "a URL, http:// or https://"),
        ("when: Fire, webhook: {url: 'http://x', secret: 'p@ss'}", "the name of an environment variable"),
        ("when: Fire, publish: {type: a, data: {t: [1, 9223372036854775808]}}", "an integer within 64 bits"),
        ("when: Fire, publish: {type: a, data: {t: {u: .inf}}}", "a finite number"),
        ("when: Fire, run: {name: x, arguments: {t: -9223372036854775809}}", "an integer within 64 bits"),
        ("when: Fire, run: x, phases: [start]", "one of begin, update, end"),
        ("when: Fire, run: x, phases: []", "at least one of begin, update, end"),
    ],
)
def test_bad_actions(written: str, expected: str, tmp_path: Path) -> None:
    """What is wrong with an action is told; a secret is not repeated."""
    (found,) = faults(f"actions:\n  - {{id: r, {written}}}\n", tmp_path)
    assert expected == found.expected
    assert "p@ss" not in str(found)


def test_cycles_of_rules_are_told_with_their_way(tmp_path: Path) -> None:
    """A rule that stands on itself, over other rules, is refused."""
    text = """\
situations:
  - {id: one, class: Fire, when: Alarm, within: 5}
  - {id: two, class: Drill, when: "Fire AND Humidity > 1", within: 5}
  - {id: three, class: Alarm, when: "NOT Drill", within: 5}
"""
    (found,) = faults(text, tmp_path)
    assert "a cycle, one → three → two → one" == found.came
    assert found.where is not None and 3 == found.where.line


def test_every_cycle_of_rules_is_told(tmp_path: Path) -> None:
    """Each at one of its rules."""
    text = """\
situations:
  - {id: one, class: Fire, when: "NOT Fire", within: 5}
  - {id: two, class: Alarm, when: "NOT Alarm", within: 5}
"""
    assert ["a cycle, one → one", "a cycle, two → two"] == [one.came for one in faults(text, tmp_path)]


def test_a_necessary_rule_may_close_a_cycle(tmp_path: Path) -> None:
    """What a class' necessary conditions name, its rules stand on."""
    text = """\
situations:
  - {id: one, class: Fire, when: "Humidity > 1", within: 5}
  - {id: two, class: Alarm, when: Fire, within: 5}
  - {id: must, class: Fire, when: "NOT Alarm", within: 5, sufficient: false}
"""
    (found,) = faults(text, tmp_path)
    assert "a cycle, one → two → one" == found.came


def test_each_once(tmp_path: Path) -> None:
    """An id is that of one rule, and that of one action."""
    rule = "{id: r, class: Fire, when: 'Temperature > 8', within: 1}"
    action = "{id: r, when: Fire, run: x}"
    found = faults(f"situations: [{rule}, {rule}]\nactions: [{action}, {action}]\n", tmp_path)
    assert ["each situation rule once", "each action once"] == [fault.expected for fault in found]


def test_what_nothing_concludes_is_a_warning(tmp_path: Path) -> None:
    """A situation that no rule concludes, or only a necessary rule, is hardly meant."""
    text = PROMISED.replace("when: Fire,", 'when: "Fire AND Drill",')
    assert ["a rule that concludes Drill"] == [one.expected for one in defined(text, tmp_path).warnings]
    text = PROMISED.replace("valid: 10 s", "sufficient: false")
    expected = ["a rule that concludes Fire", "a sufficient rule for Fire"]
    assert expected == [one.expected for one in defined(text, tmp_path).warnings]
    assert check([tmp_path / "d.yaml"]).good
    text = PROMISED.replace("valid: 10 s", "sufficient: false, for: 5 s")
    assert [*expected, "for in a rule that is sufficient"] == [one.expected for one in defined(text, tmp_path).warnings]


UNITS = """\
classes:
  Weather:
  Temperature: {is: Weather, unit: degC, range: [-90, 2000]}
  Humidity: {is: Weather, unit: percent, range: [0, 100]}
  Ground: {is: Humidity}
  Inside: {unit: degF}
  Smoke:
  Speed: {unit: m/s}
  Time: {unit: s}
  Way: {unit: m}
  Far: {unit: km}
situations: {Fire: }
"""


def ruled(when: str, folder: Path) -> DefinitionSet:
    """The definitions of a rule with these conditions over classes that have units."""
    (folder / "units.yaml").write_text(UNITS, encoding="utf-8")
    rule = f'{{id: r, class: Fire, within: 1, when: "{when}"}}'
    (folder / "d.yaml").write_text(f"ontology: units.yaml\nsituations:\n  - {rule}\n", encoding="utf-8")
    return load([folder / "d.yaml"])


@pytest.mark.parametrize(
    ("when", "expected", "came"),
    [
        ("Temperature > Smoke", "a value in degC beside Temperature", "Smoke, which has no unit"),
        ("Smoke < Temperature", "a value in degC beside Temperature", "Smoke, which has no unit"),
        ("Temperature > Inside", "a value in degC beside Temperature", "Inside, in degF"),
        ("Temperature - Humidity > 80", "a value in degC beside Temperature", "Humidity, in percent"),
        ("Temperature BETWEEN Humidity AND 80", "a value in degC beside Temperature", "Humidity, in percent"),
        ("Temperature BETWEEN Ground AND 80", "a value in degC beside Temperature", "Ground, in percent"),
        ("Speed * Time > Far", "a value in meter beside Speed and Time", "Far, in km"),
        ("Temperature = CASEI(Smoke)", "a number to compare with Temperature", "a text, Smoke"),
        ("CASEI(Temperature) = 'hot'", "a class of texts", "Temperature, in degC"),
        ("Temperature + 1 > 'hot'", "a number to compare with the arithmetic sign +", "'hot'"),
        ("Ground > 'hot'", "a number to compare with Ground, in percent", "'hot'"),
    ],
)
def test_values_of_two_kinds_or_units_are_not_compared(when: str, expected: str, came: str, tmp_path: Path) -> None:
    """Classes in units that are not the same, a number with a text: a fault at the condition."""
    with pytest.raises(DefinitionError) as caught:
        ruled(f"Way > 1 AND {when}", tmp_path)
    (found,) = caught.value.faults
    assert (expected, came) == (found.expected, found.came)
    assert found.where is not None and 3 == found.where.line and (found.where.column or 0) > 50


@pytest.mark.parametrize(
    "when",
    ["Speed * Time > Way", "Way / Time > Speed + 1", "Humidity > Ground", "Way / Way > 2", "Time > 60 * (Way / Speed)"],
)
def test_values_of_one_unit_are_compared(when: str, tmp_path: Path) -> None:
    """Units are computed with; a class has that of the class it is one of."""
    assert () == ruled(when, tmp_path).warnings


READ = "readings of Humidity are from 0 to 100"


@pytest.mark.parametrize(
    ("when", "expected", "advice"),
    [
        ("Humidity > 150", "an atom that can hold", READ),
        ("Humidity >= 101 OR Way > 1", "an atom that can hold", READ),
        ("Humidity < 0", "an atom that can hold", READ),
        ("-1 = Humidity", "an atom that can hold", READ),
        ("NOT Humidity < 101", "an atom that can be false", READ),
        ("Humidity IN (101, 102)", "an atom that can hold", READ),
        ("Humidity BETWEEN 101 AND 103", "an atom that can hold", READ),
        ("Ground > 100", "an atom that can hold", "readings of Ground are from 0 to 100"),
        ("Weather > 50", "a condition on values of one unit, not Weather", "name one of Ground, Humidity, Temperature"),
    ],
)
def test_what_no_reading_fulfils_is_a_warning(when: str, expected: str, advice: str, tmp_path: Path) -> None:
    """A condition outside the range of its class, or on values in several units, is taken with a warning."""
    (found,) = ruled(when, tmp_path).warnings
    assert (expected, advice) == (found.expected, found.advice)
    assert found.where is not None and 3 == found.where.line


@pytest.mark.parametrize(
    "when", ["Humidity >= 100", "NOT Humidity < 100", "Humidity IN (100, 101)", "Humidity BETWEEN 90 AND 110"]
)
def test_what_a_reading_at_the_bound_fulfils_is_meant(when: str, tmp_path: Path) -> None:
    """The bounds of a range are readings."""
    assert () == ruled(when, tmp_path).warnings


def test_what_events_do_not_provide_is_a_warning(tmp_path: Path) -> None:
    """Checked with events, a rule over a class of which they bring no reading is told, by its condition."""
    ruled("Humidity > 50 AND Inside > 10 AND Far > 1", tmp_path)
    event = '{"specversion": "1.0", "id": "1", "type": "t", "source": "s", "data": {"Ground": 4, "Far": {"value": 3}}}'
    (tmp_path / "e.jsonl").write_text(event, encoding="utf-8")
    (found,) = check([tmp_path / "d.yaml", tmp_path / "e.jsonl"]).warnings
    assert ("a reading of Inside", "none in these events") == (found.expected, found.came)
    assert found.where is not None and 3 == found.where.line
    assert () == check([tmp_path / "d.yaml"]).warnings


def test_names_are_those_of_the_settings_of_then() -> None:
    """A rule in a control event is read under the ontology at its position."""
    event = to_event(SituationChange(replace(RULES[0], id="x")), "c", "s")
    with pytest.raises(Exception, match="a situation of the ontology"):
        changes(event, Settings())


def test_a_file_is_named_in_definition_files_only() -> None:
    """A control event brings its ontology along."""
    data: dict[str, Any] = {"specversion": "1.0", "id": "c", "type": "nearcast.settings", "source": "s"}
    event = read_event({**data, "data": {"ontology": "weather.yaml"}}, HERE)
    with pytest.raises(Exception, match="a file can be named in a definition file only"):
        changes(event, Settings())


@pytest.mark.parametrize(
    ("expected", "when"),
    [
        ("a time of at most 600 s, for which a silent entity is kept", "AVG(Temperature, 11 min) > 8"),
        ("at most 100 readings, which are kept of an entity", "NOT COUNT(Temperature, 10 min, 101) > 200"),
        ("at most 50 entities, which are counted", "count(uform(type = 'person')) > 50"),
    ],
)
def test_a_time_over_which_too_little_is_kept_is_a_warning(expected: str, when: str, tmp_path: Path) -> None:
    """Longer than a silent entity is, or of more readings than are."""
    limits = "limits: {entity_age: 10 min, window_readings: 100, counted_entities: 50}\n"
    text = PROMISED.replace("Temperature > 80 AND Humidity < 10", when)
    assert [expected] == [one.expected for one in defined(limits + text, tmp_path).warnings]
    assert () == defined(text, tmp_path).warnings


@pytest.mark.parametrize(
    ("advice", "old", "new"),
    [
        ("only several readings around", "Humidity < 10", "Temperature < 70"),
        ("its atoms exclude one another", "Humidity < 10", "NOT Temperature > 80"),
        ("its lower bound is above its upper one", "Humidity < 10", "Humidity BETWEEN 3 AND 2"),
        ("a count is never below 0", "Humidity < 10", "count(uform(kind = 3)) < 0"),
        ("its atoms exclude one another", "when: Fire", "when: 'Fire AND NOT Fire'"),
        ("plug-ins have entry points", "publish: {type: alert, data: {text: \"fire near {place}\"}}", "run: nosuch"),
    ],
)  # fmt: skip
def test_what_is_hardly_meant_is_a_warning(advice: str, old: str, new: str, tmp_path: Path) -> None:
    """Conditions that exclude one another, and actions that no package registers, are taken with a warning."""
    (found,) = defined(PROMISED.replace(old, new), tmp_path).warnings
    assert found.advice.startswith(advice)
    assert found.where is not None and found.where.line is not None
