"""Runs what situations call for: follows the derived events, posts webhooks, calls Python actions.

At least once: the position up to which everything has been run, or given up, is kept in a small file; a server that
dies runs what came after it again. What does not succeed is tried again after growing pauses, and is a dead letter in
the end. The action is the one that its definition says now: an event names it, and holds no URL.

The body is the CloudEvent. `Idempotency-Key` is its id, what is not printable ASCII percent-encoded: who gets it again
has it already. `X-Nearcast-Signature` is `t=SECONDS,v1=HEX`: HMAC-SHA256 of `SECONDS.BODY` with the shared secret.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import JournalError
from nearcast.journal.seam import Journal
from nearcast.model.columns import to_events
from nearcast.model.event import Event
from nearcast.model.situation import ACTION_TYPE, PLUG_INS, Run, Webhook
from nearcast.runtime.backoff import backoff
from nearcast.runtime.error_log import RateLimitedErrorLog
from nearcast.runtime.file_lock import try_lock
from nearcast.runtime.plug_ins import plug_ins
from nearcast.server import clock
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions.outcomes import RefusedInput, note
from nearcast.state.registry import Registry

TIMEOUT_SECONDS = 10.0
AGAIN = frozenset({408, 425, 429})
"""Answers of the 400s after which it is worth trying again."""

LONGEST_PAUSE = 60.0

PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What a header may have as it is. Ids have the names of actions and situations in them, in any script."""


