"""Clients within documents: as definitions, management requests and control events write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearcast.errors import Fault, Mark
from nearcast.language.nodes import Node, from_data
from nearcast.language.places import geographic, planar
from nearcast.language.reading import Reader
from nearcast.language.settings_document import check_role, read_matrix
from nearcast.model.changes import ClientChange
from nearcast.model.place import Place, place_data
from nearcast.model.subscription import Client, Settings

_FIELDS = ("role", "task", "readings", "position", "matrix", "lists")


def client_document(data: Mapping[str, Any], where: Mark, settings: Settings | None = None) -> ClientChange:
    """The change that a client's document asks for; the client is named by `id` or `client`.

    With settings, its role and task must be defined there, and its place be of a kind that the channels have. Raises
    `DefinitionError` with every fault.
    """
    reader = Reader()
    change = read_client(from_data(data, where), settings or Settings(), reader)
    reader.stop()
    assert change is not None, "without a fault there is a change"
    return change


def client_data(client: Client | ClientChange) -> dict[str, Any]:
    """A client, or a change of one, as a document, JSON-able; `client_document` inverts it."""
    data: dict[str, Any] = {"id": client.id} if isinstance(client, Client) else {"client": client.client}
    if client.role is not None:
        data["role"] = client.role
    if client.task is not None:
        data["task"] = client.task
    if client.readings is not None and (client.readings or isinstance(client, ClientChange)):
        data["readings"] = dict(client.readings)
    if client.place is not None:
        data["position"] = place_data(client.place)
    if client.matrix is not None:
        data["matrix"] = [list(row) for row in client.matrix]
    if client.lists is not None and (client.lists or isinstance(client, ClientChange)):
        data["lists"] = {name: list(entities) for name, entities in client.lists.items()}
    return data


def read_client(node: Node, settings: Settings, reader: Reader) -> ClientChange | None:
    """The change of a client's node; None after a fault."""
    before = len(reader.faults)
    names = [name for name in ("id", "client") if isinstance(node.value, dict) and name in node.value]
    fields = reader.fields(node, names[:1] or ("id",), _FIELDS, "a client")
    id = reader.name(fields[names[0]], "a client's id") if names and names[0] in fields else None
    role = reader.text(fields["role"], "role") if "role" in fields else None
    task = reader.text(fields["task"], "task") if "task" in fields else None
    check_role(fields.get("role"), role, fields.get("task"), task, settings.roles, reader)
    readings = _readings(fields["readings"], reader) if "readings" in fields else None
    place = _place(fields["position"], settings, reader) if "position" in fields else None
    matrix = read_matrix(fields["matrix"], settings.levels, reader) if "matrix" in fields else None
    lists = _lists(fields["lists"], reader) if "lists" in fields else None
    if (names and names[0] in fields and id is None) or len(reader.faults) > before or id is None:
        return None
    return ClientChange(id, role, task, readings, place, matrix, lists)


def _place(node: Node, settings: Settings, reader: Reader) -> Place | None:
    """Where a client is: of a kind that some channel has, if there are any."""
    place = read_place(node, reader)
    kinds = sorted({channel.coordinates for channel in settings.channels})
    if place is not None and kinds and place.coordinates not in kinds:
        keys = " or ".join("x and y" if kind == "planar" else "lon and lat" for kind in kinds)
        expected = f"a {' or '.join(kinds)} position, as the channels have"
        reader.fault(expected, node, f"give {keys}", came=f"a {place.coordinates} one")
        return None
    return place


def read_place(node: Node, reader: Reader) -> Place | None:
    """A place: `{x, y[, z]}` in metres or `{lon, lat[, alt]}` in degrees; None after a fault."""
    is_planar = isinstance(node.value, dict) and ("x" in node.value or "y" in node.value)
    names = ("x", "y", "z") if is_planar else ("lon", "lat", "alt")
    fields = reader.fields(node, names[:2], names[2:], "a position")
    if not set(names[:2]) <= set(fields):
        if isinstance(node.value, dict) and set(names[:2]) <= set(node.value):
            reader.fault(f"numbers as {names[0]} and {names[1]}", node)
        return None
    x, y, z = (fields[name].value if name in fields else None for name in names)
    try:
        return planar(x, y, z, node.where) if is_planar else geographic(x, y, z, node.where)
    except Fault as fault:
        reader.take(fault)
        return None


def _readings(node: Node, reader: Reader) -> dict[str, float]:
    readings = {}
    for name, reading in reader.named(node, "readings"):
        value = reader.number(reading, f"the reading {name}", low=0)
        if value is not None:
            readings[name] = float(value)
    return readings


def _lists(node: Node, reader: Reader) -> dict[str, tuple[str, ...]]:
    """The lists of entities that a client names; an entity counts once in each."""
    lists = {}
    for name, listed in reader.named(node, "lists"):
        items = reader.items(listed, f"the list {name}")
        entities = (reader.text(item, "an entity's id") for item in items)
        lists[name] = tuple(dict.fromkeys(entity for entity in entities if entity))
    return lists
