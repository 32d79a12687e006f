"""Situation rules in a node's file: as in definitions, with `threshold` besides, over its ontology if it has one.

Without an ontology whatever the conditions name is a class of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nearcast.decision.foraging.rules import Rule, remote
from nearcast.decision.infer.names import in_order, names_of, range_of, reach, standing_on
from nearcast.errors import DefinitionError, Fault
from nearcast.language.definitions import read_text
from nearcast.language.filter_document import read_filter
from nearcast.language.nodes import Node
from nearcast.language.ontology_file import read_ontology_file
from nearcast.language.reading import Reader, closest
from nearcast.language.situation_definitions import read_rules
from nearcast.model.ontology import ContextClass, Ontology, SituationClass, upwards
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings

LEVELS = 3
"""Of priorities: a filter is read with some, and a node has none."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a node knows of the world: rules, each after those it stands on, and the classes they are about."""

    rules: tuple[Rule, ...] = ()
    ontology: Ontology = field(default_factory=Ontology)

    def above(self, name: str) -> tuple[str, ...]:
        """A class and those above it, whose requests it serves."""
        return tuple(upwards(self.ontology.serving(), name))

    def situations(self) -> tuple[str, ...]:
        """What is a situation, not a class."""
        return tuple(one.name for one in self.ontology.situations)

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Of classes that have one, the values between which readings lie."""
        found = {one.name: range_of(self.ontology, one.name) for one in self.ontology.classes}
        return {
            name: (-float("inf") if low is None else low, float("inf") if high is None else high)
            for name, (low, high) in found.items()
            if low is not None or high is not None
        }


def read_known(
    ontology: Node | None, situations: Sequence[Node], measured: Mapping[str, Node], folder: Path, reader: Reader
) -> Known:
    """What a node's file says that it knows; `measured`: where each class that it measures is named."""
    found = _ontology(ontology, folder, reader) if ontology else _implied(situations, measured)
    known = [one.name for one in found.classes]
    for name, where in measured.items():
        if name not in known:
            reader.fault("a class of the ontology", where, closest(name, known) or "add it to the ontology", name)
    plain, _ = read_rules([_without(node, "threshold") for node in situations], [], Settings(ontology=found), reader)
    nodes = {_id(node): node for node in situations}
    whole = {rule.id: rule for rule in plain}
    concluded = {above for rule in plain for above in upwards(found.serving(), rule.concludes)}
    seen = {above for name in measured for above in upwards(found.serving(), name)} | concluded
    # With a fault among the rules they may stand in a circle: then there is no order, and nothing runs.
    order = in_order(standing_on(plain, found)) if not reader.faults else list(whole)
    rules = [_rule(whole[id], nodes[id], found, seen, reader) for id in order]
    return Known(tuple(rule for rule in rules if rule), found)


def _ontology(node: Node, folder: Path, reader: Reader) -> Ontology:
    path = folder / str(node.value).strip()
    try:
        return read_ontology_file(read_text(path, node.where), path, reader)
    except (Fault, DefinitionError) as error:
        reader.take(error)
        return Ontology()


def _implied(situations: Sequence[Node], measured: Iterable[str]) -> Ontology:
    """An ontology in which every name is by itself: what rules conclude are situations, the rest are classes."""
    concluded, named = dict[str, None](), dict.fromkeys(measured)
    for node in situations:
        given = node.value if isinstance(node.value, dict) else {}
        if "class" in given and isinstance(given["class"].value, str) and given["class"].value:
            concluded[given["class"].value] = None
        # Its faults are told when the rule itself is read.
        weighted = read_filter(given["when"], LEVELS, Reader()) if "when" in given else None
        named.update(dict.fromkeys(names_of(weighted.filter) if weighted else ()))
    classes = tuple(ContextClass(name) for name in named if name not in concluded)
    return Ontology(classes, tuple(map(SituationClass, concluded)))


def _without(node: Node, name: str) -> Node:
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={key: child for key, child in node.value.items() if key != name})


def _id(node: Node) -> str:
    given = node.value if isinstance(node.value, dict) else {}
    return str(given["id"].value) if "id" in given else ""


def _rule(rule: Situation, node: Node, ontology: Ontology, seen: Iterable[str], reader: Reader) -> Rule | None:
    """The rule as a node follows it; None after a fault."""
    before = len(reader.faults)
    given = node.value if isinstance(node.value, dict) else {}
    threshold = reader.number(given["threshold"], "threshold, a trigger level", low=0) if "threshold" in given else 0.0
    if threshold is not None and threshold > 1:
        reader.fault("threshold, a trigger level: from 0 to 1", given["threshold"])
    if not rule.valid:
        reader.fault("valid of a node's rule: more than 0 seconds", given.get("valid", node))
    if rule.area is not None or not rule.sufficient or rule.lateness:
        reader.fault("id, class, when, within, valid, threshold in a node's rule", node, "nodes know no other fields")
    within = rule.within
    if within is None:
        within = max((metres for name in names_of(rule.when) if (metres := reach(ontology, name))), default=0.0)
    found = Rule(rule.id, rule.concludes, rule.when, within, rule.valid or 0.0, threshold or 0.0)
    try:
        remote(found, frozenset(seen))
    except Fault as fault:
        reader.take(fault)
    return found if len(reader.faults) == before else None
