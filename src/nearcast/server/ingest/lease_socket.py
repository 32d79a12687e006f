"""Lending guards: a WebSocket over which a publisher hears which events of its subjects it need not send.

Server to client, each a JSON object: `{"hello": {"publisher": name, "seconds": s}, "channels": […]}` first, 0 seconds
where nothing is lent; `{"lease": {"id", "subject", "types", "after", "guards"}, "channels": […]}`; `{"recall": id}`;
`{"beat": n}`. By the channels entities are named, and the `subject` of a lease or of what is asked for is an entity.
Client to server: `{"ask": {"subject", "types"}}`; `{"returned": {"id", "kept": CloudEvent or null}}`; `{"beat": n}`.

A publisher may hold back for that many seconds from when it sent the last beat that was answered. With what it sends by
`POST /events` it gives its name in `Nearcast-Publisher` and the leases that end with it in `Nearcast-Returned`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson
from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from nearcast.errors import AccessError, EventError, Mark, RightError
from nearcast.language.cloudevents import read_event
from nearcast.model.event import Event
from nearcast.server import clock
from nearcast.server.access import AccessToken
from nearcast.server.auth import admit, service_of
from nearcast.server.ingest.lease_manager import Messages, channels_json
from nearcast.server.service import AccessServer
from nearcast.server.sessions.session import GOING_AWAY, NORMAL
from nearcast.server.sessions.stream import NO_RIGHT, NO_TOKEN

log = logging.getLogger(__name__)

router = APIRouter(tags=["publish"])


@router.websocket("/guards")
async def guards(socket: WebSocket) -> None:
    """Lends guards to one publisher, as long as it is connected."""
    service = service_of(socket)
    # Also who is refused is let in first: before that a client is told no code and no reason.
    await socket.accept()
    refusal = _refusal(socket, service)
    if refusal:
        service.metrics.rejected.labels("guards").inc()
        await socket.close(*refusal)
        return
    lease_manager = service.event_entry.lease_manager
    holder, messages = lease_manager.connect()
    seconds = lease_manager.leases.seconds if service.config.suppress else 0
    channels = channels_json(service.session_manager.registry.settings.channels)
    messages.put_nowait({"hello": {"publisher": holder, "seconds": seconds}, "channels": channels})
    log.info("publisher connected publisher=%s", holder)
    sending = asyncio.create_task(_send(socket, messages))
    try:
        while True:
            await _hear(await socket.receive_text(), holder, messages, service, admit(socket, "publish", stream=True))
    except (WebSocketDisconnect, RuntimeError):
        pass
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        service.metrics.rejected.labels("guards").inc()
        log.info("message refused publisher=%s error=%r", holder, error)
        with suppress(RuntimeError, OSError, WebSocketDisconnect):
            await socket.close(4400, "expected ask, returned or beat")
    finally:
        lease_manager.disconnect(holder)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        log.info("publisher gone publisher=%s", holder)


def _refusal(socket: WebSocket, service: AccessServer) -> tuple[int, str] | None:
    try:
        admit(socket, "publish", stream=True)
    except RightError:
        return NO_RIGHT, "expected a token with the right to publish"
    except AccessError:
        return NO_TOKEN, "expected a token with the right to publish"
    return (GOING_AWAY, "the server is going away; come back") if service.stopping else None


async def _send(socket: WebSocket, messages: Messages) -> None:
    with suppress(WebSocketDisconnect, RuntimeError, OSError):
        while (message := await messages.get()) is not None:
            await socket.send_text(orjson.dumps(message).decode())
            if message.get("hello", {}).get("seconds") == 0:
                await socket.close(NORMAL, "nothing is held back here")
                return
        await socket.close(GOING_AWAY, "the server is going away; come back")


async def _hear(text: str, holder: str, messages: Messages, service: AccessServer, token: AccessToken | None) -> None:
    """Takes one message. Raises KeyError, TypeError, ValueError where it is none."""
    message: Mapping[str, Any] = orjson.loads(text)
    lease_manager = service.event_entry.lease_manager
    if "beat" in message:
        # A number, as it is sent back: what waits for a publisher that does not read has to be small.
        beat = int(message["beat"])
        if lease_manager.note_heartbeat(holder):
            messages.put_nowait({"beat": beat})
    elif "ask" in message:
        ask = message["ask"]
        lease_manager.ask(holder, str(ask["subject"]), [str(one) for one in ask["types"]])
    else:
        returned = message["returned"]
        came = returned["kept"]
        kept = None if came is None else await service.reading.of(len(text), _kept, came, service, token)
        lease_manager.came(holder, int(returned["id"]), kept)


def _kept(document: Any, service: AccessServer, token: AccessToken | None) -> Event | None:
    """What a publisher kept; None, and a line in the log, where it is no event."""
    try:
        settings, accepted = service.session_manager.registry.settings, clock.moment(clock.now())
        longest, payload = settings.limits.name_length, orjson.dumps(document)
        event = read_event(document, Mark("guards"), settings.channels, accepted, payload, longest)
        if token:
            token.check_event(event.source, event.type, Mark("guards"))
    except EventError as error:
        service.metrics.rejected.labels("event").inc()
        log.warning("kept event refused error=%r", str(error))
        return None
    return None if event.control else event
