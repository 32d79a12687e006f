"""Receiving: a WebSocket, or server-sent events with acknowledgements by POST.

Server to client, each a JSON object: `{"hello": {…}}` first; `{"delivery": position, "priority", "subscription",
"level", "attempt", "event": CloudEvent}`; `{"settled": [positions]}` once acknowledgements are durable;
`{"notice": {…}}`; `{"ping": t}`, `{"pong": t}`. Client to server, several in one message if wanted:
`{"ack": [positions]}`, `{"readings": {name: number}}`, `{"position": {"x", "y"} or {"lon", "lat"}}`,
`{"role": …, "task": …}`, `{"ping": t}`, `{"pong": t}`.

Only an acknowledgement settles a delivery: priorities reorder, so the id of the last one received (Last-Event-ID) says
nothing about those before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.requests import HTTPConnection
from starlette.types import Message
from starlette.websockets import WebSocketState

from nearcast.errors import AccessError, DefinitionError, EventError, Fault, JournalError, Mark, RightError
from nearcast.model.sequence import read_sequence, write_sequence
from nearcast.server import clock
from nearcast.server.auth import Listener, Receiver, admit, service_of
from nearcast.server.error_responses import NotFound, SessionTaken, fault_json
from nearcast.server.path_names import ID
from nearcast.server.service import AccessServer
from nearcast.server.sessions.client_updates import HELD_SECONDS, SAYABLE
from nearcast.server.sessions.session import GOING_AWAY, NORMAL, TAKEN_OVER, ClientGone, Connection, Pump, Session
from nearcast.server.sessions.waiting_row import waiting_row

log = logging.getLogger(__name__)

router = APIRouter(tags=["receive"])

NO_TOKEN, NO_RIGHT, NO_CLIENT = 4401, 4403, 4404
MOST_POSITIONS = 10_000
REASON_BYTES = 123
SHOWN = 80
"""Characters of what came that are repeated."""
PROBE_SECONDS = 0.5
"""Between two pings while acknowledgements are awaited."""
CLOSE_SECONDS = 2.0
"""So long a server that ends waits for links that take nothing any more."""
QUIET_SECONDS = 4 * HELD_SECONDS
"""After so long without a word nothing is on its way that was said already: longer than who says too much is held."""
LAST_WORDS_SECONDS = 1.0
"""So long a server that ends hears who goes on."""


class Socket(Connection):
    """A WebSocket."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self.follows = _redirects(socket) is not None
        self.heard = 0.0
        """When the last message came."""

    async def send(self, text: str, position: int | str | None) -> None:
        """See `Connection.send`."""
        try:
            await self.socket.send_text(text)
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise ClientGone from error

    async def receive(self) -> Message:
        """The next message of the client, or that it has gone. Raises RuntimeError where it had gone before."""
        message = await self.socket.receive()
        self.heard = clock.steady()
        return message

    async def hear_out(self) -> None:
        """See `Connection.hear_out`: beyond its close nothing is read of a connection, nor what was sent before it."""
        latest = clock.steady() + LAST_WORDS_SECONDS
        while clock.steady() < min(latest, self.heard + QUIET_SECONDS):
            await asyncio.sleep(QUIET_SECONDS / 4)

    async def close(self, code: int, reason: str) -> None:
        """See `Connection.close`."""
        if self.socket.application_state is not WebSocketState.DISCONNECTED:
            # Where what was sent before does not get away, neither does this: a timeout is an OSError.
            with suppress(RuntimeError, OSError, WebSocketDisconnect):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.socket.close(code, reason)


