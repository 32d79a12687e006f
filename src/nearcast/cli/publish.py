"""`nearcast publish [FILE…]`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import click

from nearcast.cli.options import INPUT_FILE, Positive, several_server_options
from nearcast.cli.output import DeadLetterLog, pluralize, print_json, progress, warn
from nearcast.cli.system import require_server
from nearcast.client import Published, Publisher
from nearcast.client.event_schedule import EventSchedule, batches_due, time_in
from nearcast.errors import Fault, Mark, NearcastError
from nearcast.language.cloudevents import DeadLetter
from nearcast.language.event_files import read_documents
from nearcast.language.input_files import STANDARD_INPUT
from nearcast.model.values import time_text

BATCH = 500

GRACE = 5.0
"""Seconds for which Ctrl-C waits for the answer to what was sent; a second one waits no more."""

LONG = 60.0
"""Seconds of waiting for the next event that are told before; and between two notes on how far it is, at a pace."""

Item = tuple[Mark, Any]


@click.command("publish")
@click.argument("files", nargs=-1, type=INPUT_FILE)
@click.option(
    "--speed",
    type=Positive(),
    help="Publish each event when its time comes, so many times as fast: 60 is an hour in a minute.",
)
@click.option("--rate", type=Positive(), help="Publish so many events a second.")
@click.option("--now", is_flag=True, help="With --speed: move the times, so that each is when its event is published.")
@several_server_options
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
def command(
    files: tuple[Path, ...],
    speed: float | None,
    rate: float | None,
    now: bool,
    urls: tuple[str, ...],
    token: str | None,
    as_json: bool,
) -> None:
    """Publish CloudEvents or GeoJSON features from FILES or standard input (-), in their order.

    One a line or in a list, plain or gzipped. All at once; at a pace with --speed or --rate. At a pace the order is
    that of the files too: an event whose time is before that of an earlier one, or that has none, goes at once.

    Safe to repeat: an event with a source and id that the journal holds is not taken again, but counted as known.
    Ctrl-C ends it, and tells how far it came. Exits with 1 if some were refused, or if it was ended.
    """
    if speed is not None and rate is not None:
        raise click.UsageError("give --speed or --rate")
    if now and speed is None:
        raise click.UsageError("--now is for --speed: --speed 1 --now publishes as if it happened now")
    # A server that restarts meanwhile is waited for; one that never was there is told at once.
    require_server(urls)
    run = _PublishRun(EventSchedule(speed, rate), datetime.now(UTC) if now else None, speed is not None)
    try:
        asyncio.run(run.publish(files or (STANDARD_INPUT,), urls, token))
    except (NearcastError, KeyboardInterrupt):
        warn("note", f"{run.told()}; of what was sent last it is not known")
        raise
    _tell(run, as_json)
    sys.exit(1 if run.letters.count or run.stopped else 0)


def _tell(run: _PublishRun, as_json: bool) -> None:
    run.letters.summary()
    if run.schedule.earlier and run.by_times:
        warn("warning", f"{pluralize(run.schedule.earlier, 'event')} not in the order of time, published at once")
    if as_json:
        found = {"published": run.taken, "known": run.known, "refused": run.letters.count}
        print_json({**found, **({"stopped": True} if run.stopped else {})})
        return
    warn("note", run.told())
    if run.stopped:
        last = "before the first event" if run.last is None else f"behind {run.last}"
        unsure = f"; of {pluralize(run.unsure, 'event')} it is not known" if run.unsure else ""
        again = "" if run.began else "; the same again goes on: what the journal has is not taken twice"
        warn("note", f"ended {last}{unsure}{again}")


@dataclass
class _PublishRun:
    """What is published and how it goes: events taken, `known` to the journal before, refused; the last one's place.

    `began`: events get times from then on. `unsure`: so many were sent and not answered when it was ended.
    """

    schedule: EventSchedule
    began: datetime | None
    by_times: bool
    letters: DeadLetterLog = field(default_factory=DeadLetterLog)
    taken: int = 0
    known: int = 0
    unsure: int = 0
    last: Mark | None = None
    stopped: bool = False
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: bool = False
    _told_at: float | None = None

    def told(self) -> str:
        """The counts, for a person."""
        repeated = f"{self.known:,} known already, " if self.known else ""
        return f"{pluralize(self.taken, 'event')} published, {repeated}{self.letters.count:,} refused"

    async def publish(self, files: tuple[Path, ...], urls: Sequence[str], token: str | None) -> None:
        """Publishes what is in files, until it is done or ended by Ctrl-C."""
        clock = asyncio.get_running_loop().time
        with progress("publishing") as advance, self._interruptible():
            async with Publisher(urls, token) as publisher:
                documents = read_documents(files, self.letters)
                async for batch in batches_due(self._scheduled(documents), BATCH, clock, self._rest):
                    found = await self._sent(publisher, [document for _, document in batch])
                    self.unsure = len(batch) if found is None else 0
                    if found is not None:
                        self._count(found, batch)
                        advance(len(batch))
                        self._tell_now_and_then(clock())
                    if self._stop.is_set():
                        self.stopped = True
                        return
        self.stopped = self._stop.is_set()

    def _scheduled(self, documents: Iterator[Item]) -> Iterator[tuple[float, Item]]:
        """Each event with the seconds at which it is due, and with the time that it is to have."""
        warned = False
        for where, document in self._read(documents):
            time = time_in(document)
            due = self.schedule.due(time)
            if self.schedule.earlier and self.by_times and not warned:
                came = f"{document['time']}, before that of an event that stands earlier"
                warn("warning", Fault("events in the order of time", came, where, "it is published at once"))
                warned = True
            if time is not None and self.began is not None:
                document = {**document, "time": _moved(self.schedule, time, self.began)}
            yield due, (where, document)

    def _read(self, documents: Iterator[Item]) -> Iterator[Item]:
        """What is to be published; on Ctrl-C it ends, also where a pipe is waited for."""
        while True:
            self._reading = True
            try:
                item = next(documents, None)
            except KeyboardInterrupt:
                self._stop.set()
                return
            finally:
                self._reading = False
            if item is None:
                return
            yield item

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C lets what is under way end; the second one does not."""
        loop = asyncio.get_running_loop()

        def interrupted(number: int, frame: FrameType | None) -> None:
            if self._reading or self._stop.is_set():
                raise KeyboardInterrupt
            loop.call_soon_threadsafe(self._stop.set)

        before = signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    async def _rest(self, seconds: float) -> bool:
        """Waits, at most until Ctrl-C; whether that came."""
        if seconds >= LONG:
            warn("note", f"{self.told()}; the next event is due in {timedelta(seconds=round(seconds))}")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
        return self._stop.is_set()

    def _tell_now_and_then(self, now: float) -> None:
        """At a pace it may take hours: says now and then how far it is."""
        self._told_at = now if self._told_at is None else self._told_at
        if self.schedule.paced and now - self._told_at >= LONG:
            warn("note", f"{self.told()}, up to {self.last}")
            self._told_at = now

    async def _sent(self, publisher: Publisher, documents: list[Any]) -> Published | None:
        """What became of some events; None if that was not answered soon after Ctrl-C."""
        sending = asyncio.create_task(publisher.publish(documents))
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({sending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not sending.done():
            await asyncio.wait({sending}, timeout=GRACE)
        if sending.done():
            return sending.result()
        sending.cancel()
        return None

    def _count(self, published: Published, batch: list[Item]) -> None:
        for index, fault in published.faults.items():
            self.letters(DeadLetter(Fault(fault.expected, fault.came, batch[index][0], fault.advice), b""))
        self.taken += len(batch) - len(published.faults) - len(published.known)
        self.known += len(published.known)
        self.last = batch[-1][0]


def _moved(schedule: EventSchedule, time: datetime, began: datetime) -> str:
    try:
        return time_text(schedule.moved(time, began))
    except OverflowError:
        # As it was: the server says what is wrong with it.
        return time_text(time)
