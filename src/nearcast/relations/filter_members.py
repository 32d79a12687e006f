"""Which entities satisfy the filters of sides, in columns: kept, and carried on over stretches of the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from copy import copy

import numpy as np
import pyarrow as pa

from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.spatial.geometry_sharing import fixed_spatial, selected_within_budget
from nearcast.model.arrays import Flags
from nearcast.model.filter import Filter
from nearcast.model.limits import Limits
from nearcast.model.relation import Named
from nearcast.relations.candidates import Members
from nearcast.relations.entity_table import EntityTable, GrowableTable
from nearcast.relations.pair_rules import PairRule, PairRules
from nearcast.relations.reports import ReportTable
from nearcast.state.spatial_windows import SpatialWindows
from nearcast.state.timeline import Excess


class FilterMembers:
    """By the number of a filter a column of the entities: whether their newest events satisfy it."""

    def __init__(self) -> None:
        self.columns: dict[int, GrowableTable] = {}
        self._index: FilterMatcher | None = None
        self._spatial = SpatialWindows()

    def copy(self) -> FilterMembers:
        """The same, which goes on by itself."""
        found = copy(self)
        found.columns = {number: one.copy() for number, one in self.columns.items()}
        return found

    def add_column(self, filter: int, inside: Flags) -> None:
        """Begins with a filter, and with what is known of entities."""
        self._index = None
        self.columns[filter] = GrowableTable({"inside": np.False_})
        self.columns[filter].append(len(inside), inside=inside)

    def column(self, filter: int, known: EntityTable) -> Flags:
        """Which entities satisfy a filter; what is written into it stays."""
        column = self.columns[filter]
        if column.length < len(known):
            column.append(len(known) - column.length)
        return column["inside"]

    def present(self, known: EntityTable) -> Members:
        """The columns of all filters."""
        return {number: self.column(number, known) for number in self.columns}

    def over(
        self,
        filters: dict[Filter, int],
        known: EntityTable,
        reports: ReportTable,
        limits: Limits,
        excess: Counter[Excess],
    ) -> Members:
        """For each filter in use which points of a stretch satisfy it."""
        if not filters:
            return {}
        # Compiled once for all filters in use; a new or ended relation lets it go.
        if self._index is None:
            self._index, self._spatial = FilterMatcher((), list(filters)), fixed_spatial(filters)
        found = selected_within_budget(self._index, self._spatial, reports.table, limits, excess)
        members = {
            number: np.concatenate([self.column(number, known), flags[reports.row]])
            for number, flags in zip(filters.values(), found, strict=True)
        }
        if reports.origin is not None:
            for flags in members.values():
                flags[reports.known :] = flags[reports.origin]
        return members

    def remember(self, members: Members, reports: ReportTable, known: EntityTable) -> None:
        """Goes on to the end of a stretch."""
        last = reports.last_told_of_each()
        for number, flags in members.items():
            self.column(number, known)[reports.entity[last]] = flags[reports.known + last]

    def forget(self, gone: Flags, kept: Flags, known: EntityTable) -> None:
        """Forgets entities, and drops the rows of those that are not kept."""
        for number, column in self.columns.items():
            self.column(number, known)[gone] = False
            column.keep(kept)

    def drop(self, numbers: Collection[int]) -> None:
        """Drops filters by their numbers."""
        for number in numbers:
            del self.columns[number]
            self._index = None


def selected_by(
    filter: Filter, among: Collection[Filter], events: pa.Table, limits: Limits, excess: Counter[Excess]
) -> Flags:
    """Which events a filter selects, where all these share the work on geometries."""
    return selected_within_budget(FilterMatcher((), [filter]), fixed_spatial(among), events, limits, excess)[0]


def reports_of_sides(
    rules: PairRules, known: EntityTable, reports: ReportTable, members: Members, rule: PairRule
) -> Flags:
    """Which reports are of a side of a rule."""
    found = np.zeros(len(reports.row), np.bool_)
    for side, number in zip((rule.pair.a, rule.pair.b), rules.filter_numbers(rule), strict=True):
        if isinstance(side, Named):
            found |= reports.entity == known.numbers[side.entity]
        else:
            found |= members[number][reports.known :]
    return found if reports.repeats is None else found & ~reports.repeats