@router.websocket(f"/clients/{ID}/stream")
async def stream(socket: WebSocket, id: str) -> None:
    """The session of a client over a WebSocket; see `SessionManager.connect` for who else may have it."""
    service = service_of(socket)
    # Also who is refused is let in first: before that a browser is told no code and no reason.
    await socket.accept()
    connection = Socket(socket)
    refusal = await _refusal(socket, service, id)
    if refusal is None and (elsewhere := service.domain.other_server(_redirects(socket))):
        if connection.follows:
            await connection.send_elsewhere(*elsewhere)
            return
        refusal = GOING_AWAY, _fitting(f"this server {_ELSEWHERE[elsewhere[1]]}; go to {elsewhere[0]}")
    refusal = refusal or await _claimed(socket, service, id)
    if refusal:
        service.metrics.rejected.labels("stream").inc()
        await connection.close(*refusal)
        return
    session = service.session_manager.connect(id, connection, "websocket", _holder(socket))
    log.info("client connected client=%s kind=websocket session=%d", id, session.connections)
    service.client_updates.begin(session, service.domain.moved_here(id))
    # Two tasks: what a client says is heard also while sending waits for its slow link.
    sending = asyncio.create_task(_pump(session, connection, service))
    pinging = asyncio.create_task(_ping(session, connection, service))
    try:
        await _listen(session, connection, service)
    except JournalError as error:
        # Of what it acknowledged some is not looked up: it says so again when it comes back.
        await connection.close(GOING_AWAY, _fitting(str(error)))
    finally:
        service.session_manager.disconnect(session, connection)
        # The pump looks whether it still has the session, and ends.
        session.wake()
        sending.cancel()
        pinging.cancel()
        await asyncio.gather(sending, pinging, return_exceptions=True)
        log.info("client gone client=%s kind=websocket", id)


_ELSEWHERE = {"drain": "lets no new session in", "full": "is full", "balance": "has less room"}


async def _claimed(socket: WebSocket, service: AccessServer, id: str) -> tuple[int, str] | None:
    """Has the session for a connection; else the code and reason with which that is refused."""
    if service.domain.full():
        return GOING_AWAY, "this server is full; come back"
    try:
        await service.domain.claim(id, _holder(socket), _takes(socket))
    except SessionTaken as error:
        return TAKEN_OVER, _fitting(str(error.fault))
    except JournalError as error:
        return GOING_AWAY, _fitting(str(error))
    return (GOING_AWAY, "the server is going away; come back") if service.stopping else None


async def _refusal(socket: WebSocket, service: AccessServer, id: str) -> tuple[int, str] | None:
    """The code and reason with which a connection is refused; None if it is not."""
    try:
        admit(socket, "receive", id, stream=True)
    except RightError as error:
        return NO_RIGHT, _fitting(str(error))
    except AccessError as error:
        return NO_TOKEN, _fitting(str(error))
    if service.stopping:
        return GOING_AWAY, "the server is going away; come back"
    if not await service.domain.known(id):
        return NO_CLIENT, _fitting(f"expected a known client, got {id[:40]}; declare it with PUT /clients")
    return None


def check_free(connection: HTTPConnection, service: AccessServer, id: str) -> None:
    """Refuses a second connection of a client here, unless it says that it takes over, or is of the same holder. Raises
    SessionTaken.
    """
    if not _takes(connection) and not service.session_manager.free(id, _holder(connection)):
        raise SessionTaken


def _takes(connection: HTTPConnection) -> bool:
    """Whether whoever connects says that it takes the session over."""
    return connection.query_params.get("takeover", "false").lower() in ("true", "1", "yes")


def _redirects(connection: HTTPConnection) -> int | None:
    """How often whoever connects was sent on, if it says that it follows; whatever else it says is often enough."""
    told = connection.query_params.get("redirects")
    if told is None:
        return None
    return int(told) if told.isdecimal() and len(told) < SHOWN else 1_000_000


def _holder(connection: HTTPConnection) -> str | None:
    """By which name whoever connects knows itself again, if it says one."""
    name = connection.query_params.get("holder")
    return name[:SHOWN] if name else None


def _fitting(reason: str) -> str:
    """As much of a reason as fits a close frame (RFC 6455 §5.5): bytes, so a name in another script counts more."""
    return reason.encode()[:REASON_BYTES].decode(errors="ignore")


async def _pump(session: Session, connection: Connection, service: AccessServer) -> None:
    pump = Pump(
        session, connection, service.payloads, service.session_manager.sent, service.session_manager.record_outcomes
    )
    try:
        await pump.run()
    except ClientGone:
        pass
    except Exception:
        service.metrics.errors.labels("send").inc()
        log.exception("sending failed client=%s", session.client.id)
        await connection.close(1011, "sending failed; come back")


