"""The parts of a running server, put together, and the tasks that keep it going."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from nearcast.errors import JournalError, SetupError
from nearcast.journal.identity import identity_of
from nearcast.journal.locations import register_of
from nearcast.journal.reader_marks import put_mark
from nearcast.journal.seam import Journal
from nearcast.model.changes import Change
from nearcast.model.columns import entered_events
from nearcast.model.event import MAIN, Event
from nearcast.model.sequence import sequence
from nearcast.runtime.error_log import RateLimitedErrorLog
from nearcast.runtime.loop_monitor import LoopMonitor
from nearcast.runtime.outage_metrics import OutageMetrics
from nearcast.server import clock
from nearcast.server.action_runner import ActionRunner
from nearcast.server.admin.journal_views import JournalViews
from nearcast.server.config import ServerConfig
from nearcast.server.domain.moving_sessions import drain, level
from nearcast.server.domain.server_domain import ServerDomain
from nearcast.server.domain.session_places import SessionClaim, claim_table
from nearcast.server.ingest.definition_offload import DefinitionOffload
from nearcast.server.ingest.definition_pacing import DefinitionPacing
from nearcast.server.ingest.derivation_pacing import DerivationPacing
from nearcast.server.ingest.entry import EventEntry
from nearcast.server.ingest.group_commit import GroupCommit
from nearcast.server.ingest.long_work import LongWorkPacing
from nearcast.server.ingest.wanted_filters import ForwardedFilters
from nearcast.server.metrics import ServerMetrics
from nearcast.server.request_bodies import RequestBodies
from nearcast.server.sessions.client_updates import ClientUpdates
from nearcast.server.sessions.early_path import EarlyBatch, EarlyPath
from nearcast.server.sessions.followed_definitions import FollowedDefinitions
from nearcast.server.sessions.journal_tailer import DecidedDelivery, JournalTailer, TailedRows
from nearcast.server.sessions.manager import SessionManager
from nearcast.server.sessions.outcomes import (
    DeliveryOutcome,
    RefusedInput,
    SettledCheckpoint,
    SettledMark,
    dead_letter_table,
    outcome_table,
    settled_since,
    unsettled,
)
from nearcast.server.sessions.payloads import PayloadCache
from nearcast.server.sessions.session import GOING_AWAY
from nearcast.server.triggered_actions import TriggeredActions
from nearcast.state.registry import Registry
from nearcast.suppression.interest_index import InterestIndex

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

HOUSEKEEPING_SECONDS = 0.5
TOGETHER_SECONDS = 0.02
CHECKPOINT_SECONDS = 5.0
PENDING_OUTCOMES = 20_000
"""With more outcomes than this on their way into the journal, nothing more is read from it."""
AT_ONCE = 500
"""Deliveries queued before others in the event loop have their turn."""
NO_BOUND = 1 << 62
STOP_SECONDS = 5.0


class AccessServer:
    """Everything one access server holds. Made within its event loop; `start` reads the journal, `stop` ends it.

    `settled` is the file of the watermark, None to keep none.
    """

    def __init__(self, config: ServerConfig, journal: Journal, settled: Path | None = None) -> None:
        limits = config.limits
        self.config, self.journal = config, journal
        self.metrics = ServerMetrics()
        OutageMetrics(self.metrics.registry, "nearcast", lambda: journal.outage)
        self.executor = ThreadPoolExecutor(4, "nearcast-journal")
        self.error_log = RateLimitedErrorLog("journal")
        self.payloads = PayloadCache(journal, limits.cache_bytes)
        self.reader = JournalTailer(journal, self.payloads, self._hand_over, self.error_log)
        blocks = partial(GroupCommit, journal, executor=self.executor, error_log=self.error_log)
        self.events: GroupCommit[Event] = blocks(
            "events",
            partial(entered_events, node=config.node),
            seconds=limits.block_seconds,
            rows=limits.block_events,
            room=limits.intake_events,
            node=config.node,
            written=self.reader.note_written,
        )
        self.event_entry = EventEntry(self.events, self.metrics, config.suppress, config.node, limits.lease_seconds)
        self.outcomes: GroupCommit[DeliveryOutcome] = blocks(
            "outcomes", outcome_table, seconds=limits.outcome_seconds, rows=10_000, room=NO_BOUND, persistent=True
        )
        self.dead_letters: GroupCommit[RefusedInput] = blocks(
            "dead letters", dead_letter_table, seconds=0.05, rows=100, room=1_000
        )
        self.claims: GroupCommit[SessionClaim] = blocks(
            "sessions", claim_table, seconds=0.0, rows=10_000, room=NO_BOUND, persistent=True
        )
        self.reading = DefinitionOffload()
        self.pacing = DefinitionPacing(
            limits.definition_work, limits.definition_burst, self.metrics.paced, asyncio.get_running_loop().time
        )
        self.long_work = LongWorkPacing(
            limits.long_work, limits.long_work_burst, self.metrics.long_work, asyncio.get_running_loop().time
        )
        self.derivation_pacing = DerivationPacing(
            journal,
            lambda: self.session_manager.deliveries_through,
            self.metrics.derivations_paced,
            asyncio.get_running_loop().time,
        )
        self.bodies = RequestBodies(limits.bodies_bytes, limits.stall_seconds, limits.body_seconds)
        self.interest_index = InterestIndex(Registry(), guards=False, node=config.node)
        self.session_manager = SessionManager(self.outcomes, self.metrics, limits.waiting, limits.reordered_deliveries)
        self.domain = ServerDomain(
            config,
            journal,
            register_of(journal),
            self.session_manager,
            self.claims,
            self.metrics,
            self.error_log,
        )
        self.domain.leveled = partial(level, self.domain)
        self.domain.lost = self.end
        self.ending: Callable[[], None] = lambda: None
        """Ends the process that this server is, in an orderly way."""
        self.failed: Exception | None = None
        """Why it did not go on."""
        self.routing = ForwardedFilters(
            self.interest_index, journal, self.metrics, config.precision, self.session_manager.instance
        )
        self.views = JournalViews(journal, limits.active, limits.entities)
        self.client_updates = ClientUpdates(self.session_manager, self.events.submit, limits, config.node)
        self.definitions = FollowedDefinitions(
            journal, self.session_manager, self.client_updates, self.reading, self.metrics
        )
        self.actions, self.triggered = (
            kind(
                journal,
                self.session_manager.registry,
                lambda letter: self.dead_letters.submit([letter]),
                self.metrics,
                None if settled is None else settled.with_name(settled.name + mark),
                error_log=self.error_log,
                private=config.private_webhooks,
                limits=limits,
                decided=lambda: self.session_manager.deliveries_through,
            )
            for kind, mark in ((ActionRunner, "-actions"), (TriggeredActions, "-triggers"))
        )
        # Each server is done with its own sessions only; so beside others each has a mark of its own.
        own = "" if config.node == MAIN else f"-{quote(config.node, safe='')}"
        self._mark = None if settled is None else settled.with_name(settled.name + own)
        self.early = EarlyPath(journal, self.payloads, self.session_manager, self.metrics, limits.early_deliveries)
        self._marks: dict[str, dict[str, int]] = {}
        self.loop_monitor = LoopMonitor(limits.held_seconds, self.metrics.loop_held)
        self.stopping = False
        self.started = clock.steady()
        self._loop = asyncio.get_running_loop()
        # While deliveries are handed over, some have left their queues that `deliveries_through` does not tell of.
        self._handing_over = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Takes up what the journal says: the registry as of its end, then what is not settled; then follows it."""
        session_manager = self.session_manager
        self._writers = [self._begin(blocks.run()) for blocks in self._blocks]
        await self.domain.begin()
        await self._join()
        clock.not_before(await asyncio.to_thread(self._last_accepted))
        await self.event_entry.restore()
        # Before the events are read: then those that they were decided from are in the fold.
        deliveries = await asyncio.to_thread(self.journal.end, "deliveries")
        events = await asyncio.to_thread(self.definitions.fold)
        checkpoint = SettledCheckpoint(self._mark, await asyncio.to_thread(identity_of, self.journal))
        mark = await asyncio.to_thread(checkpoint.read)
        await asyncio.to_thread(self._note_mark, mark)
        settled = await asyncio.to_thread(settled_since, self.journal, mark)
        pieces = unsettled(self.journal, self.payloads, mark, deliveries, settled)
        while piece := await asyncio.to_thread(next, pieces, None):
            session_manager.deliver(piece)
        session_manager.read_through(events, deliveries)
        for position, part, client in settled:
            if position > deliveries:
                session_manager.settle_elsewhere(client, sequence(position, part), "")
        await asyncio.to_thread(self.early.begin, session_manager.registry.settings, events, deliveries)
        self.reader.prompt = session_manager.early = self.early.wanted
        session_manager.validity_timers.restart(session_manager.registry)
        self.event_entry.define(session_manager.registry, events)
        self.event_entry.definitions_read(events)
        self._tasks = [
            self._begin(self.loop_monitor.run()),
            self._begin(self._housekeeping()),
            self._begin(self._withdraw_lapsed()),
            self._begin(self._keep_watermark()),
            self._begin(self._trim_dead_letters()),
            self._begin(self.actions.run()),
            self._begin(self.triggered.run()),
            self._begin(self.event_entry.follow(self.journal)),
            self._begin(self.domain.run()),
        ]
        self.reader.start(events, deliveries)
        registry = session_manager.registry
        log.info(
            "server started events=%d deliveries=%d clients=%d subscriptions=%d outstanding=%d",
            events, deliveries, len(registry.clients), len(registry.subscriptions), session_manager.outstanding(),
        )  # fmt: skip

    @property
    def _blocks(self) -> tuple[GroupCommit[Any], ...]:
        return self.events, self.outcomes, self.dead_letters, self.claims

    async def _join(self) -> None:
        """Takes its place among the journal's servers. Raises JournalError where another has to be the only one."""
        others = await asyncio.to_thread(self.journal.join, self.config.node, self.config.suppress)
        self.event_entry.alone = not others
        if others and self.config.suppress:
            log.warning("holding back for local relations only node=%s others=%s", self.config.node, sorted(others))

    def _last_accepted(self) -> float:
        """When the last event of the journal was accepted, seconds since 1970."""
        end = self.journal.end("events")
        accepted = self.journal.read("events", end - 1, 1).column("accepted").to_pylist() if end else []
        return max((moment.timestamp() for moment in accepted if moment), default=0.0)

    def _begin(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        return self._loop.create_task(coroutine)

    def _hand_over(self, news: TailedRows) -> None:
        """Hands over what the reader read, in the reader's thread; holds it back until it is taken."""
        # Here, where a large definition keeps nobody waiting.
        changes = self.definitions.read(news.controls)
        early = self.early.decide(news, changes)
        self.reader.prompt = self.early.wanted
        future = asyncio.run_coroutine_threadsafe(self._taken(news, changes, early), self._loop)
        # It looks up now and then: a loop that ends may never run what it was given.
        while not future.done() and not self.stopping:
            try:
                future.result(0.2)
            except TimeoutError:
                continue

    async def _taken(self, news: TailedRows, changes: list[list[Change]], early: EarlyBatch) -> None:
        async with self._handing_over:
            # Each by itself: one that cannot be taken must not take those behind it along.
            controls = zip(news.controls, changes, strict=True)
            redefined = []
            for control in controls:
                redefined.append(self._survived(self.definitions.apply, control) is not False)
                await self.session_manager.cancellation.end_removed()
            for start in range(0, len(news.decided), AT_ONCE):
                self._deliver(news.decided[start : start + AT_ONCE])
                await asyncio.sleep(0)
            self._survived(partial(self.early.deliver, early), news)
            if any(redefined):
                self.event_entry.define(self.session_manager.registry, news.controls[-1].position)
            self.event_entry.definitions_read(news.events_through)
            # Even after an error: who waits for a position must not wait for ever.
            self.session_manager.read_through(news.events_through, news.deliveries_through)
        while self.outcomes.pending > PENDING_OUTCOMES and not self.stopping:
            await asyncio.sleep(0.05)

    def _deliver(self, decided: list[DecidedDelivery]) -> None:
        """Queues them together, and where that fails one by one: what is queued already is not queued again."""
        try:
            self.session_manager.deliver(decided)
        except Exception:
            for one in decided:
                self._survived(self.session_manager.deliver, [one])

    def _survived(self, take: Callable[[T], R], what: T) -> R | None:
        """What a function gives; after an error, which is logged, None."""
        try:
            return take(what)
        except Exception:
            self.metrics.errors.labels("reader").inc()
            log.exception("not taken what=%.500r", what)
            return None

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            try:
                await self.session_manager.expire()
                self.session_manager.prune()
                self.client_updates.flush()
                self.session_manager.reorder_late()
                if self.config.measure:
                    for session in [one for one in self.session_manager.sessions.values() if one.connection]:
                        self.client_updates.measure(session)
            except Exception:
                self.metrics.errors.labels("housekeeping").inc()
                log.exception("housekeeping failed")

    async def _withdraw_lapsed(self) -> None:
        timers, room = self.session_manager.validity_timers, True
        while True:
            # Not to the moment: what lapses within so long is withdrawn together.
            left = timers.next_in() if room else None
            wait = HOUSEKEEPING_SECONDS if left is None else min(HOUSEKEEPING_SECONDS, left + TOGETHER_SECONDS)
            await asyncio.sleep(wait)
            try:
                room = await self.client_updates.withdraw_lapsed()
            except Exception:
                room = False
                self.metrics.errors.labels("housekeeping").inc()
                log.exception("readings not withdrawn")

    async def _keep_watermark(self) -> None:
        checkpoint = SettledCheckpoint(None, "")
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            try:
                if not checkpoint.journal:
                    checkpoint = SettledCheckpoint(self._mark, await asyncio.to_thread(identity_of, self.journal))
                await self._advance(checkpoint)
                await asyncio.to_thread(self._note_mark, checkpoint.mark)
                self.error_log.works("watermark")
            except (JournalError, OSError) as error:
                self.metrics.errors.labels("watermark").inc()
                self.error_log.failed("watermark", error)
            except Exception:
                self.metrics.errors.labels("watermark").inc()
                log.exception("watermark not kept")

    def _note_mark(self, mark: SettledMark) -> None:
        """Notes in the journal what this server needs no more; what it leads, for all servers."""
        marks = {f"server {self.config.node}": {"deliveries": mark.deliveries, "outcomes": mark.outcomes}}
        if (done := self.actions.noted) is not None:
            # Behind the last of them nothing waits, however far events have come.
            marks["actions"] = {} if done >= self.journal.end("derived") else {"events": done}
        if (done := self.triggered.noted) is not None:
            marks["triggered actions"] = {"events": done, "deliveries": done}
        for reader, positions in marks.items():
            if self._marks.get(reader) != positions:
                put_mark(self.journal, reader, positions)
                self._marks[reader] = positions

    async def _trim_dead_letters(self) -> None:
        """Keeps the newest dead letters only, on and on."""
        limits, seen = self.config.limits, 0
        while True:
            await asyncio.sleep(limits.dead_letter_seconds)
            try:
                end = await asyncio.to_thread(self.journal.end, "dead letters")
                if end != seen:
                    trim = partial(self.journal.trim, "dead letters", limits.dead_letters, limits.dead_letter_bytes)
                    self.metrics.trimmed.inc(await asyncio.to_thread(trim))
                    seen = end
                self.error_log.works("dead letters")
            except JournalError as error:
                self.metrics.errors.labels("dead letters").inc()
                self.error_log.failed("dead letters", error)

    async def _advance(self, checkpoint: SettledCheckpoint) -> None:
        """The end of the outcomes is read first: those of later deliveries than are read then come after it."""
        async with self._handing_over:
            manager, follower = self.session_manager, self.domain.follower
            end = await asyncio.to_thread(self.journal.end, "outcomes")
            # Of what others ended later it is not known yet whether the pipeline has decided it.
            end = min(end, follower.outcomes) if follower.on else end
            through = max(manager.deliveries_through, manager.ended_through)
            oldest = min(manager.oldest() or NO_BOUND, manager.deliveries_through + 1)
        # Done when all before it are: what had left the queues when `oldest` was asked is durable then.
        await self.outcomes.submit([])
        await asyncio.to_thread(checkpoint.move_forward, self.journal, through, end, oldest)

    def failing(self) -> list[str]:
        """What does not work just now."""
        writers = [
            f"writing {blocks.log}" for blocks in (self.events, self.outcomes, self.dead_letters) if blocks.failing
        ]
        return writers + (["reading the journal"] if self.reader.failing else [])

    def end(self) -> None:
        """Ends this server since another has its name: what it kept by it is the other's."""
        self.failed = SetupError(
            f"expected to be the only access server {self.config.node!r} on this journal, got another one, which took"
            " the name while this one was held up; end one of them, or give it another name with --node"
        )
        self.ending()

    async def drain(self) -> None:
        """Sends clients to other servers before they are closed, where there are others."""
        if self.domain.beside and not self.failed:
            await drain(self.domain)

    async def _leave(self) -> None:
        """What is held back here enters where other servers go on; then this one is there no more."""
        try:
            # Of a journal that is away nothing is waited for: the record lapses.
            if not self.failing():
                if self.domain.directory.others and not self.failed:
                    await asyncio.to_thread(self.journal.release, self.config.node)
                await self.domain.directory.leave()
        except JournalError as error:
            log.warning("not signed off node=%s error=%s", self.config.node, error)
        self.domain.directory.close()

    async def close_connections(self) -> None:
        """Hears what clients have said already, tells every one to come back, and lets no new one in."""
        self.stopping = True
        self.reader.stop()
        self.event_entry.lease_manager.close()
        connections = [session.connection for session in self.session_manager.sessions.values() if session.connection]
        await asyncio.gather(*(one.hear_out() for one in connections))
        closing = (one.close(GOING_AWAY, "the server is going away; come back") for one in connections)
        await asyncio.gather(*closing, return_exceptions=True)

    async def stop(self) -> None:
        """Writes what is on its way, and lets go of the journal."""
        await self.close_connections()
        for task in self._tasks:
            task.cancel()
        # Before the writers are closed: it is among the last that they write.
        self.client_updates.flush(all_of_it=True)
        self.event_entry.close()
        self.routing.close()
        self.derivation_pacing.close()
        for blocks in self._blocks:
            blocks.close()
        _, late = await asyncio.wait(self._writers, timeout=STOP_SECONDS)
        if late:
            log.error("journal did not take everything in time pending=%d", self.outcomes.pending + self.events.pending)
        if self._tasks:
            # So that what one server at a time does is let go of, and the next need not wait for its lease to lapse.
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        await asyncio.to_thread(self.reader.join, 1.0)
        await self._leave()
        self.executor.shutdown(wait=not late)
        self.reading.close()
        log.info("server stopped")
