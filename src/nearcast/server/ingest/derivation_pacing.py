"""How fast events enter of which much follows: others wait while that is derived, so its sender waits by itself.

Two hundred devices that come to one place may begin ten thousand pairs. At the door nobody knows: so of some requests
it is counted, once they are decided, how many events were derived from theirs, and what comes next of the same token
and source is taken for as dear. While others publish such events enter a few at a time, with pauses between: each time
others wait as long as for any batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Counts
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from prometheus_client import Counter

from nearcast.errors import JournalError
from nearcast.journal.seam import Journal
from nearcast.model.arrays import Integers
from nearcast.model.event import Event
from nearcast.model.rate_limit import RateLimit
from nearcast.server.access import AccessToken
from nearcast.server.ingest.group_commit import QueueFull
from nearcast.server.ingest.long_work import LONG_SECONDS, ORDINARY_SECONDS, PATIENCE

log = logging.getLogger(__name__)

Entering: TypeAlias = Sequence[Event] | pa.Table
"""Events, or rows of `EVENTS`, that enter."""

Sender = tuple[str, str]
"""The name of a token and the source of an event."""

DERIVED_SECONDS = 12e-6
"""For a derived event: to be found, told and written."""

FEW = 1.0
"""Derived events of each event up to which nobody waits: they take a fifth of what the event itself does."""

PART_SECONDS = 0.008
"""That a batch takes longer in which something is derived, however little."""

SHARE = 0.05
"""Of the time may go into what is derived from events of one sender while others publish."""

SENDERS = 1_000
"""Senders of which it is known what follows from their events: those that were heard of last."""

LOOKED_AT = 8
"""Requests at once of which it is awaited what follows from them, one of each sender."""

SAMPLED = 1_000
"""Events of a request of which it is counted what follows from them, at most: some out of all of it."""

SMALL, AGAIN_SECONDS = 10, 1.0
"""Of requests of so few events of a sender it is counted again after so long, if little followed from the ones before.
"""

LOOK_SECONDS, LONGEST_SECONDS = 0.1, 30.0
"""Between two looks whether a request is decided, and for how long it is looked."""

READ = 10_000
"""Rows that are read at once."""

STEP_SECONDS = 0.01
"""Between two looks whether a sender may go on."""


@dataclass(slots=True)
class _Sender:
    """What is known of a sender: derived events of each of its events, and what they may take."""

    derived: float
    counted: float
    """When that was counted."""
    limit: RateLimit = field(default_factory=lambda: RateLimit(SHARE, PART_SECONDS + LONG_SECONDS))
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class DerivationPacing:
    """Lets events enter as far as what follows from those of their senders leaves time to others.

    `decided` tells up to which position all is decided; `now` gives seconds. Used from one event loop.
    """

    def __init__(self, journal: Journal, decided: Callable[[], int], paced: Counter, now: Callable[[], float]) -> None:
        self._journal, self._decided, self._paced, self._now = journal, decided, paced, now
        self._senders: OrderedDict[Sender, _Sender] = OrderedDict()
        # When each token's source was last heard of, for others to be in the way of.
        self._newest: list[tuple[Sender, float]] = []
        self._looking = set[Sender]()
        self._tasks = set[asyncio.Task[None]]()
        # The last position that was written slowly.
        self._through = 0

    async def enter(
        self,
        token: AccessToken | None,
        entering: Entering,
        submit: Callable[[Entering], Awaitable[list[int | None]]],
        derives: bool,
    ) -> list[int | None]:
        """Has events submitted, all at once or a few at a time; their positions. `derives`: whether anything may follow
        from events. Raises what submitting does: what was before is in the journal then.
        """
        if not derives:
            return await submit(entering)
        name = token.name if token else ""
        senders = {(name, source): count for source, count in sources_of(entering).items()}
        derived = self._derived(name, senders)
        follows = sum(count * derived[sender] for sender, count in senders.items())
        self._note(senders)
        if follows <= FEW * len(entering):
            written = await submit(entering)
        else:
            dearest = max(senders, key=derived.__getitem__)
            written = await self._enter_slowly(dearest, follows / len(entering), entering, submit)
        self._look(senders, entering, written)
        return written

    def close(self) -> None:
        """Looks at nothing any more."""
        for task in self._tasks:
            task.cancel()

    def _derived(self, name: str, senders: Iterable[Sender]) -> dict[Sender, float]:
        """What follows from each event of senders with one token; of those that are new as of its dearest."""
        # Looked for once: a request may have a hundred thousand sources, and a thousand senders are known.
        dearest = self._dearest(name)
        return {one: dearest if (known := self._senders.get(one)) is None else known.derived for one in senders}

    def _dearest(self, name: str) -> float:
        """What follows from each event of that sender with a token from whose events most follows."""
        return max((one.derived for (other, _), one in self._senders.items() if other == name), default=0.0)

    def _note(self, senders: Iterable[Sender]) -> None:
        """Takes note of who published last: two are enough to know of somebody else than any one."""
        now = self._now()
        for sender in islice(senders, 2):
            self._newest = [(sender, now), *(one for one in self._newest if one[0] != sender)][:2]

    def _has_company(self, sender: Sender) -> bool:
        """Whether another sender published just now."""
        latest = max((at for other, at in self._newest if other != sender), default=-inf)
        return self._now() <= latest + ORDINARY_SECONDS

    async def _enter_slowly(
        self,
        sender: Sender,
        derived: float,
        entering: Entering,
        submit: Callable[[Entering], Awaitable[list[int | None]]],
    ) -> list[int | None]:
        """Has some events submitted after others, each time as many as take no longer than any batch.

        Raises QueueFull where that takes longer than publishers wait: what is there then is known when it comes again.
        """
        known, written, began = self._known(sender, self._dearest(sender[0])), list[int | None](), self._now()
        seconds, waited = derived * DERIVED_SECONDS, False
        while len(written) < len(entering):
            async with known.turn:
                count = max(1, int(LONG_SECONDS / seconds)) if self._has_company(sender) else len(entering)
                part = entering[len(written) : len(written) + count]
                cost = PART_SECONDS + len(part) * seconds
                while self._has_company(sender) and not known.limit.spend(cost, self._now()):
                    waited = True
                    if self._now() > began + PATIENCE:
                        self._paced.inc()
                        raise QueueFull
                    await asyncio.sleep(STEP_SECONDS)
            positions = await submit(part)
            # What was there before costs nothing: who comes again goes on from where it was.
            if all(one is None or one <= self._through for one in positions):
                known.limit.owe(-cost, self._now())
            self._through = max(self._through, *(one or 0 for one in positions))
            written += positions
        self._paced.inc(waited)
        return written

    def _known(self, sender: Sender, dearest: float) -> _Sender:
        """What is known of a sender, who is then the one heard of last; of one that is new it is as of the dearest."""
        known = self._senders.pop(sender, None) or _Sender(dearest, -inf)
        self._senders[sender] = known
        while len(self._senders) > SENDERS:
            self._senders.popitem(last=False)
        return known

    def _look(self, senders: Collection[Sender], entering: Entering, written: Sequence[int | None]) -> None:
        """Has it counted what follows from what was written, unless it is awaited already, or was counted just now."""
        small = len(written) <= SMALL
        if len(self._tasks) >= LOOKED_AT or (small and not any(map(self._is_wanted, senders))):
            return
        by_position, name = dict[int, Sender](), next(iter(senders))[0]
        for index in range(0, len(written), len(written) // SAMPLED + 1):
            position = written[index]
            if position is not None:
                by_position[position] = name, _source_at(entering, index)
        if not by_position:
            return
        task = asyncio.get_running_loop().create_task(self._count(by_position))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._looking.update(senders)
        task.add_done_callback(lambda _: self._looking.difference_update(senders))

    def _is_wanted(self, sender: Sender) -> bool:
        known = self._senders.get(sender)
        again = -inf if known is None or known.derived > FEW else known.counted + AGAIN_SECONDS
        return sender not in self._looking and self._now() >= again

    async def _count(self, by_position: dict[int, Sender]) -> None:
        until, last = self._now() + LONGEST_SECONDS, max(by_position)
        while self._decided() < last:
            if self._now() > until:
                return
            await asyncio.sleep(LOOK_SECONDS)
        try:
            found = await asyncio.to_thread(derived_from, self._journal, np.array(sorted(by_position), np.int64))
        except JournalError:
            # Who reads on will say so.
            return
        events, derived = Counts(by_position.values()), Counts[Sender]()
        for position, count in found.items():
            derived[by_position[position]] += count
        self._learn({sender: derived[sender] / count for sender, count in events.items()})

    def _learn(self, counted: Mapping[Sender, float]) -> None:
        """Takes note of what followed from each event of senders with one token."""
        dearest = max((self._dearest(name) for name, _ in islice(counted, 1)), default=0.0)
        for sender, derived in counted.items():
            dearest = max(dearest, self._learn_of(sender, derived, dearest))

    def _learn_of(self, sender: Sender, derived: float, dearest: float) -> float:
        """Takes note of what followed from each event of a sender; it is forgotten by halves. Gives what is kept."""
        known = self._known(sender, dearest)
        if known.derived <= FEW < derived:
            log.info("events enter slowly: much follows from each source=%s derived=%.0f", sender[1], derived)
        # Of one that was not known before it was taken to be as of others of its token.
        known.derived = max(derived, known.derived / 2 if known.counted > -inf else 0.0)
        known.counted = self._now()
        return known.derived


def sources_of(entering: Entering) -> Mapping[str, int]:
    """The sources of events, with how many there are of each."""
    if isinstance(entering, pa.Table):
        return {one["values"]: one["counts"] for one in entering.column("source").value_counts().to_pylist()}
    return Counts(event.source for event in entering)


def _source_at(entering: Entering, index: int) -> str:
    if isinstance(entering, pa.Table):
        found: str = entering.column("source")[index].as_py()
        return found
    return entering[index].source


def derived_from(journal: Journal, positions: Integers) -> dict[int, int]:
    """How many events were derived from those at some positions, ascending, of which each is decided."""
    found = Counts[int]()
    first, last = int(positions[0]), int(positions[-1])
    through = min(last, journal.end("derived"))
    for rows in _derived(journal, first - 1, through):
        at, counts = np.unique(rows, return_counts=True)
        own = np.isin(at, positions)
        found.update(dict(zip(at[own].tolist(), counts[own].tolist(), strict=True)))
    return found


def _derived(journal: Journal, after: int, through: int) -> Iterator[Integers]:
    """The positions of derived events."""
    if through > after:
        for rows in journal.row_ranges("derived", after, through, READ):
            yield rows.column("position").to_numpy()
