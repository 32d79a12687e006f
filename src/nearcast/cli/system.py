"""A whole system on this machine: access server and pipeline, supervised, and the definitions it begins with."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom
from typing import Any

import httpx

from nearcast.cli.options import JOURNAL, journal_path, state_path
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.supervisor import STOP_SECONDS, Supervisor, SystemPart
from nearcast.errors import DefinitionError, Fault, Mark, SetupError
from nearcast.journal.locations import Location, ids_of, journal_at
from nearcast.journal.seam import Journal
from nearcast.language.control_events import to_event
from nearcast.language.definitions.files import DefinitionSet
from nearcast.language.definitions.registry_rows import apply_event, control_events_of
from nearcast.model.changes import Change, ClientChange
from nearcast.model.columns import entered_events
from nearcast.model.event import MAIN
from nearcast.pipeline.base_snapshots import (
    STATED_SOURCE,
    registry_until,
    stated_until,
)
from nearcast.pipeline.snapshots import ready_file
from nearcast.runtime.file_lock import file_lock
from nearcast.state.registry import Registry

READY_SECONDS = 120.0
"""That server and pipeline are waited for unless told otherwise; a machine that does much else takes longer."""
STRETCH = 100_000


def opened_at(data: Path, location: Location | None, read_only: bool = False) -> Journal:
    """The journal of a data folder, or the one at a location, of which the folder has what saves time."""
    return journal_at(location or journal_path(data), read_only, ids_of(journal_path(data)))


def define(journal: Journal, definitions: DefinitionSet, node: str = MAIN) -> int:
    """Appends the changes that bring definitions about, without those that would change nothing; how many.

    `node` is the name of the server to which the definitions are given. Raises DefinitionError where there would be
    more than limits allow with them and what there is already.
    """
    registry, stated = registry_of(journal), stated_until(journal, journal.end("events"))
    asked = (_restated(registry, stated, change) for change in definitions.changes(node, registry.zones))
    needed = [change for change in asked if not _there(registry, change)]
    now = datetime.now(UTC)
    events = [to_event(change, uuid.uuid4().hex, STATED_SOURCE, now) for change in needed]
    if events:
        # What a server that was killed kept enters first: whatever is defined begins with where everything is.
        journal.release(node)
        journal.append("events", entered_events(events, node))
    return len(events)


def registry_of(journal: Journal) -> Registry:
    """The registry as of the end of the journal."""
    after, registry = registry_until(journal)
    for event in control_events_of(journal.row_ranges("events", after, journal.end("events"), STRETCH)):
        apply_event(registry, event)
    return registry


def _restated(registry: Registry, stated: Registry, change: Change) -> Change:
    """A change without what definitions said of a client before, and say again: there it may have changed since.

    How a client is, it says itself, and it goes on from there. What is new in a file counts, for it is the newest word.
    """
    if not isinstance(change, ClientChange) or change.client not in registry.clients:
        return change
    before = stated.clients.get(change.client)
    if before is None:
        return change
    readings = {name: value for name, value in (change.readings or {}).items() if before.readings.get(name) != value}
    return replace(
        change,
        role=None if change.role == before.role else change.role,
        task=None if change.task == before.task else change.task,
        readings=readings or None,
        place=None if change.place == before.place else change.place,
    )


def _there(registry: Registry, change: Change) -> bool:
    if fault := registry.refusal(change):
        raise DefinitionError(fault)
    after = registry.copy()
    after.apply(change)
    # Compared as a whole: a change that says again what holds already must not become an event.
    same = after == registry
    registry.apply(change)
    return same


@contextmanager
def running(
    data: Path,
    options: ServingOptions,
    master: str | None = None,
    metrics_port: int | None = None,
    begin: Callable[[], None] = lambda: None,
    location: Location | None = None,
    spark_properties: Path | None = None,
) -> Iterator[Supervisor]:
    """Server and pipeline of a data folder as supervised processes, ended when the block ends.

    `begin` is called before they start, when the folder is this process's own. `location` is that of the journal, if it
    is not in the folder; `spark_properties` a file of Spark's own settings.
    """
    with _locked(data) as lock:
        # One that was killed may have left it: the new pipeline would count as ready at once.
        ready_file(state_path(data)).unlink(missing_ok=True)
        if _answers(options.url):
            where = f"{options.host}:{options.port}"
            raise SetupError(f"expected {where} to be free, got another access server there; choose another --port")
        begin()
        pipeline = ["pipeline", "--data", str(data)]
        pipeline += ["--master", master] if master else []
        pipeline += ["--spark-properties", str(spark_properties)] if spark_properties else []
        pipeline += ["--metrics-port", str(metrics_port)] if metrics_port is not None else []
        server = ["server", "--data", str(data), *options.arguments()]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        # Not on a command line, which everybody sees.
        environment |= {JOURNAL: str(location)} if location else {}
        # The parts hold the folder too: if this process is killed, it is free only when they have ended.
        held = (lock,)
        parts = [
            SystemPart("server", server, environment, held=held),
            SystemPart("pipeline", pipeline, without_secrets(environment), held=held),
        ]
        supervisor = Supervisor(parts)
        try:
            supervisor.start()
            yield supervisor
        finally:
            supervisor.stop()


SECRETS = ("NEARCAST_TOKEN", "NEARCAST_SECRET_")
"""What the names of environment variables begin with that only the access server, and clients, have use for."""


def without_secrets(environment: dict[str, str]) -> dict[str, str]:
    """An environment for the pipeline: its Java and its workers inherit it, and plug-ins run in them."""
    return {name: value for name, value in environment.items() if not name.startswith(SECRETS)}


def _locked(data: Path) -> AbstractContextManager[int]:
    """Holds the data folder until the descriptor is closed here and in every process that got it. Raises SetupError."""
    came = f"{data}, on which another nearcast runs"
    killed = f"if it was killed, its parts end within {STOP_SECONDS:.0f} s: try again then"
    return file_lock(data / "lock", "a free data folder", came, f"end it, or name another folder ({killed})")


def wait_until_ready(
    supervisor: Supervisor,
    url: str,
    data: Path,
    stopped: Callable[[], bool] = lambda: False,
    seconds: float = READY_SECONDS,
    location: Location | None = None,
) -> None:
    """Returns when the server answers and the pipeline reads on and has decided all that there was, or it is stopped.

    Raises SetupError after so many seconds, which says what is still waited for.
    """
    with closing(opened_at(data, location)) as journal:
        until = time.monotonic() + seconds
        wanted = journal.end("events")

        def ready() -> bool:
            """Whether the wait is over."""
            if stopped():
                return True
            missing = _missing(journal, url, data, wanted)
            if missing and time.monotonic() > until:
                raise SetupError(
                    f"expected server and pipeline to be ready within {seconds:g} s, got none yet: {missing};"
                    " the output above may tell why; --wait SECONDS waits longer"
                )
            return not missing

        supervisor.watch(ready)
    for part in supervisor.parts:
        part.proven = True


def _missing(journal: Journal, url: str, data: Path, wanted: int) -> str:
    """What is still to come before a system is ready; empty if nothing is."""
    if not ready_file(state_path(data)).exists():
        return "the pipeline has not begun to read; Spark is starting, or it folds what the journal has"
    decided = journal.end("deliveries")
    if decided < wanted:
        return f"the pipeline has decided {decided:,} of {wanted:,} events"
    return "" if _answers(url) else f"the access server does not answer at {url}"


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=1.0).status_code == 200
    except httpx.HTTPError:
        return False


def fetch(url: str, path: str, token: str | None, *names: str) -> dict[str, Any]:
    """What the access server answers to GET, an object that has these names, from JSON.

    Raises SetupError where it cannot be reached or refuses, and where something else answers.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(f"{url.rstrip('/')}{path}", headers=headers, timeout=10.0)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise unreachable(url, error) from error
    if answer.status_code >= 400:
        raise SetupError(f"{url}{path}: {refusal(answer)}")
    document = document_of(answer)
    if document is None or not document.keys() >= set(names):
        raise something_else(url, path, answer)
    return document


