"""Subscriptions within documents: as definitions, management requests and control events write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from nearcast.errors import Mark
from nearcast.language.filter_document import Weighted, check_length, filter_data, read_filter, read_relevance
from nearcast.language.nodes import Node, from_data
from nearcast.language.reading import Reader
from nearcast.model.filter import Filter, atoms
from nearcast.model.subscription import Settings, Subscription

FilterFile = Callable[[Node, Reader], Filter | None]
"""Reads the thesis' XML file that a node names."""

_FILE = re.compile(r"[^'\"=<>()\n]+\.xml", re.IGNORECASE)


def subscription_document(data: Mapping[str, Any], where: Mark, settings: Settings | None = None) -> Subscription:
    """The subscription that a document asks for. Raises `DefinitionError` with every fault."""
    reader = Reader()
    subscription = read_subscription(from_data(data, where), settings or Settings(), reader)
    reader.stop()
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
    node: Node, settings: Settings, reader: Reader, filter_file: FilterFile | None = None
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
    ttl = reader.number(fields["ttl"], "ttl, in seconds", above=0) if "ttl" in fields else None
    conflate = reader.flag(fields["conflate"], "conflate") if "conflate" in fields else False
    if len(reader.faults) > before or id is None or weighted is None:
        return None
    subscription = Subscription(id, clients, weighted.filter, relevance, ttl, conflate)
    _check_roles(subscription, fields["filter"], settings, reader)
    return subscription if len(reader.faults) == before else None


def names_file(node: Node) -> bool:
    """Whether a filter's text is the name of an XML file."""
    return isinstance(node.value, str) and bool(_FILE.fullmatch(node.value.strip()))


def _clients(node: Node, fields: Mapping[str, Node], reader: Reader) -> tuple[str, ...]:
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


def _filter(node: Node, levels: int, reader: Reader, filter_file: FilterFile | None) -> Weighted | None:
    if not names_file(node):
        return read_filter(node, levels, reader)
    if filter_file is None:
        reader.fault("CQL2 text or a tree", node, "a file can be named in a definition file only")
        return None
    filter = filter_file(node, reader)
    return None if filter is None else Weighted(filter, (None,) * sum(1 for _ in atoms(filter)))


def _relevance(fields: Mapping[str, Node], weighted: Weighted, levels: int, reader: Reader) -> tuple[float, ...] | None:
    """The relevance of the whole, or of the leaves: where leaves have one, those without have 1."""
    said = [value for value in weighted.relevance if value is not None]
    if "relevance" not in fields:
        return tuple(1.0 if value is None else value for value in weighted.relevance) if said else None
    if said:
        advice = "leave out one of them"
        reader.fault("relevance of the subscription or of its leaves", fields["relevance"], advice, came="both")
    return read_relevance(fields["relevance"], weighted.filter, levels, reader)


def _check_roles(subscription: Subscription, node: Node, settings: Settings, reader: Reader) -> None:
    """Vectors that roles and tasks hold for this very subscription must fit its atoms."""
    if subscription.relevance is not None:
        return
    listed = list(atoms(subscription.filter))
    for (role, task), vectors in settings.roles.vectors.items():
        if subscription.id in vectors:
            check_length(len(vectors[subscription.id]), listed, node, reader, f", as role {role}, task {task} has them")
