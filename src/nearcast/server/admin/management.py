"""Managing clients, subscriptions, settings, relations and rules. Each change is an event, in effect when answered.

Whatever has an id is listed, shown and ended alike, so these routes are made of one description for each kind.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.routing import APIRoute

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language import control_events
from nearcast.language.definitions.client_documents import client_data, client_document
from nearcast.language.definitions.relation_documents import relation_data, relation_document
from nearcast.language.definitions.settings_documents import settings_data
from nearcast.language.definitions.situation_documents import (
    action_data,
    action_document,
    situation_data,
    situation_document,
)
from nearcast.language.definitions.subscription_documents import subscription_data, subscription_document
from nearcast.language.definitions.zone_documents import (
    read_zone_shapes,
    zone_layer_data,
    zone_rule_data,
    zone_rule_document,
    zone_shapes_data,
)
from nearcast.model.changes import (
    ActionChange,
    ActionRemoval,
    Change,
    ClientRemoval,
    RelationChange,
    RelationRemoval,
    SettingsChange,
    SituationChange,
    SituationRemoval,
    SubscriptionChange,
    SubscriptionRemoval,
    ZoneRemoval,
    ZoneRuleChange,
    ZoneShapesChange,
)
from nearcast.model.event import Event
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings
from nearcast.model.zone import Zone, ZoneLayer
from nearcast.server import clock
from nearcast.server.access import AccessToken
from nearcast.server.admin.documents import (
    MANAGED,
    ChangeAnswer,
    ClientDocument,
    Document,
    RuleDocument,
    SettingsDocument,
    SubscriptionDocument,
    check_room,
    checked_changes,
    control_event,
)
from nearcast.server.auth import Manager, service_of
from nearcast.server.error_responses import NotFound
from nearcast.server.ingest.cloudevents_http import check_json, read_object
from nearcast.server.ingest.definition_offload import LARGE_DEFINITION
from nearcast.server.ingest.definition_pacing import work_of
from nearcast.server.ingest.long_work import ATOM_SECONDS, PAGES, long_part
from nearcast.server.path_names import ID
from nearcast.server.service import AccessServer
from nearcast.situations.rule_plan import rule_cycle
from nearcast.state.registry import Registry


class BoundedRoute(APIRoute):
    """A route that holds no more of a body than a document may be, and takes JSON objects only."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Reads the body before anybody else does, within the limit. Raises BodyTooLarge, UnknownContent,
        DefinitionError, each with its fault.
        """
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            service = service_of(request)
            # Starlette keeps a body that was read here, and what is in it, and FastAPI takes it from there.
            request._body = body = await service.bodies.read(request, service.config.limits.document_bytes)
            if request.method == "PUT":
                check_json(request.headers.get("content-type"))
                request._json = await service.reading.of(len(body), read_object, body)
            return await handle(request)

        return bounded


async def _size(request: Request) -> int:
    return len(await request.body())


REQUEST = Mark("request")
FEATURES = 1_000
"""Zones in a page of a layer's."""
Here = Annotated[AccessServer, Depends(service_of)]
Size = Annotated[int, Depends(_size)]
"""The bytes of the body."""
Dry = Annotated[bool, Query(description="Only check; nothing is changed, and the position is 0.")]


@dataclass(frozen=True, slots=True)
class ManagedKind:
    """One kind of what has an id: its names, what ending one does, where the registry has them, how a document says
    one, and the change that removes it.
    """

    one: str
    many: str
    ending: str
    there: Callable[[Registry], Mapping[str, Any]]
    data: Callable[[Any], dict[str, Any]]
    removal: Callable[[str], Change]

    def known(self, id: str, service: AccessServer) -> Any:
        """One of them, as it is known now. Raises NotFound."""
        there = self.there(service.session_manager.registry)
        if id not in there:
            advice = f"GET /{self.many} lists them"
            raise NotFound(Fault(f"a known {self.one}", id[:80], Mark("request"), advice))
        return there[id]


async def answer(written: Callable[[], bytes]) -> Response:
    """An answer of JSON that is made in a thread: there may be a hundred thousand of a kind, and much in each."""
    return Response(await asyncio.to_thread(written), media_type="application/json")


