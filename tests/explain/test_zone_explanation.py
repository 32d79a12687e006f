"""Why an entity is in a zone or is not, at any position of a history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from nearcast.cli.explain_zone import zone_lines
from nearcast.errors import Fault
from nearcast.explain.pair_past import PairStep
from nearcast.explain.zone_explanation import ZoneFinding, explain_zones
from nearcast.model.changes import SettingsChange, ZoneRemoval, ZoneRuleChange
from nearcast.model.event import MAIN, Event
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.relations.reports import micros_of
from nearcast.state.lateness import NEVER
from nearcast.state.registry import Registry
from nearcast.zones.zone_index import ZONE_WORK
from tests.relations.stories import NO_OTHER, Step, placed, report
from tests.zones.stories import box, rule, zone, zones

LAYER: list[Step] = [
    ZoneRuleChange(rule(margin=3, lasting=10, time_to_live=60)),
    zones(zone("north", box(0, 0, 10, 10)), zone("south", box(0, -10, 10, 0))),
]


def found(
    story: Sequence[Step], name: str | None = None, entity: str = "van", limits: Limits = NO_OTHER
) -> ZoneFinding:
    """What a story leads to for an entity."""
    registry = Registry(Settings(limits=limits))

    def steps() -> Iterator[PairStep]:
        """The story as what is read of a history."""
        for position, step in enumerate(story, 1):
            if isinstance(step, Event):
                own = placed(step, position)
                yield PairStep(position, micros_of(step.accepted), MAIN, own if own.entity == entity else None)
            else:
                registry.apply(step)
                yield PairStep(position, NEVER, MAIN, step)

    return explain_zones("depots", entity, name, registry, steps())


def test_since_when_it_is_in_a_zone() -> None:
    """With what it has lasted, what was told, and of each zone that it is in."""
    story = [*LAYER, report("van", 5, 0, second=0), report("bus", 0, 0, second=5)]
    one = found(story)
    assert ["north", "south"] == [each.zone for each in one.standings]
    north = one.standings[0]
    assert (True, True, False) == (north.holds, north.inside, north.dwelt)
    assert north.since is not None and north.due is not None and 10 == (north.due - north.since).total_seconds()
    later = found([*story, report("bus", 0, 0, second=11), report("van", 5, 12, second=12)])
    assert [("north", True, False, False)] == [
        (each.zone, each.holds, each.inside, each.beyond) for each in later.standings
    ]
    assert later.standings[0].dwelt
    assert ["dwell", "exit"] == [told.detect for _, told in later.told][-3:][::2]


@pytest.mark.parametrize(
    ("story", "reason"),
    [
        ([], "it was not heard of"),
        ([report("van", None, second=0)], "its newest report has no place"),
        ([report("van", 5, 5, second=0, type="bus")], "the filter does not select its newest report"),
        ([report("van", 5, 5, second=0, geographic=True)], "its place is geographic, the zones are planar"),
        ([report("van", 50, 5, second=0)], "its place is outside of every zone"),
        ([report("van", 5, 5, second=0), report("bus", 5, 5, second=61)], "it was silent for longer than time_to_live"),
    ],
)
def test_why_it_is_in_none(story: Sequence[Step], reason: str) -> None:
    """Each for its own reason; a zone by itself too."""
    one = found([*LAYER, *story])
    assert 1 == len(one.reasons) and one.reasons[0].startswith(reason)
    assert not any(each.holds for each in one.standings)
    alone = found([*LAYER, *story], "north")
    assert ["north"] == [each.zone for each in alone.standings] and len(alone.reasons) == 1


def test_a_filter_that_the_work_for_an_event_did_not_suffice_for_says_so() -> None:
    """With its place among the atoms of the filters of all layers; with room for all it selects."""
    outline = '{"type":"Polygon","coordinates":[[[0,0],[7,0],[7,7],[0,7],[0,0]]]}'
    area = "S_INTERSECTS(geom, POLYGON((0 0, 8 0, 8 8, 4 9, 0 8, 0 0)))"
    other = ZoneRuleChange(rule("others", of="S_INTERSECTS(geom, BBOX(0, 0, 9, 9))"))
    layer = [ZoneRuleChange(rule(of=area)), zones(zone("north", box(-10, -10, 10, 10)))]
    story = [other, *layer, report("van", 5, 5, second=0, geom=outline)]
    one = found(story, limits=Limits(event_geometry_work=100))
    [(_, known)] = one.conditions
    assert (False, None) == (one.watched, known)
    [reason] = one.reasons
    assert reason == (
        "the filter does not select its newest report: comparing the event's geometries takes more than 100 units of"
        " work for all filters together (limit event_geometry_work): it is number 2 of 2 atoms, fewest corners first,"
        " and 1 are decided"
    )
    assert found(story).watched
    # What another layer takes counts while that is there.
    assert found([layer[0], other, ZoneRemoval("others"), *story[2:]], limits=Limits(event_geometry_work=100)).watched


def test_zones_that_do_not_count_are_named_with_their_limit() -> None:
    """Of all how many there are, of one that it does not count; without meeting the limit none is."""
    story, one = [*LAYER, report("van", 5, 0, second=0)], Limits(zones_at_once=1)
    everywhere = found(story, limits=one)
    assert (["north"], 1) == ([each.zone for each in everywhere.standings if each.holds], everywhere.uncounted)
    assert "  its place is in 1 more, which do not count (limit zones_at_once)" in list(zone_lines(everywhere))
    [reason] = found(story, "south", limits=one).reasons
    assert "its place is in it, but in 1 zones that were defined before (limit zones_at_once)" == reason
    assert 0 == found(story).uncounted


def test_a_zone_that_nobody_looked_at_is_unknown_with_its_limit() -> None:
    """Of zones around a place that are too much work the later ones; the first is known."""
    story, one = [*LAYER, report("van", 5, 0, second=0)], Limits(zone_work=ZONE_WORK + 5)
    assert [True] == [each.holds for each in found(story, "north", limits=one).standings]
    [reason] = found(story, "south", limits=one).reasons
    assert reason.startswith("whether its place is in it is UNKNOWN") and reason.endswith("(limit zone_work)")


ENTERED = report("van", 5, 0, second=0)


@pytest.mark.parametrize(
    ("last", "limits", "known", "remark"),
    [
        (report("van", 5, 11, second=1), NO_OTHER, (False, False), "out of it, within the margin 3 m"),
        (report("van", None, second=1), NO_OTHER, (None, None), "its newest report has no place"),
        (report("van", 5, 5, 1, geographic=True), NO_OTHER, (None, None), "its newest place is geographic"),
        (
            report("van", 5, -1, second=1),
            Limits(zone_work=ZONE_WORK + 5),
            (None, None),
            "whether its place is in it is UNKNOWN: zones before it are 37 units of work (limit zone_work)",
        ),
        (
            report("van", 4, 0, second=1),
            Limits(zones_at_once=1),
            (True, False),
            "its place is in it, but in 1 before it (limit zones_at_once)",
        ),
    ],
)
def test_why_it_is_still_in_a_zone_that_its_place_is_not_known_to_be_in(
    last: Event, limits: Limits, known: tuple[bool | None, bool | None], remark: str
) -> None:
    """What is true of its newest place: within the margin, unknown, in it without counting."""
    before = [LAYER[0], zones(zone("other", box(-50, -9, 50, 3))), LAYER[1]] if limits != NO_OTHER else LAYER
    story = [*before, ENTERED, SettingsChange(Settings(limits=limits)), last]
    name = "south" if limits != NO_OTHER else "north"
    one = found(story, name)
    [standing] = one.standings
    assert (True, known, remark) == (standing.holds, (standing.inside, standing.beyond), standing.remark)
    [line] = [each for each in zone_lines(one) if each.startswith("  is in ")]
    assert line.endswith(f"; {remark}")


def test_a_margin_that_takes_too_much_work_is_unknown() -> None:
    """Not within the margin: nobody knows."""
    layer = [ZoneRuleChange(rule(margin=50, coordinates="geographic"))]
    shape = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0.4, 0.5], [1, 1], [0, 1], [0, 0]]]}
    moves = [report("van", x, 0.5, second=n, geographic=True) for n, x in enumerate((0.1, 0.400705))]
    story = [*layer, zones(zone("north", shape, coordinates="geographic")), *moves]
    assert not found(story, "north").standings[0].holds
    [standing] = found(story, "north", limits=Limits(geometry_work=1)).standings
    assert (True, False, None) == (standing.holds, standing.inside, standing.beyond)
    expected = "out of it; whether within the margin 50 m is UNKNOWN: measuring takes more than 1 units of work"
    assert f"{expected} (limit geometry_work)" == standing.remark


def test_how_many_zones_nobody_looked_at() -> None:
    """Of all zones around its place, also where it is in none that was looked at."""
    corner = {"type": "Polygon", "coordinates": [[[0, 0], [10, 0], [0, 10], [0, 0]]]}
    story = [LAYER[0], zones(*(zone(f"z{n}", corner) for n in range(3))), report("van", 9, 9, second=0)]
    limits = Limits(zone_work=ZONE_WORK + 5)
    one = found(story, limits=limits)
    assert (2, ("its place is outside of every zone that was looked at",)) == (one.unlooked, one.reasons)
    assert "  whether its place is in 2 more is UNKNOWN (limit zone_work)" in list(zone_lines(one))
    assert (0, ("its place is outside of every zone",)) == (found(story).unlooked, found(story).reasons)


def test_what_is_not_there_is_told() -> None:
    """A layer, also one that was removed, and a zone."""
    with pytest.raises(Fault, match="a layer of zones that there was then, got depots; there were none"):
        found([])
    with pytest.raises(Fault, match="a layer of zones"):
        found([*LAYER, ZoneRemoval("depots")])
    with pytest.raises(Fault, match="a zone that depots had then, got east; it had 2"):
        found(LAYER, "east")
