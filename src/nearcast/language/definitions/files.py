"""Definition files: clients, context, roles and tasks, subscriptions, channels, situations in YAML; several are one.

Files that a definition names (roles, filters in the thesis' XML, ontologies) are found beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language import thesis
from nearcast.language.cql2 import quoted_values
from nearcast.language.definitions.client_documents import client_data, client_document, read_client
from nearcast.language.definitions.degree_limits import beyond_degrees, long_ways_round
from nearcast.language.definitions.filter_warnings import warnings_of
from nearcast.language.definitions.ontology_documents import read_ontology_file
from nearcast.language.definitions.relation_documents import (
    read_relation,
    relation_data,
    relation_document,
    warnings_of_relations,
)
from nearcast.language.definitions.settings_documents import FIELDS, read_settings, settings_data
from nearcast.language.definitions.situation_documents import missing_layers, read_rules, warnings_of_rules
from nearcast.language.definitions.subscription_documents import (
    check_length,
    names_file,
    read_subscription,
    subscription_data,
    subscription_document,
)
from nearcast.language.definitions.zone_documents import read_zone_rule, warnings_of_zones, zone_changes
from nearcast.language.definitions.zone_files import OF_ZONES, zones_of_layer
from nearcast.language.nodes import DocumentNode, DocumentReader, at, closest, from_data, from_yaml
from nearcast.model.changes import (
    ActionChange,
    Change,
    ClientChange,
    RelationChange,
    SettingsChange,
    SituationChange,
    SubscriptionChange,
    ZoneRuleChange,
)
from nearcast.model.event import MAIN
from nearcast.model.filter import Filter, atoms
from nearcast.model.ontology import Ontology
from nearcast.model.relation import Gathering, ListMembers, Relation
from nearcast.model.situation import Action, Situation
from nearcast.model.subscription import ANY_SUBSCRIPTION, ClientProfile, Roles, Settings, Subscription
from nearcast.model.zone import ZoneLayer
from nearcast.state.registry import Registry, changed

__all__ = [
    "DefinitionSet",
    "client_data",
    "client_document",
    "load",
    "relation_data",
    "relation_document",
    "settings_data",
    "subscription_data",
    "subscription_document",
]

LISTS = ("clients", "subscriptions", "relations", "situations", "actions")
"""The fields of a file that list what is defined, beside those of settings."""

MAX_FILE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DefinitionSet:
    """What definition files say, checked; `warnings` are what can be taken but hardly is meant."""

    settings: Settings = field(default_factory=Settings)
    clients: tuple[ClientProfile, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    relations: tuple[Relation, ...] = ()
    situations: tuple[Situation, ...] = ()
    actions: tuple[Action, ...] = ()
    zones: tuple[ZoneLayer, ...] = ()
    warnings: tuple[Fault, ...] = ()

    def changes(self, node: str = MAIN, there: Mapping[str, ZoneLayer] | None = None) -> list[Change]:
        """The changes that bring these definitions about: settings, clients, subscriptions, what derives events.

        `node` is the entry node at which they are defined: what is local there is local to it. `there` are the layers
        of zones that there are: only those of their zones are in the changes that are others now.
        """
        changes: list[Change] = [SettingsChange(self.settings)]
        for one in self.clients:
            given = (one.readings or None, one.place, one.matrix, one.lists or None)
            changes.append(ClientChange(one.id, one.role, one.task, *given))
        changes.extend(SubscriptionChange(one) for one in self.subscriptions)
        changes.extend(RelationChange(one.at(node)) for one in self.relations)
        changes.extend(SituationChange(one) for one in self.situations)
        changes.extend(ActionChange(one) for one in self.actions)
        for layer in self.zones:
            changes.append(ZoneRuleChange(layer.rule))
            changes.extend(zone_changes(layer, (there or {}).get(layer.id)))
        return changes


def load(
    sources: Sequence[Path | Mapping[str, Any]], beneath: Mapping[str, Any] = MappingProxyType({})
) -> DefinitionSet:
    """The definitions of some YAML files, or of mappings like them, together; the files that a mapping names are found
    in the working folder. `beneath` are settings as a document, of which holds what no source says anything of.

    Raises `DefinitionError` with every fault of all of them.
    """
    reader = DocumentReader()
    roots = [root for source in sources if (root := _root(source, reader)) is not None]
    if beneath:
        roots.append(from_data(_kept(beneath, [_fields(root) for root in roots]), Mark("settings of the system")))
    settings = _settings(roots, reader)
    reader.limits = settings.limits
    clients = _clients(roots, settings, reader)
    subscriptions = _subscriptions(roots, settings, _declared(roots), reader)
    relations = _relations(roots, clients, _declared(roots), reader)
    zones = _zones(roots, settings, reader)
    rules, tasks = (_entries(roots, name, reader) for name in ("situations", "actions"))
    situations, actions = read_rules(rules, tasks, settings, reader)
    _check_triggers(tasks, actions, subscriptions, relations, reader)
    if reader.faults:
        hints = (hint for one in subscriptions for hint in long_ways_round(one.filter, settings.channels))
        raise DefinitionError(reader.faults, tuple(hints))
    warnings = (
        *(warning for node in _entries(roots, "subscriptions", reader) for warning in _quoted(node)),
        *warnings_of(subscriptions, clients, settings),
        *warnings_of_relations(relations, settings),
        *warnings_of_zones(zones, settings),
        *warnings_of_rules(situations, actions, settings),
        *missing_layers(situations, [layer.id for layer in zones]),
    )
    return DefinitionSet(settings, clients, subscriptions, relations, situations, actions, zones, warnings)


OF_LEVELS = ("matrix", "space")
"""Settings whose form depends on the number of levels."""


def _kept(beneath: Mapping[str, Any], sources: Sequence[Mapping[str, DocumentNode]]) -> dict[str, Any]:
    """Settings without those that some sources give; channels stay that have other names."""
    given = {name for fields in sources for name in fields}
    if any("levels" in fields and fields["levels"].value != beneath.get("levels") for fields in sources):
        given.update(OF_LEVELS)
    if "roles" in given:
        # A file of roles may say it too.
        given.add("default")
    kept = {name: value for name, value in beneath.items() if name not in given}
    channels = [fields["channels"].value for fields in sources if "channels" in fields]
    named = {name for one in channels if isinstance(one, dict) for name in one}
    if others := {name: one for name, one in beneath.get("channels", {}).items() if name not in named}:
        kept["channels"] = others
    return kept


def _check_triggers(
    nodes: Sequence[DocumentNode],
    actions: Sequence[Action],
    subscriptions: Sequence[Subscription],
    relations: Sequence[Relation],
    reader: DocumentReader,
) -> None:
    """What calls for an action must be defined; requests may name what comes later."""
    if reader.faults:
        # Of a subscription with faults it is not known that it is there.
        return
    there = {"subscription": {one.id for one in subscriptions}, "relation": {one.id for one in relations}}
    for node, action in zip(nodes, actions, strict=True):
        found = action.trigger
        if found is not None and found.id not in there[found.kind] and isinstance(node.value, dict):
            advice = closest(found.id, there[found.kind]) or f"add it to {found.kind}s"
            reader.fault(f"a defined {found.kind}", node.value[found.kind], advice)


def read_text(path: Path, mark: Mark) -> str:
    """The text of a file in UTF-8. Raises `Fault` at the mark for a file that cannot be read."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise Fault(f"a file of at most {MAX_FILE:,} bytes", f"{path.stat().st_size:,}", mark)
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Fault("a file that can be read", f"{path}: {error.strerror}", mark) from None
    except UnicodeDecodeError as error:
        raise Fault(
            "a text in UTF-8", f"the byte {error.object[error.start]:#x} at {error.start}", at(str(path))
        ) from None


