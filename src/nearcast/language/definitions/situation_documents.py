"""Situation rules and actions within documents, and those of all files together: each once, no cycles."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from nearcast.errors import Fault, Mark
from nearcast.language.definitions.filter_warnings import REPEATED, never_holding
from nearcast.language.definitions.situation_conditions import hardly_meant, never_kept, read_conditions
from nearcast.language.definitions.subscription_documents import filter_data
from nearcast.language.nodes import MAX_VALUES, DocumentNode, DocumentReader, closest, from_data
from nearcast.language.quantities import read_duration, read_metres
from nearcast.model.event import CONTROL_PREFIX
from nearcast.model.filter import Filter, atoms
from nearcast.model.ontology import Ontology, below, cycles, upwards
from nearcast.model.relation import DETECTIONS, Detection
from nearcast.model.situation import (
    NEVER,
    PHASES,
    PLUG_INS,
    SECRET_PREFIX,
    Action,
    Effect,
    Phase,
    Publish,
    Run,
    Situation,
    Trigger,
    Webhook,
)
from nearcast.model.subscription import Settings
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM
from nearcast.runtime.plug_ins import plug_ins
from nearcast.situations.condition_margins import subject_of
from nearcast.situations.rule_plan import names_in, names_of, reach, standing_on

EFFECTS = ("publish", "webhook", "run")
PLACEHOLDERS = ("action", "situation", "class", "id", "phase", "place", "position", "since", "reason")
"""What a text of an event to publish may hold in braces, besides readings.CLASS."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def situation_document(data: Mapping[str, Any], where: Mark, settings: Settings) -> Situation:
    """The rule that a document asks for. Raises `DefinitionError` with every fault."""
    reader = DocumentReader(settings.limits)
    found = read_situation(from_data(data, where, MAX_VALUES), settings, reader)
    reader.refuse()
    assert found is not None, "without a fault there is a rule"
    return found


def action_document(data: Mapping[str, Any], where: Mark, settings: Settings) -> Action:
    """The action that a document asks for. Raises `DefinitionError` with every fault."""
    reader = DocumentReader(settings.limits)
    found = read_action(from_data(data, where, MAX_VALUES), settings, reader)
    reader.refuse()
    assert found is not None, "without a fault there is an action"
    return found


def situation_data(rule: Situation) -> dict[str, Any]:
    """A rule as a document, JSON-able; `situation_document` inverts it."""
    data = {"id": rule.id, "class": rule.concludes, "when": filter_data(rule.when)}
    inside = rule.area if rule.layer is None else {"zones": rule.layer}
    given = {"within": rule.within, "in": inside, "valid": rule.valid, "lateness": rule.lateness or None}
    data |= {name: value for name, value in given.items() if value is not None}
    if rule.begin or rule.end:
        data["for"] = rule.begin if not rule.end else {"begin": rule.begin, "end": rule.end}
    if rule.margins:
        data["margin"] = dict(rule.margins)
    return data if rule.sufficient else data | {"sufficient": False}


def action_data(action: Action) -> dict[str, Any]:
    """An action as a document, JSON-able; `action_document` inverts it."""
    data: dict[str, Any] = {"id": action.id}
    match action.trigger:
        case None:
            data |= {"when": filter_data(action.when), "phases": list(action.phases)}
        case Trigger("relation", id, detect):
            data |= {"relation": id, "detect": list(detect)}
        case Trigger(kind, id):
            data[kind] = id
    if action.within is not None:
        data["within"] = action.within
    for effect in action.effects:
        match effect:
            case Publish(type_, told):
                data["publish"] = {"type": type_, "data": json.loads(told)}
            case Webhook(url, secret):
                data["webhook"] = {"url": url} if secret is None else {"url": url, "secret": secret}
            case Run(name, arguments):
                data["run"] = {"name": name, "arguments": json.loads(arguments)}
    return data


