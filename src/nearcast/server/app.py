"""The access server as an application, and how to run it."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from urllib.parse import quote

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import RedirectResponse
from fastapi_offline import FastAPIOffline

import nearcast
from nearcast.errors import SetupError
from nearcast.journal.locations import ids_of, journal_at, shown_location
from nearcast.journal.seam import Journal
from nearcast.runtime.descriptors import room_for_connections
from nearcast.runtime.file_lock import file_lock
from nearcast.runtime.gc_settings import GC_THRESHOLDS
from nearcast.server import error_responses, ops
from nearcast.server.admin import dead_letters, management, reading_state
from nearcast.server.config import ServerConfig
from nearcast.server.connection_limits import OpenConnections
from nearcast.server.http_protocol import TokenFilter, protocols_for
from nearcast.server.ingest import lease_socket, publishing
from nearcast.server.ingest.publishing import PublishDirectly
from nearcast.server.path_names import PathNames
from nearcast.server.service import AccessServer
from nearcast.server.sessions import stream

log = logging.getLogger(__name__)

STOP_SECONDS = 5
SWITCH_SECONDS = 0.001
"""So long a thread that reads something large keeps Python's lock while the event loop waits for it, which it does at
each answer that it sends. By default it is five times as long.
"""
BACKLOG = 2048
"""Connections that may wait to be accepted, as many as uvicorn lets."""

DESCRIPTION = """
Publishes events, manages who wants what, and delivers: every event to whom it concerns, at the priority that the
receiver's context calls for. Receiving by WebSocket is at `/clients/{id}/stream`.
"""


def create_app(config: ServerConfig, journal: Journal | None = None) -> FastAPI:
    """The application; it opens the configured journal unless it is given one. Raises SetupError."""
    config.check()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        """Runs the service while the application runs."""
        opened = journal or journal_at(config.journal, ids=ids_of(config.beside))
        # A journal that was given may be one in memory, which a file beside it would outlive.
        settled = None if journal else config.beside.with_name(config.beside.name + "-settled")
        app.state.service = service = AccessServer(config, opened, settled)
        service.ending = getattr(app.state, "end", service.ending)
        try:
            await service.start()
        except SetupError as error:
            app.state.refused = error
            raise
        yield
        await service.stop()
        if journal is None:
            opened.close()

    # One page about the API is enough, and ReDoc's shows a picture from elsewhere.
    app = FastAPIOffline(
        title="nearcast",
        version=nearcast.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
        responses=error_responses.REFUSED,
    )
    # The innermost: around it are those of paths and of origins.
    app.add_middleware(PublishDirectly)
    app.add_middleware(PathNames)
    if config.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["*"],
            expose_headers=["ETag", "Retry-After"],
            allow_private_network=True,
        )
    error_responses.install(app)
    # What is so now before the rules: `/relations/active` is what holds, unless a relation is named so.
    for module in (publishing, lease_socket, reading_state, dead_letters, management, stream, ops):
        app.include_router(module.router)
    app.add_api_route("/", _home, include_in_schema=False)
    _describe_aside(app)
    return app


def _describe_aside(app: FastAPI) -> None:
    """Lets the description of the API be made in a thread: it takes a tenth of a second, and FastAPI's own route holds
    up everybody else meanwhile.
    """
    assert app.openapi_url is not None, "there is a description"
    own = [one for one in app.router.routes if getattr(one, "path", "") != app.openapi_url]
    app.router.routes[:] = own
    app.add_route(app.openapi_url, _description, include_in_schema=False)


async def _description(request: Request) -> Response:
    """The API as OpenAPI."""
    described = await asyncio.to_thread(_described, request.app, request.scope.get("root_path", "").rstrip("/"))
    return Response(described, media_type="application/json")


def _described(app: FastAPI, root: str) -> bytes:
    schema = app.openapi()
    return orjson.dumps({**schema, "servers": [{"url": root}]} if root else schema)


async def _home() -> RedirectResponse:
    """Who opens the server's address in a browser is shown what there is."""
    return RedirectResponse("docs")