def _root(source: Path | Mapping[str, Any], reader: DocumentReader) -> DocumentNode | None:
    """The root of a file or a mapping, its unknown fields noted."""
    try:
        if isinstance(source, Path):
            root = from_yaml(read_text(source, Mark(str(source))), str(source))
        else:
            root = from_data(source, Mark("definitions"))
    except (Fault, DefinitionError) as error:
        reader.note_raised(error)
        return None
    reader.fields(root, (), (*FIELDS, *LISTS, "zones"), "definitions")
    return root if isinstance(root.value, dict) else None


def _settings(roots: list[DocumentNode], reader: DocumentReader) -> Settings:
    """The settings of all files; a field stands in one of them, but channels add up."""
    fields: dict[str, DocumentNode] = {}
    for root in roots:
        for name, node in _fields(root).items():
            if name not in FIELDS:
                continue
            if name == "channels" and name in fields:
                fields[name] = _added(fields[name], node, reader)
            elif name in fields:
                first = fields[name].where
                reader.faults.append(
                    Fault(f"{name} in one file", "it again", root.key(name), f"it is already at {first}")
                )
            else:
                fields[name] = node
    return read_settings(fields, reader, _roles_file, _ontology_file)


def _fields(root: DocumentNode) -> Mapping[str, DocumentNode]:
    fields = root.value if isinstance(root.value, dict) else {}
    return {name: node for name, node in fields.items() if node.value is not None}


