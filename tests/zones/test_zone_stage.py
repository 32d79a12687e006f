"""The stage of zones tells what the plain reference tells, however the journal is cut."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Fault
from nearcast.model.changes import ClockTick, ZoneRemoval, ZoneRuleChange
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.pipeline.monitoring import CrowdMonitor, PipelineMetrics
from nearcast.state.timeline import Excess
from nearcast.zones import presence, zone_index
from nearcast.zones import stage as stages
from nearcast.zones.stage import ZoneStage
from nearcast.zones.zone_index import ZONE_WORK
from tests.relations.stories import NO_OTHER, Step, at, report
from tests.zones.stories import Restarted, box, events_told, plainly_told, rule, summaries, summary, zone, zones

LEFT, RIGHT, WIDE = box(0, 0, 10, 10), box(10, 0, 20, 10), box(-5, -5, 30, 12)
HOLED = {
    "type": "Polygon",
    "coordinates": [
        [[0, 0], [20, 0], [20, 10], [0, 10], [0, 0]],
        [[4, 2], [16, 2], [16, 8], [4, 8], [4, 2]],
    ],
}
PARTS = {"type": "MultiPolygon", "coordinates": [box(0, 0, 3, 3)["coordinates"], box(12, 0, 20, 9)["coordinates"]]}

ALL = ["enter", "dwell", "exit", "inside", "outside"]
FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"margin": 3},
    {"lasting": 4},
    {"time_to_live": 5},
    {"detect": ALL, "lasting": 3, "time_to_live": 6, "margin": 2},
    {"detect": ["inside", "outside"]},
    {"detect": ["dwell", "exit"], "lasting": 4, "time_to_live": 6},
    {"of": "type = 'car' AND size < 2", "detect": ALL, "lasting": 2},
)
GEOGRAPHIC: tuple[dict[str, Any], ...] = (
    {"coordinates": "geographic"},
    {"coordinates": "geographic", "margin": 20, "detect": ALL, "lasting": 3},
)
SHAPES = (LEFT, RIGHT, WIDE, HOLED, PARTS)
AROUND = (
    box(179.9999, -1, 180.0001, 1),
    box(179, -1, 180, 1),
    box(-180, -1, -179.9998, 1),
    box(-180.0001, -0.5, -179.9999, 0.5),
)

seconds = st.one_of(st.none(), st.integers(0, 12))
planar = st.builds(
    report,
    st.sampled_from("abc"),
    st.one_of(st.none(), st.sampled_from([0, 3, 5, 9.5, 10, 10.5, 13, 20, 21, 1000])),
    st.sampled_from([0, 5, 10, 12]),
    seconds,
    seconds,
    type=st.sampled_from(["car", "car", "car", "bus"]),
    size=st.sampled_from([0, 1, 2]),
)
geographic = st.builds(
    report,
    st.sampled_from("abc"),
    st.sampled_from([179.99995, -179.99995, 180.0, -180.0, 179.9999, 179.9998, -179.9997, 0.0]),
    st.sampled_from([0.0, 1.0, 1.0001]),
    seconds,
    seconds,
    geographic=st.just(True),
    type=st.sampled_from(["car", "car", "car", "bus"]),
)


def steps(
    reports: st.SearchStrategy[Event], forms: Sequence[dict[str, Any]], shapes: Sequence[dict[str, Any]]
) -> st.SearchStrategy[list[Step]]:
    """Stories that begin with a layer or two, whose zones are added, replaced and taken away."""
    coordinates = forms[0].get("coordinates", "planar")
    layers = st.sampled_from(["depots", "yards"])
    ruled = st.builds(lambda id, form: ZoneRuleChange(rule(id, **form)), layers, st.sampled_from(list(forms)))
    names = st.sampled_from(["north", "south", "a/b"])
    shaped = st.builds(
        lambda layer, name, shape, gone: zones(
            zone(name, shape, layer, coordinates, kind="k"), removed=gone, layer=layer
        ),
        layers,
        names,
        st.sampled_from(list(shapes)),
        st.lists(names, max_size=1),
    )
    ticks = st.integers(0, 20).map(lambda second: ClockTick(at(second)))
    changes = st.one_of(ruled, shaped, shaped, shaped, layers.map(ZoneRemoval), ticks)
    rest = st.lists(st.one_of(*[reports] * 6, changes), max_size=20)
    return st.tuples(ruled, st.lists(shaped, max_size=3), rest).map(lambda parts: [parts[0], *parts[1], *parts[2]])


stories = st.one_of(steps(planar, FORMS, SHAPES), steps(geographic, GEOGRAPHIC, AROUND))


@settings(max_examples=100, deadline=None)
@given(stories, st.data())
def test_the_stage_tells_what_the_reference_tells(story: Sequence[Step], data: st.DataObject) -> None:
    """Every event, in the same order, whatever the batches and stretches, with restarts between batches or without."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    stretch = data.draw(st.sampled_from([1, 3, stages.STRETCH]))
    stage = data.draw(st.sampled_from([ZoneStage, Restarted]))()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "STRETCH", stretch)
        stage._step = stretch
        limits = Limits(zone_work=data.draw(st.sampled_from([1_000_000, 2 * (ZONE_WORK + 5)])))
        assert plainly_told(story, limits) == events_told(stage, story, cuts, limits)