def read_situation(node: DocumentNode, settings: Settings, reader: DocumentReader) -> Situation | None:
    """The rule of a node; None after a fault."""
    before = len(reader.faults)
    optional = ("within", "in", "valid", "lateness", "sufficient", "for", "margin")
    fields = reader.fields(node, ("id", "class", "when"), optional, "a situation rule")
    id = reader.name(fields["id"], "a rule's id") if "id" in fields else None
    ontology = settings.ontology
    concludes = _concluded(fields["class"], ontology, reader) if "class" in fields else None
    when = read_conditions(fields["when"], settings, reader) if "when" in fields else None
    within = read_metres(fields["within"], "within", reader) if "within" in fields else None
    zones = _layer(fields["in"], reader) if "in" in fields and isinstance(fields["in"].value, dict) else None
    area = _named_area(fields["in"], ontology, reader) if "in" in fields and zones is None else None
    valid = _validity(fields["valid"], reader) if "valid" in fields else None
    lateness = read_duration(fields["lateness"], "lateness", reader) if "lateness" in fields else 0.0
    sufficient = reader.flag(fields["sufficient"], "sufficient") if "sufficient" in fields else True
    begin, end = _lasting(fields["for"], reader) if "for" in fields else (0.0, 0.0)
    margins = _margins(fields["margin"], when, reader) if "margin" in fields and when is not None else ()
    if when is not None:
        _check_reach(node, fields, when, ontology, reader)
    if len(reader.faults) > before or id is None or concludes is None or when is None:
        return None
    return Situation(
        id, concludes, when, within, area, valid, lateness or 0.0, sufficient, begin, end, margins, zones or None
    )


def _margins(node: DocumentNode, when: Filter, reader: DocumentReader) -> tuple[tuple[str, float], ...]:
    """By how much comparisons must fail before what holds ends: of the one class or aggregate, or of each by name."""
    subjects = list(dict.fromkeys(one for atom in atoms(when) if (one := subject_of(atom)) is not None))
    if not subjects:
        reader.fault("a margin for conditions that compare with a number by < <= > >= or BETWEEN", node)
        return ()
    if not isinstance(node.value, dict):
        margin = reader.number(node, "margin", low=0)
        if len(subjects) > 1:
            expected = f"a margin for each of {', '.join(subjects)}"
            reader.fault(expected, node, f"for example: {{{subjects[0]}: {node.value}}}")
        return ((subjects[0], float(margin)),) if margin else ()
    found = []
    for name, child in reader.named(node, "margin"):
        margin = reader.number(child, f"the margin of {name}", low=0)
        if name not in subjects:
            advice = closest(name, subjects) or f"there are {', '.join(subjects)}"
            reader.faults.append(Fault("a class or aggregate that is compared", name[:80], node.key(name), advice))
        elif margin:
            found.append((name, float(margin)))
    return tuple(found)


def _lasting(node: DocumentNode, reader: DocumentReader) -> tuple[float, float]:
    """Seconds for which a rule must hold before a situation begins, and must not before it ends."""
    if not isinstance(node.value, dict):
        return read_duration(node, "for", reader) or 0.0, 0.0
    fields = reader.fields(node, (), ("begin", "end"), "for")
    if not fields:
        reader.fault("begin or end in for", node, came="none")
    begin, end = (read_duration(fields[one], one, reader) if one in fields else None for one in ("begin", "end"))
    return begin or 0.0, end or 0.0


def _validity(node: DocumentNode, reader: DocumentReader) -> float | None:
    """Seconds above 0: a reading that never counts would keep its rule from ever holding."""
    seconds = read_duration(node, "valid", reader)
    if seconds == 0:
        reader.fault("valid: a time above 0, as in 10 s", node, "leave it out: a reading then counts until the next")
    return seconds


def _concluded(node: DocumentNode, ontology: Ontology, reader: DocumentReader) -> str | None:
    name = reader.text(node, "a rule's class")
    known = [one.name for one in ontology.situations]
    if name is None or name in known:
        return name
    if name in (one.name for one in ontology.classes):
        reader.fault("a situation", node, "move it to the ontology's situations", came=f"{name}, a class of readings")
    else:
        advice = closest(name, known) or "add it to the ontology's situations"
        reader.fault("a situation of the ontology", node, advice)
    return None


def _layer(node: DocumentNode, reader: DocumentReader) -> str:
    """The layer of zones in each of which a rule looks; empty after a fault."""
    fields = reader.fields(node, ("zones",), (), "in")
    return (reader.name(fields["zones"], "a layer of zones") if "zones" in fields else None) or ""


def _named_area(node: DocumentNode, ontology: Ontology, reader: DocumentReader) -> str | None:
    name = reader.text(node, "in")
    known = [one.name for one in ontology.areas]
    if name is not None and name not in known:
        reader.fault("a place of the ontology", node, closest(name, known) or "add it to the ontology's places")
    return name


