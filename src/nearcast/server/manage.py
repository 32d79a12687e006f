"""Managing clients, subscriptions and settings. Each change is an event in the journal, in effect when answered."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.routing import APIRoute

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language import control, cql2
from nearcast.language.definitions import (
    client_data,
    client_document,
    settings_data,
    subscription_data,
    subscription_document,
)
from nearcast.model.changes import Change, ClientRemoval, SettingsChange, SubscriptionChange, SubscriptionRemoval
from nearcast.server import clock
from nearcast.server.answers import Unknown
from nearcast.server.controls import MANAGED, checked_changes, control_event
from nearcast.server.documents import (
    ClientDocument,
    Document,
    RuleDocument,
    SettingsDocument,
    SubscriptionDocument,
    Written,
)
from nearcast.server.guards import Manager, service_of
from nearcast.server.names import ID
from nearcast.server.publish import read_body
from nearcast.server.service import Service


class BoundedRoute(APIRoute):
    """A route that holds no more of a body than a document may be."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Reads the body before anybody else does, within the limit."""
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            # Starlette keeps a body that was read here, and FastAPI takes it from there.
            request._body = await read_body(request, service_of(request).config.limits.document_bytes)
            return await handle(request)

        return bounded


router = APIRouter(tags=["manage"], route_class=BoundedRoute)

REQUEST = Mark("request")
Here = Annotated[Service, Depends(service_of)]
Dry = Annotated[bool, Query(description="Only check; nothing is changed, and the position is 0.")]


@router.get("/clients")
async def clients(token: Manager, service: Here) -> list[dict[str, Any]]:
    """All clients."""
    return [client_data(client) for client in service.desk.registry.clients.values()]


@router.get(f"/clients/{ID}")
async def client(id: str, token: Manager, service: Here) -> dict[str, Any]:
    """One client, as it is known now."""
    found = service.desk.registry.clients.get(id)
    if found is None:
        raise unknown("client", id)
    return client_data(found)


@router.put(f"/clients/{ID}")
async def put_client(id: str, document: ClientDocument, token: Manager, service: Here, dry: Dry = False) -> Written:
    """Adds a client, or changes what is given of it."""
    change = client_document(given(document, id), REQUEST, service.desk.registry.settings)
    position = await write(service, change, dry)
    return Written(position=position, document=await client(id, token, service) if position else client_data(change))


@router.delete(f"/clients/{ID}")
async def delete_client(id: str, token: Manager, service: Here) -> Written:
    """Forgets a client; what waits for it ends as "unsubscribed"."""
    before = await client(id, token, service)
    return Written(position=await write(service, ClientRemoval(id)), document=before)


@router.get("/subscriptions")
async def subscriptions(token: Manager, service: Here) -> list[dict[str, Any]]:
    """All subscriptions, in the order in which they were added."""
    return [subscription_data(subscription) for subscription in service.desk.registry.subscriptions.values()]


@router.get(f"/subscriptions/{ID}")
async def subscription(id: str, token: Manager, service: Here) -> dict[str, Any]:
    """One subscription."""
    found = service.desk.registry.subscriptions.get(id)
    if found is None:
        raise unknown("subscription", id)
    return subscription_data(found)


@router.put(f"/subscriptions/{ID}")
async def put_subscription(
    id: str, document: SubscriptionDocument, token: Manager, service: Here, dry: Dry = False
) -> Written:
    """Adds a subscription, or replaces the one with this id. It sees the events after the position answered.

    A fault in a filter's text comes with its line and column there.
    """
    if isinstance(document.filter, str):
        cql2.parse(document.filter, Mark("filter", 1, 1))
    asked = subscription_document(given(document, id), REQUEST, service.desk.registry.settings)
    position = await write(service, SubscriptionChange(asked), dry)
    return Written(position=position, document=subscription_data(asked))


@router.delete(f"/subscriptions/{ID}")
async def delete_subscription(id: str, token: Manager, service: Here) -> Written:
    """Ends a subscription; what waits for it ends as "unsubscribed"."""
    before = await subscription(id, token, service)
    return Written(position=await write(service, SubscriptionRemoval(id)), document=before)


@router.get("/settings")
async def settings(token: Manager, service: Here) -> dict[str, Any]:
    """The settings that hold for all."""
    return settings_data(service.desk.registry.settings)


@router.put("/settings")
async def put_settings(document: SettingsDocument, token: Manager, service: Here, dry: Dry = False) -> Written:
    """Replaces the settings; what is not given has its default."""
    event = control_event("nearcast.settings", document.model_dump(exclude_none=True), MANAGED)
    [change] = checked_changes(event, service.desk.registry.settings)
    assert isinstance(change, SettingsChange)
    position = await write(service, change, dry)
    return Written(position=position, document=settings_data(change.settings))


async def write(service: Service, change: Change, dry: bool = False) -> int:
    """Appends a change and waits until it is in effect; its position, 0 if dry. Raises Full, JournalError."""
    if dry:
        return 0
    accepted = clock.moment(clock.now())
    event = control.to_event(change, uuid.uuid4().hex, MANAGED, accepted)
    [position] = await service.entrance.put([replace(event, accepted=accepted)])
    assert position is not None, "definitions are not held back"
    await service.desk.reached(position)
    return position


def given(document: Document | RuleDocument, id: str) -> dict[str, Any]:
    """What a document says, with the id of its path. Raises `DefinitionError` where it says another one."""
    data = document.model_dump(exclude_none=True)
    if data.setdefault("id", id) != id:
        raise DefinitionError(Fault(f"the id of the path, {id}, or none", repr(data["id"]), Mark("id")))
    return data


def unknown(kind: str, id: str) -> Unknown:
    """That there is none of this kind with the id."""
    return Unknown(Fault(f"a known {kind}", id[:80], Mark("request"), f"GET /{kind}s lists them"))