AREAS = [
    "S_INTERSECTS(geom, BBOX(0, 0, 9, 9))",
    "S_INTERSECTS(geom, POLYGON((0 0, 8 0, 8 8, 4 9, 0 8, 0 0)))",
    "S_DWITHIN(geom, POINT(4 4), 3)",
    "S_INTERSECTS(geom, BBOX(50, 50, 60, 60))",
]


def _outline(size: int) -> str:
    ring = [[0, 0], [size, 0], [size, size], [0, size], [0, 0]]
    return orjson.dumps({"type": "Polygon", "coordinates": [ring]}).decode()


outlined = st.builds(
    lambda entity, x, size, second: report(entity, x, 5, second, **({"geom": _outline(size)} if size else {})),
    st.sampled_from("abc"),
    st.sampled_from([0, 5, 30]),
    st.sampled_from([0, 3, 7]),
    st.integers(0, 12),
)
areas = st.lists(st.sampled_from(AREAS), min_size=1, max_size=3, unique=True).map(
    lambda some: {"of": " OR ".join(some)}
)
UNITS = [6_000_000, 6_000, 1_700, 100, 1]


@settings(max_examples=60, deadline=None)
@given(areas.flatmap(lambda one: areas.flatmap(lambda two: steps(outlined, [one, two], SHAPES))), st.data())
def test_filters_that_share_the_work_on_geometries_are_as_in_the_reference(
    story: Sequence[Step], data: st.DataObject
) -> None:
    """As far as the work goes, whatever layers come and go, in any batches, with restarts or without."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    stage = data.draw(st.sampled_from([ZoneStage, Restarted]))()
    limits = Limits(event_geometry_work=data.draw(st.sampled_from(UNITS)))
    assert plainly_told(story, limits) == events_told(stage, story, cuts, limits)


def test_the_filters_of_all_layers_share_the_work_on_an_events_geometries() -> None:
    """Fewest corners first; of the layers behind nobody is known to be watched, which is counted. Else all are."""
    layers = [ZoneRuleChange(rule(id, of=AREAS[number])) for id, number in (("yards", 1), ("depots", 0))]
    both = [zones(zone("north", box(0, 0, 10, 10), id), layer=id) for id in ("depots", "yards")]
    told_outline = report("van", 5, 5, second=0, geom=_outline(7))
    for limits, told, counted in (
        (Limits(event_geometry_work=100), {"depots": 1}, {("s", "car", "event_geometry_work"): 1}),
        (NO_OTHER, {"depots": 1, "yards": 1}, {}),
    ):
        excess = Counter[Excess]()
        events = events_told(ZoneStage(), [*layers, *both, told_outline], limits=limits, excess=excess)
        assert told == Counter(one for event in events for one in event.values("layer"))
        assert counted == excess


def test_who_enters_and_leaves_is_told_with_the_zone_and_its_properties() -> None:
    """Entity, zone, properties, since when, where; the boundary is inside."""
    story: list[Step] = [
        ZoneRuleChange(rule()),
        zones(zone("north", LEFT, gate=7)),
        report("van", 11, 0, second=0),
        report("van", 10, 10, second=1),
        report("van", 5, 5, second=2),
        report("van", 10.5, 5, second=3),
    ]
    enter, left = events_told(ZoneStage(), story)
    data = orjson.loads(enter.payload)["data"]
    expected = {
        "layer": "depots",
        "zone": "north",
        "entity": "van",
        "detect": "enter",
        "since": "2026-01-01T12:00:01Z",
        "properties": {"gate": 7},
        "x": 10.0,
        "y": 10.0,
    }
    assert expected == data
    assert ("nearcast.zone", "nearcast:zones", "nearcast/zones/depots/van/north") == (
        enter.type,
        enter.source,
        enter.subject,
    )
    assert [7] == list(enter.values("properties.gate"))
    assert (6, "exit") == (left.position, orjson.loads(left.payload)["data"]["detect"])


def test_a_hole_is_outside_and_its_edge_inside() -> None:
    """Of a polygon with a hole, and of several parts."""
    story: list[Step] = [
        ZoneRuleChange(rule(detect=["inside", "outside"])),
        zones(zone("holed", HOLED)),
        *(report("van", x, 5, second=x) for x in (2, 4, 5, 16)),
    ]
    assert ["inside", "inside", "outside", "inside"] == [one[1] for one in summaries(ZoneStage(), story)]


@pytest.mark.parametrize("shape", [box(179, -1, 181, 1), box(-181, -1, -179, 1)])
def test_a_zone_across_the_antimeridian(shape: dict[str, Any]) -> None:
    """Counted on beyond 180 either way; 180 and −180 are one meridian."""
    story: list[Step] = [
        ZoneRuleChange(rule(coordinates="geographic", detect=["inside", "outside"])),
        zones(zone("line", shape, coordinates="geographic")),
        *(report("van", x, 0, second=n, geographic=True) for n, x in enumerate([179.5, 180, -180, -179.5, 178, 0])),
    ]
    assert ["inside"] * 4 + ["outside"] * 2 == [one[1] for one in summaries(ZoneStage(), story)]


def test_parts_that_meet_at_the_antimeridian_have_both_its_names() -> None:
    """A zone that ends at 180 has the point at −180 too, in parts or alone."""
    east = box(170, 0, 180, 1)
    story: list[Step] = [
        ZoneRuleChange(rule(coordinates="geographic")),
        zones(zone("east", east, coordinates="geographic")),
        report("van", -180, 0.5, second=0, geographic=True),
    ]
    assert [(3, "enter", "van", "east")] == summaries(ZoneStage(), story)


def test_dwell_silence_and_late_reports() -> None:
    """As of relations: lasting by the stream's time, silence lapses first, what is late moves nothing."""
    story: list[Step] = [
        ZoneRuleChange(rule(lasting=10, time_to_live=60)),
        zones(zone("north", LEFT)),
        report("van", 5, 5, second=0),
        report("van", 1000, 0, second=-5, accepted=5),
        report("bus", 1000, 0, second=10, type="bus"),
        report("bus", 1000, 0, second=61, type="bus"),
        report("van", 5, 5, second=62),
    ]
    expected = [
        (3, "enter", "van", "north"),
        (5, "dwell", "van", "north"),
        (6, "exit", "van", "north", "silent"),
        (7, "enter", "van", "north"),
    ]
    assert expected == summaries(ZoneStage(), story)


