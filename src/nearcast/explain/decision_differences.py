"""How two decisions of the same events differ: what was delivered, and what would be.

A delivery is of an event and a client. Derived events have ids that end with their number among those of one cause,
which changes with what else is derived: here they are told apart by the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

Kind = Literal["no longer", "new", "otherwise"]

MOST_EXAMPLES = 20
"""Differences that are kept to be shown; all are counted."""


class DeliveryKey(NamedTuple):
    """What a delivery is of: position, id of the event (of a derived one without its number), how often that was before
    for the same client, client.
    """

    position: int
    event: str
    repeated: int
    client: str


@dataclass(frozen=True, slots=True)
class DeliveryDifference:
    """A delivery that there was (`before`: subscription and level) or would be (`after`), or that would be another."""

    key: DeliveryKey
    type: str
    subject: str
    before: tuple[str, int] | None
    after: tuple[str, int] | None

    @property
    def kind(self) -> Kind:
        """What became of it."""
        return "new" if self.before is None else "no longer" if self.after is None else "otherwise"


@dataclass
class DecisionDifferences:
    """Counts by client and kind, beside `delivered` and `would be`, of derived events, and the first differences."""

    clients: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    derived: Counter[str] = field(default_factory=Counter)
    examples: list[DeliveryDifference] = field(default_factory=list)

    @property
    def any(self) -> bool:
        """Whether anything differs."""
        kinds = ("no longer", "new", "otherwise")
        return any(counts[kind] for counts in (self.derived, *self.clients.values()) for kind in kinds)

    def note(self, events: pa.Table, derived: pa.Table, before: pa.Table, after: pa.Table) -> None:
        """Compares a stretch of positions: DELIVERIES before and after, of published `events` with those that are
        derived now, and the events that were `derived` then (both EVENTS).
        """
        for name, table in (("delivered", before), ("would be", after)):
            for client, count in _counted(table.column("client")):
                self.clients[client][name] += count
        now = events.filter(pc.greater(events.column("part"), 0))
        self._note_derived(_stems(derived), _stems(now))
        # Nearly always, under the same definitions.
        columns = ["position", "part", "client", "subscription", "level"]
        if before.select(columns).equals(after.select(columns)) and _same(derived, now):
            return
        published = events.filter(pc.equal(events.column("part"), 0))
        self._note_deliveries(_deliveries(before, pa.concat_tables([published, derived])), _deliveries(after, events))

    def _note_derived(self, then: Counter[tuple[int, str]], now: Counter[tuple[int, str]]) -> None:
        self.derived["then"] += then.total()
        self.derived["now"] += now.total()
        self.derived["no longer"] += (then - now).total()
        self.derived["new"] += (now - then).total()

    def _note_deliveries(self, before: Mapping[DeliveryKey, _Decided], after: Mapping[DeliveryKey, _Decided]) -> None:
        for key in sorted(before.keys() | after.keys()):
            then, now = before.get(key), after.get(key)
            if then is not None and now is not None and then.decided == now.decided:
                continue
            event = then or now
            assert event is not None
            found = DeliveryDifference(key, event.type, event.subject, then and then.decided, now and now.decided)
            self.clients[key.client][found.kind] += 1
            if len(self.examples) < MOST_EXAMPLES:
                self.examples.append(found)


class _Decided(NamedTuple):
    type: str
    subject: str
    decided: tuple[str, int]


def _counted(clients: pa.ChunkedArray) -> Iterator[tuple[str, int]]:
    found = pc.value_counts(clients)
    return zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True)


def _stem(id: str, part: int) -> str:
    return id.rpartition(".")[0] or id if part else id


def _stems(derived: pa.Table) -> Counter[tuple[int, str]]:
    """How often there is each derived event."""
    columns = (derived.column(name).to_pylist() for name in ("position", "id", "part"))
    return Counter((position, _stem(id, part)) for position, id, part in zip(*columns, strict=True))


def _same(then: pa.Table, now: pa.Table) -> bool:
    columns = ["position", "part", "id"]
    return bool(then.select(columns).equals(now.select(columns)))


def _deliveries(table: pa.Table, events: pa.Table) -> dict[DeliveryKey, _Decided]:
    """What is delivered, in the order of the log."""
    names = ("position", "part", "id", "type", "subject", "source")
    rows = zip(*(events.column(name).to_pylist() for name in names), strict=True)
    known = {(position, part): (id, type_, subject or source) for position, part, id, type_, subject, source in rows}
    found: dict[DeliveryKey, _Decided] = {}
    columns = (table.column(name).to_pylist() for name in ("position", "part", "client", "subscription", "level"))
    for position, part, client, subscription, level in zip(*columns, strict=True):
        id, type_, subject = known.get((position, part), ("?", "?", "?"))
        key, repeated = DeliveryKey(position, _stem(id, part), 0, client), 0
        while key in found:
            repeated += 1
            key = key._replace(repeated=repeated)
        found[key] = _Decided(type_, subject, (subscription, level))
    return found
