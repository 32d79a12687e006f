"""Relations within documents: their sides, strategy and faults, and what is hardly meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language import cql2
from nearcast.language.cql2.printer import expression as written
from nearcast.language.cql2.types import Type, type_of
from nearcast.language.definitions.filter_warnings import LONGEST, excluded, never_holding, types_of
from nearcast.language.definitions.relation_predicates import read_predicate
from nearcast.language.definitions.situation_conditions import never_kept
from nearcast.language.definitions.subscription_documents import BRANCHES, filter_data, read_filter
from nearcast.language.nodes import MAX_VALUES, DocumentNode, DocumentReader, closest, from_data
from nearcast.language.quantities import UNITS, bounded, read_duration, read_metres
from nearcast.language.trees import all_of, any_of
from nearcast.model.expression import AGGREGATES, ARITHMETIC, COMPARISONS, Call, Constant, Expression, Property, parts
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, atoms
from nearcast.model.limits import Limits
from nearcast.model.relation import (
    DETECTIONS,
    HERE,
    SIDES,
    Crowd,
    Detection,
    Gathering,
    ListMembers,
    Matching,
    Named,
    Pair,
    Relation,
    Side,
    StrategyChoice,
)
from nearcast.model.subscription import Settings
from nearcast.model.values import Kind, kind_of
from nearcast.relations.predicate import aggregates_as_attributes, side_aggregates, takes_margin
from nearcast.relations.sides import sees_derived
from nearcast.runtime.plug_ins import plug_ins
from nearcast.suppression.strategies.choice import GROUP, STRATEGIES, chosen
from nearcast.suppression.strategies.measure import measure_of

Known = Type | Literal["absent"]

_TYPES: dict[Kind, Type] = {"number": "number", "text": "text", "boolean": "boolean", "time": "instant"}

_OWN: dict[str, Known] = {"id": "text", "type": "text", "source": "text", "subject": "text", "time": "instant"}

_WORDS = {"number": "a number", "text": "a text", "boolean": "true or false", "instant": "a time"}


def side_faults(pair: Pair) -> Iterator[Fault]:
    """What cannot be: a predicate over an attribute that its side lacks, or over two kinds that do not compare."""
    types = {name: _types_of(side) for name, side in zip(SIDES, (pair.a, pair.b), strict=True)}
    for atom in atoms(pair.when):
        assert isinstance(atom.name, Call), "every atom of a predicate is computed"
        for part in parts(atom.name):
            if isinstance(part, Property) and _known(part, types) == "absent":
                side, _, name = part.name.partition(".")
                came = f"{part.name}, which no entity of side {side} has"
                yield Fault(f"an attribute that {side} can have", came, atom.where, f"its filter says {name} IS NULL")
            elif isinstance(part, Call):
                yield from _clashes(part, types, atom.where)


def filter_faults(filter: Filter) -> Iterator[Fault]:
    """Atoms that a side cannot have: location terms, and whatever needs more than the entity's newest event."""
    for atom in atoms(filter):
        calls = parts(atom.name) if isinstance(atom.name, Call) else ()
        beyond = any(isinstance(part, Call) and part.function in ("USER", "PREVIOUS", "CHANGED") for part in calls)
        if beyond or not isinstance(atom.name, (str, Call)):
            advice = "a side is any entity whose newest event satisfies the filter"
            yield Fault("a condition on one event alone", cql2.write(atom), atom.where, advice)


def _types_of(side: Side) -> Mapping[str, Known]:
    """What is known of a side's attributes: the types of those that its filter demands."""
    found: dict[str, Known] = dict(_OWN)
    if isinstance(side, Matching):
        demands = side.filter.children if isinstance(side.filter, And) else (side.filter,)
        for atom in demands:
            if isinstance(atom, Atom) and isinstance(atom.name, str) and atom.name not in _OWN:
                found[atom.name] = _type_demanded(atom)
    return found


