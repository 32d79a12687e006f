"""Subscriptions and their filters within documents, as text or as trees with relevances.

A leaf `{when: CQL2, relevance: R}` gives its atoms a relevance, one number for all of them or a list. `unless` is the
thesis' plain negation, which CQL2 text cannot say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language import cql2
from nearcast.language.cql2.filter_limits import MAX_ATOMS, MAX_DEPTH, text_limits, too_large, too_many_atoms
from nearcast.language.definitions.degree_limits import beyond_degrees
from nearcast.language.nodes import MAX_VALUES, DocumentNode, DocumentReader, from_data
from nearcast.language.quantities import bounded, read_duration, relevance_of
from nearcast.language.trees import all_of, any_of
from nearcast.model.filter import And, Atom, Filter, Not, Or, PlainNot, atoms
from nearcast.model.subscription import Settings, Subscription

BRANCHES = ("any", "all", "not", "unless")


@dataclass(frozen=True, slots=True)
class Weighted:
    """A filter and what its writer said of each atom's relevance: None where nothing was said."""

    filter: Filter
    relevance: tuple[float | None, ...]


def read_filter(node: DocumentNode, levels: int, reader: DocumentReader, over_time: bool = False) -> Weighted | None:
    """The filter of a text or tree; None after a fault. `over_time`: there are aggregates, as in rules."""
    weighted = _weighted(node, levels, reader, 1, over_time)
    beyond = too_large(weighted.filter, reader.limits) if weighted else None
    if beyond:
        reader.fault(beyond[0], node, "split the filter", came=beyond[1])
        return None
    return weighted


def read_relevance(node: DocumentNode, filter: Filter, levels: int, reader: DocumentReader) -> tuple[float, ...] | None:
    """The relevance of every atom of a filter: one value for all of them, or a list; None after a fault."""
    listed = list(atoms(filter))
    if not isinstance(node.value, list):
        try:
            return (relevance_of(node.value, node.where, levels, _named(listed[0])),) * len(listed)
        except Fault as error:
            reader.note_raised(error)
            return None
    if len(node.value) != len(listed):
        check_length(len(node.value), listed, node, reader)
        return None
    before = len(reader.faults)
    values = [_value(item, _named(atom), levels, reader) for item, atom in zip(node.value, listed, strict=True)]
    return tuple(values) if len(reader.faults) == before else None


def check_length(length: int, listed: list[Atom], node: DocumentNode, reader: DocumentReader, what: str = "") -> None:
    """Notes a vector that has not one value per atom, naming the first atom without a value."""
    if length == len(listed):
        return
    lacking = f"none for {_named(listed[length])}" if length < len(listed) else f"the last atom is {_named(listed[-1])}"
    count = f"{len(listed)} value{'s' if len(listed) != 1 else ''}"
    reader.fault(f"a relevance of {count}, one per atom{what}", node, lacking, came=str(length))


def filter_data(filter: Filter) -> Any:
    """A filter as a document: CQL2 text, or a tree where it holds the thesis' negation. `read_filter` inverts it."""
    if not _has_plain_not(filter):
        return cql2.write(filter)
    if isinstance(filter, PlainNot):
        return {"unless": filter_data(filter.child)}
    if isinstance(filter, Not):
        return {"not": filter_data(filter.child)}
    assert isinstance(filter, (And, Or)), "an atom holds no negation"
    return {"all" if isinstance(filter, And) else "any": [filter_data(child) for child in filter.children]}


def _weighted(node: DocumentNode, levels: int, reader: DocumentReader, depth: int, over_time: bool) -> Weighted | None:
    if depth > MAX_DEPTH:
        reader.fault(f"a tree at most {MAX_DEPTH} deep", node, came="a deeper one")
        return None
    if isinstance(node.value, str):
        return _leaf(node, None, levels, reader, over_time)
    if not isinstance(node.value, dict):
        reader.fault("a filter: CQL2 text, or a mapping with op, any, all, not, unless or when", node)
        return None
    if "op" in node.value:
        return _leaf(node, None, levels, reader, over_time)
    if "when" in node.value:
        fields = reader.fields(node, ("when",), ("relevance",), "a leaf")
        return _leaf(fields["when"], fields.get("relevance"), levels, reader, over_time) if "when" in fields else None
    fields = reader.fields(node, (), (*BRANCHES, "when", "relevance"), "a filter")
    branch = [name for name in fields if name in BRANCHES]
    # A relevance belongs to atoms, so to leaves: on a branch it would be a second meaning of it.
    if len(branch) != 1 or "relevance" in fields:
        came = ", ".join(node.value) or "none"
        reader.fault("one of any, all, not, unless, or when and relevance", node, came=came)
        return None
    return _branch(branch[0], fields[branch[0]], levels, reader, depth, over_time)


