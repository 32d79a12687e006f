"""Situations begin, are updated and end: the outcome of rules over readings."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.language.cloudevents import read_line
from nearcast.model.event import Place
from nearcast.model.ontology import ContextClass, Ontology, SituationClass, cycle
from nearcast.situations import rule_plan
from nearcast.situations.rule_plan import rule_cycle, standing_on
from tests.situations.scenes import FIRE, ONTOLOGY, data_of, ends, inferred, phases, rule, told


def test_two_devices_together_make_a_fire() -> None:
    """Temperature of one device and humidity of another within 100 m make a situation, at the completing reading."""
    found = inferred([FIRE], [told(0, "a", 0, Temperature=90), told(3, "b", 60, Humidity=5)])
    assert [(2, "fire", "begin")] == phases(found)
    data = data_of(found[0])
    assert {"Temperature": 90, "Humidity": 5} == data["readings"]
    assert [("a", 3.0), ("b", 0.0)] == [(one["entity"], one["age"]) for one in data["evidence"]]
    assert {"x": 60.0, "y": 0.0} == data["position"]
    assert "fire@2" == data["id"] == found[0].subject
    assert Place("planar", 60, 0) == found[0].place


def test_what_is_told_is_an_ordinary_event() -> None:
    """The payload read at the door gives the same event: type, attributes, place."""
    found = inferred([FIRE], [told(0, "a", 0, Temperature=90, Humidity=5)])[0]
    read = read_line(found.payload.replace(b"nearcast.situation", b"other.situation"), Mark("f"))
    assert found.attributes == read.attributes
    assert found.place == read.place
    assert (found.id, found.source, found.subject, found.time) == (read.id, read.source, read.subject, read.time)


def test_far_apart_is_no_situation() -> None:
    """Readings farther apart than the rule's validity have nothing to do with each other."""
    assert [] == inferred([FIRE], [told(0, "a", 0, Temperature=90), told(3, "b", 101, Humidity=5)])


def test_stale_is_unknown() -> None:
    """A reading counts for as long as it is valid, to the last microsecond."""
    assert [(2, "fire", "begin")] == phases(inferred([FIRE], [told(0, "a", Temperature=90), told(10, "b", Humidity=5)]))
    assert [] == inferred([FIRE], [told(0, "a", Temperature=90), told(10.000001, "b", Humidity=5)])


def test_it_ends_when_a_condition_is_false() -> None:
    """A reading that no longer satisfies its condition ends the situation, and is said to."""
    found = inferred([FIRE], [told(0, "a", Temperature=90, Humidity=5), told(1, "a", Temperature=20)])
    assert [(1, "fire", "begin"), (2, "fire", "end")] == phases(found)
    assert [(2, "false")] == ends(found)


def test_it_ends_when_a_reading_is_too_old() -> None:
    """Time passes with the events of the journal, whoever they are of: the first behind the validity ends it."""
    events = [told(0, "a", Temperature=90, Humidity=5), told(10, "z", 9999), told(11, "z", 9999), told(12, "z", 9999)]
    found = inferred([FIRE], events)
    assert [(3, "stale")] == ends(found)
    # It ended when the reading became too old, though only the next event told so.
    assert "2026-01-01T00:00:10.000001Z" == data_of(found[-1])["moment"]


def test_it_ends_when_its_reading_leaves() -> None:
    """A sensor that went away tells nothing of where it was."""
    found = inferred(
        [FIRE], [told(0, "a", 0, Temperature=90), told(0, "b", 0, Humidity=5), told(1, "a", 500, Temperature=90)]
    )
    assert [(3, "unknown")] == ends(found)


def test_another_reading_takes_over() -> None:
    """What a situation rests on may change: that is an update."""
    events = [
        told(0, "a", Temperature=90, Humidity=5),
        told(1, "b", 10, Temperature=95),
        told(2, "a", Temperature=20),
        told(3, "a", Humidity=6),
    ]
    found = inferred([FIRE], events)
    assert [(1, "fire", "begin"), (3, "fire", "update"), (4, "fire", "update")] == phases(found)
    assert {"Temperature": 95, "Humidity": 6} == data_of(found[-1])["readings"]