def _type_demanded(atom: Atom) -> Known:
    if atom.operator is Operator.IS_NULL:
        return "absent"
    types = {_TYPES[kind_of(value)] for value in atom.literals}
    return types.pop() if len(types) == 1 else "any"


def _known(expression: Expression, types: Mapping[str, Mapping[str, Known]]) -> Known:
    if not isinstance(expression, Property):
        return type_of(expression)
    side, _, name = expression.name.partition(".")
    return types[side].get(name, "any")


def _clashes(call: Call, types: Mapping[str, Mapping[str, Known]], where: Mark | None) -> Iterator[Fault]:
    """A number beside a text, say: such a comparison is UNKNOWN for whatever comes."""
    known = [(argument, _known(argument, types)) for argument in call.arguments]
    told = [(argument, own) for argument, own in known if own in _WORDS]
    if call.function in (*COMPARISONS, "BETWEEN", "IN") and told:
        first, kind = told[0]
        for argument, own in told[1:]:
            # A text may name a moment.
            if own != kind and {own, kind} != {"text", "instant"}:
                came = f"{written(first)}, {_WORDS[kind]}, and {written(argument)}, {_WORDS[own]}"
                yield Fault("two values that compare", came, where, "each side's filter says of which kind they are")
    if call.function in ARITHMETIC or (call.function in AGGREGATES and call.function != "COUNT"):
        # The time of an aggregate is a text of its own.
        over_time = call.function in AGGREGATES
        for argument, own in told:
            if own != "number" and not (over_time and isinstance(argument, Constant)):
                yield Fault("numbers to calculate with", f"{written(argument)}, {_WORDS[own]}", where)


def read_strategy(node: DocumentNode, reader: DocumentReader) -> StrategyChoice | None:
    """A strategy's name, or a mapping with its name and its parameters; None after a fault."""
    named: DocumentNode | None = node
    parameters = {}
    if isinstance(node.value, dict):
        named = node.value.get("name")
        parameters = {key: child.plain() for key, child in node.value.items() if key != "name"}
        if named is None:
            reader.fault("name in a strategy", node, came="none")
    name = None if named is None else reader.text(named, "a strategy's name")
    if named is None or name is None:
        return None
    known = sorted({*STRATEGIES, *plug_ins(GROUP)})
    if name not in known:
        advice = closest(name, known) or f"plug-ins have entry points in the group {GROUP}"
        reader.fault(f"a strategy: {', '.join(known)}", named, advice)
        return None
    return StrategyChoice(name, parameters)


def serves(relation: Relation, strategy: StrategyChoice, node: DocumentNode, reader: DocumentReader) -> bool:
    """Whether the strategy takes its parameters and can serve the relation; else there is a fault where it is named."""
    measure = measure_of(relation)
    try:
        chosen(strategy.name, strategy.parameters, None if measure is None else measure.bound)
    except Fault as fault:
        reader.fault(fault.expected, _blamed(fault, node), fault.advice, fault.came)
        return False
    return True


def _blamed(fault: Fault, node: DocumentNode) -> DocumentNode:
    """The parameter that a fault names, else the whole strategy."""
    for name, child in node.value.items() if isinstance(node.value, dict) else ():
        if f"`{name}`" in fault.expected or fault.came == repr(name):
            return DocumentNode(child.value, node.key(name), child.path)
    return node


OF_A_PAIR = ("a", "b", "when")
OF_A_GATHERING = ("among", "within", "count")
OF_A_FILTER = frozenset({*BRANCHES, "op", "when"})
_FURTHER = ("detect", "margin", "for", "time_to_live", "lateness", "scope", "strategy")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)")

LARGEST_COUNT = 1_000_000


def relation_document(data: Mapping[str, Any], where: Mark, limits: Limits | None = None) -> Relation:
    """The relation that a document asks for. Raises `DefinitionError` with every fault."""
    reader = DocumentReader(limits)
    relation = read_relation(from_data(data, where, MAX_VALUES), reader)
    reader.refuse()
    assert relation is not None, "without a fault there is a relation"
    return relation