def changed(position: int, document: bytes) -> bytes:
    """The answer to a change, as `ChangeAnswer`; the document is JSON already."""
    return b'{"position":%d,"document":%b}' % (position, document)


def routes(kind: ManagedKind) -> APIRouter:
    """The routes by which those of a kind are listed, shown and ended."""
    router = APIRouter(tags=["manage"], route_class=BoundedRoute, prefix=f"/{kind.many}")

    @router.get("", name=f"all {kind.many}", response_model=list[dict[str, Any]])
    async def several(token: Manager, service: Here) -> Response:
        """All of them, in the order in which they were added."""
        there = [*kind.there(service.session_manager.registry).values()]
        return await answer(lambda: orjson.dumps([kind.data(one) for one in there]))

    @router.get(f"/{ID}", name=f"one {kind.one}", response_model=dict[str, Any])
    async def one(id: str, token: Manager, service: Here) -> Response:
        """One of them, as it is known now."""
        there = kind.known(id, service)
        return await answer(lambda: orjson.dumps(kind.data(there)))

    @router.delete(f"/{ID}", name=f"delete {kind.one}", description=kind.ending, response_model=ChangeAnswer)
    async def delete(id: str, token: Manager, service: Here) -> Response:
        before = kind.known(id, service)
        position = await write(service, kind.removal(id))
        return await answer(lambda: changed(position, orjson.dumps(kind.data(before))))

    return router


CLIENTS = ManagedKind(
    "client",
    "clients",
    'Forgets a client; what waits for it ends as "unsubscribed".',
    lambda registry: registry.clients,
    client_data,
    ClientRemoval,
)
clients = routes(CLIENTS)


@clients.put(f"/{ID}", response_model=ChangeAnswer)
async def put_client(
    id: str, document: ClientDocument, token: Manager, service: Here, size: Size, dry: Dry = False
) -> Response:
    """Adds a client, or changes what is given of it."""

    def read(settings: Settings) -> tuple[Change, dict[str, Any]]:
        """The change, and what is answered to a dry request."""
        # `lapsed` is told, not asked for: who writes what it read withdraws nothing, and adds who was removed.
        change = replace(client_document(given(document, id), REQUEST, settings), lapsed=None)
        check_room(change, service.session_manager.registry)
        return change, client_data(change)

    return await put(service, token, size, read, dry, lambda: client_data(CLIENTS.known(id, service)))


SUBSCRIPTIONS = ManagedKind(
    "subscription",
    "subscriptions",
    'Ends a subscription; what waits for it ends as "unsubscribed".',
    lambda registry: registry.subscriptions,
    subscription_data,
    SubscriptionRemoval,
)
subscriptions = routes(SUBSCRIPTIONS)


@subscriptions.put(f"/{ID}", response_model=ChangeAnswer)
async def put_subscription(
    id: str, document: SubscriptionDocument, token: Manager, service: Here, size: Size, dry: Dry = False
) -> Response:
    """Adds a subscription, or replaces the one with this id. It sees the events after the position answered.

    A fault in a filter's text comes with its line and column there.
    """

    def read(settings: Settings) -> tuple[Change, dict[str, Any]]:
        """The change, and what is answered."""
        asked = subscription_document(given(document, id), REQUEST, settings)
        check_room(SubscriptionChange(asked), service.session_manager.registry)
        return SubscriptionChange(asked), subscription_data(asked)

    return await put(service, token, size, read, dry)


common = APIRouter(tags=["manage"], route_class=BoundedRoute)


@common.get("/settings")
async def settings(token: Manager, service: Here) -> dict[str, Any]:
    """The settings that hold for all."""
    return settings_data(service.session_manager.registry.settings)


@common.put("/settings", response_model=ChangeAnswer)
async def put_settings(
    document: SettingsDocument, token: Manager, service: Here, size: Size, dry: Dry = False
) -> Response:
    """Replaces the settings; what is not given has its default."""

    def read(settings: Settings) -> tuple[Change, dict[str, Any]]:
        """The change, and what is answered."""
        event = control_event("nearcast.settings", document.given(), MANAGED)
        [change] = checked_changes(event, settings, REQUEST)
        assert isinstance(change, SettingsChange)
        return change, settings_data(change.settings)

    return await put(service, token, size, read, dry)


