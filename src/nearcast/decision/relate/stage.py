"""The second stage, relate: what happens between entities, as events of its own (SEMANTICS §7).

Relations between pairs are evaluated in columns, over stretches in which no definition changes; gatherings, and
relations about what relations tell, event by event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.decision.derived import Stretch
from nearcast.decision.relate.pairing import Pairing
from nearcast.decision.relate.reference import At, Known, Lists, Plain
from nearcast.decision.relate.reports import NEVER, Entities, Reports, moment_of
from nearcast.decision.relate.sides import sees_derived
from nearcast.decision.relate.telling import Cause, Told, events_of
from nearcast.decision.repository import Repository, entities, last_of_each
from nearcast.model.changes import Change, ClientChange, ClientRemoval, RelationChange, RelationRemoval
from nearcast.model.columns import to_events
from nearcast.model.event import Event
from nearcast.model.relation import Pair, Relation

Newest = Callable[[], pa.Table]
"""Gives the newest event that counts of every entity, where it is asked for."""

STRETCH = 8_192
"""Rows that are evaluated together at most: enough for columns to pay, few enough for little memory."""


class Relating:
    """Relations over the batches of a journal: `Relating(registry.relations.values(), lists)` at its beginning.

    `lists` are the clients' lists, `{client.id: client.lists}`. Call `advance` for every batch, in order, also while
    there are no relations: it then looks at the changes only. The whole object may be pickled; its state is as of the
    last batch's end. How the journal is cut into batches does not change what is told.
    """

    def __init__(self, relations: Iterable[Relation] = (), lists: Lists | None = None) -> None:
        self._now = NEVER
        self._sequence = 0
        self._relations: dict[str, Relation] = {}
        self._known = Entities()
        self._overtaken: dict[int, pa.Table] = {}
        self._pairing = Pairing(self._known)
        self._plain = Plain()
        self._plain.lists |= lists or {}
        for relation in relations:
            self._define(relation, None, None)

    @property
    def pairing(self) -> Pairing:
        """The relations between pairs."""
        return self._pairing

    def advance(self, stretch: Stretch) -> list[Event]:
        """See `Deriving`."""
        return self.fold(stretch.changes, stretch.events, stretch.repository, stretch.times)

    def fold(
        self,
        changes: Sequence[At],
        events: pa.Table,
        repository: Repository,
        times: Mapping[int, datetime | None] | None = None,
    ) -> list[Event]:
        """What a batch causes, ascending by position and part.

        `changes` are all of the batch, (position, change): those of relations and clients count, others are passed
        over. `events` are those of the world, of `EVENTS`, ascending by position. `repository` does not have the batch
        yet: it is read when a relation is defined. `times` has, for the positions of control events, their time, else
        that of their acceptance; it is what the present state of a new relation is told to be of.
        """
        told: list[Event] = []
        done = 0
        positions = events.column("position").to_numpy() if changes else np.zeros(0)
        for position, change in changes:
            if not self._concerns(change):
                self._plain.note_lists(change)
                continue
            until = int(np.searchsorted(positions, position))
            told += self._stretches(events, done, until, repository)
            done = until
            moment = (times or {}).get(position)
            cause = Cause(position, moment, moment)
            found = self._change(change, cause, partial(self._newest, repository, events.slice(0, done)))
            told += self._plain.told(found, cause)
            if not self._relations:
                self._reset()
        return told + self._stretches(events, done, len(events), repository)

    def _concerns(self, change: Change) -> bool:
        """Whether a change does anything to relations; lists are noted also where nobody asks for them."""
        match change:
            case RelationChange(relation):
                return self._relations.get(relation.id) != relation
            case RelationRemoval(id):
                return id in self._relations
            case ClientChange(lists=lists):
                return lists is not None and len(self._plain) > 0
            case ClientRemoval():
                return len(self._plain) > 0
        return False

    def _change(self, change: Change, cause: Cause, newest: Newest) -> list[Told]:
        match change:
            case RelationChange(relation):
                if not self._relations:
                    self._now = self._known.begin(newest())
                return [*self._end(relation.id), *self._define(relation, cause, newest)]
            case RelationRemoval(id):
                return self._end(id)
            case ClientChange() | ClientRemoval():
                self._plain.note_lists(change)
                return self._plain.relisted(change.client, cause)
        return []

    def _define(self, relation: Relation, cause: Cause | None, newest: Newest | None) -> list[Told]:
        self._sequence += 1
        self._relations[relation.id] = relation
        if isinstance(relation.about, Pair) and not sees_derived(relation):
            return self._pairing.define(relation, self._sequence, newest, self._now, cause)
        if not len(self._plain) and newest is not None:
            self._begin_plain(newest())
        return self._plain.define(relation, self._sequence, cause)

    def _begin_plain(self, newest: pa.Table) -> None:
        heard = self._known.columns["heard"]
        self._plain.now = moment_of(self._now)
        self._plain.known = {
            event.entity: Known(event, moment_of(int(heard[self._known.number(event.entity)])))
            for event in to_events(newest)
        }

    def _end(self, id: str) -> list[Told]:
        if self._relations.pop(id, None) is None:
            return []
        found = self._pairing.end(id) if id in self._pairing.rules.by_id else self._plain.end(id)
        if not len(self._plain):
            self._plain.known = {}
        return found

    def _reset(self) -> None:
        """Without relations nothing is kept; the first new one begins with what the repository has."""
        self._now, self._known, self._overtaken = NEVER, Entities(), {}
        self._pairing = Pairing(self._known)

    def _newest(self, repository: Repository, passed: pa.Table) -> pa.Table:
        """The newest event that counts of every entity; the repository has the last one, also if it came late."""
        tables = [repository.newest(), passed, *self._overtaken.values()]
        together = pa.concat_tables(tables)
        return together.take(pa.array(last_of_each(entities(together))))

    def _stretches(self, events: pa.Table, start: int, stop: int, repository: Repository) -> list[Event]:
        """What happens from one row of a batch to another."""
        told: list[Event] = []
        if not self._relations:
            return told
        for first in range(start, stop, STRETCH):
            table = events.slice(first, min(STRETCH, stop - first))
            reports = Reports.of(table, self._known, self._now)
            told += self._stretch(reports)
            self._keep_overtaken(reports, partial(self._newest, repository, events.slice(0, first)))
            self._known.update(reports)
            self._now = int(reports.now[-1])
        return told

    def _stretch(self, reports: Reports) -> list[Event]:
        found: dict[int, list[Told]] = {}
        for row, one in self._pairing.advance(reports):
            found.setdefault(row, []).append(one)
        told: list[Event] = []
        if len(self._plain):
            for row, event in enumerate(to_events(reports.table)):
                cause = Cause(event.position, event.time, event.accepted)
                told += self._plain.told([*found.get(row, ()), *self._plain.report(event)], cause)
            return told
        for row in sorted(found):
            told += events_of(found[row], _cause(reports.table, row), 1)
        return told

    def _keep_overtaken(self, reports: Reports, newest: Newest) -> None:
        """Keeps what counts of entities whose last report came late: the repository will have that report instead."""
        if not self._overtaken and not len(reports.late):
            return
        last = reports.last_of_each()
        for number in reports.entity[last].tolist():
            self._overtaken.pop(number, None)
        own = dict(zip(reports.entity[last].tolist(), reports.row[last].tolist(), strict=True))
        for number in reports.late.tolist():
            if number in own:
                self._overtaken[number] = reports.table.take(pa.array([own[number]]))
            elif number not in self._overtaken:
                known = newest()
                at = pc.equal(known.column("position"), int(self._known.columns["position"][number]))
                self._overtaken[number] = known.filter(at)


def _cause(table: pa.Table, row: int) -> Cause:
    return Cause(*(table.column(name)[row].as_py() for name in ("position", "time", "accepted")))
