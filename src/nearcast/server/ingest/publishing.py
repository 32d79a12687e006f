"""Publishing: POST /events, CloudEvents 1.0 over HTTP, answered once the events are durable."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nearcast.errors import EventError
from nearcast.language.cloudevents import CONTROL_TYPES
from nearcast.model.event import CONTROL_PREFIX
from nearcast.server.auth import Publisher, admit, service_of
from nearcast.server.error_responses import fault_json
from nearcast.server.ingest.cloudevents_http import BATCHED, STRUCTURED, batched
from nearcast.server.ingest.definition_offload import LARGE, LARGE_DEFINITION
from nearcast.server.ingest.derivation_pacing import Entering
from nearcast.server.ingest.group_commit import QueueFull
from nearcast.server.ingest.read_events import ReadEvents, read_events
from nearcast.server.ingest.repeated_events import other_events
from nearcast.server.service import AccessServer
from nearcast.server.sessions.outcomes import RefusedInput, refused_input

log = logging.getLogger(__name__)

router = APIRouter(tags=["publish"])

PATH = "/events"

CONTROL = CONTROL_PREFIX.encode()

ANSWERED_HERE = 5_000
"""So many events, all of them new, are answered in less time than the way to a thread and back may take."""

ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "Durable. `positions` has one per event, null for one that was refused; `faults` says why."
        " `known` has the indices of those that the journal had before, by source and id."
        " With suppression, `suppressed` has the indices of those that were taken and did not enter the journal.",
        "content": {
            "application/json": {"example": {"positions": [17, None], "faults": [{"index": 1, "expected": "…"}]}}
        },
    }
}
CONTENT = {
    "requestBody": {
        "required": True,
        "content": {STRUCTURED: {"schema": {"type": "object"}}, BATCHED: {"schema": {"type": "array"}}, "*/*": {}},
    }
}


class PublishDirectly:
    """Answers POST /events before the application looks for a route: what a framework does until it calls a function,
    and around that, takes longer than reading and checking an event. Its route is there for the description of the API.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        direct = scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST"
        if not direct or scope.get("root_path"):
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await publish(request, admit(request, "publish"), service_of(request))
        except Exception as error:
            handlers = request.app.exception_handlers
            kinds = (one for one in type(error).__mro__ if one is not Exception)
            respond = next((handlers[one] for one in kinds if one in handlers), None)
            # What nobody expects is told where every error of the server is.
            if respond is None:
                raise
            response = await respond(request, error)
        await response(scope, receive, send)


async def publish(
    request: Request, token: Publisher, service: Annotated[AccessServer, Depends(service_of)]
) -> Response:
    """Takes events: structured, batched, or binary (headers `ce-…`).

    Of a batch the good ones are taken, the others answered by their index. An event that is known already, by source
    and id, is not taken twice: its position is answered, so a publisher that is not sure may repeat itself. Another
    event of the same source and id is refused. Events of types `nearcast.…` need the right to manage.
    """
    limits = service.config.limits
    batch = batched(request.headers.get("content-type"))
    body = await service.bodies.read(request, limits.batch_bytes if batch else limits.event_bytes)
    if elsewhere := service.domain.elsewhere():
        return Response(status_code=307, headers={"Location": f"{elsewhere}{PATH}"})
    headers, size = request.headers.items(), len(body)
    defines = _may_define(request, body)
    try:
        if size > (LARGE_DEFINITION if defines else LARGE):
            reading = service.reading.of_definition if defines else service.reading.of
            async with service.long_work.turn(token, defines):
                came = await reading(size, read_events, headers, body, token, service)
                service.long_work.owe(token, defines, came.long_seconds)
        else:
            came = read_events(headers, body, token, service)
    except EventError as error:
        _write_dead_letters([refused_input("POST /events", str(error.fault), body)], service)
        raise
    if not (defines or came.long_seconds):
        service.long_work.note_ordinary()
    written: list[int | None] = []
    before = max(service.session_manager.events_through, service.events.through)
    if came.taken:
        await service.pacing.admit(token, came.definition_work)
        written = await _entered(request, came, token, service)
    # In a thread where much came, unless all of it is new: else there may be a fault of each event.
    cost = 0 if came.count <= ANSWERED_HERE and _are_new(came, written, before) else size
    status, answer, letters = await service.reading.of(cost, _answer, came, written, before, service)
    service.metrics.published.inc(came.count - len(letters))
    # Last: where there was no room the publisher comes again, and its letters would be there twice.
    if letters:
        service.metrics.rejected.labels("event").inc(len(letters))
        _write_dead_letters(letters, service)
    return Response(answer, status, media_type="application/json")