Read = Callable[[Settings], tuple[Change, dict[str, Any]]]
"""Reads what is asked for under some settings: the change, and how it is answered. Raises DefinitionError."""


async def put(
    service: AccessServer,
    token: AccessToken | None,
    size: int,
    read: Read,
    dry: bool,
    known: Callable[[], dict[str, Any]] | None = None,
) -> Response:
    """Reads a change, and writes it unless it is dry, when it is its sender's turn; `known` tells what is known then,
    if not just what was read.

    Raises DefinitionError, QueueFull, JournalError.
    """

    def prepared() -> tuple[Event, bytes, int]:
        """The event that brings the change about, the answer, and what the change takes to enter."""
        change, document = read(held)
        event = _event(change)
        service.reading.remember(event, held, [] if dry else [change])
        return event, orjson.dumps(document), work_of([change])

    def timed() -> tuple[Event, bytes, int]:
        """The same; also where it is refused it is noted how long it held others up."""
        began = time.thread_time()
        try:
            return prepared()
        finally:
            took.append(time.thread_time() - began)

    held, took = service.session_manager.registry.settings, list[float]()
    if size <= LARGE_DEFINITION:
        event, document, work = prepared()
    else:
        async with service.long_work.turn(token, True):
            try:
                event, document, work = await service.reading.of_definition(size, timed)
            except DefinitionError:
                service.long_work.owe(token, True, long_part(took))
                raise
            if event.type != PAGES:
                service.long_work.owe(token, True, long_part([*took, 0 if dry else work * ATOM_SECONDS]))
    await service.pacing.admit(token, 0 if dry else work)
    position = 0 if dry else await _append(service, event)
    if position and known is not None:
        document = await service.reading.of(size, lambda: orjson.dumps(known()))
    return Response(changed(position, document), media_type="application/json")


async def write(service: AccessServer, change: Change) -> int:
    """Appends a change and waits until it is in effect; its position. Raises QueueFull, JournalError."""
    return await _append(service, _event(change))


def _event(change: Change) -> Event:
    accepted = clock.moment(clock.now())
    return replace(control_events.to_event(change, uuid.uuid4().hex, MANAGED, accepted), accepted=accepted)


async def _append(service: AccessServer, event: Event) -> int:
    [position] = await service.event_entry.submit([event])
    assert position is not None, "definitions are not held back"
    await service.session_manager.reached(position)
    return position


def given(document: Document | RuleDocument, id: str) -> dict[str, Any]:
    """What a document says, with the id of its path. Raises `DefinitionError` where it says another one."""
    data = document.given()
    if data.get("id") not in (None, id):
        raise DefinitionError(Fault(f"the id of the path, {id[:80]}, or none", repr(data["id"])[:80], Mark("id")))
    return {**data, "id": id}


@dataclass(frozen=True, slots=True)
class RuleKind:
    """One kind of rule, how a document of it is read, and the change that it makes."""

    managed: ManagedKind
    read: Callable[[dict[str, Any], Mark, Settings], Any]
    change: Callable[[Any], Change]


RELATIONS = ManagedKind(
    "relation",
    "relations",
    "Ends it. Ending it ends what holds by it, and says so.",
    lambda registry: registry.relations,
    relation_data,
    RelationRemoval,
)
SITUATIONS = ManagedKind(
    "situation",
    "situations",
    "Ends it. Ending the rule ends the situations that it concluded.",
    lambda registry: registry.situations,
    situation_data,
    SituationRemoval,
)
LAYERS = ManagedKind(
    "layer of zones",
    "zones",
    "Ends it. Who was in its zones is told to have left.",
    lambda registry: registry.zones,
    zone_layer_data,
    ZoneRemoval,
)
RULES = (
    RuleKind(
        RELATIONS,
        lambda data, where, settings: relation_document(data, where, settings.limits),
        RelationChange,
    ),
    RuleKind(
        SITUATIONS,
        situation_document,
        SituationChange,
    ),
    RuleKind(
        ManagedKind(
            "action",
            "actions",
            "Ends it. What is under way is finished.",
            lambda registry: registry.actions,
            action_data,
            ActionRemoval,
        ),
        action_document,
        ActionChange,
    ),
)