def relation_data(relation: Relation) -> dict[str, Any]:
    """A relation as a document, JSON-able; `relation_document` inverts it."""
    data: dict[str, Any] = {"id": relation.id}
    match relation.about:
        case Pair(a, b, when):
            data |= {"a": _side_data(a), "b": _side_data(b), "when": cql2.write(when)}
        case Gathering(among, within, count):
            data |= {"among": _side_data(among), "within": within, "count": count}
    data["detect"] = list(relation.detect)
    if relation.margin:
        data["margin"] = relation.margin
    if relation.lasting is not None:
        data["for"] = relation.lasting
    if relation.time_to_live is not None:
        data["time_to_live"] = relation.time_to_live
    if relation.lateness:
        data["lateness"] = relation.lateness
    if relation.node is not None:
        data["scope"] = "local" if relation.node == HERE else {"local": relation.node}
    if relation.strategy is not None:
        data["strategy"] = {"name": relation.strategy.name, **relation.strategy.parameters}
    return data


def read_relation(node: DocumentNode, reader: DocumentReader) -> Relation | None:
    """The relation of a node; None after a fault."""
    before = len(reader.faults)
    about: tuple[str, ...] = OF_A_GATHERING if isinstance(node.value, dict) and "among" in node.value else OF_A_PAIR
    if isinstance(node.value, dict) and not {*OF_A_PAIR, *OF_A_GATHERING} & set(node.value):
        expected = f"{', '.join(OF_A_PAIR)} in a relation of pairs, or {', '.join(OF_A_GATHERING)} in one of a crowd"
        reader.fault(expected, node, came="none")
        about = ()
    fields = reader.fields(node, ("id", *about), _FURTHER, "a relation")
    id = reader.name(fields["id"], "a relation's id") if "id" in fields else None
    found = _gathering(fields, reader) if about is OF_A_GATHERING else _pair(fields, reader)
    margin = reader.number(fields["margin"], "margin", low=0) if "margin" in fields else 0.0
    lasting = _seconds(fields["for"], "for", reader) if "for" in fields else None
    time_to_live = _seconds(fields["time_to_live"], "time_to_live", reader) if "time_to_live" in fields else None
    detect = _detect(node, fields, reader)
    scope = _scope(fields["scope"], reader) if "scope" in fields else None
    strategy = read_strategy(fields["strategy"], reader) if "strategy" in fields else None
    if isinstance(found, Pair) and margin and not takes_margin(found.when):
        advice = "it widens distances, else comparisons of numbers of both sides with < <= > >= = or BETWEEN"
        reader.fault("a margin for a predicate that compares numbers", fields["margin"], advice)
    if len(reader.faults) > before or id is None or found is None or margin is None:
        return None
    lateness = read_duration(fields["lateness"], "lateness", reader) if "lateness" in fields else None
    relation = Relation(id, found, detect, margin, lasting, time_to_live, scope, strategy, lateness or 0.0)
    over_time = side_aggregates(found.when) if isinstance(found, Pair) else ()
    if over_time and sees_derived(relation):
        advice = "leave it out, or let no side ask for what relations tell"
        expected = "a predicate on newest events alone, where a side is of what relations tell"
        reader.fault(expected, fields["when"], advice, over_time[0].text)
        return None
    if strategy is not None and not serves(relation, strategy, fields["strategy"], reader):
        return None
    return relation


def _pair(fields: Mapping[str, DocumentNode], reader: DocumentReader) -> Pair | None:
    a, b = (_side(fields[name], f"side {name}", reader) if name in fields else None for name in ("a", "b"))
    when = _predicate(fields["when"], reader) if "when" in fields else None
    if a is None or b is None or when is None:
        return None
    if isinstance(a, Named) and a == b:
        reader.fault("two different entities", fields["b"], came=f"{a.entity} on both sides")
    pair = Pair(a, b, when)
    reader.faults += side_faults(pair)
    return pair


