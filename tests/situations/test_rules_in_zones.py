"""Rules that look into the zones of a layer: a situation for each, while zones come, change and go."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.cli.explain_rule import rule_lines
from nearcast.model.changes import Change, ZoneRemoval, ZoneRuleChange
from nearcast.model.event import Event
from nearcast.situations.stage import SituationStage
from nearcast.situations.stored_situations import situations_document, situations_of
from nearcast.state.registry import Registry
from nearcast.testing.situations import PlainScene
from tests.situations.scenes import advanced, data_of, defined, phases, rule, table_of, told
from tests.situations.test_entity_counts import PEOPLE, person, staged
from tests.situations.test_lasting import END
from tests.state.stored import read_again
from tests.zones.stories import box, zone, zones
from tests.zones.stories import rule as zone_rule

SCENES = pytest.mark.parametrize("scene", [None, PlainScene], ids=["indexed", "plain"])
WEST, EAST, WIDE = zone("west", box(0, -5, 50, 5)), zone("east", box(50, -5, 100, 5)), zone("wide", box(0, -5, 100, 5))
LAYER: list[Change] = [ZoneRuleChange(zone_rule(of="type = 'nobody'")), zones(WEST, EAST)]


def crowd(least: int, **fields: Any) -> Any:
    """A rule that so many people in one zone are a hazard."""
    return rule(
        "crowd", "Hazard", f"count({PEOPLE}) >= {least}", **{"within": None, "valid": None, **fields}, layer="depots"
    )


def at_start(*changes: Change) -> list[tuple[int, Change]]:
    return [(0, change) for change in changes]


def zones_told(events: list[Event]) -> list[tuple[int, str, str]]:
    """Position, zone and phase of every situation's event."""
    return [(one.position, data_of(one)["zone"], data_of(one)["phase"]) for one in events]


@SCENES
def test_each_zone_has_a_situation_of_its_own(scene: type[PlainScene] | None) -> None:
    """Who is on the boundary is in both; whom the layer watches does not matter; who goes over leaves one."""
    events = [person(0, "a", 0), person(1, "b", 50), person(2, "c", 99), person(3, "b", 60), person(4, "far", 500)]
    found = advanced(staged(scene), [*defined([crowd(2)]), *at_start(*LAYER)], table_of(events))
    assert [(2, "west", "begin"), (3, "east", "begin"), (4, "west", "end")] == zones_told(found)
    data = data_of(found[0])
    assert ("depots", "west", "building-7") == (data["layer"], data["zone"], data["place"])
    assert ("east", 2) == (data_of(found[1])["place"], data_of(found[1])["count"])


@SCENES
def test_zones_count_from_the_moment_they_are_there(scene: type[PlainScene] | None) -> None:
    """Whoever is in one then counts in it, and it begins with the next report; one that goes takes its own along."""
    stage = staged(scene)
    before = [*defined([crowd(2)]), (0, LAYER[0])]
    advanced(stage, before, table_of([person(0, "a", 10), person(1, "b", 60)]))
    found = advanced(stage, [(3, zones(WIDE))], table_of([person(2, "c", 70)], 3))
    assert [(4, "wide", "begin")] == zones_told(found)
    changed = [(5, zones(WEST, removed=["wide"]))]
    found = advanced(stage, changed, table_of([person(3, "d", 500), person(4, "b", 20)], 5))
    assert [(5, "wide", "end"), (7, "west", "begin")] == zones_told(found)
    assert "removed" == data_of(found[0])["reason"]
    [ended] = advanced(stage, [(8, ZoneRemoval("depots"))], table_of([], 8))
    assert ("end", "removed", "west") == tuple(data_of(ended)[name] for name in ("phase", "reason", "zone"))


@SCENES
def test_a_zone_that_is_another_now_counts_who_is_in_it(scene: type[PlainScene] | None) -> None:
    """By their newest reports, also of those that wait for their moments."""
    stage = staged(scene)
    patient = crowd(2, lateness=5)
    events = [person(0, "a", 10), person(1, "b", 10), person(4, "c", 60)]
    found = advanced(stage, [*defined([patient]), *at_start(*LAYER)], table_of(events))
    moved = [(4, zones(zone("west", box(50, -5, 100, 5)), zone("east", box(0, -5, 50, 5))))]
    found += advanced(stage, moved, table_of([person(8, "d", 60), person(30, "e", 500)], 4))
    assert [(5, "east", "begin"), (6, "west", "begin")] == zones_told(found)


