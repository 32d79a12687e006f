"""Zones as people draw and change them: poles, meridians, margins, other coordinates, and zones that become others."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from nearcast.model.changes import ZoneRuleChange
from nearcast.zones.stage import ZoneStage
from tests.relations.stories import Step, report
from tests.zones.stories import Restarted, box, events_told, plainly_told, rule, summaries, zone, zones

STATES = ["inside", "outside"]
YARD, HALF, FAR = box(0, 0, 10, 10), box(0, 0, 5, 10), box(50, 50, 60, 60)


def told(story: list[Step]) -> list[tuple[Any, ...]]:
    """What a story tells in short, which is what the reference tells, and what a stage that is stored tells."""
    events = events_told(ZoneStage(), story)
    assert plainly_told(story) == events == events_told(Restarted(), story, range(len(story)))
    return summaries(ZoneStage(), story)


@pytest.mark.parametrize(
    ("shape", "place", "inside"),
    [
        (box(-180, 80, 180, 90), (123.0, 85.0), True),
        (box(-180, 80, 180, 90), (180.0, 90.0), True),
        (box(-180, 80, 180, 90), (0.0, 79.9), False),
        (box(0, 80, 10, 90), (5.0, 90.0), True),
        # A pole has the longitude that is written.
        (box(0, 80, 10, 90), (50.0, 90.0), False),
        (box(-180, -90, 180, 90), (-180.0, -90.0), True),
        (box(170, -10, 190, 10), (-175.0, 0.0), True),
        (box(170, -10, 190, 10), (-169.9, 0.0), False),
        (box(-540 + 360, 0, -175, 5), (180.0, 2.0), True),
    ],
)
def test_zones_at_poles_and_around_the_globe(shape: dict[str, Any], place: tuple[float, float], inside: bool) -> None:
    """Longitude and latitude are a plane whose sides at 180 degrees are one."""
    story: list[Step] = [
        ZoneRuleChange(rule(coordinates="geographic", detect=STATES)),
        zones(zone("cap", shape, coordinates="geographic")),
        report("van", *place, second=0, geographic=True),
    ]
    assert ["inside" if inside else "outside"] == [one[1] for one in told(story)]


def test_who_is_within_the_margin_goes_on_lasting() -> None:
    """Out of the zone by less than the margin one is still in it, also for how long."""
    story: list[Step] = [
        ZoneRuleChange(rule(margin=3, lasting=10)),
        zones(zone("yard", YARD)),
        report("van", 5, 5, second=0),
        report("van", 12, 5, second=6),
        report("van", 12, 5, second=11),
        report("van", 14, 5, second=12),
        report("van", 12, 5, second=13),
    ]
    expected = [(3, "enter", "van", "yard"), (5, "dwell", "van", "yard"), (6, "exit", "van", "yard")]
    assert expected == told(story)


def test_a_zone_that_changes_around_one_goes_on() -> None:
    """Who is in it before and after is told nothing, and has been in it since then; what is told has its properties."""
    story: list[Step] = [
        ZoneRuleChange(rule(lasting=10)),
        zones(zone("yard", YARD, gate=1)),
        report("van", 2, 2, second=0),
        zones(zone("yard", HALF, gate=2)),
        report("van", 2, 2, second=11),
        report("van", 8, 2, second=12),
    ]
    expected = [(3, "enter", "van", "yard"), (5, "dwell", "van", "yard"), (6, "exit", "van", "yard")]
    assert expected == told(story)
    data = [orjson.loads(one.payload)["data"] for one in events_told(ZoneStage(), story)]
    assert 1 == len({one["since"] for one in data}) and [1, 2, 2] == [one["properties"]["gate"] for one in data]


def test_a_zone_that_goes_away_and_comes_back_begins_anew() -> None:
    """Moved, under another name, under another rule: each end has its reason, each beginning is of the present."""
    story: list[Step] = [
        ZoneRuleChange(rule()),
        zones(zone("yard", YARD)),
        report("van", 2, 2, second=0),
        zones(zone("yard", FAR)),
        zones(zone("yard", YARD)),
        zones(zone("court", YARD), removed=["yard"]),
        ZoneRuleChange(rule(margin=1)),
    ]
    expected = [
        (3, "enter", "van", "yard"),
        (4, "exit", "van", "yard", "changed"),
        (5, "enter", "van", "yard", "present"),
        (6, "exit", "van", "yard", "removed"),
        (6, "enter", "van", "court", "present"),
        (7, "exit", "van", "court", "removed"),
        (7, "enter", "van", "court", "present"),
    ]
    assert sorted(expected, key=str) == sorted(told(story), key=str)


def test_a_zone_that_shrinks_within_the_margin_ends_nothing() -> None:
    """Its newest place is out of the new one by less than the margin; the next report that is further ends it."""
    story: list[Step] = [
        ZoneRuleChange(rule(margin=5)),
        zones(zone("yard", YARD)),
        report("van", 8, 2, second=0),
        zones(zone("yard", HALF)),
        report("van", 11, 2, second=1),
    ]
    assert [(3, "enter", "van", "yard"), (5, "exit", "van", "yard")] == told(story)


def test_reports_of_one_entity_in_two_kinds_of_coordinates() -> None:
    """Of a layer count those of its kind; the others are of somewhere else, and move nothing."""
    story: list[Step] = [
        ZoneRuleChange(rule()),
        ZoneRuleChange(rule("lands", coordinates="geographic")),
        zones(zone("yard", YARD)),
        zones(zone("land", YARD, "lands", "geographic"), layer="lands"),
        report("van", 2, 2, second=0),
        report("van", 50, 2, second=1, geographic=True),
        report("van", 3, 3, second=2, geographic=True),
        report("van", 80, 2, second=3),
    ]
    expected = [(5, "enter", "van", "yard"), (7, "enter", "van", "land"), (8, "exit", "van", "yard")]
    assert expected == told(story)


def test_zones_that_touch_share_their_edge_and_corner() -> None:
    """Of several parts too; a hole's edge is in it, a zone within the hole begins there."""
    ring = {"type": "Polygon", "coordinates": [YARD["coordinates"][0], box(2, 2, 8, 8)["coordinates"][0]]}
    parts = {
        "type": "MultiPolygon",
        "coordinates": [box(10, 0, 20, 10)["coordinates"], box(20, 10, 30, 20)["coordinates"]],
    }
    story: list[Step] = [
        ZoneRuleChange(rule(detect=STATES)),
        zones(zone("ring", ring), zone("hole", box(2, 2, 8, 8)), zone("parts", parts)),
        *(report("van", x, y, second=n) for n, (x, y) in enumerate([(10, 5), (2, 5), (5, 5), (20, 10), (21, 9)])),
    ]
    expected = [
        (3, "inside", "van", "parts"),
        (3, "inside", "van", "ring"),
        (4, "inside", "van", "hole"),
        (4, "inside", "van", "ring"),
        (5, "inside", "van", "hole"),
        (6, "inside", "van", "parts"),
        (7, "outside", "van", None),
    ]
    assert expected == told(story)