def _added(first: DocumentNode, second: DocumentNode, reader: DocumentReader) -> DocumentNode:
    """Two mappings as one; a name in both is a fault."""
    if not isinstance(first.value, dict) or not isinstance(second.value, dict):
        return second if isinstance(first.value, dict) else first
    for name in first.value.keys() & second.value.keys():
        advice = f"it is already at {first.key(name)}"
        reader.faults.append(Fault("each channel once", f"{name} again", second.key(name), advice))
    return DocumentNode(
        first.value | second.value, first.where, first.path, {**(first.keys or {}), **(second.keys or {})}
    )


def _entries(roots: list[DocumentNode], name: str, reader: DocumentReader) -> list[DocumentNode]:
    return [item for root in roots if name in _fields(root) for item in reader.items(_fields(root)[name], name)]


def _clients(roots: list[DocumentNode], settings: Settings, reader: DocumentReader) -> tuple[ClientProfile, ...]:
    found: dict[str, ClientProfile] = {}
    marks: dict[str, Mark] = {}
    for node in _entries(roots, "clients", reader):
        change = read_client(node, settings, reader)
        if change is None:
            continue
        if _once(change.client, "client", node, marks, reader):
            found[change.client] = changed(None, change)
    return tuple(found.values())


def _declared(roots: list[DocumentNode]) -> set[str]:
    """Every client's id, also of those with faults: a subscription to one of them is no further fault."""
    nodes = _entries(roots, "clients", DocumentReader())
    ids = (node.value["id"].value for node in nodes if isinstance(node.value, dict) and "id" in node.value)
    return {id for id in ids if isinstance(id, str)}


def _once(id: str, what: str, node: DocumentNode, marks: dict[str, Mark], reader: DocumentReader) -> bool:
    """Whether an id comes for the first time; a fault if not."""
    mark = node.value["id"].where if isinstance(node.value, dict) and "id" in node.value else node.where
    if id in marks:
        reader.faults.append(Fault(f"each {what} once", f"{id} again", mark, f"it is already at {marks[id]}"))
        return False
    marks[id] = mark
    return True


def _subscriptions(
    roots: list[DocumentNode], settings: Settings, clients: set[str], reader: DocumentReader
) -> tuple[Subscription, ...]:
    found: list[Subscription] = []
    marks: dict[str, Mark] = {}
    room = Registry(settings)

    def filter_file(node: DocumentNode, reader: DocumentReader) -> Filter | None:
        """The filter of the file that a node names."""
        return _filter_file(node, settings, reader)

    # Clients are checked here and not in `read_subscription`: a request may name a client that comes later.
    for node in _entries(roots, "subscriptions", reader):
        _check_clients(node, clients, reader)
        subscription = read_subscription(node, settings, reader, filter_file)
        if subscription is not None and _once(subscription.id, "subscription", node, marks, reader):
            _check_length(subscription, node, settings, reader)
            reader.faults.extend(beyond_degrees(subscription.filter, settings.channels))
            change = SubscriptionChange(subscription)
            if fault := room.refusal(change):
                reader.fault(fault.expected, node, fault.advice, fault.came)
            room.apply(change)
            found.append(subscription)
    return tuple(found)


def _relations(
    roots: list[DocumentNode], clients: Sequence[ClientProfile], declared: set[str], reader: DocumentReader
) -> tuple[Relation, ...]:
    found: list[Relation] = []
    marks: dict[str, Mark] = {}
    lists = {client.id: client.lists for client in clients}
    for node in _entries(roots, "relations", reader):
        relation = read_relation(node, reader)
        if relation is None or not _once(relation.id, "relation", node, marks, reader):
            continue
        found.append(relation)
        match relation.about:
            # Of a client with faults the lists are not known.
            case Gathering(ListMembers(client, list)) if client in lists or client not in declared:
                _check_list(node, client, list, lists, reader)
    return tuple(found)


