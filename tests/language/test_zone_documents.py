"""Zones in definitions: what is read, what is wrong with a file is told, and how they travel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from nearcast.cli.system import define, registry_of
from nearcast.errors import DefinitionError, EventError
from nearcast.journal.memory import MemoryJournal
from nearcast.language.checks.file_check import check
from nearcast.language.cloudevents import MAX_BYTES
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions import files
from nearcast.language.definitions.zone_documents import PORTION
from nearcast.model.changes import ZoneRemoval, ZoneRuleChange, ZoneShapesChange
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.state.registry import Registry
from tests.zones.stories import box, rule, zone, zones


def feature(geometry: dict[str, Any], name: object = "north", **properties: Any) -> dict[str, Any]:
    """A feature of GeoJSON whose id names it."""
    return {"type": "Feature", "id": name, "geometry": geometry, "properties": properties}


def written(folder: Path, *features: Any, **fields: Any) -> Path:
    """A definition file beside a GeoJSON file with these features."""
    collection = {"type": "FeatureCollection", "features": list(features)}
    (folder / "depots.geojson").write_bytes(orjson.dumps(collection))
    layer = {"file": "depots.geojson", "of": "type = 'van'", **fields}
    path = folder / "zones.yaml"
    path.write_text(yaml.safe_dump({"zones": {"depots": layer}}))
    return path


def square(x: float = 0.0) -> dict[str, Any]:
    """A square of one degree."""
    return box(x, 0, x + 1, 1)


def test_a_layer_is_read_from_a_file_beside_it(tmp_path: Path) -> None:
    """Zones are named by their ids, or by what `name` says; a Feature alone is a file too."""
    path = written(tmp_path, feature(square(), 7), feature(square(2), "south", gate=3), margin=20, **{"for": "10 min"})
    [layer] = files.load([path]).zones
    assert ("depots", ["7", "south"]) == (layer.id, list(layer.zones))
    assert (("enter", "dwell", "exit"), 20, 600) == (layer.rule.detect, layer.rule.margin, layer.rule.lasting)
    assert '{"gate":3}' == layer.zones["south"].properties
    path = written(tmp_path, feature(square(), 7, code="N"), name="properties.code")
    assert ["N"] == list(files.load([path]).zones[0].zones)


def test_a_layer_is_read_where_it_is_written(tmp_path: Path) -> None:
    """Features within the definition, and both forms at once are a fault."""
    path = written(tmp_path, file=None, features=[feature(square())])
    assert ["north"] == list(files.load([path]).zones[0].zones)
    for more in ({"features": []}, {"file": None}):
        with pytest.raises(DefinitionError, match="file, of GeoJSON, or features"):
            files.load([written(tmp_path, **more)])


BOWTIE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}
OPEN = {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1]]]}
FAULTS: tuple[tuple[Any, str], ...] = (
    ("text", "expected a Feature, got str"),
    (feature({"type": "Point", "coordinates": [1, 2]}), "expected a Polygon or MultiPolygon as geometry, got Point"),
    (feature(None), "expected a Polygon or MultiPolygon as geometry, got none"),  # type: ignore[arg-type]
    (feature(square(), None), "expected a name: its id, or properties.name, got none"),
    (feature(square(), "a\nb"), r"properties.name, got 'a\\nb'"),
    (feature(square(), "first"), "expected each zone once, got first again; it is already feature 1"),
    (feature(BOWTIE), r"rings do not cross or touch themselves, got Self-intersection\[0.5 0.5\]"),
    (feature(OPEN), r"a closed ring of four corners or more, got \[0.0, 0.0\] to \[0.0, 1.0\]"),
    (feature(box(47, 8, 48, 101)), r"latitudes to 90, got \[4[78].0, 101.0\]; longitude comes first; are they swapped"),
    (feature(box(5_000, 500, 6_000, 700)), r"latitudes to 90, got \[.*; metres belong to a planar layer"),
    (feature(box(-170, 0, 170, 1)), "edges of at most half the globe, got one 340 degrees wide; cut it at"),
    (feature({"type": "Polygon", "coordinates": [[[0, "x"]]]}), r"two finite numbers as a corner, got \[0, 'x'\]"),
    (feature({"type": "Polygon", "coordinates": []}), "a list of rings in coordinates, got none"),
)


def test_a_name_that_is_a_property_says_so(tmp_path: Path) -> None:
    """Where the way leads nowhere the fault names the property, or those there are."""
    named = feature(square(), None, code="north")
    for way, advice in (("code", "name: properties.code in the layer"), ("gate", "its properties are .*code")):
        with pytest.raises(DefinitionError, match=f"expected a name at {way}, got none; .*{advice}"):
            files.load([written(tmp_path, named, name=way)])


@pytest.mark.parametrize(("wrong", "told"), FAULTS)
def test_what_is_wrong_with_a_zone_is_told_with_file_and_feature(tmp_path: Path, wrong: Any, told: str) -> None:
    """Also by `check`; the others are read on."""
    path = written(tmp_path, feature(square(), "first"), wrong, feature(square(), "last"), feature(BOWTIE, "more"))
    with pytest.raises(DefinitionError, match=rf"depots\.geojson, feature 2: .*{told}") as raised:
        files.load([path])
    assert 2 == len(raised.value.faults)
    assert [str(fault) for fault in raised.value.faults] == [str(fault) for fault in check([path]).faults]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "depots.geojson:1:2: expected GeoJSON"),
        ("[]", "depots.geojson:1:1: expected a FeatureCollection of GeoJSON, got list"),
        ('{"type": "Polygon", "coordinates": []}', "expected a FeatureCollection of GeoJSON, got Polygon"),
    ],
)
def test_what_is_no_file_of_zones(tmp_path: Path, text: str, told: str) -> None:
    """Each with the place where it stops."""
    path = written(tmp_path)
    (tmp_path / "depots.geojson").write_text(text)
    with pytest.raises(DefinitionError, match=told):
        files.load([path])
    (tmp_path / "depots.geojson").unlink()
    with pytest.raises(DefinitionError, match="a file that can be read"):
        files.load([path])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"detect": ["entr"]}, "one of enter, dwell, exit, inside, outside, got .*did you mean enter"),
        ({"detect": ["dwell"]}, "for, the time after which dwell is told"),
        ({"for": "5 s", "detect": ["enter"]}, "dwell in detect"),
        ({"of": "distance(user('a'), this) < 5"}, "a condition on one event alone"),
        ({"of": None}, "of in a layer of zones"),
        ({"margin": -1}, "margin, in metres"),
        ({"coordinates": "polar"}, "coordinates: geographic or planar"),
        ({"time_to_live": 0}, "time_to_live: a time above 0"),
        ({"dwell": "5 s"}, "a field of a layer of zones, got dwell"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told_at_its_place(tmp_path: Path, fields: dict[str, Any], told: str) -> None:
    """With line and column."""
    with pytest.raises(DefinitionError, match=rf"zones\.yaml:\d+:\d+: .*{told}"):
        files.load([written(tmp_path, feature(square()), **fields)])


def test_what_is_hardly_meant(tmp_path: Path) -> None:
    """A filter that nothing satisfies, coordinates that no channel has, and zones in which nobody was."""
    path = written(tmp_path, feature(square()), of="type = 'van' AND type = 'bus'")
    other = tmp_path / "channels.yaml"
    other.write_text("channels: {town: {coordinates: planar}}")
    told = [str(one) for one in files.load([path, other]).warnings]
    assert any("a channel of geographic coordinates for the zones depots" in one for one in told)
    assert len(told) > 1
    events = tmp_path / "events.jsonl"
    event = {
        "specversion": "1.0",
        "id": "1",
        "type": "van",
        "source": "s",
        "subject": "v",
        "data": {"lon": 9, "lat": 9},
    }
    events.write_bytes(orjson.dumps(event))
    other.write_text("channels: {town: {coordinates: geographic}}")
    [warning] = check([written(tmp_path, feature(square())), other, events]).warnings
    assert "an entity of which the zones depots tell" in warning.expected


def test_limits_of_zones(tmp_path: Path) -> None:
    """Too many, too large ones; real ones meet none of them."""
    path = written(tmp_path, *(feature(square(number), number) for number in range(3)))
    other = tmp_path / "limits.yaml"
    for limits, told in (
        ("zones: 2", "at most 2 zones in a layer"),
        ("zone_bytes: 50", "a zone of at most 50 characters"),
        ("zones_bytes: 200", "zones of at most 200 characters in a layer"),
    ):
        other.write_text(f"limits: {{{limits}}}")
        with pytest.raises(DefinitionError, match=told):
            files.load([path, other])
    other.write_text("limits: {zones: 3, zones_bytes: 1000, zone_bytes: 200}")
    assert 3 == len(files.load([path, other]).zones[0].zones)


@pytest.mark.parametrize(
    "change",
    [
        ZoneRuleChange(rule(lasting=5, margin=2, time_to_live=60, detect=["dwell", "inside", "outside"])),
        ZoneRuleChange(rule(coordinates="geographic")),
        zones(zone("a", box(0, 0, 5, 5), gate=1), zone("b", box(3, 3, 9, 9)), removed=["c"]),
        zones(zone("a", box(179, 0, 181, 5), coordinates="geographic")),
        ZoneRemoval("depots"),
    ],
)
def test_a_change_is_the_same_once_it_was_an_event(change: Any) -> None:
    """What is written as a control event is read as what it was."""
    assert [change] == changes(to_event(change, "e", "s"), Settings())


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, "the id of a layer of zones"),
        ({"layer": "z", "zones": []}, "fields out of"),
        ({"layer": "z", "removed": [1]}, "a list of names"),
        ({"layer": "z", "features": 1}, "a list of features"),
        ({"layer": "z", "features": [{"geometry": BOWTIE, "id": "x"}]}, "feature 1: .*do not cross"),
        ({"layer": "z", "coordinates": "x"}, "geographic or planar"),
    ],
)
def test_an_event_that_changes_no_zones_is_a_dead_letter(data: dict[str, Any], told: str) -> None:
    """With what was expected."""
    event = to_event(zones(), "e", "s")
    document = {**orjson.loads(event.payload), "data": data}
    fields = {name: getattr(event, name) for name in type(event).__slots__} | {"payload": orjson.dumps(document)}
    with pytest.raises(EventError, match=told):
        changes(type(event)(**fields), Settings())


def round_one(corners: int, x: float) -> dict[str, Any]:
    """A polygon with many corners."""
    angles = [2 * math.pi * number / corners for number in range(corners)]
    ring = [[x + math.cos(angle), math.sin(angle)] for angle in angles]
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


@pytest.fixture
def journal() -> Iterator[MemoryJournal]:
    """An empty journal."""
    with closing(MemoryJournal()) as journal:
        yield journal


def test_many_zones_travel_in_events_that_fit(tmp_path: Path, journal: MemoryJournal) -> None:
    """Twenty large zones are a few events of less than a megabyte; again, only what is another one travels."""
    large = [feature(round_one(4_000, number), f"z{number}") for number in range(20)]
    define(journal, files.load([written(tmp_path, *large)]))
    sizes = [len(one) for one in journal.read("events", 0, 100).column("payload").to_pylist()]
    assert max(sizes) < MAX_BYTES and sum(sizes) > 2 * PORTION and len(sizes) < 12
    assert [f"z{number}" for number in range(20)] == list(registry_of(journal).zones["depots"].zones)
    assert 0 == define(journal, files.load([written(tmp_path, *large)]))
    assert 1 == define(journal, files.load([written(tmp_path, *large[1:-1], feature(square(), "z19"))]))
    there = registry_of(journal).zones["depots"]
    assert [f"z{number}" for number in range(1, 20)] == list(there.zones)
    assert there.zones["z19"].geometry == files.load([tmp_path / "zones.yaml"]).zones[0].zones["z19"].geometry


def test_a_registry_is_what_its_changes_lead_to() -> None:
    """The shortest list of changes folds to it, with one change for all zones of a layer."""
    registry = Registry()
    given = [ZoneRuleChange(rule()), zones(zone("a", square())), zones(zone("b", square(1))), zones(removed=["x"])]
    for change in given:
        registry.apply(change)
    other = Registry()
    for change in registry.changes():
        other.apply(change)
    assert registry == other and 3 == len(registry.changes())
    restored = Registry()
    restored.apply(given[0])
    restored.settings = Settings(limits=Limits(zones=1))
    restored.restore_zones(one for one in registry.held() if hasattr(one, "geometry"))
    assert registry.zones == restored.zones
    registry.apply(ZoneShapesChange("unknown", ()))
    assert ["depots"] == list(registry.zones)