def serve(config: ServerConfig, ready: Callable[[int], None] | None = None) -> None:
    """Runs the server until SIGTERM or SIGINT; `ready` hears the port once it listens. Raises SetupError, also where
    another process is the server of that name on that journal.

    Port 0 takes any free one.
    """
    with _alone(config):
        _serve(config, ready)


def _alone(config: ServerConfig) -> AbstractContextManager[int]:
    """Holds the server's name: two of one name would have the same mark of what is settled, and the same sessions."""
    journal, name = config.beside, quote(config.node, safe="")
    return file_lock(
        journal.with_name(f"{journal.name}-server-{name}"),
        f"no other access server {config.node!r} on {journal}",
        "one that runs",
        "end that one, or give this one another name with --node",
    )


def _serve(config: ServerConfig, ready: Callable[[int], None] | None) -> None:
    # Each look at all that is known stops every client for as long as it takes.
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
    listening = listen(config)
    port = listening.getsockname()[1]
    server = server_of(config if config.url else replace(config, url=url_where(config.host, port)))
    if ready:
        ready(port)
    log.info("server listening host=%s port=%d journal=%s", config.host, port, shown_location(config.journal))
    # It ends the process where the start failed, with a number alone.
    with suppress(SystemExit):
        server.run(sockets=[listening])
    state = server.config.app.state  # type: ignore[union-attr]
    failed = getattr(state, "refused", None) or getattr(getattr(state, "service", None), "failed", None)
    if failed:
        raise failed
    if not server.started:
        raise SetupError("expected the server to start, got an error while it did; the log above says which")


class Server(uvicorn.Server):
    """Uvicorn's server, which ends streams before it waits for them, and ends itself normally on a signal."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the clients' connections with a code, then everything else."""
        service: AccessServer | None = getattr(self.config.app.state, "service", None)  # type: ignore[union-attr]
        # There is none where the start failed.
        if service:
            await service.drain()
            await service.close_connections()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal that was obeyed is not raised again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def url_where(host: str, port: int) -> str:
    """The URL of a server that listens there, as others of its domain tell it clients; empty for all addresses: nobody
    knows which of them is reached from elsewhere.
    """
    if host in ("", "0.0.0.0", "::"):
        return ""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(config: ServerConfig, journal: Journal | None = None) -> Server:
    """A server that is not yet running; give it the socket of `listen`."""
    app = create_app(config, journal)
    limits = config.limits
    most = room_for_connections(limits.connections)
    if most < limits.connections:
        log.warning("fewer connections than configured connections=%d; raise the limit of file descriptors", most)
    open_connections = OpenConnections(most, min(limits.address_connections, most), limits.idle_connections)
    # The service, and its metrics with it, begins later than the first connection may come.
    open_connections.refused = lambda reason: app.state.service.metrics.rejected.labels(reason).inc()
    http, web_socket = protocols_for(limits, open_connections)
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(one, TokenFilter) for one in logger.filters):
        logger.addFilter(TokenFilter())
    server = Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            # With "auto" an error at the start would count as an application that has none.
            lifespan="on",
            http=http,
            ws=web_socket,
            timeout_keep_alive=limits.keep_alive_seconds,
            ws_max_size=config.limits.message_bytes,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
    )
    app.state.end = partial(setattr, server, "should_exit", True)
    return server


def listen(config: ServerConfig) -> socket.socket:
    """A socket that listens on the configured host and port. Raises SetupError."""
    config.check()
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as unless_listening:
            bound = unless_listening.enter_context(socket.socket(family, kind, protocol))
            # Else a restart would find the port taken by connections of its predecessor that are not quite gone.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            # Whoever connects from now on waits a moment instead of being refused.
            bound.listen(BACKLOG)
            unless_listening.pop_all()
    except OSError as error:
        raise SetupError(
            f"expected to listen on {config.host}:{config.port}, got {error.strerror or error};"
            " another program may use the port: end it or choose another port"
        ) from error
    return bound
