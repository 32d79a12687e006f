"""Who is let in, as dependencies of the routes; and what a browser may do to a server that asks for no token."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from nearcast.errors import AccessError
from nearcast.server.access import AccessToken, Right, allow, bearer
from nearcast.server.origins import refusal
from nearcast.server.service import AccessServer

_scheme = HTTPBearer(auto_error=False, description="A token of NEARCAST_TOKENS; streams also take it as ?token=")


def service_of(connection: HTTPConnection) -> AccessServer:
    """The server that the application runs."""
    service: AccessServer = connection.app.state.service
    return service


def admit(
    connection: HTTPConnection, right: Right, client: str | None = None, stream: bool = False
) -> AccessToken | None:
    """The token of a request that has the right; None where the server has no tokens. Raises AccessError.

    A stream may carry its token in the address, for there browsers set no header; of other requests nobody looks there.
    """
    config = service_of(connection).config
    if not config.tokens and (refused := refusal(connection.headers, config.origins)):
        raise AccessError(refused)
    queried = connection.query_params.get("token") if stream else None
    return allow(config.tokens, bearer(connection.headers.get("authorization"), queried), right, client)


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


def _listener(connection: HTTPConnection, presented: Presented, id: str) -> AccessToken | None:
    return admit(connection, "receive", id, stream=True)


Publisher = Annotated[AccessToken | None, Depends(_publisher)]
Manager = Annotated[AccessToken | None, Depends(_manager)]
Watcher = Annotated[AccessToken | None, Depends(_watcher)]
Receiver = Annotated[AccessToken | None, Depends(_receiver)]
Listener = Annotated[AccessToken | None, Depends(_listener)]
"""A receiver by a stream."""
