"""Publishing events, again where it is not sure that they arrived: a server takes an event, by source and id, once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from nearcast.client.kept import Event, Kept
from nearcast.client.post_connections import PostAnswer, posts_to
from nearcast.client.server_addresses import ServerAddresses
from nearcast.errors import AccessError, EventError, Fault, Mark, RightError, SessionError
from nearcast.language.json_values import json_bytes
from nearcast.runtime.backoff import backoff

if TYPE_CHECKING:
    from nearcast.client.lease_suppression import LeaseSuppression
    from nearcast.client.wanted_events import WantedFilters

log = logging.getLogger(__name__)

BATCH_EVENTS, BATCH_BYTES = 1_000, 4 << 20
FIRST_PAUSE, LONGEST_PAUSE, JITTER = 0.1, 5.0, 0.5
MOST_BEFORE = 100
"""So many kept events go in one request with those that are published behind them."""
MOST_REDIRECTS = 5
"""For one post; then it is waited as for a server that does not answer."""
SENT_ON = (307, 308)
COME_BACK = (500, 502, 503, 504)
"""Of a server without room, or of a proxy before it."""
LATE = 408
"""Of a server that had no time to read the request; with a fault in it, the sender had none."""
BATCHED = "application/cloudevents-batch+json"


@dataclass(frozen=True, slots=True)
class Published:
    """What became of events: the position of each, None for one without; the faults of refused ones by index.

    `suppressed` are the indices of those that were taken and did not enter the journal, for they change nothing;
    `quenched` of those that were not sent, for nobody wants them; `held` of those that were not sent, for they
    change nothing: the newest of each subject is kept by the publisher until it is called for. `known` are those that
    the journal had before, by source and id, and not by an attempt of the same call whose answer was lost.
    """

    positions: list[int | None] = field(default_factory=list)
    faults: dict[int, Fault] = field(default_factory=dict)
    suppressed: frozenset[int] = frozenset()
    quenched: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    known: frozenset[int] = frozenset()


class Publisher:
    """Publishes CloudEvents, as JSON-able mappings, to the access server at `url`, or to one of several of a domain: to
    the next where one does not answer, and where one sends it.

    `patience`: seconds for which it tries again while the server cannot be reached or has no room. With `quench`,
    events that nobody wants are not sent: who begins to want some gets what is published from a second later.
    With `suppress`, events that change no relation and that nobody else wants are not sent, where the server holds back
    too: the newest of each subject is kept until the server calls for it. `requests` counts what was posted.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        token: str | None = None,
        *,
        patience: float = 60.0,
        quench: bool = False,
        suppress: bool = False,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.patience = patience
        self._servers, self._headers = ServerAddresses(url), headers
        url = self._servers.current
        self._url = url
        self._posts = posts_to(url, "/events", headers)
        self._wanted: WantedFilters | None = None
        self._suppression: LeaseSuppression | None = None
        # Filters take much to read, and a publisher that sends everything needs none of it.
        if quench:
            from nearcast.client.wanted_events import WantedFilters

            self._wanted = WantedFilters(url, headers)
        if suppress:
            from nearcast.client.lease_suppression import LeaseSuppression

            self._suppression = LeaseSuppression(url, headers, self._send_kept)
        self._owed: list[Event] = []
        self._newest = 0
        self.requests = 0

    async def publish(self, events: Sequence[Event]) -> Published:
        """Publishes events in their order, in batches; returns when all of them are durable or refused.

        What JSON cannot say, as a NaN, is refused here, by its index, as the server would. Raises AccessError,
        RightError; SessionError when patience ends, and then a part may have been published: publish the same events
        again.
        """
        written, faults = _written(events)
        good = [index for index in range(len(events)) if index not in faults] if faults else range(len(events))
        sent = [events[index] for index in good] if faults else events
        if self._suppression is None and self._wanted is None:
            answer = await self._publish(sent, written=written)
        else:
            answer = await self._publish_good(sent)
        if not faults:
            return answer
        placed = _placed(answer, good, len(events))
        return replace(placed, faults=dict(sorted((placed.faults | faults).items())))

    async def _publish_good(self, events: Sequence[Event]) -> Published:
        if self._suppression is not None:
            return await self._publish_outside(events, self._suppression)
        return await self._publish_wanted(events)

    async def _publish_outside(self, events: Sequence[Event], suppression: LeaseSuppression) -> Published:
        """Publishes what cannot be held back; what comes before an event that is kept is sent before it is kept."""
        suppression.begin()
        found = Published([None] * len(events))
        held: set[int] = set()
        run: list[int] = []
        subjects: list[str] = []
        for index, event in enumerate(events):
            read = suppression.read(event)
            if run and suppression.permits(read):
                found = _joined(found, await self._publish_run(events, run, subjects, suppression))
                run, subjects = [], []
            if suppression.hold(read, event):
                held.add(index)
                continue
            run.append(index)
            subjects += [] if read is None else [read.entity]
        if run:
            found = _joined(found, await self._publish_run(events, run, subjects, suppression))
        return replace(found, held=frozenset(held))

    async def _publish_run(
        self, events: Sequence[Event], indices: Sequence[int], subjects: Sequence[str], suppression: LeaseSuppression
    ) -> Published:
        """Publishes some of the events, behind what was kept of their subjects."""
        suppression.sending(subjects)
        kept = suppression.give_back(subjects)
        try:
            if self._wanted is not None or len(kept.events) > MOST_BEFORE:
                await self._send_kept(kept)
                kept = Kept([], [])
            sent = [events[index] for index in indices]
            answer = await self._publish_wanted(sent, kept)
        except BaseException:
            self._owed += kept.events
            raise
        finally:
            await suppression.sent(subjects)
        return _placed(answer, indices, len(events))

    async def _send_kept(self, kept: Kept) -> None:
        """Sends what was kept by itself; what does not arrive is sent before what is published next."""
        try:
            # Once in any case: what did not arrive before goes too.
            for start in range(0, max(len(kept.leases), len(kept.events), 1), MOST_BEFORE):
                stop = start + MOST_BEFORE
                await self._publish([], Kept(kept.events[start:stop], kept.leases[start:stop]))
        except Exception as error:
            self._owed += kept.events
            log.warning("kept events not sent events=%d error=%r", len(kept.events), error)

    async def _publish(
        self, events: Sequence[Event], kept: Kept | None = None, written: Sequence[bytes] | None = None
    ) -> Published:
        """Publishes events behind what is kept, and behind what did not arrive; `written` they are as JSON."""
        kept = kept or Kept([], [])
        owed, self._owed = self._owed, []
        try:
            before = [*owed, *kept.events]
            written = [*map(orjson.dumps, events)] if written is None else written
            return await self._publish_behind([*map(orjson.dumps, before)], written, kept.leases)
        except BaseException:
            # Also those that arrived: a server takes an event once.
            self._owed = [*owed, *self._owed]
            raise

    async def _publish_behind(
        self, before: Sequence[bytes], events: Sequence[bytes], leases: Sequence[int]
    ) -> Published:
        """Publishes events behind others, of which nobody wants to hear; with the first batch leases end."""
        positions: list[int | None] = []
        faults: dict[int, Fault] = {}
        suppressed: set[int] = set()
        known: set[int] = set()
        for batch, count in _batches([*before, *events]) if before or events or not leases else [(b"[]", 0)]:
            answer = await self._post_one_by_one(batch, count, leases)
            leases = ()
            faults.update((len(positions) + found["index"], _fault(found)) for found in answer["faults"])
            suppressed.update(len(positions) + index for index in answer.get("suppressed", ()))
            known.update(len(positions) + index for index in self._known_before(answer))
            positions += answer["positions"]
        first = len(before)
        return Published(
            positions[first:],
            {index - first: fault for index, fault in faults.items() if index >= first},
            frozenset(index - first for index in suppressed if index >= first),
            known=frozenset(index - first for index in known if index >= first),
        )

    def _known_before(self, answer: Mapping[str, Any]) -> set[int]:
        """Those of a post that the journal had before; not those that it has by an attempt whose answer was lost.

        Those are behind the newest event that is this publisher's. Before it had one nobody can tell.
        """
        known, positions = set[int](answer.get("known", ())), answer["positions"]
        if answer.get("again") and self._newest:
            first = {positions[index]: index for index in sorted(known, reverse=True)}
            known -= {index for position, index in first.items() if position is not None and position > self._newest}
        taken = (one for index, one in enumerate(positions) if one is not None and index not in known)
        self._newest = max([self._newest, *taken])
        return known

    async def _publish_wanted(self, events: Sequence[Event], kept: Kept | None = None) -> Published:
        """Publishes what somebody may want, all of it without `quench`; of the others it says which they are."""
        if self._wanted is None:
            return await self._publish(events, kept)
        sent = [index for index, wanted in enumerate(await self._wanted.wants(events)) if wanted]
        found = await self._publish([events[index] for index in sent])
        return replace(_placed(found, sent, len(events)), quenched=frozenset(range(len(events))) - frozenset(sent))

    async def _post_one_by_one(self, batch: bytes, count: int, leases: Sequence[int]) -> dict[str, Any]:
        """The answer to a batch; where one event alone is more than the server reads, that is a fault of this event."""
        try:
            return await self._post(batch, leases)
        except _TooLarge as fault:
            if count != 1:
                raise
            found = {"expected": fault.expected, "came": fault.came, "where": "event 0", "advice": fault.advice}
            return {"positions": [None], "faults": [{"index": 0, **found}]}

    async def _post(self, batch: bytes, leases: Sequence[int] = ()) -> dict[str, Any]:
        headers = {"Content-Type": BATCHED}
        if self._suppression is not None and self._suppression.publisher is not None:
            headers["Nearcast-Publisher"] = self._suppression.publisher
        if leases:
            headers["Nearcast-Returned"] = ",".join(map(str, leases))
        self.requests += 1
        loop = asyncio.get_running_loop()
        until = loop.time() + self.patience
        # By chance, so that many publishers do not come back at the same moment.
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE, JITTER)
        again: dict[str, Any] = {}
        redirects = 0
        while True:
            tried = self._servers.current
            try:
                answer = await self._posts.post(batch, headers)
                if not _may_work_soon(answer):
                    self._servers.works()
                    return _answer(answer, self._url) | ({"again": True} if answer.again else again)
                reason = f"status {answer.status}"
                if answer.status in SENT_ON and redirects < MOST_REDIRECTS:
                    redirects += 1
                    if self._servers.go_to(answer.location.removesuffix("/events")):
                        await self._use_server()
                        continue
                    reason = f"a redirect to {answer.location[:200]!r}, which is not followed"
            except OSError as error:
                reason = repr(error)
            # Others may have room at once; where all were tried it is waited longer and longer. Another post may have
            # gone on already.
            pause = next(pauses) if self._servers.current == tried and self._servers.failed() else 0.0
            await self._use_server()
            if loop.time() + pause > until:
                raise SessionError(
                    f"expected to publish within {self.patience} seconds, got {reason}; is the server up?"
                )
            log.info("publishing again reason=%s pause=%.2f", reason, pause)
            await asyncio.sleep(pause)
            again = {"again": True}

    async def _use_server(self) -> None:
        """Posts to the current server from now on; what is held back by another one's leave goes there too."""
        if self._servers.current == self._url:
            return
        before, self._url = self._posts, self._servers.current
        self._posts = posts_to(self._url, "/events", self._headers)
        log.info("publishing to another server url=%s", self._url)
        if self._wanted is not None:
            await self._wanted.move_to(self._url)
        if self._suppression is not None:
            await self._suppression.move_to(self._url)
        await before.close()

    @property
    def server(self) -> str:
        """The URL of the server that it has, or tries next."""
        return self._servers.current

    async def close(self) -> None:
        """Sends what is kept, and closes the connections."""
        if self._suppression is not None:
            await self._suppression.close()
        if self._owed:
            await self._send_kept(Kept([], []))
        if self._wanted is not None:
            await self._wanted.close()
        await self._posts.close()

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


