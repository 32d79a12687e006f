"""How the server answers what it cannot take: JSON with what was expected, what came, where, and what to do."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from nearcast.errors import AccessError, DefinitionError, EventError, Fault, JournalError, Mark, RightError
from nearcast.server.content_coding import BrokenCoding, UnknownCoding
from nearcast.server.ingest.cloudevents_http import UnknownContent
from nearcast.server.ingest.group_commit import QueueFull

log = logging.getLogger(__name__)

_REQUEST = Mark("request")
_API = "GET /docs shows what there is"
_EXPECTED = {
    "bool_parsing": "true or false",
    "int_parsing": "an integer",
}
"""What is expected of a parameter, by how it failed."""


class BodyTooLarge(Exception):
    """A body beyond its limit in bytes."""

    def __init__(self, limit: int, came: str) -> None:
        self.fault = Fault(f"a body of at most {limit:,} bytes", came, _REQUEST, "send it in smaller parts")
        super().__init__(str(self.fault))


class BodyStalled(Exception):
    """A body of which nothing comes any more, or that is not whole in time; so many seconds were waited for."""

    def __init__(self, seconds: float, together: float | None = None) -> None:
        advice = "send what is there at once, in smaller parts over a slow link"
        if together is None:
            self.fault = Fault(f"some of the body every {seconds:g} seconds", "nothing", _REQUEST, advice)
        else:
            self.fault = Fault(f"the whole body within {together:g} seconds", "a part of it", _REQUEST, advice)
        super().__init__(str(self.fault))


class SessionTaken(Exception):
    """Another connection has the client's session, and this one did not say that it takes it over."""

    def __init__(self) -> None:
        advice = "connect with takeover=true to take it over"
        self.fault = Fault("a session that is free", "one in use", _REQUEST, advice)
        super().__init__(str(self.fault))


class NotFound(Exception):
    """Something that is not there; `fault` says what is."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(str(fault))


class FaultDocument(BaseModel):
    """What every refusal says, for OpenAPI: its first fault, and all of them as `faults`."""

    expected: str = Field(examples=["a known client"])
    came: str = Field(examples=["van-8"])
    where: str | None = Field(examples=["request"])
    advice: str | None = Field(examples=["GET /clients lists them"])
    line: int | None = Field(None, description="Counted from 1, where it is known.")
    column: int | None = None
    faults: list[dict[str, Any]] = Field(description="The first hundred of them.")
    more: int | None = Field(None, description="How many faults there are besides.")


REFUSED: dict[int | str, dict[str, Any]] = {
    "default": {"model": FaultDocument, "description": "Refused: what was expected, what came, and what to do."}
}


def fault_json(fault: Fault) -> dict[str, Any]:
    """A fault as JSON: expected, came, where, advice; line and column, counted from 1, where they are known."""
    where = fault.where
    found: dict[str, Any] = {
        "expected": fault.expected,
        "came": fault.came,
        "where": str(where) if where else None,
        "advice": fault.advice or None,
    }
    if where and where.line is not None:
        found["line"], found["column"] = where.line, where.column
    return found


MOST_FAULTS = 100
"""Faults that are told of one document: it may have one at each of its values."""


def faults_json(faults: list[Fault]) -> dict[str, Any]:
    """The first fault, and as `faults` all of them, or the first hundred, and how many more there are."""
    found = {**fault_json(faults[0]), "faults": [fault_json(fault) for fault in faults[:MOST_FAULTS]]}
    if len(faults) > MOST_FAULTS:
        found["more"] = len(faults) - MOST_FAULTS
    return found


def install(app: FastAPI) -> None:
    """Makes the app answer nearcast's errors; every one is counted by its reason."""

    def answer(kind: type[Exception], reason: str, status: int, headers: dict[str, str] | None = None) -> None:
        async def respond(request: Request, error: Exception) -> JSONResponse:
            faults = _faults(error)
            app.state.service.metrics.rejected.labels(reason).inc()
            # What fails for everybody is logged where it fails, not with each request.
            if status < 500:
                log.info("request refused path=%s reason=%s error=%r", request.url.path, reason, str(faults[0]))
            return JSONResponse(faults_json(faults), status, headers)

        app.add_exception_handler(kind, respond)

    async def astray(request: Request, error: Exception) -> JSONResponse:
        """Answers what no route takes: an unknown path, a method that the path does not have."""
        assert isinstance(error, HTTPException)
        app.state.service.metrics.rejected.labels("route").inc()
        methods = _methods(app, request) if error.status_code == 405 else []
        headers = {"Allow": ", ".join(methods)} if methods else error.headers
        return JSONResponse(faults_json([_astray(request, error, methods)]), error.status_code, headers)

    async def failed(request: Request, error: Exception) -> JSONResponse:
        """Answers where the server itself is wrong; what was raised is logged by who runs the application."""
        app.state.service.metrics.errors.labels("request").inc()
        advice = "it is a fault of the server; its log says more"
        fault = Fault("an answer", f"an error, {type(error).__name__}", _REQUEST, advice)
        return JSONResponse(faults_json([fault]), 500)

    async def gone(request: Request, error: Exception) -> Response:
        """Nobody hears the answer to a request that was broken off; nothing of it was taken."""
        app.state.service.metrics.rejected.labels("broken off").inc()
        log.info("request broken off path=%s", request.url.path)
        return Response(status_code=400)

    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(HTTPException, astray)
    app.add_exception_handler(Exception, failed)

    answer(AccessError, "token", 401, {"WWW-Authenticate": "Bearer"})
    answer(RightError, "right", 403)
    answer(DefinitionError, "definition", 422)
    answer(EventError, "event", 400)
    answer(RequestValidationError, "document", 422)
    answer(UnknownContent, "content type", 415)
    answer(UnknownCoding, "content coding", 415, {"Accept-Encoding": "gzip", "Connection": "close"})
    answer(BrokenCoding, "content coding", 400)
    # The rest of the body may be on its way still: nobody could tell it from the next request.
    answer(BodyTooLarge, "size", 413, {"Connection": "close"})
    answer(BodyStalled, "stalled", 408, {"Connection": "close"})
    answer(NotFound, "unknown", 404)
    answer(SessionTaken, "session", 409)
    answer(QueueFull, "busy", 503, {"Retry-After": "1"})
    answer(JournalError, "journal", 503, {"Retry-After": "5"})