def test_one_fire_is_one_situation() -> None:
    """Completing readings near a running situation do not begin a second one; far from it they do."""
    events = [told(0, "a", 0, Temperature=90, Humidity=5), told(1, "b", 80, Temperature=91, Humidity=4)]
    assert [(1, "fire", "begin")] == phases(inferred([FIRE], events))
    events = [told(0, "a", 0, Temperature=90, Humidity=5), told(1, "b", 180, Temperature=91, Humidity=4)]
    assert [(1, "fire", "begin"), (2, "fire", "begin")] == phases(inferred([FIRE], events))


def test_a_situation_moves_with_what_makes_it() -> None:
    """Where the rule no longer holds around its seat but around the reading that came, the situation moves there."""
    found = inferred([FIRE], [told(s, "a", 60 * s, Temperature=90, Humidity=5) for s in range(4)])
    assert [(1, "fire", "begin"), (3, "fire", "update")] == phases(found)
    assert {"x": 120.0, "y": 0.0} == data_of(found[-1])["position"]


def test_a_class_is_served_by_its_subclasses() -> None:
    """Temperature is weather, so a rule on weather takes it; attributes declared for a class are readings of it."""
    weather = rule("hot", "Hazard", "Weather > 80")
    found = inferred([weather], [told(0, "a", temp=90)])
    assert {"Weather": 90} == data_of(found[0])["readings"]
    assert ["Temperature"] == [one["class"] for one in data_of(found[0])["evidence"]]


def test_units_are_converted() -> None:
    """A reading in another unit becomes one in the class' own; a unit that does not convert is no reading."""
    hot = rule("hot", "Hazard", "Temperature > 99.9 AND Temperature < 100.1")
    assert ["hot"] == [rule for _, rule, _ in phases(inferred([hot], [told(0, "a", fahrenheit=212)]))]
    stated = told(0, "a", **{"Temperature.value": 373.15, "Temperature.unit": "kelvin"})
    assert ["hot"] == [rule for _, rule, _ in phases(inferred([hot], [stated]))]
    assert [] == inferred([hot], [told(0, "a", **{"Temperature.value": 100, "Temperature.unit": "m"})])


def test_values_out_of_range_are_none() -> None:
    """A humidity below 0 is no reading: the last one stays."""
    events = [told(0, "a", Temperature=90, Humidity=5), told(1, "a", Humidity=-1)]
    assert [(1, "fire", "begin")] == phases(inferred([FIRE], events))


def test_a_class_has_unit_and_range_of_the_one_above() -> None:
    """A reading of a class is one of the class above it too, so it is in that one's unit and range."""
    classes = (
        ContextClass("Heat", (), "degC", -90, 2000),
        ContextClass("Inside", ("Heat",), attributes=(("f", "degF"),)),
    )
    ontology = Ontology(classes, (SituationClass("Fire"),))
    hot = rule("hot", "Fire", "Heat > 99")
    assert ["hot"] == [rule for _, rule, _ in phases(inferred([hot], [told(0, "a", f=212)], ontology=ontology))]
    assert [] == inferred([hot], [told(0, "a", f=190), told(1, "b", Inside=2001)], ontology=ontology)


def test_a_place_contains_its_parts() -> None:
    """A rule in a building takes readings by outline, by entity and by name, of its rooms too, and no others."""
    there = rule("fire", "Fire", "Temperature > 80 AND Humidity < 10", within=None, area="building-7")
    hot = told(0, "a", 40, Temperature=90)
    assert [(2, "fire", "begin")] == phases(inferred([there], [hot, told(0, "inside", None, Humidity=5)]))
    assert [(2, "fire", "begin")] == phases(inferred([there], [hot, told(0, "b", None, Humidity=5, place="room-1")]))
    assert [] == inferred([there], [hot, told(0, "b", 51, Humidity=5)])
    found = inferred([there], [hot, told(0, "inside", None, Humidity=5)])
    assert "room-1" == data_of(found[0])["place"]


