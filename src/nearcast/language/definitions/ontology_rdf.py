"""Ontologies out of RDFS and OWL files, Turtle or RDF/XML: read into the document that a YAML file would be.

What counts of such a file, each name being the last part of its IRI:

- classes below `nearcast:Context` and below `nearcast:Situation` (`rdfs:subClassOf`, over any number of steps); where
  neither is used, every `owl:Class` or `rdfs:Class` is a context class, and those below one named Situation are
  situations;
- part-of is `dcterms:isPartOf`, `schema:containedInPlace`, part of of the Basic Formal Ontology (`BFO_0000050`),
  `nearcast:partOf` or another property called partOf or isPartOf; or the other way round `dcterms:hasPart` and such.
  Of a class it is stated so, or of all that are one, by `rdfs:subClassOf` a restriction of such a property with
  `owl:someValuesFrom`. Things other than classes that have it are places, and so is what they are part of;
- of a class `nearcast:unit` (or `qudt:unit`, by its last part), `nearcast:minimum`, `nearcast:maximum`,
  `nearcast:within` and `nearcast:attribute`; of a place `nearcast:entity` and its outline, `geo:asWKT`.

Labels, restrictions and everything else are passed over.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.errors import Fault, Mark
from nearcast.language.xml_entities import check_entities

if TYPE_CHECKING:
    from rdflib import Graph
    from rdflib.term import Node

FORMATS = {".ttl": "turtle", ".nt": "nt", ".rdf": "xml", ".owl": "xml", ".xml": "xml"}
"""How files are read, by their endings."""

PART_OF = frozenset({"partof", "ispartof", "containedinplace", "bfo_0000050"})
"""Last parts of IRIs that say part-of, in small letters."""

HAS_PART = frozenset({"haspart", "containsplace", "bfo_0000051"})
"""Those that say it the other way round."""

_ROOTS = ("Context", "Situation")
_LITERALS = {"unit": "unit", "within": "within", "minimum": "minimum", "maximum": "maximum"}
_OUTLINE = "asWKT"


def read_rdf(text: str, path: Path, where: Mark) -> dict[str, Any]:
    """The document, as `read_ontology` takes it, of an RDF file's text. Raises `Fault` for text that is not RDF."""
    from rdflib import Graph

    # The library logs whatever literal it finds odd, with a traceback; nothing of that matters here.
    logging.getLogger("rdflib.term").setLevel(logging.ERROR)
    graph = Graph()
    kind = FORMATS.get(path.suffix.lower(), "turtle")
    if kind == "xml":
        check_entities(text, where)
    # It raises what its parsers raise, each its own.
    try:
        graph.parse(data=text, format=kind)
    except Exception as error:
        raise Fault(f"RDF ({kind})", _said(error), _place(error, where)) from None
    return _Reading(graph).document()


def _said(error: Exception) -> str:
    """What a parser says is wrong; the one of Turtle appends the place and the text around it as bytes."""
    text = " ".join(str(error).split())
    reason = re.search(r"Bad syntax \((.*)\) at \^ in:", text)
    return (reason[1] if reason else text)[:200]


def _place(error: Exception, where: Mark) -> Mark:
    """Where a parser stopped, as far as it says so."""
    said = getattr(error, "lines", None)
    if isinstance(said, int):
        return Mark(where.file, said + 1)
    found = re.search(r"(?::|line )(\d+)(?::(\d+))?", str(error))
    return Mark(where.file, int(found[1]), int(found[2]) + 1 if found[2] else None) if found else where


