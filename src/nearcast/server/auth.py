"""Who is let in, as dependencies of the routes; and what a browser may do to a server that asks for no token."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from nearcast.errors import AccessError
from nearcast.server.access import AccessToken, Right, allow, bearer
from nearcast.server.config import loopback
from nearcast.server.service import AccessServer

_scheme = HTTPBearer(auto_error=False, description="A token of NEARCAST_TOKENS; streams also take it as ?token=")


def service_of(connection: HTTPConnection) -> AccessServer:
    """The server that the application runs."""
    service: AccessServer = connection.app.state.service
    return service


def admit(connection: HTTPConnection, right: Right, client: str | None = None) -> AccessToken | None:
    """The token of a request that has the right; None where the server has no tokens. Raises AccessError."""
    service = service_of(connection)
    if not service.config.tokens:
        _refuse_other_sites(connection)
    presented = bearer(connection.headers.get("authorization"), connection.query_params.get("token"))
    return allow(service.config.tokens, presented, right, client)


def _refuse_other_sites(connection: HTTPConnection) -> None:
    """Without tokens, a page of another site, or a name that resolves to this machine, must not reach the server."""
    named, origin = connection.headers.get("host", "localhost"), connection.headers.get("origin")
    host = _host(f"//{named}")
    # What sends no Origin is no page of another site.
    source = _host(origin) if origin else "localhost"
    if not loopback(host) or not loopback(source):
        raise AccessError(f"expected a request from and to this machine, got origin {origin}, host {named}; use tokens")


def _host(url: str) -> str:
    """The host that a URL names; "" where it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


Presented = Annotated[HTTPAuthorizationCredentials | None, Depends(_scheme)]
"""Only for OpenAPI: `admit` reads the token itself, so that WebSockets and streams go the same way."""


def _publisher(connection: HTTPConnection, presented: Presented) -> AccessToken | None:
    return admit(connection, "publish")


def _manager(connection: HTTPConnection, presented: Presented) -> AccessToken | None:
    return admit(connection, "manage")


def _watcher(connection: HTTPConnection, presented: Presented) -> AccessToken | None:
    return admit(connection, "watch")


def _receiver(connection: HTTPConnection, presented: Presented, id: str) -> AccessToken | None:
    return admit(connection, "receive", id)


Publisher = Annotated[AccessToken | None, Depends(_publisher)]
Manager = Annotated[AccessToken | None, Depends(_manager)]
Watcher = Annotated[AccessToken | None, Depends(_watcher)]
Receiver = Annotated[AccessToken | None, Depends(_receiver)]