def _side(node: DocumentNode, what: str, reader: DocumentReader) -> Side | None:
    """`{entity: ID}`, or a filter: text, or a tree."""
    if isinstance(node.value, dict) and "entity" in node.value:
        fields = reader.fields(node, ("entity",), (), what)
        entity = reader.text(fields["entity"], "an entity's id") if "entity" in fields else None
        return None if entity is None else Named(entity)
    if isinstance(node.value, dict) and node.value and not OF_A_FILTER & set(node.value):
        name = next(iter(node.value))
        advice = closest(name, ("entity", *OF_A_FILTER)) or "that is {entity: ID}, or a filter in CQL2"
        reader.faults.append(Fault(f"a field of {what}", name[:80], node.key(name), advice))
        return None
    return _matching(node, what, reader)


def _matching(node: DocumentNode, what: str, reader: DocumentReader) -> Matching | None:
    if not isinstance(node.value, (str, dict)):
        reader.fault(f"{what}: {{entity: ID}}, or a filter in CQL2", node)
        return None
    weighted = read_filter(node, 1, reader)
    if weighted is None:
        return None
    if any(relevance is not None for relevance in weighted.relevance):
        reader.fault(f"{what} without relevances", node, "who is near whom is not weighed")
    reader.faults += filter_faults(weighted.filter)
    return Matching(weighted.filter)


def _predicate(node: DocumentNode, reader: DocumentReader) -> Any:
    text = reader.text(node, "when")
    if text is None:
        return None
    try:
        return read_predicate(text, node.locate or (lambda offset: node.where))
    except Fault as error:
        reader.note_raised(error)
    except DefinitionError as error:
        reader.note_raised(error)
    return None


def _gathering(fields: Mapping[str, DocumentNode], reader: DocumentReader) -> Gathering | None:
    among = _crowd(fields["among"], reader) if "among" in fields else None
    within = read_metres(fields["within"], "within", reader) if "within" in fields else None
    count = reader.integer(fields["count"], "count", 2, LARGEST_COUNT) if "count" in fields else None
    return None if among is None or within is None or count is None else Gathering(among, within, count)


def _crowd(node: DocumentNode, reader: DocumentReader) -> Crowd | None:
    """`{client: ID, list: NAME}`, or a filter."""
    if not isinstance(node.value, dict) or not {"client", "list"} & set(node.value):
        return _matching(node, "among", reader)
    fields = reader.fields(node, ("client", "list"), (), "among")
    client = reader.text(fields["client"], "a client's id") if "client" in fields else None
    list = reader.text(fields["list"], "the name of a list") if "list" in fields else None
    return None if client is None or list is None else ListMembers(client, list)


def _seconds(node: DocumentNode, what: str, reader: DocumentReader) -> float | None:
    """A time above 0: seconds, or a text such as `5 s`, `10 min`."""
    if not isinstance(node.value, str):
        found = reader.number(node, f"{what}, in seconds or as in 5 s", above=0)
        return bounded(None if found is None else float(found), node, what, reader)
    match = _DURATION.fullmatch(node.value.strip())
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if seconds <= 0:
        reader.fault(f"{what}: a time above 0, as in 5 s", node, f"units are {', '.join(UNITS)}")
        return None
    return bounded(seconds, node, what, reader)


def _detect(node: DocumentNode, fields: Mapping[str, DocumentNode], reader: DocumentReader) -> tuple[Detection, ...]:
    """What is told; where a time stands, by default that it lasted so long, instead of that it began."""
    if "detect" not in fields:
        return ("dwell", "exit") if "for" in fields else ("enter", "exit")
    listed = fields["detect"].value
    nodes = listed if isinstance(listed, list) else [fields["detect"]]
    found = {word for item in nodes if (word := _word(item, reader))}
    if not nodes:
        reader.fault(f"at least one of {', '.join(DETECTIONS)}", fields["detect"], came="none")
    if "dwell" in found and "for" not in fields:
        reader.fault("for, the time after which dwell is told", node, "for example: for: 5 s", came="none")
    if found and "for" in fields and "dwell" not in found:
        reader.fault("dwell in detect", fields["detect"], "for says how long it must hold before dwell is told")
    # Each once, in one order, so that equal relations are equal values.
    return tuple(one for one in DETECTIONS if one in found)