async def _ping(session: Session, connection: Connection, service: AccessServer) -> None:
    """Measures the round trip also of an idle connection, and what has arrived where acknowledgements are awaited."""
    reported = 0.0
    while session.connection is connection:
        now = clock.steady()
        if session.waiting.in_flight or now - reported >= service.config.limits.ping_seconds:
            reported = now
            session.tell({"ping": reported})
        session.sending.clear()
        if not session.waiting.in_flight:
            # Thousands may be connected to whom nothing is sent for long.
            with suppress(TimeoutError):
                await asyncio.wait_for(session.sending.wait(), service.config.limits.ping_seconds)
        await asyncio.sleep(min(PROBE_SECONDS, service.config.limits.ping_seconds))


async def _listen(session: Session, connection: Socket, service: AccessServer) -> None:
    while True:
        try:
            message = await connection.receive()
        except RuntimeError:
            return
        if message["type"] == "websocket.disconnect":
            return
        # Taken over: what the old connection still says counts no more.
        if session.connection is not connection:
            return
        # Some libraries send text in binary frames: what counts is that it is JSON.
        fault = await hear(message.get("text") or message.get("bytes") or b"", session, service)
        # Many messages come at once: between them others have their turn, and longer after what means nothing.
        await (_hold(service) if fault else asyncio.sleep(0))


async def _hold(service: AccessServer) -> None:
    """Lets who says too much wait; but not where the server ends, which has to hear what was said before that."""
    await asyncio.sleep(0 if service.stopping else HELD_SECONDS)


async def hear(text: str | bytes, session: Session, service: AccessServer) -> Fault | None:
    """Takes one message of a client; what is wrong with it is told, counted and returned, and nothing else stops."""
    try:
        await _hear(_message(text, service.config.limits.said_bytes), session, service)
        return None
    except (DefinitionError, EventError) as error:
        fault = error.faults[0] if isinstance(error, DefinitionError) else error.fault
    service.metrics.rejected.labels("message").inc()
    session.tell({"notice": {"fault": fault_json(fault)}})
    return fault


def _message(text: str | bytes, most: int) -> dict[str, Any]:
    """A message, of which what it says of its client is of so many bytes at most. Raises DefinitionError."""
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DefinitionError(Fault("JSON", error.msg, Mark("message", error.lineno, error.colno))) from error
    known = {"ack", "ping", "pong", *SAYABLE}
    if not isinstance(message, dict) or not message or not message.keys() <= known:
        unknown = islice((name for name in message if name not in known), 5) if isinstance(message, dict) else ()
        came = ", ".join(sorted(unknown)) if isinstance(message, dict) else type(message).__name__
        expected = f"an object with some of {', '.join(sorted(known))}"
        raise DefinitionError(Fault(expected, came[:SHOWN] or "nothing", Mark("message")))
    # What a client says of itself is read here, between what others say, and each of its values takes some time.
    if len(text) > most and any(name in message for name in SAYABLE):
        said = len(orjson.dumps({name: message[name] for name in SAYABLE if name in message}))
        if said > most:
            expected = f"readings, position, role and task of at most {most:,} bytes in one message"
            raise DefinitionError(Fault(expected, f"{said:,}", Mark("message"), "say it in several"))
    return message


async def _hear(message: dict[str, Any], session: Session, service: AccessServer) -> None:
    # Read first: a message that cannot be read does nothing at all.
    acknowledged = _sequences(message["ack"]) if "ack" in message else []
    if "ping" in message:
        session.tell({"pong": _small(message["ping"])})
    # Its own clock's time comes back, so the client's clock does not matter.
    if isinstance(message.get("pong"), float):
        now = clock.steady()
        session.pace.round_trip_taken(max(0.0, now - message["pong"]), now)
        session.pace.arrived(message["pong"], now)
    said = {name: message[name] for name in SAYABLE if message.get(name) is not None}
    held = bool(said) and service.client_updates.update(session, said)
    await _acknowledge(acknowledged, session, service)
    if held:
        await _hold(service)