def test_who_is_not_watched_any_more_has_left() -> None:
    """A report with a place that the filter does not select ends it; one without a place changes nothing."""
    story: list[Step] = [
        ZoneRuleChange(rule(of="duty = TRUE")),
        zones(zone("north", LEFT)),
        report("van", 5, 5, second=0, duty=True),
        report("van", None, second=1),
        report("van", 5, 5, second=2, duty=False),
    ]
    expected = [(3, "enter", "van", "north"), (5, "exit", "van", "north", "left")]
    assert expected == summaries(ZoneStage(), story)


def test_zones_that_change_tell_who_is_in_them_now() -> None:
    """Added, moved, taken away, and a property that changes nothing."""
    story: list[Step] = [
        ZoneRuleChange(rule()),
        report("van", 5, 5, second=0),
        zones(zone("north", LEFT)),
        zones(zone("north", LEFT, gate=8)),
        zones(zone("north", RIGHT)),
        zones(zone("south", WIDE), removed=["north"]),
        zones(removed=["south"]),
    ]
    expected = [
        (3, "enter", "van", "north", "present"),
        (5, "exit", "van", "north", "changed"),
        (6, "enter", "van", "south", "present"),
        (7, "exit", "van", "south", "removed"),
    ]
    assert expected == summaries(ZoneStage(), story)