def _may_work_soon(answer: PostAnswer) -> bool:
    """Whether the same may be taken in a moment, here or at another server."""
    return answer.status in (*COME_BACK, *SENT_ON) or (answer.status == LATE and not answer.body.startswith(b"{"))


def _placed(found: Published, indices: Sequence[int], count: int) -> Published:
    """What became of some events, as of all of them."""
    positions: list[int | None] = [None] * count
    for index, position in zip(indices, found.positions, strict=True):
        positions[index] = position
    return Published(
        positions,
        {indices[index]: fault for index, fault in found.faults.items()},
        frozenset(indices[index] for index in found.suppressed),
        frozenset(indices[index] for index in found.quenched),
        known=frozenset(indices[index] for index in found.known),
    )


def _joined(one: Published, other: Published) -> Published:
    """What became of the same events, of which each has told some."""
    return Published(
        [a if b is None else b for a, b in zip(one.positions, other.positions, strict=True)],
        {**one.faults, **other.faults},
        one.suppressed | other.suppressed,
        one.quenched | other.quenched,
        known=one.known | other.known,
    )


def _answer(answer: PostAnswer, url: str) -> dict[str, Any]:
    """What the server answered for each event. Raises AccessError, RightError, or the Fault of the whole request.

    Raises SessionError where what answers is no access server.
    """
    try:
        found: Any = orjson.loads(answer.body)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not ("positions" in found or "expected" in found):
        came = answer.body[:100].decode(errors="replace")
        raise SessionError(
            f"expected an access server at {url}, got status {answer.status}: {came!r}; is the address right?"
        )
    if answer.status in (401, 403):
        raise (AccessError if answer.status == 401 else RightError)(found["came"])
    if "positions" not in found:
        fault = _fault(found)
        if answer.status == 413:
            raise _TooLarge(fault.expected, fault.came, fault.where, fault.advice)
        raise fault
    return found


class _TooLarge(Fault):
    """The fault of a request that is more than the server reads."""


def _fault(found: Mapping[str, Any]) -> Fault:
    return Fault(found["expected"], found["came"], Mark(found["where"] or "request"), found["advice"] or "")


def _written(events: Sequence[Event]) -> tuple[list[bytes], dict[int, Fault]]:
    """Events as JSON, and by index the faults of those that JSON cannot say."""
    written: list[bytes] = []
    faults: dict[int, Fault] = {}
    for index, event in enumerate(events):
        try:
            written.append(json_bytes(event, _SOMEWHERE))
        except EventError as error:
            faults[index] = replace(error.fault, where=Mark(f"event {index}"))
    return written, faults


_SOMEWHERE = Mark("event")


def _batches(events: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """JSON arrays of events, each within the bounds of a batch, and how many are in it."""
    batch: list[bytes] = []
    size = 0
    for written in events:
        if batch and (len(batch) == BATCH_EVENTS or size + len(written) > BATCH_BYTES):
            yield b"[" + b",".join(batch) + b"]", len(batch)
            batch, size = [], 0
        batch.append(written)
        size += len(written) + 1
    if batch:
        yield b"[" + b",".join(batch) + b"]", len(batch)