def _branch(
    word: str, node: DocumentNode, levels: int, reader: DocumentReader, depth: int, over_time: bool
) -> Weighted | None:
    if word in ("not", "unless"):
        child = _weighted(node, levels, reader, depth + 1, over_time)
        kind = Not if word == "not" else PlainNot
        return Weighted(kind(child.filter), child.relevance) if child else None
    nodes = reader.items(node, word)
    if not nodes:
        if node.value == []:
            reader.fault(f"{word}: at least one filter", node, came="none")
        return None
    whole, most = list[Weighted](), min(reader.limits.filter_atoms, MAX_ATOMS)
    count = 0
    for index, item in enumerate(nodes):
        child = _weighted(item, levels, reader, depth + 1, over_time)
        whole += [child] if child else []
        count += len(child.relevance) if child else 0
        if count > most:
            reader.note_raised(too_many_atoms(most, count, node.where, whole=index + 1 == len(nodes)))
            return None
    if len(whole) < len(nodes):
        return None
    join = all_of if word == "all" else any_of
    relevance = tuple(value for child in whole for value in child.relevance)
    return Weighted(join([child.filter for child in whole]), relevance)


def _leaf(
    node: DocumentNode, relevance: DocumentNode | None, levels: int, reader: DocumentReader, over_time: bool
) -> Weighted | None:
    text = None if isinstance(node.value, dict) else reader.text(node, "a filter")
    if text is None and not isinstance(node.value, dict):
        return None
    try:
        filter = (
            cql2.parse_node(node, over_time, text_limits(reader.limits))
            if text is None
            else cql2.parse(
                text,
                _beginning(node),
                node.locate or (lambda offset: node.where),
                over_time,
                text_limits(reader.limits),
            )
        )
    except DefinitionError as error:
        reader.note_raised(error)
        return None
    if relevance is None:
        return Weighted(filter, (None,) * sum(1 for _ in atoms(filter)))
    vector = read_relevance(relevance, filter, levels, reader)
    return Weighted(filter, vector) if vector is not None else None


def _beginning(node: DocumentNode) -> Mark:
    """Where a text begins: in JSON data it is its own, named by its path."""
    return node.locate(0) if node.locate and node.where.line is None else node.where


def _value(node: DocumentNode, atom: str, levels: int, reader: DocumentReader) -> float:
    try:
        return relevance_of(node.value, node.where, levels, atom)
    except Fault as error:
        reader.note_raised(error)
        return 0.0


def _named(atom: Atom) -> str:
    """An atom as a fault names it."""
    written = cql2.write(atom)
    return f"the atom {written if len(written) <= 60 else written[:57] + '…'}"


def _has_plain_not(node: Filter) -> bool:
    if isinstance(node, (And, Or)):
        return any(_has_plain_not(child) for child in node.children)
    return isinstance(node, PlainNot) or (isinstance(node, Not) and _has_plain_not(node.child))


FilterFile = Callable[[DocumentNode, DocumentReader], Filter | None]
"""Reads the thesis' XML file that a node names."""

_FILE = re.compile(r"[^'\"=<>()\n]+\.xml", re.IGNORECASE)


def subscription_document(data: Mapping[str, Any], where: Mark, settings: Settings | None = None) -> Subscription:
    """The subscription that a document asks for. Raises `DefinitionError` with every fault."""
    settings = settings or Settings()
    reader = DocumentReader(settings.limits)
    subscription = read_subscription(from_data(data, where, MAX_VALUES), settings, reader)
    if subscription is not None:
        reader.faults.extend(beyond_degrees(subscription.filter, settings.channels))
    reader.refuse()
    assert subscription is not None, "without a fault there is a subscription"
    return subscription


