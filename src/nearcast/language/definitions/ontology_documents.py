"""Ontologies within documents: classes, situations and places as YAML files, settings and control events write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nearcast.errors import Fault
from nearcast.language.definitions.ontology_rdf import FORMATS, read_rdf
from nearcast.language.nodes import DocumentNode, DocumentReader, at, closest, from_data, from_yaml, listed
from nearcast.language.quantities import read_metres
from nearcast.model.ontology import Area, ContextClass, Ontology, SituationClass, cycle, cycles
from nearcast.situations import units
from nearcast.situations.readings import outline
from nearcast.situations.rule_plan import unit_of

PARTS = ("classes", "situations", "places")

ABOVE = ("is", "part-of")
"""How classes and situations say what they serve."""


def read_ontology(node: DocumentNode, reader: DocumentReader) -> Ontology:
    """The ontology of a node. Faults go to the reader: unknown names and units, names that come twice, cycles."""
    fields = reader.fields(node, (), PARTS, "an ontology")
    entries = {part: list(_entries(fields.get(part), part, reader)) for part in PARTS}
    classes = tuple(_class(name, entry, entries["classes"], reader) for name, entry in entries["classes"])
    situations = tuple(_situation(name, entry, entries, reader) for name, entry in entries["situations"])
    areas = tuple(_area(name, entry, entries["places"], reader) for name, entry in entries["places"])
    found = Ontology(classes, situations, areas)
    _check_names(entries, reader)
    named = [*entries["classes"], *entries["situations"]]
    _check_cycles(found.parents(), "classes, each one of the next", named, reader)
    if cycle(found.parents()) is None:
        _check_cycles(found.serving(), "classes, each one of the next or part of it", named, reader)
        _check_units(found, entries["classes"], reader)
    _check_cycles(found.wholes(), "places, each part of the next", entries["places"], reader)
    return found


def ontology_data(ontology: Ontology) -> dict[str, Any]:
    """An ontology as a document, JSON-able; `read_ontology` inverts it."""
    data: dict[str, Any] = {}
    if ontology.classes:
        data["classes"] = {one.name: _class_data(one) for one in ontology.classes}
    if ontology.situations:
        data["situations"] = {one.name: _above_data(one) for one in ontology.situations}
    if ontology.areas:
        data["places"] = {one.name: _area_data(one) for one in ontology.areas}
    return data


def _above_data(one: ContextClass | SituationClass) -> dict[str, Any]:
    data = {"is": list(one.parents), "part-of": list(one.wholes)}
    return {name: names for name, names in data.items() if names}


def _class_data(one: ContextClass) -> dict[str, Any]:
    data: dict[str, Any] = {**_above_data(one), "unit": one.unit, "within": one.within}
    if one.low is not None or one.high is not None:
        data["range"] = [one.low, one.high]
    data["attributes"] = dict(one.attributes)
    return {name: value for name, value in data.items() if value not in (None, [], {})}


def _area_data(one: Area) -> dict[str, Any]:
    data = {"part-of": one.part_of, "area": one.outline, "entities": list(one.entities)}
    return {name: value for name, value in data.items() if value not in (None, [])}


def _entries(node: DocumentNode | None, part: str, reader: DocumentReader) -> Iterator[tuple[str, DocumentNode]]:
    """The names of a part and what is said of each; of one that stands alone nothing is."""
    for name, entry in reader.named(node, part) if node is not None else ():
        yield name, DocumentNode({}, entry.where, entry.path) if entry.value is None else entry


def _class(
    name: str, node: DocumentNode, classes: Sequence[tuple[str, DocumentNode]], reader: DocumentReader
) -> ContextClass:
    fields = reader.fields(node, (), ("is", "part-of", "unit", "range", "within", "attributes"), name)
    unit = _unit(fields["unit"], reader) if "unit" in fields else None
    low, high = _range(fields["range"], reader) if "range" in fields else (None, None)
    within = read_metres(fields["within"], "within", reader) if "within" in fields else None
    attributes = _attributes(fields["attributes"], unit, reader) if "attributes" in fields else ()
    parents, wholes = (_above(by, name, fields, classes, reader) for by in ABOVE)
    return ContextClass(name, parents, unit, low, high, within, attributes, wholes)


def _above(
    by: str,
    name: str,
    fields: Mapping[str, DocumentNode],
    known: Sequence[tuple[str, DocumentNode]],
    reader: DocumentReader,
) -> tuple[str, ...]:
    """What a class is one of, or part of."""
    if by not in fields:
        return ()
    value = fields[by].value
    items = value if isinstance(value, list) else [fields[by]]
    names = [(item, reader.text(item, f"what {name} {by.replace('-', ' ')}")) for item in items]
    for item, above in names:
        _check_known(item, above, [one for one, _ in known], "a class that is defined", reader)
    return tuple(dict.fromkeys(above for _, above in names if above))


def _situation(
    name: str, node: DocumentNode, entries: Mapping[str, Sequence[tuple[str, DocumentNode]]], reader: DocumentReader
) -> SituationClass:
    """A situation: one of other situations, and part of others. A class of readings among these is told as such."""
    fields = reader.fields(node, (), ABOVE, name)
    classes = [one for one, _ in entries["classes"]]
    items = (one.value if isinstance(one.value, list) else [one] for one in fields.values())
    wrong = [item for several in items for item in several if item.value in classes]
    for item in wrong:
        reader.fault("a situation", item, "what is concluded is no reading", came=f"{item.value}, a class of readings")
    if wrong:
        return SituationClass(name)
    return SituationClass(name, *(_above(by, name, fields, entries["situations"], reader) for by in ABOVE))


def _check_known(
    node: DocumentNode, name: str | None, known: Sequence[str], expected: str, reader: DocumentReader
) -> None:
    if name is not None and name not in known:
        reader.fault(expected, node, closest(name, known) or f"defined are {listed(known)}")


def _unit(node: DocumentNode, reader: DocumentReader) -> str | None:
    unit = reader.text(node, "unit")
    if unit is None or units.is_unit(unit):
        return unit
    reader.fault("a unit of measure", node, closest(unit, units.names()) or "for example: degC, percent, ppm, m/s")
    return None


def _check_units(ontology: Ontology, entries: Sequence[tuple[str, DocumentNode]], reader: DocumentReader) -> None:
    """Of what serves a request for a class above it, the numbers must be in the unit that is asked in."""
    nodes = dict(entries)
    for one in ontology.classes:
        for above in one.parents if one.unit is not None else ():
            unit = unit_of(ontology, above)
            if unit is not None and units.conversion(one.unit or unit, unit) != units.SAME:
                fields = nodes[one.name].value
                node = fields["unit"] if isinstance(fields, dict) and "unit" in fields else nodes[one.name]
                advice = "readings in others are converted: name that unit in attributes, or beside the value"
                reader.fault(f"the unit of {above}, {unit}, which {one.name} is", node, advice, came=one.unit)


def _range(node: DocumentNode, reader: DocumentReader) -> tuple[float | None, float | None]:
    """The least and the greatest value; null stands for no bound."""
    items = reader.items(node, "range")
    bounds = [None if item.value is None else reader.number(item, "a bound") for item in items]
    if isinstance(node.value, list) and len(bounds) != 2:
        reader.fault("[least, greatest]", node, came=f"{len(bounds)} values")
    if len(bounds) != 2:
        return None, None
    low, high = bounds
    if low is not None and high is not None and low > high:
        reader.fault("a range that begins with the least value", node, came=f"{low:g} to {high:g}")
    return low, high


def _attributes(node: DocumentNode, unit: str | None, reader: DocumentReader) -> tuple[tuple[str, str | None], ...]:
    """Other names of a class: a list, or a mapping to the unit that each is in."""
    if not isinstance(node.value, (list, dict)):
        reader.fault("attributes: a list, or a mapping to units", node)
        return ()
    if isinstance(node.value, list):
        return tuple((name, None) for item in node.value if (name := reader.text(item, "an attribute's name")))
    found = []
    for name, entry in reader.named(node, "attributes"):
        own = _unit(entry, reader) if entry.value is not None else None
        if own is not None and units.conversion(own, unit or own) is None:
            reader.fault(f"a unit that converts into {unit}", entry)
        found.append((name, own))
    return tuple(found)


def _area(name: str, node: DocumentNode, places: Sequence[tuple[str, DocumentNode]], reader: DocumentReader) -> Area:
    fields = reader.fields(node, (), ("part-of", "area", "entities"), name)
    whole = reader.text(fields["part-of"], "part-of") if "part-of" in fields else None
    if "part-of" in fields:
        _check_known(fields["part-of"], whole, [one for one, _ in places], "a place that is defined", reader)
    text = reader.text(fields["area"], "area") if "area" in fields else None
    if text is not None and outline(text) is None:
        reader.fault("a geometry in WKT", fields["area"], "for example: POLYGON((0 0, 10 0, 10 10, 0 0))")
    items = reader.items(fields["entities"], "entities") if "entities" in fields else []
    entities = [entity for item in items if (entity := reader.text(item, "an entity"))]
    return Area(name, whole, text, tuple(entities))


def _check_names(entries: Mapping[str, Sequence[tuple[str, DocumentNode]]], reader: DocumentReader) -> None:
    """A name is that of a class or of a situation; and no attribute is that of two classes."""
    owners = {name: name for name, _ in entries["classes"]}
    for name, node in entries["situations"]:
        if name in owners:
            reader.fault("a name that no class has", node, came=name)
    for name, node in entries["classes"]:
        told = node.value.get("attributes") if isinstance(node.value, dict) else None
        names = told.value if told is not None else ()
        for item in names if isinstance(names, (list, dict)) else ():
            attribute = item.value if isinstance(item, DocumentNode) else item
            if owners.setdefault(str(attribute), name) != name:
                reader.fault("an attribute of one class", node, f"{owners[str(attribute)]} has it", came=str(attribute))


def _check_cycles(
    above: Mapping[str, tuple[str, ...]], what: str, entries: Sequence[tuple[str, DocumentNode]], reader: DocumentReader
) -> None:
    for way in cycles(above):
        node = next(node for name, node in entries if name == way[0])
        reader.faults.append(Fault(f"{what}, without a way back", " → ".join(way), node.where, "leave one of them out"))


def read_ontology_file(text: str, path: Path, reader: DocumentReader) -> Ontology:
    """The ontology of a file's text, read as its ending says. Raises `Fault` or `DefinitionError` where it is no RDF
    or no YAML; what is wrong with the ontology itself goes to the reader.
    """
    if path.suffix.lower() not in FORMATS:
        return read_ontology(from_yaml(text, str(path)), reader)
    where = at(str(path))
    return read_ontology(from_data(read_rdf(text, path, where), where), reader)
