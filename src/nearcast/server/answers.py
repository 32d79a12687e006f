"""How the server answers what it cannot take: JSON with what was expected, what came, where, and what to do."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from nearcast.errors import AccessError, DefinitionError, EventError, Fault, JournalError, Mark, RightError
from nearcast.server.binding import UnknownContent
from nearcast.server.blocks import Full

log = logging.getLogger(__name__)


class TooLarge(Exception):
    """A body beyond its limit in bytes."""

    def __init__(self, limit: int, came: str) -> None:
        self.fault = Fault(f"a body of at most {limit:,} bytes", came, Mark("request"), "send it in smaller parts")
        super().__init__(str(self.fault))


class Unknown(Exception):
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
    faults: list[dict[str, Any]]


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


def faults_json(faults: list[Fault]) -> dict[str, Any]:
    """The first fault, and all of them as `faults`."""
    return {**fault_json(faults[0]), "faults": [fault_json(fault) for fault in faults]}


def install(app: FastAPI) -> None:
    """Makes the app answer nearcast's errors; every one is counted by its reason."""

    def answer(kind: type[Exception], reason: str, status: int, headers: dict[str, str] | None = None) -> None:
        async def respond(request: Request, error: Exception) -> JSONResponse:
            app.state.service.metrics.rejected.labels(reason).inc()
            log.info("request refused path=%s reason=%s error=%r", request.url.path, reason, str(error))
            return JSONResponse(faults_json(_faults(error)), status, headers)

        app.add_exception_handler(kind, respond)

    answer(AccessError, "token", 401, {"WWW-Authenticate": "Bearer"})
    answer(RightError, "right", 403)
    answer(DefinitionError, "definition", 422)
    answer(EventError, "event", 400)
    answer(RequestValidationError, "document", 422)
    answer(UnknownContent, "content type", 415)
    # The rest of the body may be on its way still: nobody could tell it from the next request.
    answer(TooLarge, "size", 413, {"Connection": "close"})
    answer(Unknown, "unknown", 404)
    answer(Full, "busy", 503, {"Retry-After": "1"})
    answer(JournalError, "journal", 503, {"Retry-After": "5"})

    async def unrouted(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        app.state.service.metrics.rejected.labels("path").inc()
        return JSONResponse(faults_json([_unrouted(request, error)]), error.status_code, error.headers)

    app.add_exception_handler(HTTPException, unrouted)


def _unrouted(request: Request, error: HTTPException) -> Fault:
    """What is wrong with a request that is for none of the routes."""
    if error.status_code == 404:
        return Fault("a path of the API", request.url.path[:80], Mark("request"), "/docs lists them")
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        return Fault(allowed, f"{request.method} {request.url.path[:80]}", Mark("request"), "/docs lists them")
    return Fault("a request that can be read", error.detail, Mark("request"))


def _faults(error: Exception) -> list[Fault]:
    match error:
        case DefinitionError(faults=faults):
            return faults
        case EventError(fault=fault) | UnknownContent(fault=fault) | TooLarge(fault=fault) | Unknown(fault=fault):
            return [fault]
        case RequestValidationError():
            return [_validation(found) for found in error.errors()]
        case Full():
            return [Fault("room for what came", "more than can be written just now", None, "send it again in a second")]
        case JournalError():
            return [Fault("a journal that takes it", str(error), None, "nothing was taken; send it again later")]
    return [Fault("leave to do this", str(error), Mark("request"), "see NEARCAST_TOKENS")]


def _validation(found: dict[str, Any]) -> Fault:
    place = ".".join(str(part) for part in found["loc"] if part != "body")
    return Fault(str(found["msg"]), f"{found.get('input')!r}"[:200], Mark(place or "request"))
