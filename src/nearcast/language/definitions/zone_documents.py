"""Zones within documents: the rule of a layer, and its zones as features of GeoJSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import orjson

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.definitions.filter_warnings import never_holding, types_of
from nearcast.language.definitions.relation_documents import filter_faults
from nearcast.language.definitions.subscription_documents import filter_data, read_filter
from nearcast.language.nodes import MAX_VALUES, DocumentNode, DocumentReader, closest, from_data, listed
from nearcast.language.quantities import read_duration, read_metres
from nearcast.model.changes import ZoneShapesChange
from nearcast.model.event import Coordinates
from nearcast.model.filter import Filter, atoms
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.model.zone import ZONE_DETECTIONS, Zone, ZoneDetection, ZoneLayer, ZoneRule

FIELDS_OF_A_LAYER = ("detect", "margin", "for", "time_to_live", "coordinates")

MOST_NAMED = 1_000
"""Zones of a layer that its document names."""

PORTION = 512 * 1024
"""Characters of the zones that one control event has, about: it may have a megabyte."""


def read_zone_rule(
    node: DocumentNode, id: str | None, reader: DocumentReader, more: tuple[str, ...] = ()
) -> ZoneRule | None:
    """The rule of a layer; None after a fault. `more` are further fields that the mapping may have."""
    before = len(reader.faults)
    required = ("of",) if id is not None else ("id", "of")
    fields = reader.fields(node, required, (*FIELDS_OF_A_LAYER, *more), "a layer of zones")
    if id is None and "id" in fields:
        id = reader.name(fields["id"], "a layer's id")
    of = _watched(fields["of"], reader) if "of" in fields else None
    margin = read_metres(fields["margin"], "margin", reader) if "margin" in fields else 0.0
    lasting, time_to_live = (_span(fields, name, reader) for name in ("for", "time_to_live"))
    detect, coordinates = _detect(node, fields, reader), _coordinates(fields, reader)
    if len(reader.faults) > before or id is None or of is None or margin is None:
        return None
    return ZoneRule(id, of, detect, margin, lasting, time_to_live, coordinates)


def zone_rule_document(data: Mapping[str, Any], where: Mark, limits: Limits | None = None) -> ZoneRule:
    """The rule that a document asks for. Raises `DefinitionError` with every fault."""
    reader = DocumentReader(limits)
    rule = read_zone_rule(from_data(data, where, MAX_VALUES), None, reader)
    reader.refuse()
    assert rule is not None, "without a fault there is a rule"
    return rule


def zone_layer_data(layer: ZoneLayer) -> dict[str, Any]:
    """A layer as a document, JSON-able, with the number of its zones and the names of the first of them."""
    names = list(islice(layer.zones, MOST_NAMED))
    return {**zone_rule_data(layer.rule), "count": len(layer.zones), "zones": names}


def zone_rule_data(rule: ZoneRule) -> dict[str, Any]:
    """The rule of a layer as a document, JSON-able; `read_zone_rule` inverts it."""
    data: dict[str, Any] = {"id": rule.id, "of": filter_data(rule.of), "detect": list(rule.detect)}
    if rule.margin:
        data["margin"] = rule.margin
    if rule.lasting is not None:
        data["for"] = rule.lasting
    if rule.time_to_live is not None:
        data["time_to_live"] = rule.time_to_live
    if rule.coordinates != "geographic":
        data["coordinates"] = rule.coordinates
    return data


def _span(fields: Mapping[str, DocumentNode], name: str, reader: DocumentReader) -> float | None:
    """Seconds above 0; None where they are not given, or after a fault."""
    seconds = read_duration(fields[name], name, reader) if name in fields else None
    if seconds == 0:
        reader.fault(f"{name}: a time above 0, as in 5 s", fields[name])
    return seconds


def _watched(node: DocumentNode, reader: DocumentReader) -> Filter | None:
    weighted = read_filter(node, 1, reader)
    if weighted is None:
        return None
    if any(relevance is not None for relevance in weighted.relevance):
        reader.fault("of without relevances", node, "who is in a zone is not weighed")
    reader.faults += filter_faults(weighted.filter)
    return weighted.filter


def _detect(
    node: DocumentNode, fields: Mapping[str, DocumentNode], reader: DocumentReader
) -> tuple[ZoneDetection, ...]:
    """What is told: by default who enters and leaves, and where a time stands, who stays so long."""
    if "detect" not in fields:
        return ("enter", "dwell", "exit") if "for" in fields else ("enter", "exit")
    listed = fields["detect"].value
    nodes = listed if isinstance(listed, list) else [fields["detect"]]
    for one in nodes:
        if one.value not in ZONE_DETECTIONS:
            reader.fault(f"one of {', '.join(ZONE_DETECTIONS)}", one, closest(str(one.value), ZONE_DETECTIONS))
    found = {one.value for one in nodes}
    if not nodes:
        reader.fault(f"at least one of {', '.join(ZONE_DETECTIONS)}", fields["detect"], came="none")
    if "dwell" in found and "for" not in fields:
        reader.fault("for, the time after which dwell is told", node, "for example: for: 10 min", came="none")
    if "for" in fields and "dwell" not in found:
        reader.fault(
            "dwell in detect", fields["detect"], "for says how long one must be in a zone before dwell is told"
        )
    return tuple(one for one in ZONE_DETECTIONS if one in found)


def _coordinates(fields: Mapping[str, DocumentNode], reader: DocumentReader) -> Coordinates:
    if "coordinates" not in fields or fields["coordinates"].value == "geographic":
        return "geographic"
    if fields["coordinates"].value != "planar":
        reader.fault("coordinates: geographic or planar", fields["coordinates"])
    return "planar"


def zones_of_features(
    features: Iterable[Any], layer: str, coordinates: Coordinates, name: str | None, limits: Limits, where: str
) -> tuple[list[Zone], list[Fault]]:
    """The zones of a layer that features of GeoJSON are, and what is wrong with others; `name`: the way to what names
    them, as in `properties.code`.
    """
    found: dict[str, Zone] = {}
    first: dict[str, int] = {}
    faults: list[Fault] = []
    for number, feature in enumerate(features, 1):
        try:
            zone = _zone(feature, layer, coordinates, name, limits)
            if zone.name in found:
                advice = f"it is already feature {first[zone.name]}"
                raise Fault("each zone once", f"{zone.name[:80]} again", None, advice)
            found[zone.name] = zone
            first[zone.name] = number
        except Fault as fault:
            faults.append(Fault(fault.expected, fault.came, Mark(f"{where}, feature {number}"), fault.advice))
    return list(found.values()), faults


def _zone(feature: Any, layer: str, coordinates: Coordinates, way: str | None, limits: Limits) -> Zone:
    """The zone of a feature. Raises `Fault` without a place."""
    # What reads shapes takes longer to load than most definitions to read.
    from nearcast.geo.zone_shapes import zone_text

    if not isinstance(feature, dict) or feature.get("type", "Feature") != "Feature":
        came = feature.get("type") if isinstance(feature, dict) else type(feature).__name__
        raise Fault("a Feature", str(came)[:80], None, "zones are the features of a FeatureCollection")
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise Fault("an object as properties", type(properties).__name__)
    name = _name(feature, properties, way, limits)
    geometry = zone_text(feature.get("geometry"), coordinates, limits)
    zone = Zone(layer, name, geometry, orjson.dumps(properties).decode(), coordinates)
    if zone.size > limits.zone_bytes:
        expected = f"a zone of at most {limits.zone_bytes:,} characters (limit zone_bytes)"
        raise Fault(expected, f"{zone.size:,}", None, "simplify it, or leave out properties")
    return zone


def _name(feature: dict[str, Any], properties: dict[str, Any], way: str | None, limits: Limits) -> str:
    if way is None:
        found = properties.get("name") if feature.get("id") is None else feature["id"]
    else:
        found = feature
        for key in way.split("."):
            found = found.get(key) if isinstance(found, dict) else None
    text = str(found) if type(found) is int else found
    if not isinstance(text, str) or not text.strip() or not text.isprintable():
        expected = f"a name at {way}" if way else "a name: its id, or properties.name"
        raise Fault(expected, "none" if found is None else repr(found)[:80], None, _naming_advice(properties, way))
    if len(text) > limits.name_length:
        raise Fault(f"a name of at most {limits.name_length:,} characters", f"{len(text):,}")
    return text


def _naming_advice(properties: dict[str, Any], way: str | None) -> str:
    """How to say where the name of a feature is, by the properties that it has."""
    if way in properties:
        return f"name: properties.{way} in the layer"
    some = listed([key[:40] for key in list(properties)[:5]]) if properties else "none"
    return f"name in the layer says where it is, as properties.code; its properties are {some}"


def warnings_of_zones(layers: Iterable[ZoneLayer], settings: Settings) -> Iterator[Fault]:
    """A warning for each filter that nothing can satisfy, and each layer in coordinates that no channel has."""
    types, kinds = types_of(settings), {channel.coordinates for channel in settings.channels}
    for layer in layers:
        rule = layer.rule
        yield from never_holding(rule.of, types=types)
        if kinds and rule.coordinates not in kinds:
            came = f"only {listed(sorted(map(str, kinds)))} channels"
            advice = f"coordinates: {min(kinds)} in the layer, if that is what they are"
            yield Fault(
                f"a channel of {rule.coordinates} coordinates for the zones {rule.id}",
                came,
                next(atoms(rule.of)).where,
                advice,
            )


def zone_changes(layer: ZoneLayer, before: ZoneLayer | None = None) -> Iterator[ZoneShapesChange]:
    """The changes that make the zones of a layer those of this one, each as small as a control event may be."""
    there = before.zones if before else {}
    gone = tuple(name for name in there if name not in layer.zones)
    portion: list[Zone] = []
    size = sum(len(name) for name in gone)
    for zone in layer.zones.values():
        if there.get(zone.name) == zone:
            continue
        if size + zone.size > PORTION and (portion or gone):
            yield ZoneShapesChange(layer.id, tuple(portion), gone)
            portion, size, gone = [], 0, ()
        portion.append(zone)
        size += zone.size
    if portion or gone:
        yield ZoneShapesChange(layer.id, tuple(portion), gone)


def zone_shapes_data(change: ZoneShapesChange) -> dict[str, Any]:
    """A change of zones as data, JSON-able; `read_zone_shapes` inverts it."""
    data: dict[str, Any] = {"layer": change.layer}
    if change.zones:
        data["features"] = [
            {
                "id": zone.name,
                "geometry": orjson.Fragment(zone.geometry),
                "properties": orjson.Fragment(zone.properties),
            }
            for zone in change.zones
        ]
        if change.zones[0].coordinates != "geographic":
            data["coordinates"] = change.zones[0].coordinates
    if change.removed:
        data["removed"] = list(change.removed)
    return data


def read_zone_shapes(data: Any, limits: Limits, where: Mark) -> ZoneShapesChange:
    """The change of zones that data asks for. Raises `Fault`, `DefinitionError`."""
    known = {"layer", "features", "coordinates", "removed"}
    if not isinstance(data, dict) or not isinstance(data.get("layer"), str) or not data["layer"]:
        raise Fault("the id of a layer of zones as layer", "none", where)
    if unknown := sorted(data.keys() - known):
        raise Fault(f"fields out of {', '.join(sorted(known))}", unknown[0][:80], where)
    removed, features = data.get("removed", []), data.get("features", [])
    if not isinstance(removed, list) or not all(isinstance(one, str) for one in removed):
        raise Fault("a list of names as removed", str(removed)[:80], where)
    if not isinstance(features, list):
        raise Fault("a list of features", type(features).__name__, where)
    coordinates = data.get("coordinates", "geographic")
    if coordinates not in ("geographic", "planar"):
        raise Fault("coordinates: geographic or planar", repr(coordinates)[:80], where)
    zones, faults = zones_of_features(features, data["layer"], coordinates, "id", limits, str(where))
    if faults:
        raise DefinitionError(faults)
    return ZoneShapesChange(data["layer"], tuple(zones), tuple(removed))