def _check_reach(
    node: DocumentNode, fields: Mapping[str, DocumentNode], when: Filter, ontology: Ontology, reader: DocumentReader
) -> None:
    """Around which a rule looks: metres or a place; else every class must say it."""
    if "within" in fields and "in" in fields:
        reader.fault("within or in", fields["in"], "leave out one of them", came="both")
    if "within" in fields or "in" in fields:
        return
    classes = [one.name for one in ontology.classes]
    names = [name for atom in atoms(when) for name in names_in(atom)]
    lacking = [name for name in names if name in classes and reach(ontology, name) is None]
    if lacking or not any(name in classes for name in names):
        came = f"none, nor has {lacking[0]} one in the ontology" if lacking else "none"
        reader.fault("within, in metres, or in, a place", node, came=came)


def read_action(node: DocumentNode, settings: Settings, reader: DocumentReader) -> Action | None:
    """The action of a node; None after a fault."""
    before = len(reader.faults)
    given = node.value if isinstance(node.value, dict) else {}
    named = [name for name in ("subscription", "relation") if name in given]
    if named:
        return _triggered(node, named, reader)
    fields = reader.fields(node, ("id", "when"), (*EFFECTS, "phases", "within"), "an action")
    id = reader.name(fields["id"], "an action's id") if "id" in fields else None
    when = read_conditions(fields["when"], settings, reader, alone=True) if "when" in fields else None
    within = read_metres(fields["within"], "within", reader) if "within" in fields else None
    phases = _phases(fields["phases"], reader) if "phases" in fields else ("begin",)
    effects = tuple(_effects(fields, settings.ontology, reader))
    if isinstance(node.value, dict) and not any(name in fields for name in EFFECTS):
        reader.fault(f"one of {', '.join(EFFECTS)} in an action", node, came="none")
    if len(reader.faults) > before or id is None or when is None:
        return None
    return Action(id, when, effects, phases, within)


def _triggered(node: DocumentNode, named: Sequence[str], reader: DocumentReader) -> Action | None:
    """The action of a node that a subscription or a relation calls for; None after a fault."""
    before = len(reader.faults)
    further = ("webhook", "run", *(["detect"] if named[0] == "relation" else []))
    fields = reader.fields(node, ("id", named[0]), further, f"an action at a {named[0]}")
    id = reader.name(fields["id"], "an action's id") if "id" in fields else None
    called = reader.text(fields[named[0]], f"a {named[0]}'s id") if named[0] in fields else None
    detect = _detected(fields["detect"], reader) if "detect" in fields else AT_BEGINNING
    effects = tuple(effect for effect in _called(fields, reader) if effect is not None)
    if not {"webhook", "run"} & fields.keys():
        reader.fault("webhook or run in an action", node, "what calls for it is an event already", came="none")
    if len(reader.faults) > before or id is None or called is None:
        return None
    if named[0] == "relation":
        return Action(id, NEVER, effects, trigger=Trigger("relation", called, detect))
    return Action(id, NEVER, effects, trigger=Trigger("subscription", called))


AT_BEGINNING: tuple[Detection, ...] = ("enter", "dwell")
"""What of a relation calls for an action that does not say it."""


def _called(fields: Mapping[str, DocumentNode], reader: DocumentReader) -> Iterator[Effect | None]:
    if "webhook" in fields:
        yield _webhook(fields["webhook"], reader)
    if "run" in fields:
        yield _run(fields["run"], reader)


def _detected(node: DocumentNode, reader: DocumentReader) -> tuple[Detection, ...]:
    listed = node.value if isinstance(node.value, list) else [node]
    for item in listed:
        if item.value not in DETECTIONS:
            reader.fault(f"one of {', '.join(DETECTIONS)}", item, closest(str(item.value), DETECTIONS))
    if not listed:
        reader.fault(f"at least one of {', '.join(DETECTIONS)}", node, came="none")
    given = {item.value for item in listed}
    return tuple(one for one in DETECTIONS if one in given)


def _phases(node: DocumentNode, reader: DocumentReader) -> tuple[Phase, ...]:
    listed = node.value if isinstance(node.value, list) else [node]
    for item in listed:
        if item.value not in PHASES:
            reader.fault(f"one of {', '.join(PHASES)}", item)
    if not listed:
        reader.fault(f"at least one of {', '.join(PHASES)}", node, "without phases it is begin", came="none")
    given = {item.value for item in listed}
    return tuple(phase for phase in PHASES if phase in given)