def test_of_what_is_nowhere_the_entity_counts() -> None:
    """Readings without a place go together if one entity has them."""
    assert [(2, "fire", "begin")] == phases(
        inferred([FIRE], [told(0, "a", None, Temperature=90), told(1, "a", None, Humidity=5)])
    )
    assert [] == inferred([FIRE], [told(0, "a", None, Temperature=90), told(1, "b", None, Humidity=5)])


def test_an_entity_is_where_it_last_was() -> None:
    """A reading without a place is where its entity was told to be, by whatever event."""
    events = [told(0, "a", 10), told(1, "a", None, Temperature=90), told(1, "b", 0, Humidity=5)]
    assert [(3, "fire", "begin")] == phases(inferred([FIRE], events))


def test_rules_stand_on_rules() -> None:
    """A situation makes a condition of another rule true while it is, and the end of one ends the other."""
    alarm = rule("alarm", "Alarm", "Hazard AND Button = TRUE")
    events = [told(0, "b", Button=True), told(1, "a", Temperature=90, Humidity=5), told(2, "a", Humidity=50)]
    found = inferred([alarm, FIRE], events)
    assert [(2, "fire", "begin"), (2, "alarm", "begin"), (3, "fire", "end"), (3, "alarm", "end")] == phases(found)
    assert "fire@2" == data_of(found[1])["evidence"][0]["situation"]


def test_not_a_situation_must_be_known() -> None:
    """NOT Drill is unknown until something tells that there is none: a rule for it that is false, or a reading."""
    alarm = rule("alarm", "Alarm", "Fire AND NOT Drill")
    drill = rule("drill", "Drill", "Button = TRUE")
    fire = told(0, "a", Temperature=90, Humidity=5)
    assert [(1, "fire", "begin")] == phases(inferred([FIRE, drill, alarm], [fire]))
    both = [(1, "fire", "begin"), (2, "alarm", "begin")]
    assert both == phases(inferred([FIRE, drill, alarm], [fire, told(1, "b", Button=False)]))
    assert both == phases(inferred([FIRE, drill, alarm], [fire, told(1, "b", Drill=False)]))
    drilled = inferred([FIRE, drill, alarm], [fire, told(1, "b", Button=False), told(2, "b", Button=True)])
    assert [*both, (3, "drill", "begin"), (3, "alarm", "end")] == phases(drilled)


def test_where_a_part_is_its_whole_is() -> None:
    """A request for a class or situation is served by its parts, begin and end."""
    air = rule("air", "Alarm", "Air = TRUE")
    assert [(1, "air", "begin")] == phases(inferred([air], [told(0, "a", Smoke=True)]))
    alarm = rule("alarm", "Alarm", "Emergency AND Button = TRUE")
    events = [told(0, "b", Button=True), told(1, "a", Temperature=90, Humidity=5), told(2, "a", Humidity=50)]
    found = phases(inferred([alarm, FIRE], events))
    assert [(2, "fire", "begin"), (2, "alarm", "begin"), (3, "fire", "end"), (3, "alarm", "end")] == found


def test_what_is_asked_of_a_whole_is_not_asked_of_its_parts() -> None:
    """A necessary condition of an emergency refutes no fire, which is part of one; one of a hazard does: it is one."""
    events = [told(0, "b", Button=False), told(1, "a", Temperature=90, Humidity=5)]
    needed = [rule("needed", name, "Button = TRUE", sufficient=False) for name in ("Emergency", "Hazard")]
    assert [(2, "fire", "begin")] == phases(inferred([FIRE, needed[0]], events))
    assert [] == inferred([FIRE, needed[1]], events)


def test_that_there_is_no_part_says_nothing_of_the_whole() -> None:
    """Without a fire there may be an emergency still; without an emergency there is none."""
    calm = rule("calm", "Alarm", "NOT Emergency")
    assert [] == inferred([calm], [told(0, "a", Fire=False)])
    assert [(1, "calm", "begin")] == phases(inferred([calm], [told(0, "a", Emergency=False)]))
    assert [] == inferred([calm], [told(0, "a", Emergency=False, Fire=True)])


