"""Runs what situations call for: follows the derived events, posts webhooks, calls Python actions.

At least once: the position up to which everything has been run, or given up, is kept in a small file, and with a
journal that has notes there too; a server that dies, or another that goes on in its place, runs what came after it
again. What does not succeed is tried again after growing pauses, and is a dead letter in the end: done it is only when
that is durable. The action is the one that its definition says now: an event names it, and holds no URL. What is for
one target waits for nothing that is for another (`action_targets`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import JournalError
from nearcast.journal.seam import HeldRole, Journal
from nearcast.model.columns import to_events
from nearcast.model.event import Event
from nearcast.model.situation import ACTION_TYPE, PLUG_INS, Run, Webhook
from nearcast.runtime.backoff import backoff
from nearcast.runtime.error_log import RateLimitedErrorLog
from nearcast.runtime.file_lock import try_lock
from nearcast.runtime.plug_ins import plug_ins
from nearcast.server import clock
from nearcast.server.action_targets import ActionTarget
from nearcast.server.config import ServerLimits
from nearcast.server.ingest.group_commit import QueueFull
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions.outcomes import RefusedInput, note
from nearcast.server.webhook_post import ActionFailed, post, webhook_client
from nearcast.state.registry import Registry

log = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
ROWS, BYTES = 5_000, 32 << 20
WAIT_SECONDS = 0.1
TURN_SECONDS = 1.0
LOOK_SECONDS = 5.0
"""So often the journal is looked at though nobody said that more is decided."""

LETTERS = 1_000
"""Dead letters that are being written; with so many nothing more is begun before some are."""

Bury = Callable[[RefusedInput], Awaitable[object]]
"""Writes a dead letter, and waits until it is durable. Raises `JournalError`, and `QueueFull` where too many wait."""


class ActionRunner:
    """Runs the actions of one journal. `path`: where the position is kept; None: nowhere, it begins at the end.

    `pause` are the seconds before the second attempt; each later pause is twice as long. `private`: whether webhooks
    may reach this machine and private networks. `decided` says how far is decided, from memory: while it stays, nothing
    has come that calls for an action; None: the journal is asked each time.
    """

    log = "derived"
    """The log that is followed."""

    role = "actions"
    """What one server at a time holds."""

    def __init__(
        self,
        journal: Journal,
        registry: Registry,
        write_dead_letter: Bury,
        metrics: ServerMetrics,
        path: Path | None,
        pause: float = FIRST_PAUSE,
        error_log: RateLimitedErrorLog | None = None,
        private: bool = False,
        limits: ServerLimits | None = None,
        decided: Callable[[], int] | None = None,
    ) -> None:
        self.journal, self.registry, self.metrics = journal, registry, metrics
        self._write_dead_letter, self._path, self._pause = write_dead_letter, path, pause
        self._error_log = error_log or RateLimitedErrorLog("journal")
        self._private, self._limits = private, limits or ServerLimits()
        # Not asyncio's own threads: functions that hang would keep everything else that waits for the journal waiting.
        self._threads = ThreadPoolExecutor(self._limits.action_threads, "nearcast-actions")
        self._through = 0
        self.noted: int | None = None
        self._decided, self._looked = decided, (-1, 0.0)
        self._open: dict[int, Event] = {}
        self._burying: set[asyncio.Task[None]] = set()
        self._targets: dict[str, ActionTarget] = {}

    @property
    def through(self) -> int:
        """Up to this position nothing is left to be run."""
        return min([self._through, *(event.position - 1 for event in self._open.values())])

    async def run_again(self, payload: bytes) -> None:
        """Runs once what was given up, by the event that called for it. Raises `ActionFailed`."""
        document = json.loads(payload)
        event = Event(document["id"], document["type"], document["source"], document.get("subject"), payload=payload)
        async with await asyncio.to_thread(webhook_client) as http:
            await self._once(event, http)

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
            while True:
                try:
                    async with self._leading() as leads:
                        await self._follow(leads)
                except JournalError as error:
                    self.metrics.errors.labels("actions").inc()
                    self._error_log.failed("actions", error)
                    await asyncio.sleep(TURN_SECONDS)

    @asynccontextmanager
    async def _leading(self) -> AsyncIterator[HeldRole]:
        """Holds what one server of all that the journal has may do; waits for it, in a thread of its own."""
        loop, ended = asyncio.get_running_loop(), threading.Event()
        with ThreadPoolExecutor(1, f"nearcast-{self.role}-turn") as waiting:
            turn = self.journal.leading(self.role, ended.is_set)
            entering = loop.run_in_executor(waiting, turn.__enter__)
            try:
                yield await asyncio.shield(entering)
            finally:
                # Also where this is cancelled while it waits.
                ended.set()
                await entering
                await loop.run_in_executor(waiting, turn.__exit__, None, None, None)

    async def _follow(self, leads: HeldRole) -> None:
        """Follows the log as long as this server leads; then `noted` says how far it is done for good."""
        # In a thread: it reads the certificates of all authorities. Beside what follows, so that nothing is missed.
        made = asyncio.create_task(asyncio.to_thread(webhook_client))
        try:
            await self._steps(made, leads)
        finally:
            self.noted = None
            # Before their client ends.
            await asyncio.gather(*(target.close() for target in self._targets.values()))
            # What has no letter yet is run again by whoever goes on.
            for task in self._burying:
                task.cancel()
            await asyncio.gather(*self._burying, return_exceptions=True)
            self._targets, self._open, self._looked = {}, {}, (-1, 0.0)
            await (await made).aclose()

    async def _steps(self, made: asyncio.Task[httpx.AsyncClient], leads: HeldRole) -> None:
        kept: int | None = None
        while leads:
            # A journal that fails for a while must not end this for good.
            try:
                if kept is None:
                    self._through = kept = await asyncio.to_thread(self._read_mark)
                # Whoever ends this ends not what makes it.
                await self._step(await asyncio.shield(made))
                if self.through != kept:
                    kept = self.through
                    await asyncio.to_thread(self._write_mark, kept)
                self.noted = kept
                self._error_log.works("actions")
            except (JournalError, OSError) as error:
                self.metrics.errors.labels("actions").inc()
                self._error_log.failed("actions", error)
            except Exception:
                self.metrics.errors.labels("actions").inc()
                log.exception("actions not followed position=%d", self._through)
            await asyncio.sleep(WAIT_SECONDS)

    async def _step(self, http: httpx.AsyncClient) -> None:
        end = await self._end_of_log()
        while self._through < end:
            while len(self._burying) >= LETTERS:
                await asyncio.wait(self._burying, return_when=asyncio.FIRST_COMPLETED)
            fitting = partial(self.journal.end_within_bytes, self.log, self._through, ROWS, BYTES)
            count = min(end, await asyncio.to_thread(fitting)) - self._through
            for event in await asyncio.to_thread(self._calls, self._through, count):
                await self._submit(event, http)
            self._through += count
        self._targets = {name: one for name, one in self._targets.items() if not one.idle}
        waiting = sum(len(one.waiting) for one in self._targets.values())
        self.metrics.actions_waiting.set(waiting)
        self.metrics.targets_open.set(sum(one.is_open for one in self._targets.values()))

    async def _end_of_log(self) -> int:
        """How far is to be read now; where nothing more is decided the journal is left alone for a while."""
        if self._decided is None:
            return await asyncio.to_thread(self.journal.end, self.log)
        decided, now = self._decided(), clock.steady()
        if decided == self._looked[0] and now < self._looked[1] + LOOK_SECONDS:
            return self._through
        end = await asyncio.to_thread(self.journal.end, self.log)
        self._looked = decided, now
        return end

    async def _submit(self, event: Event, http: httpx.AsyncClient) -> None:
        data = json.loads(event.payload)["data"]
        name = self._target_name(data)
        target = self._targets.get(name)
        if target is None:
            target = self._targets[name] = ActionTarget(
                name, partial(self._once, http=http), self._tried, self._end, self._pause, self._limits
            )
        self._open[id(event)] = event
        await target.wait_for_room()
        target.submit(event)

    def _target_name(self, data: dict[str, Any]) -> str:
        """What an action is for: a web server, or a Python action."""
        effect = next(iter(self._effects(data)), None)
        if isinstance(effect, Webhook):
            return target_of(effect.url)
        return f"run {effect.name}" if effect else f"action {data['action']}"

    def _effects(self, data: dict[str, Any]) -> list[Webhook | Run]:
        action = self.registry.actions.get(data["action"])
        kind = {"webhook": Webhook, "run": Run}.get(data["effect"])
        found = action.effects if action else ()
        return [one for one in found if isinstance(one, Webhook | Run) and type(one) is kind]

    def _tried(self, event: Event, error: ActionFailed, attempt: int) -> None:
        log.warning("action not run id=%r attempt=%d reason=%r", event.id, attempt, error.reason)
        self.metrics.actions.labels(json.loads(event.payload)["data"]["effect"], "tried").inc()

    def _end(self, event: Event, reason: str | None, attempt: int) -> None:
        data = json.loads(event.payload)["data"]
        if reason is None:
            self._open.pop(id(event), None)
            self.metrics.actions.labels(data["effect"], "done").inc()
            return
        outcome = "given up" if attempt else "overflowed"
        log.warning("action %s id=%r attempt=%d reason=%r", outcome, event.id, attempt, reason)
        self.metrics.actions.labels(data["effect"], outcome).inc()
        reason = f"{reason}; given up at attempt {attempt}" if attempt else f"{reason}; given up unrun"
        letter = RefusedInput(f"action {data['action']}", reason, event.payload, clock.now())
        task = asyncio.create_task(self._bury(event, letter))
        self._burying.add(task)
        task.add_done_callback(self._burying.discard)

    async def _bury(self, event: Event, letter: RefusedInput) -> None:
        """Writes a dead letter, and again until it is written; till then the action is not done."""
        pauses = backoff(self._pause, self._limits.action_pause_seconds)
        while True:
            try:
                await self._write_dead_letter(letter)
            except (JournalError, QueueFull) as error:
                self.metrics.errors.labels("dead letters").inc()
                self._error_log.failed("dead letters of actions", error)
                await asyncio.sleep(next(pauses))
            else:
                self._error_log.works("dead letters of actions")
                self._open.pop(id(event), None)
                return

    async def _once(self, event: Event, http: httpx.AsyncClient) -> None:
        """Runs it. Raises `ActionFailed`, whatever happens: what ended this task otherwise would be lost without a
        word.
        """
        try:
            await self._run_effects(event, json.loads(event.payload)["data"], http)
        except ActionFailed:
            raise
        except Exception as error:
            raise ActionFailed(f"{type(error).__name__}: {error}") from error

    async def _run_effects(self, event: Event, data: dict[str, Any], http: httpx.AsyncClient) -> None:
        effects = self._effects(data)
        for effect in effects:
            if isinstance(effect, Webhook):
                await post(http, effect, event, int(clock.wall()), self._private, self._limits)
            else:
                await asyncio.get_running_loop().run_in_executor(self._threads, _call, effect, event)
        if not effects:
            raise ActionFailed(
                f"expected the action {data['action']} with a {data['effect']}, got none any more", final=True
            )

    def _calls(self, after: int, count: int) -> list[Event]:
        """The events that call, at so many positions, for an action."""
        return to_events(_called(self.journal.read(self.log, after, count)))

    def _read_mark(self) -> int:
        if self._path is None:
            return self.journal.end(self.log)
        try:
            notes = self.journal.notes
            # Where there is none yet the journal is a copy of one whose mark was in the file.
            mark = int((notes.read(self.role) if notes.shared else None) or self._path.read_text())
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
            if self.journal.notes.shared:
                self.journal.notes.write(self.role, str(position))


def target_of(url: str) -> str:
    """The web server that a URL is of: its scheme, host and port; nothing else of it, which may be secret."""
    try:
        found = urlsplit(url)
        port = found.port or (443 if found.scheme == "https" else 80)
        return f"{found.scheme}://{found.hostname}:{port}"
    except ValueError:
        return "a URL that is none"


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
    """The Python actions of all installed packages, by name; one that cannot be loaded is left out, and logged."""
    found = {}
    for name, point in plug_ins(PLUG_INS).items():
        try:
            found[name] = point.load()
        except Exception:
            log.exception("action not loaded name=%s", name)
    return found
