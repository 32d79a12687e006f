"""The second stage, relate: what happens between entities, as events of its own (SEMANTICS §7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from nearcast.decision.relate.reference import At, Lists, Reference
from nearcast.decision.repository import Repository
from nearcast.model.event import Event
from nearcast.model.relation import Relation


class Relating:
    """Relations over the batches of a journal: `Relating(registry.relations.values(), lists)` at its beginning.

    `lists` are the clients' lists, `{client.id: client.lists}`. Call `advance` for every batch, in order, also while
    there are no relations: it then looks at the changes only. The whole object may be pickled; its state is as of the
    last batch's end. How the journal is cut into batches does not change what is told.
    """

    def __init__(self, relations: Iterable[Relation] = (), lists: Lists | None = None) -> None:
        self._reference = Reference(relations, lists)

    def advance(
        self,
        changes: Sequence[At],
        events: pa.Table,
        repository: Repository,
        times: Mapping[int, datetime | None] | None = None,
    ) -> list[Event]:
        """What a batch causes, ascending by position and part.

        `changes` are all of the batch, (position, change): those of relations and clients count, others are passed
        over. `events` are those of the world, of `EVENTS`, ascending by position. `repository` does not have the batch
        yet: it is read when the first relation is defined. `times` has, for the positions of control events, their
        time, else that of their acceptance; it is what the present state of a new relation is told to be of.
        """
        return self._reference.advance(changes, events, repository, times)
