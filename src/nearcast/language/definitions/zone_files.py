"""The zones of a layer, out of a file of GeoJSON that a definition names, or written into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.definitions.zone_documents import zones_of_features
from nearcast.language.nodes import DocumentNode, DocumentReader, at
from nearcast.model.zone import Zone, ZoneRule

OF_ZONES = ("file", "features", "name")
"""The fields of a layer that say which zones it has."""

TextOf = Callable[[DocumentNode], tuple[Path, str]]
"""The path and the text of the file that a node names. Raises `Fault`, `DefinitionError`."""


def zones_of_layer(
    node: DocumentNode, id: str, rule: ZoneRule | None, reader: DocumentReader, text_of: TextOf
) -> dict[str, Zone]:
    """The zones that the definition of a layer names; those with faults, which are noted, are left out."""
    given = node.value if isinstance(node.value, dict) else {}
    fields = {name: one for name, one in given.items() if one.value is not None and name in OF_ZONES}
    if ("file" in fields) == ("features" in fields):
        came = "both" if "file" in fields else "none"
        reader.fault("file, of GeoJSON, or features in a layer of zones", node, came=came)
        return {}
    where, features = _features(fields, id, reader, text_of)
    way = reader.text(fields["name"], "name, the way to a zone's name") if "name" in fields else None
    if rule is None or features is None or ("name" in fields and way is None):
        return {}
    zones, faults = zones_of_features(features, id, rule.coordinates, way, reader.limits, where)
    reader.faults.extend([*faults, *_beyond(zones, reader, where)])
    return {zone.name: zone for zone in zones}


def _beyond(zones: list[Zone], reader: DocumentReader, where: str) -> list[Fault]:
    """What is beyond the limits of a layer."""
    limits, advice = reader.limits, "make several layers of them"
    asked = (
        (f"at most {limits.zones:,} zones in a layer (limit zones)", len(zones), limits.zones),
        (
            f"zones of at most {limits.zones_bytes:,} characters in a layer (limit zones_bytes)",
            sum(zone.size for zone in zones),
            limits.zones_bytes,
        ),
    )
    return [Fault(expected, f"{came:,}", Mark(where), advice) for expected, came, most in asked if came > most]


def _features(
    fields: dict[str, DocumentNode], id: str, reader: DocumentReader, text_of: TextOf
) -> tuple[str, list[Any] | None]:
    """Where features stand, and these; None after a fault."""
    if "features" in fields:
        node = fields["features"]
        listed = [one.plain() for one in reader.items(node, "features")]
        return f"{node.where.file}, zones {id}", listed
    node = fields["file"]
    try:
        path, text = text_of(node)
    except (Fault, DefinitionError) as error:
        reader.note_raised(error)
        return "", None
    try:
        return str(path), _collected(orjson.loads(text), path)
    except orjson.JSONDecodeError as error:
        reader.faults.append(Fault("GeoJSON", error.msg, Mark(str(path), error.lineno, error.colno)))
    except Fault as fault:
        reader.faults.append(fault)
    return str(path), None


def _collected(read: Any, path: Path) -> list[Any]:
    """The features of a collection, or the one that is there. Raises `Fault`."""
    kind = read.get("type") if isinstance(read, dict) else type(read).__name__
    if kind == "Feature":
        return [read]
    if kind == "FeatureCollection" and isinstance(read.get("features"), list):
        features: list[Any] = read["features"]
        return features
    raise Fault("a FeatureCollection of GeoJSON", str(kind)[:80], at(str(path)), "zones are its features")