async def _entered(request: Request, came: ReadEvents, token: Publisher, service: AccessServer) -> list[int | None]:
    """The positions of what was taken, once it is durable."""
    holder, returned = returned_of(request)

    async def submit(entering: Entering) -> list[int | None]:
        """Has some of it written."""
        return await service.event_entry.submit(entering, holder, returned)

    derives = service.session_manager.registry.derives
    return await service.derivation_pacing.enter(token, came.entering, submit, derives)


def _may_define(request: Request, body: bytes) -> bool:
    """Whether a definition may be among what came, by a type in the body or a header, where it may be escaped."""
    kind = request.headers.get("ce-type", "")
    return CONTROL in body or b"\\u" in body or any(one in kind for one in (CONTROL_PREFIX, "%", "\\"))


def _are_new(came: ReadEvents, written: Sequence[int | None], before: int) -> bool:
    """Whether all that came has positions one after the other, behind those that the journal had before: nearly sure,
    by a look that costs little.
    """
    first, last = (written[0], written[-1]) if written and len(written) == came.count else (None, None)
    return first is not None and last is not None and first > before and last - first == came.count - 1


def _answer(
    came: ReadEvents, written: Sequence[int | None], before: int, service: AccessServer
) -> tuple[int, bytes, list[RefusedInput]]:
    """The status and the answer to what came, and the dead letters of what was refused.

    `written` are the positions of the events that were taken; up to `before` the journal had them.
    """
    positions: list[int | None] = [None] * came.count
    for index, position in zip(came.taken, written, strict=True):
        positions[index] = position
    repeated = _repeated(came, positions, before)
    others = other_events(service.journal, repeated) if repeated else []
    for index, _ in others:
        positions[index] = None
    refused = {index for index, _ in others}
    faults = [*came.faults, *others]
    answer: dict[str, Any] = {
        "positions": positions,
        "faults": [{"index": index, **fault_json(fault)} for index, fault in faults],
    }
    if known := [index for index, *_ in repeated if positions[index] is not None]:
        answer["known"] = known
    held = None in written
    if held and (suppressed := [index for index in came.taken if positions[index] is None and index not in refused]):
        answer["suppressed"] = suppressed
    none_taken = came.count and len(refused) == len(came.taken)
    if none_taken:
        answer = {**fault_json(faults[0][1]), **answer}
    reasons = dict(reversed(faults))
    letters = [refused_input("POST /events", str(reasons[index]), came.contents[index]) for index in sorted(reasons)]
    return 400 if none_taken else 202, orjson.dumps(answer), letters


router.add_api_route(
    PATH,
    publish,
    methods=["POST"],
    status_code=202,
    responses=ACCEPTED,
    openapi_extra=CONTENT,
)


@router.get("/wanted")
async def wanted(
    token: Publisher, service: Annotated[AccessServer, Depends(service_of)], type: Annotated[list[str], Query()]
) -> dict[str, bool]:
    """Of each type, whether anybody may want some event of it now: what nobody wants need not be sent.

    Guarded relations, like others, want what their sides select.
    """
    others = [one for one in type if one not in CONTROL_TYPES]
    found = await service.routing.wants_types(service.session_manager.registry, others)
    return {one: found.get(one, True) for one in type}


@router.get("/wanted/filters", responses={304: {"description": "The filters are those of this ETag still."}})
async def wanted_filters(
    request: Request, token: Publisher, service: Annotated[AccessServer, Depends(service_of)]
) -> Response:
    """CQL2 filters of which one selects every event that anybody may want now: what none selects need not be sent.

    Events of types `nearcast.…` are wanted in any case. What the filters are about is the event alone.
    """
    found = await service.routing.forwarded(service.session_manager.registry)
    headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type="application/json", headers=headers)


def _repeated(came: ReadEvents, positions: list[int | None], before: int) -> list[tuple[int, bytes, int]]:
    """The events that the journal had before, up to a position, or that come twice: their indices, contents and
    positions.
    """
    there = [position for position in positions if position is not None]
    # Nearly always there is none.
    if len(set(there)) == len(there) and min(there, default=before + 1) > before:
        return []
    seen: set[int] = set()
    found = []
    for index in came.taken:
        position = positions[index]
        if position is not None:
            if position <= before or position in seen:
                found.append((index, came.contents[index], position))
            seen.add(position)
    return found


def returned_of(request: Request) -> tuple[str | None, frozenset[int]]:
    """Who publishes, as a holder of leases, and which of them end with this request."""
    returned = request.headers.get("nearcast-returned", "").split(",")
    return request.headers.get("nearcast-publisher"), frozenset(int(one) for one in returned if one.strip().isdigit())


def _write_dead_letters(letters: list[RefusedInput], service: AccessServer) -> None:
    try:
        service.dead_letters.submit(letters).add_done_callback(lambda written: written.exception())
    except QueueFull:
        service.metrics.errors.labels("dead letters").inc()
        log.warning("dead letters full dropped=%d", len(letters))