def _word(node: DocumentNode, reader: DocumentReader) -> str | None:
    if node.value in DETECTIONS:
        return str(node.value)
    reader.fault(f"one of {', '.join(DETECTIONS)}", node, closest(str(node.value), DETECTIONS))
    return None


def _scope(node: DocumentNode, reader: DocumentReader) -> str | None:
    """The entry node to which a relation is local: `local` is the one at which it enters, `{local: NODE}` names it."""
    if isinstance(node.value, dict):
        fields = reader.fields(node, ("local",), (), "scope")
        return reader.text(fields["local"], "the name of an access server") if "local" in fields else None
    if node.value not in ("local", "global"):
        reader.fault("scope: local or global, or {local: the name of an access server}", node)
    return HERE if node.value == "local" else None


def _side_data(side: Side | Crowd) -> Any:
    match side:
        case Named(entity):
            return {"entity": entity}
        case Matching(filter):
            return filter_data(filter)
        case ListMembers(client, list):
            return {"client": client, "list": list}


def warnings_of_relations(relations: Sequence[Relation], settings: Settings) -> Iterator[Fault]:
    """A warning for each predicate, and each side's filter, that nothing can satisfy."""
    types = types_of(settings)
    for relation in relations:
        about = relation.about
        sides = (about.a, about.b) if isinstance(about, Pair) else (about.among,)
        for side in dict.fromkeys(sides):
            if isinstance(side, Matching):
                yield from never_holding(side.filter, types=types)
        if isinstance(about, Pair):
            yield from _of_predicate(about.when)
            yield from never_kept(about.when, settings.limits)


def warnings_of_nodes(relations: Sequence[Relation], node: str) -> Iterator[Fault]:
    """A warning for each relation that is local to another entry node than that of all the events at hand."""
    for relation in relations:
        if relation.node not in (None, HERE, node):
            expected = f"the relation {relation.id} local to {node}, where these events count as entered"
            advice = "it sees none of them; --node names another node"
            yield Fault(expected, f"one local to {relation.node}", _where(relation), advice)


def _where(relation: Relation) -> Mark | None:
    """Where a relation's first condition is written, as far as it has one."""
    about = relation.about
    if isinstance(about, Pair):
        return next(atoms(about.when)).where
    return next(atoms(about.among.filter)).where if isinstance(about.among, Matching) else None


def _of_predicate(predicate: Filter) -> Iterator[Fault]:
    """What of a predicate can never hold: an atom by itself, else all of it together."""
    named = aggregates_as_attributes(predicate)
    found = list(never_holding(named))
    yield from found
    if not found and excluded(_plain(named, {})):
        shown = cql2.write(predicate)
        came = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
        first = next(atoms(predicate)).where
        yield Fault("conditions that can hold together", came, first, "its atoms exclude one another")


def _plain(node: Filter, names: dict[Expression, str]) -> Filter:
    """The predicate with every value of both sides, a distance or a difference, as an attribute with a name of its own.

    That is what conditions can be held against each other for; an attribute is taken to have one value in an event.
    """
    if isinstance(node, (And, Or)):
        join = all_of if isinstance(node, And) else any_of
        return join([_plain(child, names) for child in node.children])
    if isinstance(node, Not):
        return Not(_plain(node.child, names))
    assert isinstance(node, Atom), "a predicate has no other negation"
    call = node.name
    if not isinstance(call, Call) or call.function not in COMPARISONS or not isinstance(call.arguments[1], Constant):
        return node
    value, bound = call.arguments[0], call.arguments[1].value
    return Atom(names.setdefault(value, f"v{len(names)}"), Operator(call.function), bound)  # type: ignore[arg-type]
