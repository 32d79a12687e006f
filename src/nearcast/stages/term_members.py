"""The entities that location terms ask for, followed through the batches (semantics §4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from nearcast.matching.matcher import FilterMatcher
from nearcast.model.arrays import Flags
from nearcast.model.columns import places_of
from nearcast.model.filter import Entities
from nearcast.model.limits import Limits
from nearcast.state.repository import Repository, entities
from nearcast.state.timeline import EntityMembership, Excess, Followed, TermMembers


class MembershipTracker:
    """The members of every location term in use, as the next batch begins with them."""

    def __init__(self) -> None:
        self._members: dict[Entities, TermMembers] = {}

    def members_over(
        self,
        terms: Sequence[Entities],
        index: FilterMatcher,
        events: pa.Table,
        repository: Repository,
        limits: Limits | None = None,
        excess: Counter[Excess] | None = None,
    ) -> Followed:
        """The terms' members over a batch; `index` has only their conditions, `repository` lacks the batch yet.

        What comes to one of the limits, the defaults unless others are given, is counted in `excess`.
        """
        followed = Followed()
        if terms:
            select = partial(_selected, index, terms, limits, excess)
            newest = repository.newest() if any(term not in self._members for term in terms) else None
            start = select(newest) if newest is not None else {}
            change = select(events)
            for term in terms:
                base = self._members.get(term) or TermMembers(dict(_members(newest, start[term])))
                followed[term] = TermMembers(base.base, _joined_and_left(base.base, events, change[term]))
        self._members = {term: members.after() for term, members in followed.items()}
        return followed

    def forget(self, entities: Collection[str]) -> None:
        """Drops some entities: they are nobody's members until they report again."""
        for members in self._members.values():
            for entity in entities:
                members.base.pop(entity, None)


def _selected(
    index: FilterMatcher,
    terms: Sequence[Entities],
    limits: Limits | None,
    excess: Counter[Excess] | None,
    events: pa.Table,
) -> dict[Entities, Flags]:
    """Which of the events satisfy the conditions of each term; a term without conditions takes all."""
    found = iter(index.selected(events, limits, excess))
    return {term: np.ones(len(events), np.bool_) if term.conditions is None else next(found) for term in terms}


def _rows(events: pa.Table) -> Iterator[tuple[int, str, EntityMembership]]:
    """Position, entity and place of every event."""
    positions = events.column("position").to_pylist()
    for position, entity, place in zip(positions, entities(events).to_pylist(), places_of(events), strict=True):
        yield position, entity, EntityMembership(place)


def _members(events: pa.Table, inside: Flags) -> Iterator[tuple[str, EntityMembership]]:
    for (_, entity, member), selected in zip(_rows(events), inside.tolist(), strict=True):
        if selected:
            yield entity, member


def _joined_and_left(
    base: dict[str, EntityMembership], events: pa.Table, inside: Flags
) -> list[tuple[int, str, EntityMembership | None]]:
    """The changes that a batch makes to the members of a term; an entity that was not one and is not is no change."""
    present = set(base)
    changes: list[tuple[int, str, EntityMembership | None]] = []
    for (position, entity, member), selected in zip(_rows(events), inside.tolist(), strict=True):
        if selected:
            present.add(entity)
            changes.append((position, entity, member))
        elif entity in present:
            present.remove(entity)
            changes.append((position, entity, None))
    return changes
