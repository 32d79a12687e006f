"""What relations keep from batch to batch as a document, but for the pairs, which have files of their own.

It has what follows from the journal: who was heard of, who is of a filter's members, what holds. Rules, indexes and
compiled filters are made again from the relations' definitions. This module is the one that may look into the stage:
a test holds that whatever the stage keeps is either written here or made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from nearcast.model.columns import EVENTS, places_of
from nearcast.model.relation import Matching, Relation
from nearcast.relations.admission import Crowding
from nearcast.relations.entity_table import EntityTable
from nearcast.relations.gatherings import GatheringState
from nearcast.relations.lanes.delayed import DelayedRelations
from nearcast.relations.lanes.heard_events import HeardEvents
from nearcast.relations.lanes.scopes import Lane, Scope, Scopes
from nearcast.relations.lanes.stored_pairs import PAIRS, restore, stored
from nearcast.relations.pairs import PairRelations
from nearcast.relations.plain_pairs import LatestReport
from nearcast.relations.stage import RelationStage
from nearcast.relations.transitions import HoldState
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.stage_documents import (
    NUMBERED,
    PLACE_FIELDS,
    StageDocument,
    events_by_number,
    numbered_events,
    place_columns,
)
from nearcast.state.stored_windows import restore_windows, store_windows
from nearcast.state.stream_clocks import StreamClocks

MEMBERS = pa.schema([("relation", pa.string()), ("entity", pa.string()), *PLACE_FIELDS, ("deadline", pa.int64())])
"""Who is in the crowd of a gathering, where, and the clock through which it counts."""

HOLDING = pa.schema(
    [
        ("relation", pa.string()),
        ("a", pa.string()),
        ("b", pa.string()),
        ("started_at", pa.int64()),
        ("due", pa.int64()),
        ("dwell_sent", pa.bool_()),
    ]
)
"""What holds, of gatherings without `b`; times in microseconds since 1970."""

WAITING = EVENTS.append(pa.field("moment", pa.int64()))
"""A report that waits for the lateness of relations, and its moment, or the clock where it has none."""

Definitions = Mapping[str, Relation]


def scopes_document(scopes: Scopes, registry: Registry) -> StageDocument:
    """What relations keep, without pairs; `registry` is of the same position."""
    document = StageDocument()
    listed = enumerate(scopes._scopes.items())
    document.values["scopes"] = [_scope(document, f"scope-{number}", *one, registry) for number, one in listed]
    delayed = enumerate(scopes._delayed.items())
    document.values["delayed"] = [_delayed(document, f"delayed-{number}", *one, registry) for number, one in delayed]
    document.values["where"] = scopes._where
    document.values["heard"] = _heard(document, scopes._heard)
    return document


def scopes_of(document: StageDocument, registry: Registry, shards: int) -> Scopes:
    """The relations of a document, without pairs, which are to be in so many shards.

    Raises what reading data raises that is of another form: KeyError, IndexError, TypeError, ValueError, ArrowInvalid.
    """
    scopes = Scopes(shards)
    scopes._scopes = {
        values["node"]: _stage(document, f"scope-{number}", values, registry, shards)
        for number, values in enumerate(document.values["scopes"])
    }
    for number, values in enumerate(document.values["delayed"]):
        one = _delayed_of(document, f"delayed-{number}", values, registry, shards)
        scopes._delayed[values["node"], one.lateness, one.names] = one
    where = document.values["where"].items()
    scopes._where = {id: (node, lateness, tuple(names)) for id, (node, lateness, names) in where}
    scopes._heard = _heard_of(document)
    return scopes


def _delayed(
    document: StageDocument, name: str, lane: Lane, one: DelayedRelations[RelationStage], registry: Registry
) -> dict[str, Any]:
    """Relations with a lateness: their pairs too, and what waits."""
    scope, lateness, names = lane
    document.add_table(f"{name}-pairs", pa.concat_tables(stored({scope: one.stage.pairing})))
    document.add_table(f"{name}-waiting", one._held.append_column("moment", pa.array(one._moments)))
    document.add_table(f"{name}-counted", one._counted.newest())
    own = {"lateness": lateness, "names": names, "clocks_of_names": one._clocks.by_name}
    own |= {"early": one.early, "clock": one._clock, "passed": one._passed}
    return _scope(document, name, scope, one.stage, registry) | own


def _delayed_of(
    document: StageDocument, name: str, values: Mapping[str, Any], registry: Registry, shards: int
) -> DelayedRelations[RelationStage]:
    stage = _stage(document, name, values, registry, shards, by_channel=False)
    one = DelayedRelations(values["lateness"], stage, tuple(values["names"]))
    one._clocks = StreamClocks(registry.settings.channels, values["clocks_of_names"])
    restore({values["node"]: one.stage.pairing}, [document.table(f"{name}-pairs", PAIRS)], shards)
    waiting = document.table(f"{name}-waiting", WAITING)
    one._held, one._moments = waiting.select(EVENTS.names), waiting.column("moment").to_numpy()
    one._counted = Repository(document.table(f"{name}-counted", EVENTS))
    one.early, one._clock, one._passed = values["early"], values["clock"], values["passed"]
    return one


def _heard(document: StageDocument, heard: HeardEvents | None) -> dict[str, Any] | None:
    if heard is None:
        return None
    for number, repository in enumerate(heard._nodes.values()):
        document.add_table(f"heard-{number}", repository.newest())
    return {"only": heard._only, "nodes": list(heard._nodes)}


def _heard_of(document: StageDocument) -> HeardEvents | None:
    values = document.values["heard"]
    if values is None:
        return None
    heard = HeardEvents(Repository())
    heard._only = values["only"]
    tables = (document.table(f"heard-{number}", EVENTS) for number in range(len(values["nodes"])))
    heard._nodes = {node: Repository(table) for node, table in zip(values["nodes"], tables, strict=True)}
    return heard


def _scope(
    document: StageDocument, name: str, scope: Scope, stage: RelationStage, registry: Registry
) -> dict[str, Any]:
    _write_entities(document, f"{name}-entities", stage._known)
    newest = stage.pairing.remembered.events
    document.add_table(f"{name}-newest", numbered_events(newest.values(), newest))
    document.add_table(f"{name}-crowds", _crowd_members(stage))
    document.add_table(f"{name}-holding", pa.Table.from_pylist(list(_holding(stage)), HOLDING))
    document.add_table(
        f"{name}-reports",
        numbered_events((one.event for one in stage._plain.known.values()), _heard_times(stage)),
    )
    return {
        "node": scope,
        "clocks": stage._clocks.by_name,
        "sequence": stage._sequence,
        "gone": sorted(stage._gone),
        "crowded": {
            id: [one.refused, one.entities, sorted(one.hurried), one.unseen]
            for id, one in stage.pairing.admission.crowded.items()
        },
        "rooms": stage.pairing.admission.rooms,
        "lists": {client: {list_: list(names) for list_, names in one.items()} for client, one in stage._lists.items()},
        "relations": [document.refer(one, registry.relations) for one in stage._relations.values()],
        "pairs": [(id, rule.sequence, rule.after) for id, rule in stage.pairing.rules.by_id.items()],
        "missed": store_windows(document, f"{name}-windows", stage._windows.readings),
        "filters": _write_filters(document, f"{name}-filters", stage.pairing),
        "gatherings": [_gathering(id, crowd, stage) for id, crowd in stage._crowds.by_id.items()],
        "eventwise": {
            "now": stage._plain.now,
            "relations": [(one.id, order, room) for one, order, _, room in stage._plain.states()],
        },
    }


def _heard_times(stage: RelationStage) -> list[int]:
    return [one.heard for one in stage._plain.known.values()]


def _gathering(id: str, crowd: GatheringState, stage: RelationStage) -> dict[str, Any]:
    listed = stage._crowds._listed.get(id)
    return {
        "relation": id,
        "sequence": crowd.sequence,
        "next_expiry": crowd.next_expiry,
        "now": crowd.now,
        "listed": None if listed is None else sorted(listed),
    }


def _write_entities(document: StageDocument, name: str, known: EntityTable) -> None:
    columns = known.columns
    document.add_table(
        name, pa.table({"name": pa.array(known.names, pa.string()), **{one: columns[one] for one in columns.names}})
    )


def _write_filters(document: StageDocument, name: str, pairing: PairRelations) -> list[tuple[str, str]]:
    """Of each filter in use a relation and the side of it that asks for it; who its members are goes to a table."""
    used: dict[Any, tuple[str, str]] = {}
    for id, rule in pairing.rules.open.items():
        for side, one in (("a", rule.pair.a), ("b", rule.pair.b)):
            if isinstance(one, Matching):
                used.setdefault(one.filter, (id, side))
    flags = [pairing.members.column(number, pairing.known) for number in pairing.rules.filters.values()]
    if flags:
        document.add_table(name, pa.table({str(number): one for number, one in enumerate(flags)}))
    return [used[filter] for filter in pairing.rules.filters]


def _crowd_members(stage: RelationStage) -> pa.Table:
    found = [(id, name, one) for id, crowd in stage._crowds.by_id.items() for name, one in crowd.members.items()]
    columns = {
        "relation": pa.array([id for id, _, _ in found], pa.string()),
        "entity": pa.array([name for _, name, _ in found], pa.string()),
        **place_columns([one.place for _, _, one in found]),
        "deadline": pa.array([one.deadline for _, _, one in found], pa.int64()),
    }
    return pa.table(columns, MEMBERS)


def _holding(stage: RelationStage) -> Iterator[dict[str, Any]]:
    for id, crowd in stage._crowds.by_id.items():
        for entity, state in crowd.held.items():
            yield {"relation": id, "a": entity, "b": "", **state._asdict()}
    for relation, _, holding, _ in stage._plain.states():
        for (a, b), state in holding.items():
            yield {"relation": relation.id, "a": a, "b": b, **state._asdict()}


def _stage(
    document: StageDocument,
    name: str,
    values: Mapping[str, Any],
    registry: Registry,
    shards: int,
    by_channel: bool = True,
) -> RelationStage:
    stage = RelationStage(shards).beside(by_channel)
    stage._clocks = StreamClocks(registry.settings.channels if by_channel else (), values["clocks"])
    stage._sequence = values["sequence"]
    stage._lists = {
        client: {list_: tuple(names) for list_, names in one.items()} for client, one in values["lists"].items()
    }
    referred = (document.referred(one, registry.relations, Relation) for one in values["relations"])
    stage._relations = {one.id: one for one in referred}
    _read_entities(document, f"{name}-entities", stage._known)
    stage._gone = set(values["gone"])
    crowded = values["crowded"].items()
    stage.pairing.admission.crowded = {
        id: Crowding(refused, dict(more), set(hurried), dict(unseen))
        for id, (refused, more, hurried, unseen) in crowded
    }
    stage.pairing.admission.rooms = dict(values["rooms"])
    _read_pairing(document, name, values, stage)
    restore_windows(document, f"{name}-windows", values["missed"], stage._windows.readings)
    stage._ask_over_time()
    _read_holding(document, name, values, stage)
    return stage


def _read_entities(document: StageDocument, name: str, known: EntityTable) -> None:
    columns = known.columns
    kinds = [(one, pa.from_numpy_dtype(columns[one].dtype)) for one in columns.names]
    table = document.table(name, pa.schema([("name", pa.string()), *kinds]))
    known.names = table.column("name").to_pylist()
    known.numbers = {entity: number for number, entity in enumerate(known.names)}
    if known.names:
        columns.append(len(table), **{one: table.column(one).to_numpy() for one in columns.names})


def _read_pairing(document: StageDocument, name: str, values: Mapping[str, Any], stage: RelationStage) -> None:
    pairing = stage.pairing
    for id, sequence, after in values["pairs"]:
        pairing.rules.add_relation(stage._relations[id], sequence, after)
    sides = [(pairing.rules.by_id[id], side) for id, side in values["filters"]]
    filters = [getattr(rule.pair, side).filter for rule, side in sides]
    flags = document.tables.get(f"{name}-filters")
    for number, filter in enumerate(filters):
        inside = np.zeros(0, np.bool_) if flags is None else flags.column(str(number)).to_numpy().astype(np.bool_)
        pairing.members.add_column(pairing.rules.filters[filter], inside)
    pairing.remembered.begin(dict(events_by_number(document.table(f"{name}-newest", NUMBERED))))


def _read_holding(document: StageDocument, name: str, values: Mapping[str, Any], stage: RelationStage) -> None:
    held: dict[str, dict[tuple[str, str], HoldState]] = {}
    for id, a, b, *state in zip(*document.table(f"{name}-holding", HOLDING).to_pydict().values(), strict=True):
        held.setdefault(id, {})[a, b] = HoldState(*state)
    crowds = document.table(f"{name}-crowds", MEMBERS)
    members: dict[str, list[Any]] = {}
    columns = (crowds.column(one).to_pylist() for one in ("relation", "entity", "deadline"))
    for id, entity, deadline, place in zip(*columns, places_of(crowds), strict=True):
        members.setdefault(id, []).append((entity, place, deadline))
    for one in values["gatherings"]:
        id, listed = one["relation"], one["listed"]
        crowd = stage._crowds.restore(
            stage._relations[id], one["sequence"], None if listed is None else frozenset(listed)
        )
        holding = {a: state for (a, _), state in held.get(id, {}).items()}
        crowd.restore(members.get(id, ()), holding, one["next_expiry"], one["now"])
    stage._plain.now = values["eventwise"]["now"]
    reports = events_by_number(document.table(f"{name}-reports", NUMBERED))
    stage._plain.known = {event.entity: LatestReport(event, heard) for heard, event in reports}
    for id, sequence, room in values["eventwise"]["relations"]:
        stage._plain.restore(stage._relations[id], sequence, held.get(id, {}), room)
