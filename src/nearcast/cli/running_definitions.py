"""The definitions of a running system, read and changed over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from nearcast.cli.system import refusal, something_else, unreachable
from nearcast.errors import Mark, SetupError
from nearcast.language.definitions.document_differences import KINDS, Document, DocumentDifference, Documents
from nearcast.language.definitions.zone_documents import read_zone_shapes, zone_rule_document, zone_shapes_data
from nearcast.model.changes import ZoneShapesChange
from nearcast.model.limits import Limits
from nearcast.model.zone import Zone, ZoneLayer

AT_ONCE = 16
"""Changes of one kind that are under way together: the server writes what comes together as one."""

PATIENCE = 600.0
"""Seconds for which a change is asked for again that the server has no room for yet."""

SECONDS = 60.0


class RunningDefinitions:
    """What an access server knows, and what it is asked to change. Raises SetupError where it refuses."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.AsyncClient(base_url=self._url, headers=headers, timeout=SECONDS)

    async def __aenter__(self) -> RunningDefinitions:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._http.aclose()

    async def settings(self) -> Document:
        """The settings as they are."""
        found: Document = await self._asked("GET", "/settings")
        return found

    async def documents(self) -> Documents:
        """All that has an id, by kind; of zones the rules of their layers."""
        found = {kind: {one["id"]: one for one in await self._asked("GET", f"/{kind}")} for kind in KINDS}
        for layer in found["zones"].values():
            del layer["count"], layer["zones"]
        return found

    async def layer(self, rule: Document, limits: Limits) -> ZoneLayer:
        """A layer with its zones."""
        id, zones = rule["id"], dict[str, Zone]()
        after: int | None = 0
        while after is not None:
            page = await self._asked("GET", f"{_path('zones', id)}/features?after={after}")
            after = page.pop("next")
            change = read_zone_shapes(page, limits, Mark(f"zones {id}"))
            zones |= {zone.name: zone for zone in change.zones}
        return ZoneLayer(zone_rule_document(rule, Mark(f"zones {id}"), limits), zones)

    async def change(self, differences: Iterable[DocumentDifference], done: Callable[[int], None]) -> None:
        """Makes the differences, kind by kind; `done` is told of each."""
        free = asyncio.Semaphore(AT_ONCE)

        async def one(difference: DocumentDifference) -> None:
            """Makes one."""
            async with free:
                if difference.after is None:
                    await self._asked("DELETE", _path(difference.kind, difference.id))
                else:
                    await self._asked("PUT", _path(difference.kind, difference.id), difference.after)
            done(1)

        for those in _by_kind(differences):
            async with asyncio.TaskGroup() as group:
                for difference in those:
                    group.create_task(one(difference))

    async def change_zones(self, changes: Iterable[ZoneShapesChange], done: Callable[[int], None]) -> None:
        """Makes changes of zones, one behind the other."""
        for change in changes:
            data = zone_shapes_data(change)
            await self._asked("PUT", f"{_path('zones', data.pop('layer'))}/features", data)
            done(1)

    async def _asked(self, method: str, path: str, document: Document | None = None) -> Any:
        body = None if document is None else orjson.dumps(document)
        headers = {} if body is None else {"Content-Type": "application/json"}
        until = monotonic() + PATIENCE
        while True:
            try:
                answer = await self._http.request(method, path, content=body, headers=headers)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise unreachable(self._url, error) from error
            again = answer.headers.get("Retry-After", "")
            if answer.status_code != 503 or not again.isdigit() or monotonic() > until:
                break
            # What takes the others long enters slowly while they publish.
            await asyncio.sleep(int(again))
        if answer.status_code >= 400:
            raise SetupError(f"{method} {path}: {refusal(answer)}")
        try:
            return answer.json()
        except ValueError:
            raise something_else(self._url, path, answer) from None


def _path(kind: str, id: str) -> str:
    return f"/{kind}/{quote(id, safe='')}" if id else f"/{kind}"


def _by_kind(differences: Iterable[DocumentDifference]) -> Iterator[list[DocumentDifference]]:
    """Those that follow each other and are of one kind."""
    those: list[DocumentDifference] = []
    for difference in differences:
        if those and (those[0].kind != difference.kind or (those[0].after is None) != (difference.after is None)):
            yield those
            those = []
        those.append(difference)
    if those:
        yield those