def _faults(error: Exception) -> list[Fault]:
    match error:
        case DefinitionError(faults=faults):
            return faults
        case EventError(fault=fault) | UnknownContent(fault=fault) | NotFound(fault=fault):
            return [fault]
        case BodyTooLarge(fault=fault) | BodyStalled(fault=fault) | SessionTaken(fault=fault):
            return [fault]
        case UnknownCoding(fault=fault) | BrokenCoding(fault=fault):
            return [fault]
        case RequestValidationError():
            return [_validation(found) for found in error.errors()]
        case QueueFull():
            return [
                Fault("room for what came", "more than can be written just now", _REQUEST, "send it again in a second")
            ]
        case JournalError():
            return [
                Fault("a journal that takes it", str(error), Mark("journal"), "nothing was taken; send it again later")
            ]
    return [Fault("leave to do this", str(error), _REQUEST, "see NEARCAST_TOKENS")]


def _validation(found: dict[str, Any]) -> Fault:
    """What is wrong with a parameter of the path or query; bodies have readers of their own."""
    place, *names = (str(part) for part in found["loc"])
    name = ".".join(names)
    if found["type"] == "missing":
        return Fault(f"{name} in the {place}", "none", _REQUEST, f"for example: ?{name}=…" if place == "query" else "")
    expected = _EXPECTED.get(found["type"], str(found["msg"]))
    return Fault(f"{name}: {expected}", repr(found.get("input"))[:80], Mark(place))


def _methods(app: FastAPI, request: Request) -> list[str]:
    """The methods that a path has: of its routes, each of which is for one, the framework tells the first only."""
    methods = ("DELETE", "GET", "POST", "PUT")
    scope = request.scope
    return [
        one for one in methods if any(route.matches({**scope, "method": one})[0] is Match.FULL for route in app.routes)
    ]


def _astray(request: Request, error: HTTPException, methods: list[str]) -> Fault:
    came = f"{request.method} {request.url.path}"[:80]
    if error.status_code == 405:
        return Fault(f"{' or '.join(methods)} for this path", came, _REQUEST, _API)
    if error.status_code != 404:
        return Fault("a request that can be read", str(error.detail)[:80], _REQUEST, _API)
    advice = "in a name, write a slash as %2F" if request.url.path.count("/") > 2 else _API
    return Fault("a path that there is", came, _REQUEST, advice)