def require_server(urls: Sequence[str]) -> None:
    """Returns where an access server answers at one of some URLs. Raises SetupError, of the last, where none does."""
    for at, url in enumerate(urls, 1):
        try:
            fetch(url, "/health", None, "healthy")
            return
        except SetupError:
            # One that does not work just now may be gone to later.
            if at == len(urls):
                raise


def unreachable(url: str, error: Exception) -> SetupError:
    """What is raised where nobody answers."""
    came = str(error) or type(error).__name__
    return SetupError(
        f"expected an access server at {url}, got {came}; start one with `nearcast up`, or say where with --url"
    )


def something_else(url: str, path: str, answer: httpx.Response) -> SetupError:
    """What is raised where somebody answers who is no access server."""
    return SetupError(
        f"expected an access server at {url}, got something else that answers {path}: {answer.text[:100]!r};"
        " is the address right?"
    )


def document_of(answer: httpx.Response) -> dict[str, Any] | None:
    """The JSON object that was answered, if it is one."""
    try:
        document = answer.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def refusal(answer: httpx.Response) -> str:
    """What an answer says of why there is none."""
    try:
        document = answer.json()
        if answer.status_code in (401, 403):
            return str(document["came"])
        where = Mark(document["where"]) if document["where"] else None
        return str(Fault(document["expected"], document["came"], where, document["advice"] or ""))
    except (ValueError, KeyError, TypeError):
        return f"expected an answer, got status {answer.status_code}: {answer.text[:200]}"


PORTS = range(22_000, 32_768)
"""Below those of which a system gives one to each connection: such a one may be taken while a part starts again."""


def free_port() -> int:
    """A port of the loopback that was free a moment ago. Raises SetupError where none is."""
    for port in SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SetupError(f"expected a free port from {PORTS.start} to {PORTS.stop - 1}, got none; end what uses them")