def _effects(fields: Mapping[str, DocumentNode], ontology: Ontology, reader: DocumentReader) -> Iterator[Effect]:
    found: Sequence[Effect | None] = (
        _publish(fields["publish"], ontology, reader) if "publish" in fields else None,
        _webhook(fields["webhook"], reader) if "webhook" in fields else None,
        _run(fields["run"], reader) if "run" in fields else None,
    )
    yield from (effect for effect in found if effect is not None)


def _publish(node: DocumentNode, ontology: Ontology, reader: DocumentReader) -> Publish | None:
    fields = reader.fields(node, ("type",), ("data",), "publish")
    type_ = reader.text(fields["type"], "the type of the event") if "type" in fields else None
    if type_ is not None and type_.startswith(CONTROL_PREFIX):
        reader.fault("a type of events that tell of the world", fields["type"])
    data = fields.get("data")
    if data is not None:
        _check_texts(data, [one.name for one in ontology.classes], reader)
    told = _json(data, reader)
    return Publish(type_, told) if type_ is not None else None


def _json(node: DocumentNode | None, reader: DocumentReader) -> str:
    if node is None:
        return "{}"
    _check_numbers(node, reader)
    return json.dumps(node.plain(), ensure_ascii=False, sort_keys=True)


def _check_numbers(node: DocumentNode, reader: DocumentReader) -> None:
    """Notes numbers that no event can have."""
    if isinstance(node.value, (dict, list)):
        for child in node.value.values() if isinstance(node.value, dict) else node.value:
            _check_numbers(child, reader)
    elif isinstance(node.value, float) and not math.isfinite(node.value):
        reader.fault("a finite number", node, "events have no others; send it as a text")
    elif isinstance(node.value, int) and not INTEGER_MINIMUM <= node.value <= INTEGER_MAXIMUM:
        reader.fault("an integer within 64 bits", node, "send it as a text")


def _check_texts(node: DocumentNode, classes: Sequence[str], reader: DocumentReader) -> None:
    """Notes braces in the texts of data that stand for nothing."""
    if isinstance(node.value, dict):
        for child in node.value.values():
            _check_texts(child, classes, reader)
    elif isinstance(node.value, list):
        for child in node.value:
            _check_texts(child, classes, reader)
    elif isinstance(node.value, str):
        known = [*PLACEHOLDERS, *(f"readings.{name}" for name in classes)]
        for name in _BRACES.findall(node.value):
            if name not in known:
                advice = closest(name, known) or f"there are {', '.join(PLACEHOLDERS)} and readings.CLASS"
                reader.fault("a name in braces that is known", node, advice, came=f"{{{name}}}")


def _webhook(node: DocumentNode, reader: DocumentReader) -> Webhook | None:
    fields = {"url": node} if isinstance(node.value, str) else reader.fields(node, ("url",), ("secret",), "webhook")
    url = reader.text(fields["url"], "url") if "url" in fields else None
    what = "secret, the name of an environment variable"
    secret = reader.text(fields["secret"], what) if "secret" in fields else None
    if url is not None and not _is_url(url):
        reader.fault("a URL, http:// or https://", fields["url"])
    if secret is not None and not _VARIABLE.fullmatch(secret):
        advice = "definitions are no place for secrets: name the variable that holds it"
        # What stands there may be the secret: it is not repeated.
        reader.fault("the name of an environment variable", fields["secret"], advice, came="another text")
    return Webhook(url, secret) if url is not None else None


def _is_url(text: str) -> bool:
    try:
        found = urlsplit(text)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        return False


def _run(node: DocumentNode, reader: DocumentReader) -> Run | None:
    if isinstance(node.value, str):
        return Run(node.value) if reader.text(node, "run, the name of an action") else None
    fields = reader.fields(node, ("name",), ("arguments",), "run")
    name = reader.text(fields["name"], "the name of a registered action") if "name" in fields else None
    arguments = _json(fields.get("arguments"), reader)
    return Run(name, arguments) if name is not None else None


