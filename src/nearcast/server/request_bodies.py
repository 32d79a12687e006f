"""The bodies of requests: read within a limit each, and within one for all, however slowly they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.requests import ClientDisconnect

from nearcast.server.content_coding import is_packed, unpacked
from nearcast.server.error_responses import BodyStalled, BodyTooLarge
from nearcast.server.ingest.group_commit import QueueFull

DROPPED_BYTES = 16 << 20


class RequestBodies:
    """Reads bodies; `room` is for how many bytes of all that are still coming. Used from one event loop."""

    def __init__(self, room: int, stall_seconds: float, seconds: float = 300.0) -> None:
        self.room, self.stall_seconds, self.seconds = room, stall_seconds, seconds
        self.held = 0

    async def read(self, request: Request, limit: int) -> bytes:
        """The body of a request, unpacked if it comes packed, of which never more than the limit is held.

        Raises BodyTooLarge, BodyStalled, UnknownCoding, BrokenCoding; QueueFull where there is no room for it.

        Of a body that is too large some is read and dropped: who is still sending would not see the answer.
        """
        packed = is_packed(request.headers.get("content-encoding"))
        parts: list[bytes] = []
        size = held = 0
        try:
            async for part in _parts(request, self.stall_seconds, self.seconds):
                size += len(part)
                if size <= limit:
                    parts.append(part)
                    held += len(part)
                    self.held += len(part)
                    if self.held > self.room:
                        raise QueueFull
                elif size > limit + DROPPED_BYTES:
                    break
        finally:
            self.held -= held
        if size > limit:
            raise BodyTooLarge(limit, request.headers.get("content-length", "more"))
        body = b"".join(parts)
        if packed:
            body = await asyncio.to_thread(unpacked, body, limit)
            if len(body) > limit:
                raise BodyTooLarge(limit, "more, once it was unpacked")
        return body


async def _parts(request: Request, seconds: float, together: float) -> AsyncIterator[bytes]:
    """The parts of a body, each within so many seconds of the one before, and all together. Raises BodyStalled."""
    loop = asyncio.get_running_loop()
    latest = loop.time() + together
    more = True
    # The messages themselves: by way of the request's stream each part costs two more turns, and two more timers.
    while more:
        left = latest - loop.time()
        try:
            async with asyncio.timeout(min(seconds, left)):
                message = await request.receive()
        except TimeoutError:
            raise BodyStalled(seconds, together if left < seconds else None) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        more = message.get("more_body", False)
        yield message.get("body", b"")
