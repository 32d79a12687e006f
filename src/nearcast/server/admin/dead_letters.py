"""Dead letters over HTTP: what could not be taken, page by page, and once more."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import read_event
from nearcast.language.json_text import loads
from nearcast.model.values import time_text
from nearcast.server import clock
from nearcast.server.admin.documents import checked_changes
from nearcast.server.auth import Manager, service_of
from nearcast.server.error_responses import NotFound, faults_json
from nearcast.server.service import AccessServer
from nearcast.server.sessions.outcomes import KEPT_BYTES
from nearcast.server.webhook_post import ActionFailed

LOG = "dead letters"

MOST = 1_000
"""Letters of one page."""

PAGE_BYTES = 8 << 20
"""About so much content is in one page; a page of large letters ends sooner."""

router = APIRouter(prefix="/dead-letters", tags=["manage"])

Here = Annotated[AccessServer, Depends(service_of)]


@router.get("", response_model=dict[str, Any])
async def letters(
    token: Manager,
    service: Here,
    limit: Annotated[int, Query(ge=1, le=MOST, description="Letters of one page.")] = 100,
    after: Annotated[int, Query(ge=0, description="`next` of the page before.")] = 0,
) -> Response:
    """What could not be taken, in the order in which it was refused: where it came from, why, and its content."""
    return Response(await asyncio.to_thread(_page, service, after, limit), media_type="application/json")


@router.post("/{id}/retry")
async def retry(id: int, token: Manager, service: Here) -> Any:
    """Takes a letter once more: an event is published as if it came now, an action is run. The letter stays.

    An event that the journal has by now is known by its source and id, and is not taken twice.
    """
    rows = [] if not 0 < id < 1 << 62 else (await asyncio.to_thread(_read, service, id - 1, 1))[0]
    if not rows:
        raise NotFound(Fault("a dead letter", str(id)[:80], Mark("request"), "GET /dead-letters lists them"))
    [letter] = rows
    if len(letter["content"]) >= KEPT_BYTES:
        came = f"the first {KEPT_BYTES:,} bytes of it"
        raise EventError(Fault("a letter that was kept whole", came, Mark(f"dead letter {id}"), "publish it again"))
    if letter["where"].startswith("action "):
        return await _run(letter, service)
    return {"position": await _publish(letter, service)}


def _page(service: AccessServer, after: int, limit: int) -> bytes:
    rows, through, end = _read(service, after, limit)
    return orjson.dumps({"dead_letters": [_shown(row) for row in rows], "next": through if through < end else None})


def _read(service: AccessServer, after: int, limit: int) -> tuple[list[dict[str, Any]], int, int]:
    """The letters of a page, the position through which it goes, and the end of the log."""
    end = service.journal.end(LOG)
    through = service.journal.end_within_bytes(LOG, after, limit, PAGE_BYTES) if after < end else after
    rows = service.journal.read(LOG, after, through - after).to_pylist() if through > after else []
    return rows, through, end


def _shown(letter: dict[str, Any]) -> dict[str, Any]:
    found = {"id": letter["position"], "time": time_text(letter["time"])}
    found |= {"where": letter["where"], "reason": letter["reason"]}
    try:
        return found | {"content": letter["content"].decode()}
    except UnicodeDecodeError:
        return found | {"content_base64": base64.b64encode(letter["content"]).decode()}


async def _publish(letter: dict[str, Any], service: AccessServer) -> int | None:
    """Publishes the event that a letter holds; its position, None if it is held back.

    Raises EventError, DefinitionError, QueueFull.
    """
    where = Mark(f"dead letter {letter['position']}")
    settings, accepted = service.session_manager.registry.settings, clock.moment(clock.now())
    content: bytes = letter["content"]
    document = loads(content, where)
    if letter["where"].startswith("journal position") and isinstance(document, dict):
        # The journal has it: under its own id it would be known, and change nothing.
        document = {**document, "id": f"{document.get('id')}/retried-{letter['position']}"}
        content = orjson.dumps(document)
    event = replace(read_event(document, where, settings.channels, accepted, content), accepted=accepted)
    if event.control:
        checked_changes(event, settings, where)
    [position] = await service.event_entry.submit([event])
    return position


async def _run(letter: dict[str, Any], service: AccessServer) -> Any:
    """Runs the action that a letter is of, once."""
    try:
        await service.actions.run_again(letter["content"])
    except ActionFailed as error:
        fault = Fault("the action to be run", error.reason, Mark(f"dead letter {letter['position']}"))
        return JSONResponse(faults_json([fault]), 502)
    return {"run": True}
