"""Reading what is so now: what holds between things and in zones, and the newest report of an entity; page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.model.relation import RELATION_EVENT
from nearcast.model.sequence import read_sequence, write_sequence
from nearcast.model.situation import SITUATION_TYPE
from nearcast.model.zone import ZONE_EVENT
from nearcast.server.admin.management import RELATIONS, SITUATIONS
from nearcast.server.auth import Manager, service_of
from nearcast.server.error_responses import NotFound
from nearcast.server.path_names import ID
from nearcast.server.service import AccessServer

MOST = 1_000
"""Entries of one page."""

router = APIRouter(tags=["manage"])

Here = Annotated[AccessServer, Depends(service_of)]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Entries of one page.")]
After = Annotated[str, Query(description="`next` of the page before.", max_length=40)]


@router.get("/active/relations")
async def active_relations(
    token: Manager, service: Here, limit: Limit = 100, after: After = "0", relation: str | None = None
) -> dict[str, Any]:
    """The relations that hold, in the order in which they began, as the newest event of each tells it.

    Of relations that do not tell `exit` it is not known. `relation` asks for those of one definition.
    """
    known = service.session_manager.registry.relations

    def wanted(data: dict[str, Any]) -> bool:
        """Whether something that holds is asked for, and known to hold."""
        found = known.get(data["relation"])
        return found is not None and "exit" in found.detect and relation in (None, data["relation"])

    return await _page(service, RELATION_EVENT, "relations", limit, after, wanted)


@router.get("/active/situations")
async def active_situations(
    token: Manager, service: Here, limit: Limit = 100, after: After = "0", situation: str | None = None
) -> dict[str, Any]:
    """The situations that there are, in the order in which they began, as the newest event of each tells it.

    `situation` asks for those that one rule concluded.
    """

    def wanted(data: dict[str, Any]) -> bool:
        """Whether a situation is asked for."""
        return situation in (None, data["situation"])

    return await _page(service, SITUATION_TYPE, "situations", limit, after, wanted)


@router.get("/active/zones")
async def active_zones(
    token: Manager,
    service: Here,
    limit: Limit = 100,
    after: After = "0",
    layer: str | None = None,
    entity: str | None = None,
) -> dict[str, Any]:
    """Who is in which zone, in the order in which that began, as the newest event of each tells it.

    Of layers that do not tell `exit` it is not known. `layer` and `entity` ask for those of one.
    """
    known = service.session_manager.registry.zones

    def wanted(data: dict[str, Any]) -> bool:
        """Whether something that holds is asked for, and known to hold."""
        found = known.get(data["layer"])
        told = found is not None and "exit" in found.rule.detect
        return told and layer in (None, data["layer"]) and entity in (None, data["entity"])

    return await _page(service, ZONE_EVENT, "zones", limit, after, wanted)


@router.get("/relations/active", include_in_schema=False)
async def relation_named_active(
    token: Manager, service: Here, limit: Limit = 100, after: After = "0", relation: str | None = None
) -> dict[str, Any]:
    """The relation `active`, where one is named so; else what `/active/relations` answers."""
    if "active" in service.session_manager.registry.relations:
        return RELATIONS.data(RELATIONS.known("active", service))
    return await active_relations(token, service, limit, after, relation)


@router.get("/situations/active", include_in_schema=False)
async def situation_named_active(
    token: Manager, service: Here, limit: Limit = 100, after: After = "0", situation: str | None = None
) -> dict[str, Any]:
    """The situation rule `active`, where one is named so; else what `/active/situations` answers."""
    if "active" in service.session_manager.registry.situations:
        return SITUATIONS.data(SITUATIONS.known("active", service))
    return await active_situations(token, service, limit, after, situation)


@router.get(f"/entities/{ID}")
async def entity(id: str, token: Manager, service: Here) -> dict[str, Any]:
    """The newest report of an entity, and its position in the journal."""
    found = await asyncio.to_thread(service.views.newest.payload, id)
    if found is None:
        most = service.config.limits.entities
        advice = f"no report of it is among those of the {most:,} entities heard of last"
        raise NotFound(Fault("an entity that was heard of", id[:80], Mark("request"), advice))
    position, payload = found
    return {"entity": id, "position": position, "event": orjson.loads(payload)}


async def _page(
    service: AccessServer, type_: str, name: str, limit: int, after: str, wanted: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    active = service.views.active
    found = await asyncio.to_thread(active.page, type_, _sequence(after), limit, wanted)
    last = write_sequence(found[-1].sequence) if len(found) == limit else None
    return {name: [one.data for one in found], "next": last, "left_out": active.left_out[type_]}


def _sequence(cursor: str) -> int:
    """The sequence that a cursor names. Raises `DefinitionError` for what is none."""
    try:
        return read_sequence(int(cursor) if cursor.isdigit() else cursor)
    except ValueError:
        raise DefinitionError(Fault("after: what `next` of a page says", cursor, Mark("query"))) from None
