"""Relations within documents: as definitions, management requests and control events write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nearcast.decision.relate.predicate import takes_margin
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language import cql2
from nearcast.language.durations import UNITS, bounded
from nearcast.language.filter_document import BRANCHES, filter_data, read_filter
from nearcast.language.lengths import read_metres
from nearcast.language.nodes import Node, from_data
from nearcast.language.reading import Reader, closest
from nearcast.language.relation_predicate import read_predicate
from nearcast.language.relation_sides import filter_faults, side_faults
from nearcast.language.relation_strategy import read_strategy, serves
from nearcast.model.relation import (
    DETECTIONS,
    HERE,
    Buddies,
    Crowd,
    Detection,
    Gathering,
    Matching,
    Named,
    Pair,
    Relation,
    Side,
)

OF_A_PAIR = ("a", "b", "when")
OF_A_GATHERING = ("among", "within", "count")
OF_A_FILTER = frozenset({*BRANCHES, "op", "when"})
_FURTHER = ("detect", "margin", "for", "time_to_live", "scope", "strategy")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)")

LARGEST_COUNT = 1_000_000


def relation_document(data: Mapping[str, Any], where: Mark) -> Relation:
    """The relation that a document asks for. Raises `DefinitionError` with every fault."""
    reader = Reader()
    relation = read_relation(from_data(data, where), reader)
    reader.stop()
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
    if relation.node is not None:
        data["scope"] = "local" if relation.node == HERE else {"local": relation.node}
    if relation.strategy is not None:
        data["strategy"] = {"name": relation.strategy.name, **relation.strategy.parameters}
    return data


def read_relation(node: Node, reader: Reader) -> Relation | None:
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
    relation = Relation(id, found, detect, margin, lasting, time_to_live, scope, strategy)
    if strategy is not None and not serves(relation, strategy, fields["strategy"], reader):
        return None
    return relation


def _pair(fields: Mapping[str, Node], reader: Reader) -> Pair | None:
    a, b = (_side(fields[name], f"side {name}", reader) if name in fields else None for name in ("a", "b"))
    when = _predicate(fields["when"], reader) if "when" in fields else None
    if a is None or b is None or when is None:
        return None
    if isinstance(a, Named) and a == b:
        reader.fault("two different entities", fields["b"], came=f"{a.entity} on both sides")
    pair = Pair(a, b, when)
    reader.faults += side_faults(pair)
    return pair


def _side(node: Node, what: str, reader: Reader) -> Side | None:
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


def _matching(node: Node, what: str, reader: Reader) -> Matching | None:
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


def _predicate(node: Node, reader: Reader) -> Any:
    text = reader.text(node, "when")
    if text is None:
        return None
    try:
        return read_predicate(text, node.locate or (lambda offset: node.where))
    except Fault as error:
        reader.take(error)
    except DefinitionError as error:
        reader.take(error)
    return None


def _gathering(fields: Mapping[str, Node], reader: Reader) -> Gathering | None:
    among = _crowd(fields["among"], reader) if "among" in fields else None
    within = read_metres(fields["within"], "within", reader) if "within" in fields else None
    count = reader.integer(fields["count"], "count", 2, LARGEST_COUNT) if "count" in fields else None
    return None if among is None or within is None or count is None else Gathering(among, within, count)


def _crowd(node: Node, reader: Reader) -> Crowd | None:
    """`{client: ID, list: NAME}`, or a filter."""
    if not isinstance(node.value, dict) or not {"client", "list"} & set(node.value):
        return _matching(node, "among", reader)
    fields = reader.fields(node, ("client", "list"), (), "among")
    client = reader.text(fields["client"], "a client's id") if "client" in fields else None
    list = reader.text(fields["list"], "the name of a list") if "list" in fields else None
    return None if client is None or list is None else Buddies(client, list)


def _seconds(node: Node, what: str, reader: Reader) -> float | None:
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


def _detect(node: Node, fields: Mapping[str, Node], reader: Reader) -> tuple[Detection, ...]:
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


def _word(node: Node, reader: Reader) -> str | None:
    if node.value in DETECTIONS:
        return str(node.value)
    reader.fault(f"one of {', '.join(DETECTIONS)}", node, closest(str(node.value), DETECTIONS))
    return None


def _scope(node: Node, reader: Reader) -> str | None:
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
        case Buddies(client, list):
            return {"client": client, "list": list}