def test_zones_that_would_tell_too_much_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused with their reason; what there was goes on, and as many as one event may cause are told."""
    monkeypatch.setattr(presence, "MOST_PARTS", 4)
    cars: list[Step] = [report(name, 5, 5, second=0) for name in "abc"]
    two = zones(zone("north", LEFT), zone("south", WIDE))
    more = zones(zone("south", WIDE), zone("east", WIDE))
    stage, refused = ZoneStage(), list[tuple[int, Fault]]()
    story = [ZoneRuleChange(rule()), *cars, two, zones(zone("north", LEFT)), more, ZoneRuleChange(rule(margin=3))]
    told = events_told(stage, story, refusals=refused)
    assert [5, 7, 8] == [position for position, _ in refused]
    assert "zones of which one change tells 4 things at most" == refused[0][1].expected
    assert [(6, "enter", name, "north", "present") for name in "abc"] == [summary(one) for one in told]
    assert {(name, "north") for name in "abc"} == set(stage.layers[0].holding())
    monkeypatch.undo()
    monkeypatch.setattr(zone_index, "MOST_DEFINED", 5)
    refused.clear()
    assert [] == events_told(ZoneStage(), [ZoneRuleChange(rule()), *cars, two], refusals=refused)
    assert [5] == [position for position, _ in refused]


def test_an_entity_in_very_many_zones_is_in_the_first_of_them() -> None:
    """Beyond the limit zones are counted, not told."""
    many = [zone(f"z{number}", WIDE) for number in range(8)]
    story: list[Step] = [ZoneRuleChange(rule()), zones(*many), report("van", 5, 5, second=0), report("van", 6, 5, 1)]
    stage = ZoneStage()
    told = events_told(stage, story, limits=Limits(zones_at_once=5))
    assert [f"z{number}" for number in range(5)] == [next(event.values("zone")) for event in told]
    assert {"depots": 6} == stage.crowded()
    assert plainly_told(story, Limits(zones_at_once=5)) == told


SLANTS = [{"type": "Polygon", "coordinates": [[[0, 0], [20, n], [20, 10], [0, 0]]]} for n in range(8)]
"""Many with one box, in none of which the corner of the east and the south is."""


def test_zones_that_are_too_much_work_are_unknown_and_counted() -> None:
    """Of zones with one box the first are looked at; by the others nothing begins, and nothing ends."""
    many = [zone(f"z{number}", SLANTS[number]) for number in range(6)]
    reports: list[Step] = [report("van", 19, 9, second=0), report("van", 19, 0.1, 1), report("van", 50, 9, 2)]
    story = [ZoneRuleChange(rule()), zones(*many), *reports]
    limits, excess = Limits(zone_work=4 * (ZONE_WORK + 4)), Counter[Excess]()
    told = events_told(ZoneStage(), story, limits=limits, excess=excess)
    assert [f"z{number}" for number in range(4)] == [next(event.values("zone")) for event in told[:4]]
    assert {limit for *_, limit in excess} == {"zone_work"} and 2 == sum(excess.values())
    assert plainly_told(story, limits) == told
    ordinary = Counter[Excess]()
    events_told(ZoneStage(), story, excess=ordinary)
    assert Counter() == ordinary


@pytest.mark.parametrize(("units", "left"), [(4 * (ZONE_WORK + 4), 5), (1_000_000, 4)])
def test_what_holds_goes_on_while_it_is_unknown_and_ends_out_of_its_box(units: int, left: int) -> None:
    """Where nobody looks whether a place is in a zone nothing ends; out of the zone's box that is known."""
    last = zone("last", {"type": "Polygon", "coordinates": [[[-30, 0], [20, 0], [-30, 10], [-30, 0]]]})
    many = [zone(f"z{number}", SLANTS[number]) for number in range(4)]
    reports: list[Step] = [report("van", -20, 5, second=0), report("van", 19, 9, 1), report("van", 19, 11, 2)]
    story, limits = [ZoneRuleChange(rule()), zones(*many, last), *reports], Limits(zone_work=units)
    told = events_told(ZoneStage(), story, limits=limits)
    ends = {next(event.values("zone")): event.position for event in told if "exit" in event.values("detect")}
    assert {"z0": 5, "z1": 5, "z2": 5, "z3": 5, "last": left} == ends
    assert plainly_told(story, limits) == told


def test_a_margin_that_takes_too_much_work_ends_nothing_and_is_counted() -> None:
    """By the report, once; without meeting the limit it ends, and nothing is counted."""
    shape = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0.4, 0.5], [1, 1], [0, 1], [0, 0]]]}
    story: list[Step] = [
        ZoneRuleChange(rule(coordinates="geographic", margin=50)),
        zones(zone("north", shape, coordinates="geographic")),
        *(report("van", x, 0.5, second=n, geographic=True) for n, x in enumerate((0.1, 0.400705))),
    ]
    for limits, told, counted in ((Limits(geometry_work=1), ["enter"], 1), (NO_OTHER, ["enter", "exit"], 0)):
        excess = Counter[Excess]()
        events = events_told(ZoneStage(), story, limits=limits, excess=excess)
        assert told == [one for event in events for one in event.values("detect")]
        assert counted == sum(excess.values()) and {limit for *_, limit in excess} <= {"geometry_work"}
        assert plainly_told(story, limits) == events