def test_a_necessary_condition_refutes() -> None:
    """A rule that is not sufficient begins nothing; where it is false there is no such situation, or no longer."""
    smoke = rule("smoke", "Fire", "Smoke = TRUE", sufficient=False)
    fire = told(0, "a", Temperature=90, Humidity=5)
    assert [(1, "fire", "begin")] == phases(inferred([FIRE, smoke], [fire]))
    assert [] == inferred([FIRE, smoke], [told(0, "s", Smoke=True)])
    assert [] == inferred([FIRE, smoke], [told(0, "s", Smoke=False), fire])
    assert [(2, "refuted by smoke")] == ends(inferred([FIRE, smoke], [fire, told(0, "s", Smoke=False)]))


def test_late_readings_count_as_if_in_order() -> None:
    """Within the stated lateness a reading counts at its own time; what let it be decided is the cause."""
    patient = rule("fire", "Fire", "Temperature > 80 AND Humidity < 10", lateness=5)
    events = [
        told(10, "a", Temperature=90),
        told(12, "a", Temperature=20, came=13),
        told(11, "b", Humidity=5, came=14),
        told(20, "z", 9999),
    ]
    found = inferred([patient], events)
    assert [(4, "fire", "begin"), (4, "fire", "end")] == phases(found)
    assert "2026-01-01T00:00:11Z" == data_of(found[0])["since"]
    # In the order of the journal the temperature was 20 when the humidity came.
    assert [] == inferred([FIRE], events)


def test_late_by_all_that_is_awaited_is_still_in_time() -> None:
    """A reading that comes as late as it may takes its place among those of its moment."""
    patient = rule("fire", "Fire", "Temperature > 80 AND Humidity < 10", lateness=5)
    hot, dry, last = told(10, "b", 60, Temperature=90), told(10, "a", 0, came=15, Humidity=5), told(30, "z", 9999)
    found, _ = inferred([patient], [hot, told(15, "z", 9999), dry, last])
    assert (60, "2026-01-01T00:00:10Z") == (data_of(found)["x"], data_of(found)["since"])


def test_a_clock_that_is_ahead_does_no_harm() -> None:
    """A reading is not younger than the event that brought it."""
    events = [told(3600, "a", Temperature=90, came=0), told(30, "b", Humidity=5)]
    assert [] == inferred([FIRE], events)


some_names = st.sampled_from(["Fire", "Hazard", "Emergency", "Drill", "Alarm", "Smoke"])
any_rules = st.lists(
    st.builds(
        lambda one, other, concludes, sufficient: (concludes, f"{one} = TRUE AND NOT {other} = TRUE", sufficient),
        some_names,
        some_names,
        st.sampled_from(["Fire", "Hazard", "Emergency", "Drill", "Alarm"]),
        st.booleans(),
    ),
    max_size=7,
)


@given(any_rules)
def test_rules_stand_on_themselves_where_a_way_of_rules_leads_back(found: list[tuple[str, str, bool]]) -> None:
    """Looked for by what rules conclude, a cycle is found just where one is of rules, and is one of rules."""
    rules = [rule(f"r{n}", concludes, when, sufficient=one) for n, (concludes, when, one) in enumerate(found)]
    standing = standing_on(rules, ONTOLOGY)
    way = rule_cycle(rules, ONTOLOGY)
    assert (cycle(standing) is None) == (way is None)
    assert way is None or (way[0] == way[-1] and all(lower in standing[upper] for upper, lower in pairwise(way)))


def test_to_define_a_rule_costs_no_look_at_all_pairs_of_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which rules stand on which is listed where there is a cycle to be told, not for each definition."""
    monkeypatch.setattr(rule_plan, "standing_on", None)
    rules = [rule("fire", "Fire", "Temperature > 80"), rule("alarm", "Alarm", "Fire"), rule("drill", "Drill", "Alarm")]
    assert rule_cycle(rules, ONTOLOGY) is None
