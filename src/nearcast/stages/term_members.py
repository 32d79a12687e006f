"""The entities that location terms ask for, followed through the batches (semantics §4).

Who is a member rests on the newest report of each entity and on the terms that are in use: their conditions share the
work that is allowed for a report's geometries (semantics §12). So members are looked at again where such conditions
come and go: all where some come, else those of whose report some were left undecided. Nobody else can be another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.filters.spatial_atoms import spatial_atoms
from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.spatial.geometry_sharing import ReportLooks, select_within_budget, selected_as_of
from nearcast.model.arrays import Flags, Integers
from nearcast.model.columns import EVENTS, places_of
from nearcast.model.filter import Atom, Entities
from nearcast.model.geometry_budget import SPENT
from nearcast.model.limits import Limits
from nearcast.state.repository import Repository, entities
from nearcast.state.spatial_windows import SeenAtoms, SpatialWindows
from nearcast.state.timeline import FOREVER, EntityMembership, Excess, Followed, TermMembers

EntityReport = tuple[int, str, EntityMembership]
"""Position, entity, and where that is."""


@dataclass(frozen=True, slots=True)
class TermConditions:
    """The location terms in use over a batch; `index` has only their conditions, `spatial` the atoms of these that read
    geometries.
    """

    terms: Sequence[Entities] = ()
    index: FilterMatcher = field(default_factory=lambda: FilterMatcher(()))
    spatial: SpatialWindows = field(default_factory=SpatialWindows)

    @staticmethod
    def of(terms: Sequence[Entities], spatial: SpatialWindows) -> TermConditions:
        """Terms with their conditions compiled."""
        conditions = [term.conditions for term in terms if term.conditions is not None]
        return TermConditions(terms, FilterMatcher((), conditions), spatial)

    def by_term(self, flags: Sequence[Flags], rows: int) -> dict[Entities, Flags]:
        """What was found for the conditions, by term; a term without conditions takes all."""
        found = iter(flags)
        return {one: np.ones(rows, np.bool_) if one.conditions is None else next(found) for one in self.terms}


class MembershipTracker:
    """The members of every location term in use, as the next batch begins with them."""

    def __init__(self) -> None:
        self._members: dict[Entities, TermMembers] = {}
        # What they rest on beside reports; and the entities that may be others where fewer atoms are there.
        self._atoms: tuple[Atom, ...] = ()
        self._limits = Limits()
        self._left: set[str] = set()

    def members_over(
        self,
        asked: TermConditions,
        events: pa.Table,
        repository: Repository,
        limits: Limits | None = None,
        excess: Counter[Excess] | None = None,
        positions: Integers | None = None,
    ) -> Followed:
        """The terms' members over a batch of events that count; `repository` lacks them yet.

        `positions`: of all events that ask for members, where not only these do. What comes to one of the limits, the
        defaults unless others are given, is counted in `excess`.
        """
        limits, followed = limits or Limits(), Followed()
        positions = events.column("position").to_numpy() if positions is None else positions
        if not len(positions):
            return followed
        if self._atoms and limits != self._limits:
            self._members = {}
        if asked.terms:
            seen = asked.spatial.seen(positions)
            batch = _TermBatch(asked, seen, limits, Counter() if excess is None else excess)
            base = self._base(batch, repository)
            reports, inside = self._reports(batch, events, repository)
            for term in asked.terms:
                followed[term] = TermMembers(base[term], _joined_and_left(base[term], reports, inside[term]))
            self._atoms, self._limits = seen.last, limits
        else:
            self._atoms, self._left = (), set()
        self._members = {term: members.after() for term, members in followed.items()}
        return followed

    def forget(self, entities: Collection[str]) -> None:
        """Drops some entities: they are nobody's members until they report again."""
        self._left.difference_update(entities)
        for members in self._members.values():
            for entity in entities:
                members.base.pop(entity, None)

    def _base(self, batch: _TermBatch, repository: Repository) -> dict[Entities, dict[str, EntityMembership]]:
        """The members of each term as the first event of a batch finds them."""
        seen, terms = batch.seen, batch.asked.terms
        renewed = seen.first != self._atoms
        came = frozenset(seen.whole.atoms).difference(self._atoms) if seen.whole.atoms != self._atoms else frozenset()
        lacking = [term for term in terms if term not in self._members or (came and _asks(term, came))]
        base = {term: self._members[term].base for term in terms if term in self._members}
        if lacking:
            newest = repository.newest()
            inside, left = batch.selected(newest, seen.steady and renewed)
            base |= {term: dict(_members(_rows(newest), inside[term])) for term in lacking}
            self._left.update(entities(newest).filter(pa.array(left)).to_pylist())
            if seen.steady:
                again = _are_of(newest, self._left)
                _set_members(base, newest.filter(pa.array(again)), {one: own[again] for one, own in inside.items()})
                return base
        if self._left and (renewed or lacking):
            again = self._left_reports(repository)
            looks = ReportLooks(np.arange(len(again)), np.full(len(again), seen.begin))
            _set_members(base, again, batch.looked_at(again, looks, renewed))
        return base

    def _reports(
        self, batch: _TermBatch, events: pa.Table, repository: Repository
    ) -> tuple[list[EntityReport], dict[Entities, Flags]]:
        """What entities report in a batch, and of each term whether it has them; also what they reported before,
        wherever that counts otherwise from then on.
        """
        reports = _rows(events)
        inside, left = batch.selected(events, batch.seen.steady)
        found = reports, inside
        if not batch.seen.steady and (left.any() or self._left):
            found = _with_looks(batch, self._left_reports(repository), events, inside, left)
        if left.any() or self._left:
            for (_, entity, _), some in zip(reports, left.tolist(), strict=True):
                (self._left.add if some else self._left.discard)(entity)
        return found

    def _left_reports(self, repository: Repository) -> pa.Table:
        """The newest events of the entities of which some atoms may have been left."""
        if not self._left:
            return EVENTS.empty_table()
        newest = repository.newest()
        return newest.filter(pa.array(_are_of(newest, self._left)))


