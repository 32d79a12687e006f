"""The situation rules and actions of definition files together: each once, no cycles, and what is hardly meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points

from nearcast.decision.infer.names import names_of, standing_on
from nearcast.errors import Fault, Mark
from nearcast.language.never_holding import REPEATED, never_holding
from nearcast.language.nodes import Node
from nearcast.language.reading import Reader, closest
from nearcast.language.situation_document import read_action, read_situation
from nearcast.language.situation_warnings import hardly_meant
from nearcast.model.filter import Filter, atoms
from nearcast.model.ontology import Ontology, below, cycles, upwards
from nearcast.model.situation import PLUG_INS, Action, Run, Situation
from nearcast.model.subscription import Settings


def read_rules(
    situations: Sequence[Node], actions: Sequence[Node], settings: Settings, reader: Reader
) -> tuple[tuple[Situation, ...], tuple[Action, ...]]:
    """The rules and actions of these nodes. Faults go to the reader: an id that comes twice, rules in a cycle."""
    rules: dict[str, Situation] = {}
    marks: dict[str, Mark] = {}
    for node in situations:
        rule = read_situation(node, settings, reader)
        if rule is not None and _once(rule.id, "situation rule", node, marks, reader):
            rules[rule.id] = rule
    for way in cycles(standing_on(rules.values(), settings.ontology)):
        advice = "leave one of these conditions out"
        expected = "rules of which none stands on itself"
        reader.take(Fault(expected, f"a cycle, {' → '.join(way)}", marks[way[0]], advice))
    found: dict[str, Action] = {}
    marks = {}
    for node in actions:
        action = read_action(node, settings, reader)
        if action is not None and _once(action.id, "action", node, marks, reader):
            found[action.id] = action
    return tuple(rules.values()), tuple(found.values())


def _once(id: str, what: str, node: Node, marks: dict[str, Mark], reader: Reader) -> bool:
    """Whether an id comes for the first time; a fault if not."""
    fields: Mapping[str, Node] = node.value if isinstance(node.value, dict) else {}
    mark = fields["id"].where if "id" in fields else node.where
    if id in marks:
        reader.take(Fault(f"each {what} once", f"{id} again", mark, f"it is already at {marks[id]}"))
        return False
    marks[id] = mark
    return True


def warnings_of_rules(rules: Sequence[Situation], actions: Sequence[Action], settings: Settings) -> Iterator[Fault]:
    """What is hardly meant: conditions that nothing can fulfil, situations that nothing concludes, actions that no
    installed package has.
    """
    concluded = {above for rule in rules if rule.sufficient for above in _above(settings.ontology, rule.concludes)}
    situations = {one.name for one in settings.ontology.situations}
    owners = [(one.id, one.when) for one in rules] + [(one.id, one.when) for one in actions]
    for _, when in owners:
        yield from _excluding(when)
    yield from _unregistered(actions)
    for id, when in owners:
        for name in names_of(when):
            if name in situations and name not in concluded:
                what = f"a rule that concludes {name}"
                advice = f"{id} waits for events that have {name} as an attribute"
                yield Fault(what, "none", next(atoms(when)).where, advice)
    for rule in rules:
        yield from hardly_meant(rule.when, settings.ontology)
        if not rule.sufficient and not _others(rule, rules, settings.ontology):
            what = f"a sufficient rule for {rule.concludes}"
            yield Fault(what, "none", next(atoms(rule.when)).where, f"{rule.id} alone begins nothing")


def _excluding(when: Filter) -> Iterator[Fault]:
    """Conditions of which one excludes another; those on a class are, each, about any reading around."""
    for fault in never_holding(when):
        several = "only several readings around, which differ, could satisfy all of it"
        yield replace(fault, advice=several) if fault.advice == REPEATED else fault


def _unregistered(actions: Sequence[Action]) -> Iterator[Fault]:
    """Python actions to run that are not installed here; they may be where the server is."""
    runs = [(one, effect.name) for one in actions for effect in one.effects if isinstance(effect, Run)]
    known = {point.name for point in entry_points(group=PLUG_INS)} if runs else set()
    for action, name in runs:
        if name not in known:
            advice = closest(name, known) or f"plug-ins have entry points in the group {PLUG_INS}"
            yield Fault(f"a registered action to run in {action.id}", name, next(atoms(action.when)).where, advice)


def _above(ontology: Ontology, name: str) -> Iterator[str]:
    return upwards(ontology.serving(), name)


def _others(rule: Situation, rules: Sequence[Situation], ontology: Ontology) -> bool:
    under = below(ontology.parents()).get(rule.concludes, frozenset({rule.concludes}))
    return any(other.sufficient and other.concludes in under for other in rules)
