"""What of a publisher's events nobody wants: by the filters that the server forwards, asked for now and then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import httpx
import orjson

from nearcast.errors import DefinitionError, EventError, Mark
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.language.cloudevents import read_event
from nearcast.language.cql2 import parse
from nearcast.model.event import CONTROL_PREFIX
from nearcast.model.filter import Filter
from nearcast.model.limits import Limits
from nearcast.routing.filter_index import FilterIndex

log = logging.getLogger(__name__)

HOLDS_SECONDS = 1.0
"""So long holds what the server said."""
UNLIMITED = Limits(geometry_corners=2**53, geometry_work=2**53)
"""Who sends may take the time it takes: what the server allows is not known here."""

MOST = 64
"""An event that more filters may select is sent without a look at them."""
ANSWER_SECONDS = 2.0
"""Where it does not answer so soon, everything is wanted."""

Event = Mapping[str, Any]


class WantedFilters:
    """The filters that a server forwards; while it does not say, or says what cannot be read, everything is wanted."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self._http = httpx.AsyncClient(base_url=url, headers=headers)
        self._filters: dict[str, Filter] = {}
        self._index: FilterIndex | None = None
        self._tag = ""
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def wants(self, events: Sequence[Event]) -> list[bool]:
        """Of each event whether anybody may want it."""
        now = asyncio.get_running_loop().time()
        async with self._asking:
            if self._until <= now:
                await self._ask()
                self._until = now + HOLDS_SECONDS
        index = self._index
        return [index is None or selects(index, event) for event in events]

    async def move_to(self, url: str) -> None:
        """Asks another server from now on."""
        before, self._http = self._http, httpx.AsyncClient(base_url=url, headers=self._headers)
        await before.aclose()

    async def close(self) -> None:
        """Closes the connection."""
        await self._http.aclose()

    async def _ask(self) -> None:
        try:
            answer = await self._http.get(
                "/wanted/filters", headers={"If-None-Match": self._tag} if self._tag else {}, timeout=ANSWER_SECONDS
            )
            if answer.status_code == 304:
                return
            texts = answer.raise_for_status().json()["filters"]
            # There may be thousands: meanwhile others have their turn.
            self._index = await asyncio.to_thread(self._read, texts)
            self._tag = answer.headers.get("etag", "")
        except (httpx.HTTPError, ValueError, LookupError, TypeError, DefinitionError) as error:
            log.info("everything is sent, the server does not say what is wanted error=%r", error)
            self._index, self._tag = None, ""

    def _read(self, texts: Sequence[str]) -> FilterIndex:
        """The filters of these texts; those that were there before are not parsed again."""
        self._filters = {text: self._filters.get(text) or parse(text, Mark("wanted")) for text in texts}
        index = FilterIndex()
        for filter in self._filters.values():
            index.add_filter(filter)
        return index


def selects(index: FilterIndex, event: Event) -> bool:
    """Whether one of the filters selects an event, or it must be sent in any case."""
    try:
        # As it is sent: NaN, for one, is null then.
        read = read_event(orjson.loads(orjson.dumps(event)), Mark("event"), payload=b"")
    except (EventError, ValueError, TypeError):
        # The server says what is wrong with it.
        return True
    found = list(islice(index.for_event(read), MOST + 1))
    # To find out would cost more than to send it.
    if len(found) > MOST or read.type.startswith(CONTROL_PREFIX):
        return True
    return any(truth(filter, read, NO_CONTEXT, UNLIMITED) is True for filter in found)
