"""A bridge: a node through which ad hoc nodes and an access server exchange requests and responses.

From the nodes to the server: a request that the bridge takes becomes a subscription there, for as long as it holds;
what the server delivers goes out as responses. From the server to the nodes: an event of type `context.request`, which
the bridge's client is subscribed to, goes out as a request; responses to it are published as `context.response`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import httpx

from nearcast.client import Client, Delivery, Publisher
from nearcast.errors import AccessError, DefinitionError, Fault, Mark, NearcastError, SessionError, SetupError
from nearcast.foraging.request_index import RequestIndex
from nearcast.language.cql2 import write
from nearcast.language.definitions.client_documents import place_of
from nearcast.model.event import Place
from nearcast.model.filter import And, Atom, Distance, Filter, Not, Operator, Or, This
from nearcast.model.foraging import Message, Request, Response
from nearcast.node.definition import BridgeDefinition
from nearcast.node.event_loop import NodeEventLoop
from nearcast.node.wire import placed, requested

log = logging.getLogger(__name__)

REQUEST_TYPE, RESPONSE_TYPE = "context.request", "context.response"
MOST_SUBSCRIPTIONS = 200
"""Requests that are subscriptions at the server at one time; more are counted and wait for their next time."""
SWEEP_SECONDS = 0.5


class Bridge:
    """The part of a node that talks to an access server; open it with `async with`.

    What goes wrong with the server is counted and harms nothing among the nodes; it is tried again with the next
    request.
    """

    def __init__(self, definition: BridgeDefinition, runtime: NodeEventLoop) -> None:
        self._definition, self._runtime = definition, runtime
        headers = {"Authorization": f"Bearer {definition.token}"} if definition.token else {}
        self._http = httpx.AsyncClient(base_url=definition.url, headers=headers, timeout=10.0)
        self._client = Client(definition.url, definition.client, definition.token)
        self._publisher = Publisher(definition.url, definition.token)
        self._until: dict[str, float] = {}
        self._asked = RequestIndex()
        self._work: asyncio.Queue[Message] = asyncio.Queue(1_000)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Bridge:
        try:
            await self._introduce()
        except (httpx.HTTPError, NearcastError) as error:
            await self._close()
            url = self._definition.url
            raise SetupError(f"expected an access server at {url} to bridge to, got {error}; is it up?") from None
        self._tasks = [asyncio.create_task(work) for work in (self._listen(), self._carry(), self._sweep())]
        return self

    async def _introduce(self) -> None:
        """Makes the bridge a client of the server, which is told of requests there."""
        name = self._definition.client
        await self._put("clients", name, {})
        await self._put("subscriptions", f"{name}-requests", {"client": name, "filter": f"type = '{REQUEST_TYPE}'"})
        # Before the first request is taken: a delivery may follow it at once.
        await self._client.connected()

    async def __aexit__(self, *exception: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(httpx.HTTPError, NearcastError):
            for id in (*self._until, f"{self._definition.client}-requests"):
                await self._delete(id)
        await self._close()

    async def _close(self) -> None:
        await self._client.close()
        await self._publisher.close()
        await self._http.aclose()

    def bridge_message(self, message: Message) -> None:
        """Takes a message that the node has taken from others; what is too much is counted."""
        try:
            self._work.put_nowait(message)
        except asyncio.QueueFull:
            self._count("bridge overrun")

    async def _carry(self) -> None:
        """Brings messages of nodes to the server."""
        while True:
            message = await self._work.get()
            try:
                await (self._subscribe(message) if isinstance(message, Request) else self._publish(message))
            except (httpx.HTTPError, NearcastError) as error:
                self._count("bridge failed")
                log.warning("not brought to the server message=%s error=%r", message.id, str(error))

    async def _subscribe(self, request: Request) -> None:
        # Others' requests have been registered on hearing them; one's own nobody hears.
        if request.id.origin == self._runtime.node.id:
            self._runtime.node.provider.register(request, self._runtime.clock())
        wanted = tuple(one for one in request.conditions if one.name in self._definition.classes)
        if not wanted:
            return
        id = self._name(request, wanted)
        if id not in self._until:
            if len(self._until) >= MOST_SUBSCRIPTIONS:
                self._count("bridge full")
                return
            document = {"client": self._definition.client, "filter": write(_filter(request, wanted))}
            await self._put("subscriptions", id, document)
            self._count("bridge subscribed")
        # Asked again, it goes on: no request to the server for each that nodes send.
        self._until[id] = self._runtime.clock() + request.valid

    def _name(self, request: Request, wanted: Sequence[Atom]) -> str:
        """A subscription's id: the same for the same question from the same place."""
        asked = f"{request.id.origin} {request.place} {request.within} {wanted}"
        return f"{self._definition.client}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"

    async def _publish(self, response: Response) -> None:
        """Publishes what the server had asked for; what nodes ask each other is theirs."""
        now = self._runtime.clock()
        values = {name: value for name, value in response.values if self._asked.match(name, value, now) is not None}
        if values:
            await self._publisher.publish([_event(response, values)])
            self._count("bridge published")

    async def _listen(self) -> None:
        """Brings deliveries of the server to the nodes."""
        try:
            async for delivery in self._client.deliveries():
                try:
                    self._deliver(delivery)
                except (Fault, DefinitionError) as fault:
                    self._count("bridge faults")
                    log.warning("not brought to the nodes event=%s fault=%r", delivery.event.get("id"), str(fault))
        except (AccessError, SessionError) as error:
            self._count("bridge closed")
            log.error("the server has ended the session error=%r", str(error))

    def _deliver(self, delivery: Delivery) -> None:
        event, node, now = delivery.event, self._runtime.node, self._runtime.clock()
        data = event.get("data")
        where = Mark(f"event {event.get('id')}")
        if not isinstance(data, dict):
            raise Fault("data with classes and values", repr(data)[:60], where)
        if event["type"] == REQUEST_TYPE:
            request = requested(data, where, node, self._runtime.place, now)
            for condition in request.conditions:
                self._asked.register(condition, now + request.valid, request.within)
            self._runtime.broadcast([request])
            self._count("bridge asked")
            return
        # Others publish what they like under the name of a class, and an object compares with nothing.
        told = [(name, data[name]) for name in self._definition.classes if name in data]
        readings = [(name, value) for name, value in told if isinstance(value, (bool, int, float, str))]
        answer = node.provider.answer(readings, now)
        place = place_of(data, where) or self._runtime.place
        for response in node.tell(answer, _entity(event), place, now):
            self._runtime.broadcast([response])
            # A node does not hear itself, but its own rules may have asked.
            node.learn(response, now)
            self._runtime.report_changes()
            self._count("bridge answered")

    async def _sweep(self) -> None:
        """Ends subscriptions whose requests have run out."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = self._runtime.clock()
            for id in [id for id, until in self._until.items() if until <= now]:
                del self._until[id]
                with suppress(httpx.HTTPError, NearcastError):
                    await self._delete(id)

    async def _put(self, kind: str, id: str, document: Mapping[str, Any]) -> None:
        _check(await self._http.put(_path(kind, id), json=document))

    async def _delete(self, id: str) -> None:
        _check(await self._http.delete(_path("subscriptions", id)))

    def _count(self, what: str) -> None:
        self._runtime.counts[what] += 1


def _path(kind: str, id: str) -> str:
    """Where something of an id is: also of one such as `gate#1`, whose end would be no part of a path."""
    return f"/{kind}/{quote(id, safe='')}"


def _check(answer: httpx.Response) -> None:
    if answer.status_code >= 400:
        raise Fault("an access server that takes this", f"status {answer.status_code}: {answer.text[:200]}")


def _filter(request: Request, wanted: Sequence[Atom]) -> Filter:
    """What a request asks for, as a filter of events; not what a bridge has published itself."""
    conditions = wanted[0] if len(wanted) == 1 else Or(tuple(wanted))
    own = Not(Atom("type", Operator.EQ, RESPONSE_TYPE))
    # CQL2 can write geographic points only; from planar ones it is the hearers who compare.
    near: tuple[Filter, ...] = ()
    if request.place.coordinates == "geographic":
        near = (Atom(Distance(This(), _flat(request.place)), Operator.LE, request.within),)
    return And((conditions, own, *near))


def _flat(place: Place) -> Place:
    return Place(place.coordinates, place.x, place.y)


def _entity(event: Mapping[str, Any]) -> str:
    return str(event.get("subject") or event["source"])[:200]


def _event(response: Response, values: Mapping[str, Any]) -> dict[str, Any]:
    """A response as a CloudEvent about its provider."""
    return {
        "specversion": "1.0",
        "id": f"{response.id.origin}-{response.id.number}",
        "type": RESPONSE_TYPE,
        "source": "nodes",
        "subject": response.provider,
        "data": {**values, **placed(response.place), "within": response.within},
    }