def rule_routes(kind: RuleKind) -> APIRouter:
    """The routes of one kind of rule."""
    router = routes(kind.managed)

    @router.put(f"/{ID}", name=f"put {kind.managed.one}", response_model=ChangeAnswer)
    async def put_one(
        id: str, document: RuleDocument, token: Manager, service: Here, size: Size, dry: Dry = False
    ) -> Response:
        """Adds one, or replaces the one with this id; it holds from the position answered on."""
        rules = dict(service.session_manager.registry.situations)

        def read(settings: Settings) -> tuple[Change, dict[str, Any]]:
            """The change, and what is answered."""
            asked = kind.read(given(document, id), REQUEST, settings)
            if isinstance(asked, Situation):
                _check_cycle(asked, rules, settings)
            return kind.change(asked), kind.managed.data(asked)

        return await put(service, token, size, read, dry)

    return router


layers = APIRouter(tags=["manage"], route_class=BoundedRoute)


@layers.put(f"/zones/{ID}", response_model=ChangeAnswer)
async def put_layer(
    id: str, document: RuleDocument, token: Manager, service: Here, size: Size, dry: Dry = False
) -> Response:
    """Adds a layer of zones without any, or gives one another rule; its zones stay."""

    def read(settings: Settings) -> tuple[Change, dict[str, Any]]:
        """The change, and what is answered."""
        rule = zone_rule_document(given(document, id), REQUEST, settings.limits)
        return ZoneRuleChange(rule), zone_rule_data(rule)

    return await put(service, token, size, read, dry)


@layers.put(f"/zones/{ID}/features", name="put features", response_model=ChangeAnswer)
async def put_features(
    id: str, document: RuleDocument, token: Manager, service: Here, size: Size, dry: Dry = False
) -> Response:
    """Adds zones to a layer, or replaces those of the same names, and takes away those that are `removed`."""
    before: ZoneLayer = LAYERS.known(id, service)

    def read(settings: Settings) -> tuple[Change, dict[str, Any]]:
        """The change, and what is answered."""
        change = read_zone_shapes({**document.given(), "layer": id}, settings.limits, REQUEST)
        if before.with_zones(change.zones, change.removed, settings.limits) is None:
            expected = f"at most {settings.limits.zones:,} zones of {settings.limits.zones_bytes:,} characters"
            raise DefinitionError(Fault(expected, "more", REQUEST, "make several layers of them"))
        names = [zone.name for zone in change.zones]
        return change, {"layer": id, "zones": names, "removed": list(change.removed)}

    try:
        return await put(service, token, size, read, dry)
    except Fault as fault:
        raise DefinitionError(fault) from None


@layers.get(f"/zones/{ID}/features", name="features of a layer", response_model=dict[str, Any])
async def get_features(id: str, token: Manager, service: Here, after: Annotated[int, Query(ge=0)] = 0) -> Response:
    """The zones of a layer as GeoJSON features, without the first `after` of them; `next` is that of the next page."""
    layer: ZoneLayer = LAYERS.known(id, service)

    def written() -> bytes:
        """A page: as many zones as one document may be, and one at least."""
        zones, size = list[Zone](), 0
        for zone in islice(layer.zones.values(), after, after + FEATURES):
            size += zone.size
            if zones and size > service.config.limits.document_bytes:
                break
            zones.append(zone)
        through = after + len(zones)
        data = zone_shapes_data(ZoneShapesChange(layer.id, tuple(zones)))
        return orjson.dumps({"features": [], **data, "next": through if through < len(layer.zones) else None})

    return await answer(written)


def _check_cycle(asked: Situation, there: Mapping[str, Situation], settings: Settings) -> None:
    """A rule that would stand on itself, by way of others, is refused with the way."""
    way = rule_cycle({**there, asked.id: asked}.values(), settings.ontology)
    if way:
        expected = "rules of which none stands on itself"
        raise DefinitionError(Fault(expected, f"a cycle, {' → '.join(way)}", Mark("when"), "take one condition out"))


router = APIRouter()
for _router in (clients, subscriptions, common, *map(rule_routes, RULES), routes(LAYERS), layers):
    router.include_router(_router)