class ActionFailed(Exception):
    """An action did not succeed: why, whether to try again, and after how many seconds at least."""

    def __init__(self, reason: str, final: bool = False, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.final, self.pause = reason, final, pause


async def post(http: httpx.AsyncClient, webhook: Webhook, event: Event, seconds: int) -> None:
    """Posts an event once, `seconds` since 1970 being now. Raises `ActionFailed`."""
    secret = None
    if webhook.secret is not None:
        secret = os.environ.get(webhook.secret)
        if not secret:
            # Never unsigned: the receiver would have to take it from anybody.
            raise ActionFailed(
                f"expected the key of the signature in the environment variable {webhook.secret}, got none"
            )
    try:
        answer = await http.post(
            webhook.url, content=event.payload, headers=headers(event, secret, seconds), timeout=TIMEOUT_SECONDS
        )
    except httpx.HTTPError as error:
        raise ActionFailed(f"{type(error).__name__}: {error}") from error
    if answer.is_success:
        return
    final = answer.status_code < 500 and answer.status_code not in AGAIN
    raise ActionFailed(f"expected an answer of 200 to 299, got {answer.status_code}", final, _asked_pause(answer))


def headers(event: Event, secret: str | None, seconds: int) -> dict[str, str]:
    """The headers of a post."""
    found = {"Content-Type": "application/cloudevents+json", "Idempotency-Key": quote(event.id, safe=PLAIN)}
    if secret is not None:
        found["X-Nearcast-Signature"] = f"t={seconds},v1={signature(secret, seconds, event.payload)}"
    return found


def signature(secret: str, seconds: int, body: bytes) -> str:
    """The signature of a body at a time, hexadecimal."""
    return hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()


def _asked_pause(answer: httpx.Response) -> float:
    """The seconds for which the receiver asks to be left alone."""
    written = answer.headers.get("Retry-After", "")
    return min(float(written), LONGEST_PAUSE) if written.isdigit() else 0.0


log = logging.getLogger(__name__)

ATTEMPTS = 8
FIRST_PAUSE = 1.0
ROWS = 5_000
WAIT_SECONDS = 0.1
TURN_SECONDS = 1.0
AT_ONCE = 16
"""Actions that are run at the same time: a receiver that hangs holds up no other."""

Bury = Callable[[RefusedInput], None]


class ActionRunner:
    """Runs the actions of one journal. `path`: where the position is kept; None: nowhere, it begins at the end.

    `pause` are the seconds before the second attempt; each later pause is twice as long.
    """

    log = "derived"
    """The log that is followed."""

    def __init__(
        self,
        journal: Journal,
        registry: Registry,
        write_dead_letter: Bury,
        metrics: ServerMetrics,
        path: Path | None,
        pause: float = FIRST_PAUSE,
        error_log: RateLimitedErrorLog | None = None,
    ) -> None:
        self.journal, self.registry, self.metrics = journal, registry, metrics
        self._write_dead_letter, self._path, self._pause = write_dead_letter, path, pause
        self._error_log = error_log or RateLimitedErrorLog("journal")
        # Not asyncio's own threads: functions that hang would keep everything else that waits for the journal waiting.
        self._threads = ThreadPoolExecutor(AT_ONCE, "nearcast-actions")
        self._through = 0
        self._open: dict[asyncio.Task[None], int] = {}

    @property
    def through(self) -> int:
        """Up to this position nothing is left to be run."""
        return min([self._through, *(position - 1 for position in self._open.values())])

    async def run_again(self, payload: bytes) -> None:
        """Runs once what was given up, by the event that told of it. Raises `ActionFailed`."""
        told = json.loads(payload)
        event = Event(told["id"], told["type"], told["source"], told.get("subject"), payload=payload)
        async with httpx.AsyncClient(follow_redirects=False) as http:
            await self._once(event, told["data"], http)

    async def run(self) -> None:
        """Follows the log until it is cancelled; of several servers on one journal one at a time does."""
        with ExitStack() as turn:
            # Not waited for: a function that hangs would keep the server from ending.
            turn.callback(self._threads.shutdown, wait=False, cancel_futures=True)
            if self._path is not None:
                path = self._path.with_name(self._path.name + "-turn")
                # Held until it is closed, also by death: then the next server goes on from the mark.
                while (lock := try_lock(path)) is None:
                    await asyncio.sleep(TURN_SECONDS)
                turn.callback(os.close, lock)
            await self._follow()

    async def _follow(self) -> None:
        kept: int | None = None
        # Redirects lead to addresses that nobody declared.
        async with httpx.AsyncClient(follow_redirects=False) as http:
            while True:
                # A journal that fails for a while must not end this for good.
                try:
                    if kept is None:
                        self._through = kept = await asyncio.to_thread(self._read_mark)
                    await self._step(http)
                    if self.through != kept:
                        kept = self.through
                        await asyncio.to_thread(self._write_mark, kept)
                    self._error_log.works("actions")
                except (JournalError, OSError) as error:
                    self.metrics.errors.labels("actions").inc()
                    self._error_log.failed("actions", error)
                except Exception:
                    self.metrics.errors.labels("actions").inc()
                    log.exception("actions not followed position=%d", self._through)
                await asyncio.sleep(WAIT_SECONDS)

    async def _step(self, http: httpx.AsyncClient) -> None:
        end = await asyncio.to_thread(self.journal.end, self.log)
        while self._through < end:
            count = min(ROWS, end - self._through)
            for event in await asyncio.to_thread(self._calls, self._through, count):
                while len(self._open) >= AT_ONCE:
                    await asyncio.wait(self._open, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(self._attempts(event, http))
                self._open[task] = event.position
                task.add_done_callback(self._open.pop)
            self._through += count

    async def _attempts(self, event: Event, http: httpx.AsyncClient) -> None:
        """Runs one action until it succeeds, or is given up."""
        told = json.loads(event.payload)["data"]
        pauses = backoff(self._pause, LONGEST_PAUSE)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._once(event, told, http)
                self.metrics.actions.labels(told["effect"], "done").inc()
                return
            except ActionFailed as error:
                log.warning("action not run id=%r attempt=%d reason=%r", event.id, attempt, error.reason)
                if error.final or attempt == ATTEMPTS:
                    self.metrics.actions.labels(told["effect"], "given up").inc()
                    reason = f"{error.reason}; given up at attempt {attempt}"
                    self._write_dead_letter(
                        RefusedInput(f"action {told['action']}", reason, event.payload, clock.now())
                    )
                    return
                self.metrics.actions.labels(told["effect"], "tried").inc()
                await asyncio.sleep(max(next(pauses), error.pause))

    async def _once(self, event: Event, told: dict[str, Any], http: httpx.AsyncClient) -> None:
        """Runs it. Raises `ActionFailed`, whatever happens: what ended this task otherwise would be lost without a
        word.
        """
        try:
            await self._run_effects(event, told, http)
        except ActionFailed:
            raise
        except Exception as error:
            raise ActionFailed(f"{type(error).__name__}: {error}") from error

    async def _run_effects(self, event: Event, told: dict[str, Any], http: httpx.AsyncClient) -> None:
        action = self.registry.actions.get(told["action"])
        kind = {"webhook": Webhook, "run": Run}.get(told["effect"])
        effects = [one for one in action.effects if type(one) is kind] if action else []
        for effect in effects:
            if isinstance(effect, Webhook):
                await post(http, effect, event, int(clock.now()))
            elif isinstance(effect, Run):
                await asyncio.get_running_loop().run_in_executor(self._threads, _call, effect, event)
        if not effects:
            raise ActionFailed(
                f"expected the action {told['action']} with a {told['effect']}, got none any more", final=True
            )

    def _calls(self, after: int, count: int) -> list[Event]:
        """The events that tell, at so many positions, that an action is to be run."""
        return to_events(_called(self.journal.read(self.log, after, count)))

    def _read_mark(self) -> int:
        if self._path is None:
            return self.journal.end(self.log)
        try:
            mark = int(self._path.read_text())
            # That of a longer journal, which was here before, says nothing of this one.
            return mark if mark <= self.journal.end(self.log) else 0
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            log.warning("mark of actions unreadable path=%s error=%r; all are run again", self._path, error)
            return 0

    def _write_mark(self, position: int) -> None:
        if self._path is not None:
            note(self._path, str(position), self.journal)


def _called(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(rows.column("type"), ACTION_TYPE))


def _call(run: Run, event: Event) -> None:
    function = registered().get(run.name)
    if function is None:
        known = ", ".join(sorted(registered())) or "none"
        raise ActionFailed(f"expected a registered action, got {run.name}; registered are: {known}", final=True)
    # Whatever a foreign function raises, the server goes on: a SystemExit would end the event loop that waits for it.
    try:
        function(json.loads(event.payload), json.loads(run.arguments))
    except (Exception, SystemExit) as error:
        raise ActionFailed(f"{type(error).__name__}: {error}") from error


@cache
def registered() -> dict[str, Callable[[dict[str, Any], dict[str, Any]], object]]:
    """The Python actions of all installed packages, by name; one that cannot be loaded is left out, and told."""
    found = {}
    for name, point in plug_ins(PLUG_INS).items():
        try:
            found[name] = point.load()
        except Exception:
            log.exception("action not loaded name=%s", name)
    return found