def _zones(roots: list[DocumentNode], settings: Settings, reader: DocumentReader) -> tuple[ZoneLayer, ...]:
    """The layers of zones of all files, which add up."""
    found: list[ZoneLayer] = []
    marks: dict[str, Mark] = {}
    for root in roots:
        for id, node in reader.named(_fields(root)["zones"], "zones") if "zones" in _fields(root) else ():
            mark = _fields(root)["zones"].key(id)
            if id in marks:
                advice = f"it is already at {marks[id]}"
                reader.faults.append(Fault("each layer of zones once", f"{id} again", mark, advice))
                continue
            marks[id] = mark
            rule = read_zone_rule(node, id, reader, OF_ZONES)
            zones = zones_of_layer(node, id, rule, reader, _file_beside) if isinstance(node.value, dict) else {}
            if rule is not None:
                found.append(ZoneLayer(rule, zones))
    return tuple(found)


def _check_list(
    node: DocumentNode,
    client: str,
    list: str,
    lists: Mapping[str, Mapping[str, tuple[str, ...]]],
    reader: DocumentReader,
) -> None:
    """A crowd's client and list must be defined; requests may name what comes later."""
    among = node.value["among"] if isinstance(node.value, dict) else node
    fields = among.value if isinstance(among.value, dict) else {}
    if client not in lists:
        reader.fault("a defined client", fields["client"], closest(client, lists) or "add it to clients")
    elif list not in lists[client]:
        advice = closest(list, lists[client]) or f"add it to the lists of {client}"
        reader.fault(f"a list of {client}", fields["list"], advice)


def _check_clients(node: DocumentNode, clients: set[str], reader: DocumentReader) -> None:
    fields = node.value if isinstance(node.value, dict) else {}
    listed = fields["clients"].value if "clients" in fields else [fields["client"]] if "client" in fields else []
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item.value, str) and item.value and item.value not in clients:
            advice = closest(item.value, clients) or "add it to clients"
            reader.fault("a defined client", item, advice)


def _quoted(node: DocumentNode) -> Iterator[Fault]:
    """The warnings of all texts within a subscription's filter, a tree perhaps."""
    waiting = [node.value["filter"]] if isinstance(node.value, dict) and "filter" in node.value else []
    while waiting:
        one = waiting.pop()
        yield from quoted_values(one)
        inner = one.value.values() if isinstance(one.value, dict) else one.value if isinstance(one.value, list) else ()
        waiting.extend(reversed(list(inner)))


def _check_length(subscription: Subscription, node: DocumentNode, settings: Settings, reader: DocumentReader) -> None:
    """A RELEVANCE file's vectors are for filters in the thesis' XML: there the lengths must agree."""
    filter_node = node.value["filter"] if isinstance(node.value, dict) else node
    if subscription.relevance is not None or not names_file(filter_node):
        return
    listed = list(atoms(subscription.filter))
    for (role, task), vectors in settings.roles.vectors.items():
        if ANY_SUBSCRIPTION in vectors and subscription.id not in vectors:
            what = f", as role {role}, task {task} has them"
            check_length(len(vectors[ANY_SUBSCRIPTION]), listed, filter_node, reader, what)


def _beside(node: DocumentNode) -> Path:
    """The file that a node names, relative to the file in which the node stands."""
    return Path(node.where.file).parent / str(node.value).strip()


def _file_beside(node: DocumentNode) -> tuple[Path, str]:
    """The file that a node names, and its text. Raises `Fault`."""
    path = _beside(node)
    return path, read_text(path, node.where)


def _filter_file(node: DocumentNode, settings: Settings, reader: DocumentReader) -> Filter | None:
    path = _beside(node)
    try:
        return thesis.read_subscription(read_text(path, node.where), at(str(path)), settings.limits)
    except (Fault, DefinitionError) as error:
        reader.note_raised(error)
        return None


def _roles_file(node: DocumentNode, levels: int, reader: DocumentReader) -> Roles | None:
    path = _beside(node)
    try:
        return thesis.read_roles(read_text(path, node.where), at(str(path)), levels)
    except (Fault, DefinitionError) as error:
        reader.note_raised(error)
        return None


def _ontology_file(node: DocumentNode, reader: DocumentReader) -> Ontology | None:
    path = _beside(node)
    try:
        return read_ontology_file(read_text(path, node.where), path, reader)
    except (Fault, DefinitionError) as error:
        reader.note_raised(error)
        return None