def read_rules(
    situations: Sequence[DocumentNode], actions: Sequence[DocumentNode], settings: Settings, reader: DocumentReader
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
        reader.note_raised(Fault(expected, f"a cycle, {' → '.join(way)}", marks[way[0]], advice))
    found: dict[str, Action] = {}
    marks = {}
    for node in actions:
        action = read_action(node, settings, reader)
        if action is not None and _once(action.id, "action", node, marks, reader):
            found[action.id] = action
    return tuple(rules.values()), tuple(found.values())


def _once(id: str, what: str, node: DocumentNode, marks: dict[str, Mark], reader: DocumentReader) -> bool:
    """Whether an id comes for the first time; a fault if not."""
    fields: Mapping[str, DocumentNode] = node.value if isinstance(node.value, dict) else {}
    mark = fields["id"].where if "id" in fields else node.where
    if id in marks:
        reader.note_raised(Fault(f"each {what} once", f"{id} again", mark, f"it is already at {marks[id]}"))
        return False
    marks[id] = mark
    return True


def warnings_of_rules(rules: Sequence[Situation], actions: Sequence[Action], settings: Settings) -> Iterator[Fault]:
    """What is hardly meant: conditions that nothing can fulfil, situations that nothing concludes, actions that no
    installed package has.
    """
    concluded = {above for rule in rules if rule.sufficient for above in _above(settings.ontology, rule.concludes)}
    situations = {one.name for one in settings.ontology.situations}
    owners = [(one.id, one.when) for one in rules]
    owners += [(one.id, one.when) for one in actions if one.trigger is None]
    for _, when in owners:
        yield from _excluding(when)
    yield from _unregistered(actions)
    yield from _other_secrets(actions)
    for id, when in owners:
        for name in names_of(when):
            if name in situations and name not in concluded:
                what = f"a rule that concludes {name}"
                advice = f"{id} waits for events that have {name} as an attribute"
                yield Fault(what, "none", next(atoms(when)).where, advice)
    for rule in rules:
        yield from hardly_meant(rule.when, settings.ontology)
        yield from never_kept(rule.when, settings.limits)
        if not rule.sufficient and not _others(rule, rules, settings.ontology):
            what = f"a sufficient rule for {rule.concludes}"
            yield Fault(what, "none", next(atoms(rule.when)).where, f"{rule.id} alone begins nothing")
        if not rule.sufficient and (rule.begin or rule.end):
            what, advice = "for in a rule that is sufficient", "a rule that is only necessary begins and ends nothing"
            yield Fault(what, f"for in {rule.id}", next(atoms(rule.when)).where, advice)


def _excluding(when: Filter) -> Iterator[Fault]:
    """Conditions of which one excludes another; those on a class are, each, about any reading around."""
    for fault in never_holding(when):
        several = "only several readings around, which differ, could satisfy all of it"
        yield replace(fault, advice=several) if fault.advice == REPEATED else fault


def _unregistered(actions: Sequence[Action]) -> Iterator[Fault]:
    """Python actions to run that are not installed here; they may be where the server is."""
    runs = [(one, effect.name) for one in actions for effect in one.effects if isinstance(effect, Run)]
    known = set(plug_ins(PLUG_INS)) if runs else set()
    for action, name in runs:
        if name not in known:
            advice = closest(name, known) or f"plug-ins have entry points in the group {PLUG_INS}"
            yield Fault(f"a registered action to run in {action.id}", name, next(atoms(action.when)).where, advice)


def _other_secrets(actions: Sequence[Action]) -> Iterator[Fault]:
    """Keys of signatures that are in variables that servers do not read for that."""
    for action in actions:
        for effect in action.effects:
            if isinstance(effect, Webhook) and effect.secret and not effect.secret.startswith(SECRET_PREFIX):
                advice = f"servers sign with no other: name it {SECRET_PREFIX}{effect.secret}"
                what = f"a variable {SECRET_PREFIX}… as the secret of {action.id}"
                yield Fault(what, effect.secret, next(atoms(action.when)).where, advice)


def missing_layers(rules: Sequence[Situation], layers: Collection[str]) -> Iterator[Fault]:
    """A warning for each rule that looks into the zones of a layer that there is not among these."""
    for rule in rules:
        if rule.layer is not None and rule.layer not in layers:
            advice = closest(rule.layer, layers) or f"{rule.id} waits until its zones are defined"
            yield Fault("a layer of zones that is defined", rule.layer[:80], next(atoms(rule.when)).where, advice)


def _above(ontology: Ontology, name: str) -> Iterator[str]:
    return upwards(ontology.serving(), name)


def _others(rule: Situation, rules: Sequence[Situation], ontology: Ontology) -> bool:
    under = below(ontology.parents()).get(rule.concludes, frozenset({rule.concludes}))
    return any(other.sufficient and other.concludes in under for other in rules)