def test_zones_that_do_not_count_are_a_metric_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """By their layer; of a layer whose zones all count nothing is told."""
    many = [zone(f"z{number}", WIDE) for number in range(8)]
    story: list[Step] = [ZoneRuleChange(rule()), zones(*many), report("van", 5, 5, second=0)]
    stage, metrics = ZoneStage(), PipelineMetrics()
    monitor = CrowdMonitor(metrics)
    events_told(stage, story)
    monitor.report([stage])
    assert [] == caplog.messages
    stage = ZoneStage()
    for number in range(2):
        events_told(stage, [*story[: 0 if number else 2], report("van", 6, 5, number)], limits=Limits(zones_at_once=5))
        monitor.report([stage])
    [told] = caplog.messages
    assert told.startswith("place in more zones than count layer=depots more=3: raise zones_at_once")
    counted = metrics.registry.get_sample_value("nearcast_pipeline_crowded_zones_total", {"layer": "depots"})
    assert 6 == counted == stage.crowded()["depots"]


def test_more_zones_than_a_layer_may_have_change_nothing() -> None:
    """The change is refused with its limit; what was there stays."""
    from nearcast.model.columns import to_table
    from nearcast.model.subscription import Settings
    from nearcast.state.derived import StageInput
    from nearcast.state.registry import Registry
    from nearcast.state.repository import Repository

    limits = Limits(zones=2)
    registry, stage = Registry(Settings(limits=limits)), ZoneStage()
    changes = [
        (1, ZoneRuleChange(rule())),
        (2, zones(zone("a", LEFT), zone("b", RIGHT))),
        (3, zones(zone("c", WIDE))),
        (4, zones(zone("b", WIDE))),
    ]
    for _, change in changes:
        registry.apply(change)
    stage_input = StageInput(changes, {}, to_table([]), registry, Repository())
    assert [] == list(stage.derive(stage_input))
    [(position, fault)] = stage_input.refusals
    assert 3 == position and "at most 2 zones" in str(fault)
    assert ["a", "b"] == list(registry.zones["depots"].zones) == [one.name for one in stage.layers[0].index.zones]


def test_many_reports_in_many_zones_are_looked_at_in_shorter_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stretch looks at is bounded; the outcome is the same."""
    many = [zone(f"z{number}", WIDE) for number in range(10)]
    reports = [report("van", (7 * number) % 40, 5, second=number) for number in range(60)]
    story: list[Step] = [ZoneRuleChange(rule()), zones(*many), *reports]
    expected = plainly_told(story)
    looked: list[int] = []
    of = presence.ReportTable.of

    def watched(table: Any, known: Any, now: Any) -> Any:
        """Notes how long stretches are."""
        looked.append(len(table))
        return of(table, known, now)

    monkeypatch.setattr(zone_index, "MOST_HITS", 50)
    monkeypatch.setattr(stages.ReportTable, "of", staticmethod(watched))
    assert expected == events_told(ZoneStage(), story)
    assert 1 <= min(looked) <= 5


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(FORMS), st.lists(st.integers(5, 200), max_size=3))
def test_many_that_walk_about(seed: int, form: dict[str, Any], cuts: list[int]) -> None:
    """Twenty walkers among zones that lie over each other: many come and go within one stretch."""
    chance = random.Random(seed)
    many = []
    for number in range(15):
        west, south = chance.uniform(0, 30), chance.uniform(0, 30)
        east, north = west + chance.uniform(1, 15), south + chance.uniform(1, 15)
        many.append(zone(f"z{number}", box(west, south, east, north)))
    places = {f"car-{number}": (chance.uniform(0, 40), chance.uniform(0, 40)) for number in range(20)}
    story: list[Step] = [ZoneRuleChange(rule(**form)), zones(*many)]
    for second in range(200):
        name = chance.choice(list(places))
        x, y = (one + chance.gauss(0, 5) for one in places[name])
        places[name] = (x, y)
        kind = chance.choice(["car"] * 9 + ["bus"])
        story.append(report(name, x, y, second / 10, type=kind, size=chance.choice([0, 1, 2])))
    assert plainly_told(story) == events_told(ZoneStage(), story, cuts)
