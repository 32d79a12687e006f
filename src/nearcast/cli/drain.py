"""Lets an access server end in an orderly way, from elsewhere: its clients go to the others of its domain."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import httpx

from nearcast.cli.output import pluralize, warn
from nearcast.cli.system import fetch, opened_at, refusal
from nearcast.errors import SetupError
from nearcast.journal.locations import Location, register_of

LOOK_SECONDS = 0.2
PATIENCE = 60.0
"""A server ends within so many seconds, or is said not to."""


def drain(where: str, data: Path, location: Location | None, token: str | None) -> None:
    """Asks a server, by its URL or its name, to end, and tells how far it is; returns when it has ended.

    Raises SetupError where there is none of that name, it refuses, or it does not end within `PATIENCE`.
    """
    url = where if "://" in where else _url_of(where, data, location)
    asked = _ask(url.rstrip("/"), token)
    name, left = asked["server"], int(str(asked["sessions"]))
    warn("note", f"{name} drains, {pluralize(left, 'session')} connected")
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        now = _left(url, token)
        if now is None:
            warn("note", f"{name} has ended")
            return
        if now != left:
            left = now
            warn("note", f"{name} drains, {pluralize(left, 'session')} left")
    raise SetupError(
        f"expected {name} at {url} to end within {PATIENCE:.0f} s, got {pluralize(left, 'session')} left there; its log"
        " says what it waits for"
    )


def _url_of(name: str, data: Path, location: Location | None) -> str:
    """Where the server of a name is reached. Raises SetupError where there is none."""
    with closing(opened_at(data, location)) as journal, closing(register_of(journal)) as register:
        records = register.records()
    found = next((one for one in records if one.name == name and not one.known_dead), None)
    if found is None:
        there = ", ".join(one.name for one in records if not one.known_dead) or "none"
        raise SetupError(f"expected the name or URL of an access server on this journal, got {name!r}; there: {there}")
    if not found.url:
        raise SetupError(
            f"expected {name!r} to say where it is reached, got nothing (--advertise); give its URL instead"
        )
    return found.url


def _ask(url: str, token: str | None) -> dict[str, object]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.post(f"{url}/drain", headers=headers, timeout=10.0)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SetupError(f"expected an access server at {url}, got {error}; has it ended already?") from error
    if answer.status_code != 202:
        raise SetupError(f"{url}/drain: {refusal(answer)}")
    found: dict[str, object] = answer.json()
    return found


def _left(url: str, token: str | None) -> int | None:
    """How many sessions are connected to a server; None where it does not answer any more."""
    try:
        return int(fetch(url, "/status", token, "sessions")["sessions"]["connected"])
    except SetupError:
        return None
