"""Names in paths: a client may be called `fleet/van-7`, so a slash within a name is not one between names.

Servers decode a path before it is routed, and then `%2F` looks like `/`. Here it stays encoded until there is a route.
"""

from __future__ import annotations

import re
from typing import cast
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

KEPT = re.compile("(%2f|%25)", re.IGNORECASE)
"""What stays encoded: the slash, and the percent sign, else `%252F` would become a slash as well."""

ID = "{id:name}"
"""A name in the path of a route: one part of it, with any character."""


class PathNameConvertor(Convertor[str]):
    """What `ID` stands for."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """The name that a part of a path, as `PathNames` left it, stands for."""
        return unquote(value)

    def to_string(self, value: str) -> str:
        """A name as a part of a path."""
        return value.replace("%", "%25").replace("/", "%2F")


register_url_convertor("name", PathNameConvertor())


class PathNames:
    """Lets an application see paths whose slashes are those between names."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        raw = scope.get("raw_path")
        if raw and KEPT.search(text := cast(bytes, raw).decode("latin-1")):
            # At odd places is what was split at.
            parts = (part if place % 2 else unquote(part) for place, part in enumerate(KEPT.split(text)))
            scope = {**scope, "path": "".join(parts)}
        await self.app(scope, receive, send)
