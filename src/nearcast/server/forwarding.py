"""What publishers are told to send, as CQL2 text: the filters of all that may want events, in a routing table.

Used from one thread at a time; it takes its time, and leaves half of it to others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from threading import Event

import orjson

from nearcast.decision.outward import ALL, outward
from nearcast.decision.route import QUICK
from nearcast.decision.routing import Change, Measures, Merging, Table
from nearcast.decision.traffic import Traffic
from nearcast.decision.wanted import Wish, rests_on_more
from nearcast.errors import DefinitionError
from nearcast.journal.seam import Journal
from nearcast.language.cql2 import write
from nearcast.model.columns import to_events
from nearcast.model.filter import Atom, Filter

EVERYTHING = (write(ALL),)

SAMPLE = 1_000
"""Events of the journal, the newest, on which precision is measured: after as many others it is made anew."""

PAUSE = 60.0
REST = 100
"""So many seconds, and so many times as long as making it took, is a table kept before it is made anew."""


class Closed(Exception):
    """Nothing is taken any more: the server ends, or the table failed."""


class Forwarding:
    """Wishes by the kind and id of their definition, and the table of what is forwarded for them.

    With a `precision` below 1 it merges imperfectly, as far as the newest events of the journal show nothing less.
    `body` is the answer that says what is forwarded, JSON; `version` counts its changes. Where `closing` is set, from
    outside or since it failed, nothing is taken any more.
    """

    def __init__(self, journal: Journal, precision: float) -> None:
        self.closing = Event()
        self._journal, self._precision = journal, precision
        self._filters: dict[str, tuple[Filter, ...]] = {}
        self._greedy: set[str] = set()
        self._texts: dict[Filter, str] = {}
        self._changed = True
        self.version, self.body = 0, b""
        self._sampled, self._rested = -SAMPLE, 0.0
        self._table = Table(Merging.PERFECT, effort=QUICK)

    def measures(self) -> Measures:
        """Size and precision as they are now, also while it is being made."""
        found = self._table.measures()
        return replace(found, forwarded=1, precision=1.0) if self._greedy else found

    def take(self, changes: Mapping[str, Wish | None]) -> None:
        """Takes what definitions want from now on; None: they are gone. Raises `Closed`."""
        try:
            self._take(changes)
        except BaseException:
            # What it holds is less than what is wanted, perhaps.
            self.closing.set()
            raise

    def _take(self, changes: Mapping[str, Wish | None]) -> None:
        self._rest(0.0)
        if self._precision < 1.0:
            self._renew()
        for key, wish in changes.items():
            filters = () if wish is None else outward(wish, _is_open)
            greedy = filters is None
            self._changed |= greedy != (key in self._greedy)
            (self._greedy.add if greedy else self._greedy.discard)(key)
            self._put(key, filters or ())
        if self._changed:
            self.version, self.body, self._changed = self.version + 1, body_of(self.texts()), False

    def texts(self) -> tuple[str, ...]:
        """The forwarded filters."""
        if self._greedy:
            return EVERYTHING
        for filter, text in self._texts.items():
            self._texts[filter] = text or write(filter)
        return tuple(self._texts.values())

    def _put(self, key: str, filters: tuple[Filter, ...]) -> None:
        before = self._filters.pop(key, ())
        if filters:
            self._filters[key] = filters
        for number in range(max(len(before), len(filters))):
            began, id = time.monotonic(), f"{number} {key}"
            if number >= len(filters):
                self._note(self._table.remove(id))
            elif number >= len(before) or filters[number] != before[number]:
                self._note(self._table.add(id, filters[number]))
            self._rest(time.monotonic() - began)

    def _rest(self, seconds: float) -> None:
        if self.closing.wait(seconds):
            raise Closed

    def _note(self, change: Change) -> None:
        for filter in change.withdrawn:
            del self._texts[filter]
        self._texts.update(dict.fromkeys(change.added, ""))
        self._changed |= bool(change.added or change.withdrawn)

    def _renew(self) -> None:
        """Makes the table anew where enough has come that may show another precision."""
        began, end = time.monotonic(), self._journal.end("events")
        if began < self._rested or end < self._sampled + SAMPLE:
            return
        self._sampled = end
        before, self._filters, self._texts = self._filters, {}, {}
        self._table = Table(Merging.IMPERFECT, _traffic(self._journal, end), self._precision, QUICK)
        for key, filters in before.items():
            self._put(key, filters)
        self._rested = time.monotonic() + max(PAUSE, REST * (time.monotonic() - began))
        self._changed = True


def body_of(texts: tuple[str, ...]) -> bytes:
    """The answer that says that these filters are forwarded."""
    return orjson.dumps({"filters": texts})


def _traffic(journal: Journal, end: int) -> Traffic:
    """The newest events, or, where they are large, some of them."""
    after = max(0, end - SAMPLE)
    rows = journal.read("events", after, journal.reach("events", after, SAMPLE) - after)
    return Traffic([event for event in to_events(rows) if not event.control])


def _is_open(atom: Atom) -> bool:
    """Whether a publisher cannot tell an atom's truth: it rests on more than the event, or CQL2 cannot say it."""
    if rests_on_more(atom):
        return True
    try:
        write(atom)
    except DefinitionError:
        return True
    return False