@dataclass(frozen=True, slots=True)
class _TermBatch:
    """What it takes to decide who is a member over a batch.

    The limit on what all atoms may take for a report is counted when it comes, and again where others are there then;
    what an atom came to by itself when the report comes, or the term.
    """

    asked: TermConditions
    seen: SeenAtoms
    limits: Limits
    excess: Counter[Excess]

    def selected(self, events: pa.Table, counted: bool) -> tuple[dict[Entities, Flags], Flags]:
        """Which events satisfy the conditions of each term, with all atoms that any event of the batch sees; and of
        which some atoms were left, as is counted or not.
        """
        excess = Counter[Excess]()
        found = select_within_budget(self.asked.index, self.seen.whole, events, self.limits, excess)
        self.excess.update({one: number for one, number in excess.items() if counted or one[2] != SPENT})
        return self.asked.by_term(found.flags, len(events)), found.left

    def looked_at(self, reports: pa.Table, looks: ReportLooks, counted: bool) -> dict[Entities, Flags]:
        """The same of looks at reports, with the atoms that are there as of their positions."""
        excess = Counter[Excess]()
        flags = selected_as_of(self.asked.index, self.asked.spatial, reports, looks, self.limits, excess)
        self.excess.update({one: number for one, number in excess.items() if counted and one[2] == SPENT})
        return self.asked.by_term(flags, len(looks.rows))


def _asks(term: Entities, some: Collection[Atom]) -> bool:
    """Whether some of these atoms are in the conditions of a term."""
    return term.conditions is not None and any(atom in some for atom in spatial_atoms(term.conditions))


def _with_looks(
    batch: _TermBatch, earlier: pa.Table, events: pa.Table, inside: Mapping[Entities, Flags], left: Flags
) -> tuple[list[EntityReport], dict[Entities, Flags]]:
    """The reports of a batch, those of which some atoms are `left` by what the events behind them see, and so the
    `earlier` ones.
    """
    every = pa.concat_tables([earlier, events])
    reports = _rows(every)
    looks = _looks(reports, np.concatenate([np.ones(len(earlier), np.bool_), left]), len(earlier), batch.seen.renewed)
    again = batch.looked_at(every, looks, True)
    kept = np.flatnonzero(~left)
    row = np.concatenate([kept + len(earlier), looks.rows])
    # What holds for an event is a change just before it.
    position = np.concatenate([events.column("position").to_numpy()[kept], looks.positions - 1])
    order = np.lexsort((row, position))
    moved = zip(position[order].tolist(), row[order].tolist(), strict=True)
    flags = {term: np.concatenate([own[kept], again[term]])[order] for term, own in inside.items()}
    return [(at, *reports[number][1:]) for at, number in moved], flags


def _looks(rows: Sequence[EntityReport], left: Flags, earlier: int, renewed: Integers) -> ReportLooks:
    """At each report of which some atoms are left: when it comes, and before each event that finds other atoms, until
    the entity reports again. The first `earlier` reports came before the batch.
    """
    found: list[tuple[int, Sequence[int]]] = []
    until: dict[str, int] = {}
    for row in reversed(range(len(rows))):
        position, entity, _ = rows[row]
        if left[row]:
            begin, end = (np.searchsorted(renewed, at, "right") for at in (position, until.get(entity, FOREVER)))
            found.append((row, [*([position + 1] if row >= earlier else []), *renewed[begin:end].tolist()]))
        until[entity] = position
    found.reverse()
    counts = np.array([len(own) for _, own in found], np.int64)
    numbers = np.repeat(np.array([row for row, _ in found], np.int64), counts)
    return ReportLooks(numbers, np.array([at for _, own in found for at in own], np.int64))


def _rows(events: pa.Table) -> list[EntityReport]:
    """Position, entity and place of every event."""
    positions = events.column("position").to_pylist()
    names, places = entities(events).to_pylist(), places_of(events)
    return [(at, name, EntityMembership(place)) for at, name, place in zip(positions, names, places, strict=True)]


def _are_of(events: pa.Table, names: Collection[str]) -> Flags:
    """Which events are of some entities."""
    found: Flags = pc.is_in(entities(events), value_set=pa.array(sorted(names), pa.string())).to_numpy()
    return found


def _members(reports: Sequence[EntityReport], inside: Flags) -> Iterator[tuple[str, EntityMembership]]:
    for (_, entity, member), selected in zip(reports, inside.tolist(), strict=True):
        if selected:
            yield entity, member


def _set_members(
    base: Mapping[Entities, dict[str, EntityMembership]], events: pa.Table, inside: Mapping[Entities, Flags]
) -> None:
    """Makes the entities of some events members of a term, or not."""
    reports = _rows(events)
    for term, flags in inside.items():
        for (_, entity, member), selected in zip(reports, flags.tolist(), strict=True):
            base[term].pop(entity, None)
            if selected:
                base[term][entity] = member


def _joined_and_left(
    base: dict[str, EntityMembership], reports: Sequence[EntityReport], inside: Flags
) -> list[tuple[int, str, EntityMembership | None]]:
    """The changes that a batch makes to the members of a term; an entity that was not one and is not is no change."""
    present = set(base)
    changes: list[tuple[int, str, EntityMembership | None]] = []
    for (position, entity, member), selected in zip(reports, inside.tolist(), strict=True):
        if selected:
            present.add(entity)
            changes.append((position, entity, member))
        elif entity in present:
            present.remove(entity)
            changes.append((position, entity, None))
    return changes
