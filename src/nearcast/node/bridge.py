"""A bridge: a node through which ad hoc nodes and an access server exchange requests and responses.

From the nodes to the server: a request that the bridge takes becomes a subscription there, for as long as it holds;
what the server delivers goes out as responses. From the server to the nodes: an event of type `context.request`, which
the bridge's client is subscribed to, goes out as a request, and again while it holds; responses to it are published
as `context.response`, and so is the end of what they told.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx

from nearcast.client import Client, Delivery, Publisher
from nearcast.errors import AccessError, DefinitionError, Fault, Mark, NearcastError, SessionError, SetupError
from nearcast.foraging.neighbour_shares import NeighbourShares
from nearcast.language.cql2 import write
from nearcast.language.definitions.client_documents import place_of
from nearcast.model.event import Place
from nearcast.model.filter import And, Atom, Distance, Filter, Not, Operator, Or, This
from nearcast.model.foraging import Message, MessageId, Request, Response
from nearcast.model.values import Value, time_of
from nearcast.node.definition import BridgeDefinition
from nearcast.node.event_loop import NodeEventLoop
from nearcast.node.published_values import PublishedValues, ValueReport
from nearcast.node.server_requests import ServerRequests
from nearcast.node.wire import placed, requested

log = logging.getLogger(__name__)

REQUEST_TYPE, RESPONSE_TYPE = "context.request", "context.response"
MOST_SUBSCRIPTIONS = 400
"""Requests that are subscriptions at the server at one time, of which each neighbour has a share; more are counted and
wait for their next time."""
SWEEP_SECONDS = 0.5
MOST_WAITING = 2_000
"""Messages that wait to be brought to the server, of which each neighbour has a share."""


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
        # Until when each subscription is wanted, and by whom.
        self._until: dict[str, tuple[float, str]] = {}
        self._subscribed = NeighbourShares(MOST_SUBSCRIPTIONS)
        self._asked = ServerRequests(definition.repeat)
        self._published, self._publishing = PublishedValues(), asyncio.Lock()
        self._work: asyncio.Queue[tuple[Message, str, float]] = asyncio.Queue()
        self._waiting = NeighbourShares(MOST_WAITING)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Bridge:
        try:
            await self._introduce()
        except (httpx.HTTPError, NearcastError) as error:
            await self._close()
            url = self._definition.url
            raise SetupError(f"expected an access server at {url} to bridge to, got {error}; is it up?") from None
        self._tasks = [
            asyncio.create_task(work) for work in (self._listen(), self._carry(), self._sweep(), self._repeat())
        ]
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
        # What is published takes time where the server is not there: then there is nobody to take leave of.
        self._publisher.patience = 0.0
        with suppress(httpx.HTTPError, NearcastError):
            await self._tell(self._published.everything)
        with suppress(httpx.HTTPError, NearcastError):
            for id in (*self._until, f"{self._definition.client}-requests"):
                await self._delete(id)
        await self._close()

    async def _close(self) -> None:
        await self._client.close()
        await self._publisher.close()
        await self._http.aclose()

    def bridge_message(self, message: Message, sender: str) -> None:
        """Takes a message that the node has taken from others; what is more than its sender's share is counted."""
        if self._waiting.hold(sender):
            self._work.put_nowait((message, sender, self._runtime.clock()))
        else:
            self._count("bridge overrun")

    async def _carry(self) -> None:
        """Brings messages of nodes to the server."""
        while True:
            message, sender, heard = await self._work.get()
            self._waiting.release(sender)
            try:
                if isinstance(message, Request):
                    await self._subscribe(message, sender, heard)
                else:
                    await self._publish(message, sender, heard)
            except (httpx.HTTPError, NearcastError) as error:
                self._count("bridge failed")
                log.warning("not brought to the server message=%s error=%r", message.id, str(error))

    async def _subscribe(self, request: Request, sender: str, heard: float) -> None:
        # Others' requests have been registered on hearing them; one's own nobody hears.
        if request.id.origin == self._runtime.node.id:
            self._runtime.node.provider.register(request, self._runtime.clock())
        wanted = tuple(one for one in request.conditions if one.name in self._definition.classes)
        if not wanted:
            return
        id = self._name(request, wanted)
        if id not in self._until:
            if not self._subscribed.admits(sender):
                self._count("bridge full")
                return
            document = {"client": self._definition.client, "filter": write(_filter(request, wanted))}
            await self._put("subscriptions", id, document)
            self._subscribed.hold(sender)
            self._count("bridge subscribed")
        # Asked again, it goes on: no request to the server for each that nodes send.
        _, asker = self._until.get(id, (0.0, sender))
        self._until[id] = (heard + request.valid, asker)

    def _name(self, request: Request, wanted: Sequence[Atom]) -> str:
        """A subscription's id: the same for the same question from the same place."""
        asked = f"{request.id.origin} {request.place} {request.within} {wanted}"
        return f"{self._definition.client}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"

    async def _publish(self, response: Response, sender: str, heard: float) -> None:
        """Publishes what the server had asked for, and its end; what nodes ask each other is theirs."""
        node = self._runtime.node

        def found(now: float) -> list[ValueReport]:
            def wanted(name: str, value: Value) -> bool:
                return self._asked.wants(name, value, now, node.above, node.situations)

            report = self._published.report(response, wanted, sender, heard, now)
            return [report] if report else []

        await self._tell(found, sender)

    async def _tell(self, found: Callable[[float], Sequence[ValueReport]], sender: str = "") -> None:
        """Publishes what is found to be told, one after the other: no end may overtake what begins anew."""
        async with self._publishing:
            now = self._runtime.clock()
            reports = found(now)
            if reports:
                await self._publisher.publish([_event(one, self._runtime.node.next_id(), now) for one in reports])
            for report in reports:
                self._published.note(report, sender)
                self._count("bridge ended" if report.ended else "bridge published")

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
        late = _late(event, now, node.manner.bounds.clocks)
        if not isinstance(data, dict):
            raise Fault("data with classes and values", repr(data)[:60], where)
        if event["type"] == REQUEST_TYPE:
            request = requested(data, where, node, self._runtime.place, now)
            request = replace(request, valid=request.valid - late)
            if request.valid <= 0:
                self._count("bridge outdated")
                return
            if not self._asked.hold(request, str(event.get("source")), now):
                self._count("bridge requests full")
                return
            self._runtime.broadcast([request])
            self._count("bridge asked")
            return
        # Others publish what they like under the name of a class, and an object compares with nothing.
        if late >= node.manner.fresh:
            self._count("bridge outdated")
            return
        told = [(name, data[name]) for name in self._definition.classes if name in data]
        readings = [(name, value) for name, value in told if isinstance(value, (bool, int, float, str))]
        answer = node.provider.answer(readings, now)
        place = place_of(data, where) or self._runtime.place
        for response in node.tell(answer, _entity(event), place, now, late):
            self._runtime.broadcast([response])
            # A node does not hear itself, but its own rules may have asked.
            node.learn(response, now)
            self._runtime.report_changes()
            self._count("bridge answered")

    async def _repeat(self) -> None:
        """Says the server's requests again: a provider that came, or began anew, meanwhile has not heard them."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            node = self._runtime.node
            for request in self._asked.due(self._runtime.clock()):
                self._runtime.broadcast([replace(request, id=node.next_id())])
                self._count("bridge repeated")

    async def _sweep(self) -> None:
        """Ends subscriptions whose requests have run out, and what was published and is heard of no more."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = self._runtime.clock()
            for id in [id for id, (until, _) in self._until.items() if until <= now]:
                self._subscribed.release(self._until.pop(id)[1])
                with suppress(httpx.HTTPError, NearcastError):
                    await self._delete(id)
            try:
                await self._tell(self._published.lapsed)
            except (httpx.HTTPError, NearcastError) as error:
                # It stays among what has lapsed, and is told when the server is there again.
                self._count("bridge failed")
                log.warning("ends not brought to the server error=%r", str(error))

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


def _late(event: Mapping[str, Any], now: float, clocks: float) -> float:
    """How many seconds an event was under way; a difference that clocks may have is none."""
    moment = time_of(str(event.get("time")))
    late = now - moment.timestamp() if moment else 0.0
    return late if late > clocks else 0.0


def _entity(event: Mapping[str, Any]) -> str:
    return str(event.get("subject") or event["source"])[:200]


def _event(report: ValueReport, id: MessageId, now: float) -> dict[str, Any]:
    """A report as a CloudEvent about its provider."""
    told: dict[str, Any] = {"valid": round(report.until - now, 3), "age": round(report.age, 3)}
    return {
        "specversion": "1.0",
        "id": f"{id.origin}-{id.number}",
        "type": RESPONSE_TYPE,
        "source": "nodes",
        "subject": report.provider,
        "data": {
            **report.values,
            **placed(report.place),
            "within": report.within,
            **({"ended": list(report.ended)} if report.ended else {}),
            **(told if any(value is not None for value in report.values.values()) else {}),
        },
    }