class _Reading:
    """One graph as classes, situations and places."""

    def __init__(self, graph: Graph) -> None:
        from rdflib.namespace import OWL, RDF, RDFS

        self._graph = graph
        kinds = (OWL.Class, RDFS.Class)
        declared = {one for kind in kinds for one in graph.subjects(RDF.type, kind)}
        self._above: dict[Node, list[Node]] = {one: [] for one in declared}
        for one, parent in graph.subject_objects(RDFS.subClassOf):
            self._above.setdefault(one, []).append(parent)
            self._above.setdefault(parent, [])
        self._parts = set(self._part_of(OWL.onProperty, OWL.someValuesFrom))
        self._wholes: dict[Node, set[Node]] = {}
        for part, whole in self._parts:
            self._wholes.setdefault(part, set()).add(whole)

    def document(self) -> dict[str, Any]:
        """The whole graph as a document, in the order of names: a graph has none."""
        named = sorted((one for one in self._above if _iri(one)), key=_name)
        situations = [one for one in named if self._is_below(one, "Situation")]
        contexts = [one for one in named if self._is_below(one, "Context")]
        if not contexts:
            others = frozenset(situations)
            contexts = [one for one in named if one not in others]
        document: dict[str, Any] = {}
        if contexts := self._without_roots(contexts):
            known = frozenset(contexts)
            document["classes"] = {_name(one): self._class(one, known) for one in contexts}
        if situations := self._without_roots(situations):
            known = frozenset(situations)
            document["situations"] = {_name(one): self._above_of(one, known) for one in situations}
        if places := dict(self._places()):
            document["places"] = places
        return document

    def _without_roots(self, found: Iterable[Node]) -> list[Node]:
        return [one for one in found if _name(one) not in _ROOTS]

    def _is_below(self, one: Node, root: str) -> bool:
        seen, waiting = {one}, [one]
        while waiting:
            here = waiting.pop()
            if _iri(here) and _name(here) == root:
                return True
            fresh = [parent for parent in self._above.get(here, ()) if parent not in seen]
            seen.update(fresh)
            waiting.extend(fresh)
        return False

    def _part_of(self, property: Node, values: Node) -> Iterator[tuple[Node, Node]]:
        """What is part of what: stated of things themselves, or, of classes, of all that are one."""
        for one, by, other in self._graph:
            if _name(by).lower() in PART_OF:
                yield one, other
            elif _name(by).lower() in HAS_PART:
                yield other, one
        for one, parents in self._above.items():
            for parent in parents:
                if any(_name(by).lower() in PART_OF for by in self._graph.objects(parent, property)):
                    yield from ((one, whole) for whole in self._graph.objects(parent, values))

    def _above_of(self, one: Node, known: Set[Node]) -> dict[str, Any]:
        parents = sorted({_name(parent) for parent in self._above[one] if parent in known})
        wholes = sorted({_name(whole) for whole in self._wholes.get(one, ()) if whole in known})
        return {name: names for name, names in (("is", parents), ("part-of", wholes)) if names}

    def _class(self, one: Node, known: Set[Node]) -> dict[str, Any]:
        told = {_name(by): value for by, value in self._graph.predicate_objects(one) if _name(by) in _LITERALS}
        data = self._above_of(one, known)
        if "unit" in told:
            data["unit"] = _name(told["unit"]) if _iri(told["unit"]) else str(told["unit"])
        if "within" in told:
            data["within"] = _plain(told["within"])
        if "minimum" in told or "maximum" in told:
            data["range"] = [_plain(told[bound]) if bound in told else None for bound in ("minimum", "maximum")]
        if attributes := sorted(str(value) for value in self._values(one, "attribute")):
            data["attributes"] = attributes
        return data

    def _places(self) -> Iterator[tuple[str, dict[str, Any]]]:
        wholes = {part: whole for part, whole in sorted(self._parts) if part not in self._above}
        found = {*wholes, *wholes.values(), *self._with(_OUTLINE), *self._with("entity")}
        for one in sorted(found, key=_name):
            data: dict[str, Any] = {"part-of": _name(wholes[one])} if one in wholes else {}
            if outlines := self._values(one, _OUTLINE):
                # GeoSPARQL writes the IRI of the reference system before the geometry.
                data["area"] = re.sub(r"^\s*<[^>]*>\s*", "", str(outlines[0]))
            if entities := sorted(str(value) for value in self._values(one, "entity")):
                data["entities"] = entities
            yield _name(one), data

    def _with(self, name: str) -> set[Node]:
        return {one for one, by, _ in self._graph if _name(by) == name}

    def _values(self, one: Node, name: str) -> list[Node]:
        return [value for by, value in self._graph.predicate_objects(one) if _name(by) == name]


def _iri(node: Node) -> bool:
    from rdflib import URIRef

    return isinstance(node, URIRef)


def _name(node: Node) -> str:
    """The last part of an IRI."""
    return re.split(r"[#/:]", str(node).rstrip("#/"))[-1]


def _plain(node: Node) -> Any:
    """A literal as a plain value; what is no number stays a text, and is a fault where a number is expected."""
    try:
        value = float(str(node))
    except ValueError:
        return str(node)
    return int(value) if value.is_integer() else value