async def _acknowledge(sequences: list[int], session: Session, service: AccessServer) -> None:
    unknown = await service.session_manager.acknowledge(session, sequences) if sequences else []
    if unknown:
        service.metrics.unknown_acknowledgements.inc(len(unknown))
        expected, came = (
            f"positions of deliveries to {session.client.id}",
            ", ".join(map(str, map(write_sequence, unknown[:5]))),
        )
        advice = f"{len(unknown)} in all; the others are taken" if len(unknown) > 5 else "the others are taken"
        raise DefinitionError(Fault(expected, came, Mark("message"), advice))


def _small(given: Any) -> Any:
    """What is sent back as it came: small, for a thousand of them may wait for a client that does not read."""
    if isinstance(given, (list, dict)) or len(str(given)) > SHOWN:
        raise DefinitionError(Fault(f"ping: a number or a text of at most {SHOWN}", _shown(given), Mark("message")))
    return given


def _shown(given: Any) -> str:
    """The beginning of what came, or how much of what it is: to write all of it may take long."""
    if isinstance(given, list):
        return f"a list of {len(given):,}"
    return f"an object of {len(given):,}" if isinstance(given, dict) else repr(given)[:SHOWN]


def _sequences(given: Any) -> list[int]:
    try:
        if isinstance(given, list) and len(given) <= MOST_POSITIONS:
            return [read_sequence(one) for one in given]
    except ValueError:
        pass
    what = f"ack: a list of at most {MOST_POSITIONS} positions, each as its delivery had it"
    advice = "that of a derived event is a text such as '12.1'"
    raise DefinitionError(Fault(what, _shown(given), Mark("message"), advice))