@SCENES
def test_any_condition_may_look_into_zones(scene: type[PlainScene] | None) -> None:
    """Readings in the same zone, however far; rules above ask for what is in it; `explain` says in which."""
    stage = staged(scene)
    hot = rule("hot", "Fire", "Temperature > 80 AND Humidity < 10", within=None, layer="depots")
    upper = rule("upper", "Alarm", "Fire AND NOT Drill", within=None, area="building-7", valid=None)
    drill = rule("drill", "Drill", "Button = TRUE", within=None, layer="depots", valid=None)
    events = [
        told(0, "button", 20, Button=False),
        told(1, "t", 45, Temperature=90),
        told(2, "h", 55, Humidity=5),
        told(3, "g", 1, Humidity=5),
        told(4, "button", 20, Button=True),
    ]
    changes = [*defined([hot, upper, drill]), *at_start(*LAYER)]
    found = advanced(stage, changes, table_of(events))
    assert [(4, "hot", "begin"), (4, "upper", "begin"), (5, "drill", "begin"), (5, "upper", "end")] == phases(found)
    assert "rule hot, in zone west of depots: TRUE" in "\n".join(rule_lines(stage.find("hot", events[1])))
    outside = "\n".join(rule_lines(stage.find("hot", told(4, "button", 500))))
    assert "rule hot, in a zone of depots: button is in none: UNKNOWN" in outside


def test_it_goes_on_from_what_is_kept() -> None:
    """Counts, situations in zones and the zones themselves are those of a registry of the same position."""
    registry = Registry()
    changes = [*defined([crowd(2), crowd_of_two_in_time()]), *at_start(*LAYER)]
    for _, change in changes:
        registry.apply(change)
    events = [person(0, "a", 0), person(1, "b", 10), person(2, "c", 99), person(3, "d", 60), person(4, "b", 500), END]
    whole = advanced(SituationStage(), changes, table_of(events))
    for cut in range(1, len(events)):
        stage = SituationStage()
        found = advanced(stage, changes, table_of(events[:cut]))
        again = situations_of(read_again(situations_document(stage, registry)), registry)
        found += advanced(again, [], table_of(events[cut:], cut))
        assert [one.payload for one in whole] == [one.payload for one in found]


def crowd_of_two_in_time() -> Any:
    return rule("patient", "Drill", f"count({PEOPLE}) = 2", within=None, valid=3, layer="depots", lateness=2)


# Of each step a report, or other zones.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3), st.sampled_from("abcd"), st.sampled_from([0, 20, 50, 80, 300, None])),
        st.sampled_from(
            [
                zones(WIDE),
                zones(removed=["wide"]),
                zones(zone("west", box(40, -5, 90, 5))),
                zones(WEST),
                ZoneRemoval("depots"),
            ]
        ),
    ),
    max_size=20,
)


@given(STEPS, st.integers(1, 2), st.sampled_from([None, 4]), st.lists(st.integers(1, 20), max_size=3))
def test_indexes_and_cuts_change_nothing(steps: list[Any], least: int, valid: float | None, cuts: list[int]) -> None:
    """While zones come, change and go."""
    rules = [
        crowd(least, valid=valid),
        rule("few", "Fire", f"count({PEOPLE}) < 2", within=None, valid=valid, layer="depots", lateness=2, end=1.0),
        rule("upper", "Emergency", "Hazard AND NOT Fire", within=None, layer="depots", valid=None),
        rule("around", "Alarm", "NOT Hazard AND Drill", valid=valid),
        rule("drill", "Drill", f"count({PEOPLE}) >= 1", valid=valid),
    ]
    start = [*defined(rules), *at_start(*LAYER)]
    plain = _told(SituationStage(PlainScene), start, steps, [])
    assert plain == _told(SituationStage(), start, steps, cuts)


def _told(
    stage: SituationStage, start: list[tuple[int, Change]], steps: list[Any], cuts: list[int]
) -> list[tuple[int, bytes]]:
    found = advanced(stage, start, table_of([]))
    bounds, second = [0, *sorted({cut for cut in cuts if cut < len(steps)}), len(steps)], 0.0
    for first, last in pairwise(bounds):
        events, changes = [], []
        for position, step in enumerate(steps[first:last], first + 1):
            if isinstance(step, tuple):
                second += step[0]
                events.append((position, person(second, step[1], step[2])))
            else:
                changes.append((position, step))
        tables = [table_of([one], position - 1) for position, one in events]
        found += advanced(stage, changes, _joined(tables))
    return [(one.position, one.payload) for one in found]


def _joined(tables: list[Any]) -> Any:
    import pyarrow as pa

    return pa.concat_tables(tables) if tables else table_of([])