def subscription_data(subscription: Subscription) -> dict[str, Any]:
    """A subscription as a document, JSON-able; `subscription_document` inverts it."""
    data: dict[str, Any] = {
        "id": subscription.id,
        "clients": list(subscription.clients),
        "filter": filter_data(subscription.filter),
    }
    if subscription.relevance is not None:
        data["relevance"] = list(subscription.relevance)
    if subscription.time_to_live is not None:
        data["ttl"] = subscription.time_to_live
    if subscription.conflate:
        data["conflate"] = True
    return data


def read_subscription(
    node: DocumentNode, settings: Settings, reader: DocumentReader, filter_file: FilterFile | None = None
) -> Subscription | None:
    """The subscription of a node; None after a fault."""
    before = len(reader.faults)
    fields = reader.fields(
        node, ("id", "filter"), ("client", "clients", "relevance", "ttl", "conflate"), "a subscription"
    )
    id = reader.name(fields["id"], "a subscription's id") if "id" in fields else None
    clients = _clients(node, fields, reader)
    weighted = _filter(fields["filter"], settings.levels, reader, filter_file) if "filter" in fields else None
    relevance = _relevance(fields, weighted, settings.levels, reader) if weighted else None
    ttl = _time_to_live(fields["ttl"], reader) if "ttl" in fields else None
    conflate = reader.flag(fields["conflate"], "conflate") if "conflate" in fields else False
    if len(reader.faults) > before or id is None or weighted is None:
        return None
    subscription = Subscription(id, clients, weighted.filter, relevance, ttl, conflate)
    _check_roles(subscription, fields["filter"], settings, reader)
    return subscription if len(reader.faults) == before else None


def _time_to_live(node: DocumentNode, reader: DocumentReader) -> float | None:
    """The seconds that an event may wait for a client, more than 0."""
    if not isinstance(node.value, str):
        seconds = reader.number(node, "ttl, in seconds or as in 10 min", above=0)
        return bounded(seconds, node, "ttl", reader)
    seconds = read_duration(node, "ttl", reader)
    if seconds == 0:
        reader.fault("ttl: more than 0 seconds", node, "without it an event waits as long as it takes")
        return None
    return seconds


def names_file(node: DocumentNode) -> bool:
    """Whether a filter's text is the name of an XML file."""
    return isinstance(node.value, str) and bool(_FILE.fullmatch(node.value.strip()))


def _clients(node: DocumentNode, fields: Mapping[str, DocumentNode], reader: DocumentReader) -> tuple[str, ...]:
    if "client" in fields and "clients" in fields:
        reader.fault("client or clients", node, came="both")
    if "client" in fields:
        listed = [fields["client"]]
    elif "clients" in fields:
        listed = reader.items(fields["clients"], "clients")
    else:
        reader.fault("client or clients in a subscription", node, came="none")
        return ()
    names = [name for item in listed if (name := reader.name(item, "a client's id"))]
    # Naming a client twice is no harm, but it gets each event once.
    return tuple(dict.fromkeys(names))


def _filter(node: DocumentNode, levels: int, reader: DocumentReader, filter_file: FilterFile | None) -> Weighted | None:
    if not names_file(node):
        return read_filter(node, levels, reader)
    if filter_file is None:
        reader.fault("CQL2 text or a tree", node, "a file can be named in a definition file only")
        return None
    filter = filter_file(node, reader)
    return None if filter is None else Weighted(filter, (None,) * sum(1 for _ in atoms(filter)))


def _relevance(
    fields: Mapping[str, DocumentNode], weighted: Weighted, levels: int, reader: DocumentReader
) -> tuple[float, ...] | None:
    """The relevance of the whole, or of the leaves: where leaves have one, those without have 1."""
    said = [value for value in weighted.relevance if value is not None]
    if "relevance" not in fields:
        return tuple(1.0 if value is None else value for value in weighted.relevance) if said else None
    if said:
        advice = "leave out one of them"
        reader.fault("relevance of the subscription or of its leaves", fields["relevance"], advice, came="both")
    return read_relevance(fields["relevance"], weighted.filter, levels, reader)


def _check_roles(subscription: Subscription, node: DocumentNode, settings: Settings, reader: DocumentReader) -> None:
    """Vectors that roles and tasks hold for this very subscription must fit its atoms."""
    if subscription.relevance is not None:
        return
    listed = list(atoms(subscription.filter))
    for (role, task), vectors in settings.roles.vectors.items():
        if subscription.id in vectors:
            check_length(len(vectors[subscription.id]), listed, node, reader, f", as role {role}, task {task} has them")