def _data_lines(text: str) -> str:
    """A JSON text as the field `data`: a line break, which payloads may have between values, begins another line."""
    return "\n".join(f"data: {line}" for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


class EventStream(Connection):
    """Server-sent events: what is sent is taken from `parts` by the response."""

    def __init__(self, follows: bool = False) -> None:
        self.follows = follows
        # Few: what is in here can no more be overtaken by something more urgent.
        self.parts: asyncio.Queue[str | None] = asyncio.Queue(maxsize=16)
        self.closed = False

    async def send(self, text: str, position: int | str | None) -> None:
        """See `Connection.send`."""
        if self.closed:
            raise ClientGone
        kind = "message" if position is None else "delivery"
        line = f"id: {position}\n" if position is not None else ""
        await self.parts.put(f"{line}event: {kind}\n{_data_lines(text)}\n\n")

    async def close(self, code: int, reason: str) -> None:
        """See `Connection.close`; the reason is the last event."""
        if not self.closed:
            self.closed = True
            last = orjson.dumps({"code": code, "reason": reason}).decode()
            # Room for the last word; what is dropped is not acknowledged, so it comes again.
            while self.parts.full():
                self.parts.get_nowait()
            self.parts.put_nowait(None if code == NORMAL else f"event: close\ndata: {last}\n\n")


@router.get(f"/clients/{ID}/events", response_class=StreamingResponse)
async def events(
    id: str,
    request: Request,
    token: Listener,
    service: Annotated[AccessServer, Depends(service_of)],
    takeover: Annotated[bool, Query(description="Take the session from another connection of this client.")] = False,
    holder: Annotated[str | None, Query(description="A name by which a new connection is known for its own.")] = None,
    redirects: Annotated[
        str | None, Query(description="0 says that it goes to another server when told to; counted up by servers.")
    ] = None,
) -> Response:
    """The deliveries of a client as server-sent events, for browsers; acknowledge with POST /clients/{id}/acks."""
    if not await service.domain.known(id):
        _check_known(service, id)
    elsewhere = service.domain.other_server(_redirects(request))
    if elsewhere:
        return _sent_elsewhere(request, elsewhere[0])
    if service.domain.full():
        return _come_back("this server is full")
    check_free(request, service, id)
    return StreamingResponse(
        _event_stream(id, EventStream(_redirects(request) is not None), service, request),
        media_type="text/event-stream",
        # A proxy that gathers what passes, as nginx does, would hold deliveries back.
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _sent_elsewhere(request: Request, url: str) -> Response:
    """Answers that the stream is at another server: the same path and query, of which the redirects are counted."""
    count = min((_redirects(request) or 0) + 1, 1_000_000)
    query = request.url.remove_query_params("redirects").include_query_params(redirects=count).query
    path = request.scope.get("raw_path", request.url.path.encode()).decode("latin-1")
    return Response(status_code=307, headers={"Location": f"{url.rstrip('/')}{path}?{query}"})


def _come_back(why: str) -> Response:
    fault = Fault("room for a session", why, Mark("request"), "come back later")
    return JSONResponse(fault_json(fault), 503, {"Retry-After": "1"})


async def _event_stream(
    id: str, connection: EventStream, service: AccessServer, request: Request
) -> AsyncIterator[str]:
    # Since it was asked another may have come, or have the session at another server.
    try:
        await service.domain.claim(id, _holder(request), _takes(request))
    except (SessionTaken, JournalError) as error:
        code = TAKEN_OVER if isinstance(error, SessionTaken) else GOING_AWAY
        await connection.close(code, str(getattr(error, "fault", error)))
        yield connection.parts.get_nowait() or ""
        return
    # Connected when the response begins: of a client that has left by then nothing remains.
    session = service.session_manager.session(id)
    sending = None
    try:
        service.session_manager.connect(id, connection, "sse", _holder(request))
        log.info("client connected client=%s kind=sse session=%d", id, session.connections)
        service.client_updates.begin(session, service.domain.moved_here(id))
        sending = asyncio.create_task(_pump(session, connection, service))
        while True:
            try:
                async with asyncio.timeout(service.config.limits.ping_seconds):
                    part = await connection.parts.get()
            except TimeoutError:
                part = ": still here\n\n"
            if part is None:
                return
            yield part
            if connection.closed and connection.parts.empty():
                return
    finally:
        connection.closed = True
        service.session_manager.disconnect(session, connection)
        if sending:
            sending.cancel()
        log.info("client gone client=%s kind=sse", id)


@router.post(f"/clients/{ID}/acks")
@router.post(f"/clients/{ID}/messages")
async def messages(
    id: str, request: Request, token: Receiver, service: Annotated[AccessServer, Depends(service_of)]
) -> JSONResponse:
    """The messages that a WebSocket carries, for clients that have none: `{"ack": [positions]}`, `{"readings": …}`."""
    _check_known(service, id)
    body = await service.bodies.read(request, service.config.limits.message_bytes)
    session = service.session_manager.session(id)
    fault = await hear(body, session, service)
    # Answered once the acknowledgements are durable, for there is no connection to say so later; with a fault as well,
    # for of several positions some may be wrong.
    await service.outcomes.submit([])
    if fault:
        raise DefinitionError(fault)
    return JSONResponse({"waiting": len(session.waiting.waiting), "in_flight": len(session.waiting.in_flight)})


@router.get(f"/clients/{ID}/waiting")
async def waiting(
    id: str, token: Receiver, service: Annotated[AccessServer, Depends(service_of)], limit: int = 100
) -> dict[str, Any]:
    """What waits for a client, most urgent first, at most `limit` of it; −1 is withheld. For people who look."""
    _check_known(service, id)
    session = service.session_manager.session(id)
    most = max(0, min(limit, 1_000))
    # By the remainder −1, withheld, comes last. Of a hundred thousand the first are looked for while others are served.
    found = partial(nsmallest, most, [*session.waiting.waiting.values()], lambda one: (one.priority % 1_000, one.turn))
    ordered = await asyncio.to_thread(found)
    return {
        "client": id,
        "connected": session.connection is not None,
        "context": session.context(service.session_manager.registry.settings),
        "queued": session.waiting.queued,
        "outcomes": dict(session.waiting.settled),
        "waiting": len(session.waiting.waiting),
        "in_flight": [write_sequence(one) for one in sorted(session.waiting.in_flight)],
        "first": [waiting_row(one) for one in ordered],
    }


def _check_known(service: AccessServer, id: str) -> None:
    if not service.session_manager.known(id):
        raise NotFound(Fault("a known client", id[:80], Mark("request"), "declare it with PUT /clients/{id}"))
