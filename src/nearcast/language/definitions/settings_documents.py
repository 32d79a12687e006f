"""Settings in documents: levels, awareness, matrix, roles, channels, ontology, limits, retention, and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from nearcast.errors import Fault
from nearcast.language.definitions.limit_documents import limits_data, read_limits
from nearcast.language.definitions.ontology_documents import ontology_data, read_ontology
from nearcast.language.definitions.retention_documents import read_retention, retention_data
from nearcast.language.nodes import DocumentNode, DocumentReader, closest
from nearcast.language.quantities import read_duration, read_share, relevance_of
from nearcast.model.context import (
    Awareness,
    ContextSpace,
    Matrix,
    delay_matrix,
    equal_intervals,
    matrix_fault,
    restriction_matrix,
)
from nearcast.model.event import CONTROL_PREFIX, Coordinates
from nearcast.model.limits import Limits, Retention
from nearcast.model.ontology import Ontology
from nearcast.model.subscription import (
    CHANNEL_CLOCKS,
    CHANNEL_DELIVERIES,
    EVENT_ORDERS,
    MOST_CLOCKS,
    NAMINGS,
    Channel,
    Roles,
    Settings,
)

FIELDS = ("levels", "awareness", "space", "matrix", "roles", "default", "channels", "ontology", "limits", "retention")
OF_CHANNEL = ("types", "entity", "order", "clock", "delivery")
MAX_LEVELS = 100

RolesFile = Callable[[DocumentNode, int, DocumentReader], Roles | None]
"""Reads the file of roles that a node names."""

OntologyFile = Callable[[DocumentNode, DocumentReader], Ontology | None]
"""Reads the file of an ontology that a node names."""


def read_settings(
    fields: Mapping[str, DocumentNode],
    reader: DocumentReader,
    roles_file: RolesFile | None = None,
    ontology_file: OntologyFile | None = None,
) -> Settings:
    """The settings of a document's fields; what is not there has its default. Faults go to the reader, which reads
    names under the document's own limits from here on.
    """
    limits = read_limits(fields["limits"], reader) if "limits" in fields else Limits()
    reader.limits = limits
    levels = reader.integer(fields["levels"], "levels", 1, MAX_LEVELS) if "levels" in fields else 3
    # After a fault the default serves to check the rest.
    levels = levels or 3
    modules = _awareness(fields["awareness"], levels, reader) if "awareness" in fields else ()
    table = _space(fields["space"], levels, len(modules), reader) if "space" in fields else None
    matrix = read_matrix(fields["matrix"], levels, reader) if "matrix" in fields else None
    roles = _roles(fields, levels, reader, roles_file)
    channels = _channels(fields["channels"], reader) if "channels" in fields else ()
    ontology = _ontology(fields["ontology"], reader, ontology_file) if "ontology" in fields else Ontology()
    space = ContextSpace(modules, table)
    retention = read_retention(fields["retention"], reader) if "retention" in fields else Retention()
    return Settings(levels, space, matrix or delay_matrix(levels), roles, channels, ontology, limits, retention)


def settings_data(settings: Settings) -> dict[str, Any]:
    """Settings as a document, JSON-able; `read_settings` inverts it."""
    data: dict[str, Any] = {"levels": settings.levels, "matrix": [list(row) for row in settings.matrix]}
    if settings.space.modules:
        data["awareness"] = {module.reading: _module_data(module) for module in settings.space.modules}
    if settings.space.table is not None:
        data["space"] = _nested(list(settings.space.table), settings.levels, len(settings.space.modules))
    roles: dict[str, dict[str, Any]] = {}
    for (role, task), vectors in settings.roles.vectors.items():
        roles.setdefault(role, {})[task] = {subscription: list(vector) for subscription, vector in vectors.items()}
    if roles:
        data["roles"] = roles
    if settings.roles.default:
        data["default"] = {"role": settings.roles.default[0], "task": settings.roles.default[1]}
    if settings.channels:
        data["channels"] = {
            one.name: {"coordinates": one.coordinates, "types": list(one.types)}
            | ({} if one.entity == "subject" else {"entity": one.entity})
            | ({} if one.order == "time" else {"order": one.order})
            | ({} if one.clock == "shared" else {"clock": one.clock})
            | ({} if one.delivery == "ordered" else {"delivery": one.delivery})
            for one in settings.channels
        }
    if settings.ontology:
        data["ontology"] = ontology_data(settings.ontology)
    if limits := limits_data(settings.limits):
        data["limits"] = limits
    if retention := retention_data(settings.retention):
        data["retention"] = retention
    return data


def read_matrix(node: DocumentNode, levels: int, reader: DocumentReader) -> Matrix | None:
    """A priority matrix: `delay`, `restriction`, or rows of priorities, one row per context class."""
    if node.value == "delay":
        return delay_matrix(levels)
    if node.value == "restriction":
        return restriction_matrix(levels)
    if not isinstance(node.value, list):
        reader.fault("delay, restriction, or a list of rows", node)
        return None
    before = len(reader.faults)
    rows = [
        tuple(reader.integer(item, "a priority", -1, levels - 1) or 0 for item in reader.items(row, "a row"))
        for row in node.value
    ]
    if len(reader.faults) == before and (wrong := matrix_fault(rows, levels)):
        reader.fault(wrong.expected, node, came=wrong.came)
    return tuple(rows) if len(reader.faults) == before else None


def _module_data(module: Awareness) -> dict[str, Any]:
    data: dict[str, Any] = {"intervals": list(module.bounds)}
    if module.margin:
        data["margin"] = f"{module.margin!r} %" if module.relative else module.margin
    if module.lasting:
        data["for"] = module.lasting
    if module.valid is not None:
        data["valid"] = module.valid
    return data


def _awareness(node: DocumentNode, levels: int, reader: DocumentReader) -> tuple[Awareness, ...]:
    modules = []
    for name, module in reader.named(node, "awareness"):
        fields = reader.fields(module, (), ("maximum", "intervals", "margin", "for", "valid"), f"awareness of {name}")
        stated = [one for one in ("maximum", "intervals") if one in fields]
        if len(stated) != 1:
            reader.fault("maximum or intervals", module, came=", ".join(stated) or "none")
            continue
        if stated == ["maximum"]:
            maximum = reader.number(fields["maximum"], "maximum", above=0)
            bounds = None if maximum is None else equal_intervals(maximum, levels)
        else:
            bounds = _bounds(fields["intervals"], levels, reader)
        if bounds is not None:
            modules.append(Awareness(name, bounds, *_held(fields, bounds, reader)))
    return tuple(modules)


def _held(
    fields: Mapping[str, DocumentNode], bounds: tuple[float, ...], reader: DocumentReader
) -> tuple[float, bool, float, float | None]:
    """By how much a reading must be beyond a bound, whether in percent of that, for how many seconds, and for how many
    a reading holds.
    """
    margin, relative = (read_share(fields["margin"], "margin", reader) if "margin" in fields else None) or (0.0, False)
    if bounds and not relative and 0 <= bounds[0] < margin:
        expected = f"a margin of at most {bounds[0]:g}, the lowest bound"
        reader.fault(expected, fields["margin"], "readings are never below 0: the lowest class would never come back")
    lasting = read_duration(fields["for"], "for", reader) if "for" in fields else None
    valid = read_duration(fields["valid"], "valid", reader) if "valid" in fields else None
    if lasting is not None and valid is not None and valid < lasting:
        expected = f"a validity of at least {lasting:g} s, as `for` has"
        advice = "a reading that holds for less would be unknown before it changes a class"
        reader.fault(expected, fields["valid"], advice, came=f"{valid:g} s")
    return margin, relative, lasting or 0.0, valid


def _bounds(node: DocumentNode, levels: int, reader: DocumentReader) -> tuple[float, ...]:
    found = [reader.number(item, "an upper bound") for item in reader.items(node, "intervals")]
    bounds = tuple(bound for bound in found if bound is not None)
    if len(bounds) == len(found) and isinstance(node.value, list):
        if len(bounds) != levels - 1:
            reader.fault(f"{levels - 1} upper bounds for {levels} classes", node, came=str(len(bounds)))
        elif list(bounds) != sorted(set(bounds)):
            reader.fault("upper bounds that rise", node, came=", ".join(f"{bound:g}" for bound in bounds))
    return bounds


def _space(node: DocumentNode, levels: int, modules: int, reader: DocumentReader) -> tuple[int, ...] | None:
    if not modules:
        reader.fault("a space of awareness modules", node, "define awareness beside it", came="no awareness")
        return None
    table: list[int] = []
    before = len(reader.faults)
    _cells(node, levels, modules, table, reader)
    return tuple(table) if len(reader.faults) == before else None


def _cells(node: DocumentNode, levels: int, depth: int, table: list[int], reader: DocumentReader) -> None:
    """Gathers the context classes of nested lists, one depth for each module, in row-major order."""
    if depth == 0:
        value = reader.integer(node, "a context class", 0, levels - 1)
        table.append(value or 0)
        return
    items = reader.items(node, "space")
    if isinstance(node.value, list) and len(items) != levels:
        reader.fault(f"{levels} entries, one per class", node, came=str(len(items)))
        return
    for item in items:
        _cells(item, levels, depth - 1, table, reader)


def _nested(table: list[int], levels: int, depth: int) -> Any:
    """A row-major table as nested lists."""
    if depth <= 1:
        return table
    size = len(table) // levels
    return [_nested(table[part * size : (part + 1) * size], levels, depth - 1) for part in range(levels)]


def _roles(
    fields: Mapping[str, DocumentNode], levels: int, reader: DocumentReader, roles_file: RolesFile | None
) -> Roles:
    node = fields.get("roles")
    roles = Roles()
    if node is not None and isinstance(node.value, str):
        if roles_file is None:
            reader.fault("roles, tasks and their vectors", node, "a file can be named in a definition file only")
        else:
            roles = roles_file(node, levels, reader) or roles
    elif node is not None:
        roles = Roles(_inline(node, levels, reader))
    if "default" in fields:
        roles = Roles(roles.vectors, _default(fields["default"], roles, reader))
    return roles


def _inline(
    node: DocumentNode, levels: int, reader: DocumentReader
) -> dict[tuple[str, str], dict[str, tuple[float, ...]]]:
    vectors: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {}
    for role, tasks in reader.named(node, "roles"):
        for task, subscriptions in reader.named(tasks, f"tasks of {role}"):
            vectors[role, task] = {
                name: _vector(vector, name, levels, reader)
                for name, vector in reader.named(subscriptions, f"subscriptions of {role}, {task}")
            }
    return vectors


def _vector(node: DocumentNode, subscription: str, levels: int, reader: DocumentReader) -> tuple[float, ...]:
    vector = []
    for number, item in enumerate(reader.items(node, f"the relevance of {subscription}"), 1):
        try:
            vector.append(relevance_of(item.value, item.where, levels, f"atom {number} of {subscription}"))
        except Fault as fault:
            reader.note_raised(fault)
    return tuple(vector)


def _ontology(node: DocumentNode, reader: DocumentReader, ontology_file: OntologyFile | None) -> Ontology:
    if not isinstance(node.value, str):
        return read_ontology(node, reader)
    if ontology_file is None:
        advice = "a file can be named in a definition file only"
        reader.fault("an ontology: classes, situations and places", node, advice)
        return Ontology()
    return ontology_file(node, reader) or Ontology()


def _default(node: DocumentNode, roles: Roles, reader: DocumentReader) -> tuple[str, str] | None:
    fields = reader.fields(node, ("role", "task"), (), "default")
    if len(fields) < 2:
        return None
    role, task = reader.text(fields["role"], "role"), reader.text(fields["task"], "task")
    if role is None or task is None:
        return None
    check_role(fields["role"], role, fields["task"], task, roles, reader)
    return role, task


def check_role(
    role_node: DocumentNode | None,
    role: str | None,
    task_node: DocumentNode | None,
    task: str | None,
    roles: Roles,
    reader: DocumentReader,
) -> None:
    """Notes a role or task that no vector is for; anything goes where no roles are defined."""
    if not roles.vectors:
        return
    known = sorted({name for name, _ in roles.vectors})
    if role_node is not None and role is not None and role not in known:
        reader.fault("a defined role", role_node, closest(role, known) or f"defined are {', '.join(known)}")
        return
    tasks = sorted({name for owner, name in roles.vectors if role is None or owner == role})
    if task_node is not None and task is not None and task not in tasks:
        whose = f" of {role}" if role else ""
        reader.fault(f"a defined task{whose}", task_node, closest(task, tasks) or f"defined are {', '.join(tasks)}")


def _channels(node: DocumentNode, reader: DocumentReader) -> tuple[Channel, ...]:
    channels = []
    for name, channel in reader.named(node, "channels"):
        fields = reader.fields(channel, ("coordinates",), OF_CHANNEL, f"channel {name}")
        types = (
            [reader.text(item, "a type") for item in reader.items(fields["types"], "types")]
            if "types" in fields
            else []
        )
        for item in types:
            if item and item.startswith(CONTROL_PREFIX):
                reader.fault("types of events that tell of the world", fields["types"], came=item)
        coordinates = fields.get("coordinates")
        if coordinates is not None:
            naming = _one_of(NAMINGS, fields.get("entity"), reader)
            order = _one_of(EVENT_ORDERS, fields.get("order"), reader)
            kept = tuple(item for item in types if item)
            clock = _one_of(CHANNEL_CLOCKS, fields.get("clock"), reader)
            delivery = _one_of(CHANNEL_DELIVERIES, fields.get("delivery"), reader)
            channels.append(Channel(name, _coordinates(coordinates, reader), kept, naming, order, clock, delivery))
    own = sum(one.clock == "own" for one in channels)
    if own > MOST_CLOCKS:
        reader.fault(f"at most {MOST_CLOCKS} channels with a clock of their own", node, came=str(own))
    return tuple(channels)


Word = TypeVar("Word", bound=str)


def _one_of(known: tuple[Word, ...], node: DocumentNode | None, reader: DocumentReader) -> Word:
    """The word that is given, the first of those known without one."""
    if node is None:
        return known[0]
    for one in known:
        if node.value == one:
            return one
    reader.fault(" or ".join(known), node, closest(str(node.value), known))
    return known[0]


def _coordinates(node: DocumentNode, reader: DocumentReader) -> Coordinates:
    if node.value == "geographic":
        return "geographic"
    if node.value != "planar":
        reader.fault("planar or geographic", node)
    return "planar"
