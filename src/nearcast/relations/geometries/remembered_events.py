"""The newest event of every entity, where a predicate of pairs needs more of it than its place."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from nearcast.model.arrays import Flags, Integers
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.relations.candidates import BothBoxes
from nearcast.relations.entity_table import GrowableTable
from nearcast.relations.evaluations import read
from nearcast.relations.geometries.boxes import BOX, PointBoxes, box_table, place_boxes, told_box
from nearcast.relations.pair_rules import PairRule
from nearcast.relations.reports import ReportTable

if TYPE_CHECKING:
    from nearcast.geo.told_geometry import ToldGeometries


class RememberedEvents:
    """By the entity's number its newest event, `geometries` that were read of it, and the box around what it tells.

    Both follow from the event, and are made where they are asked for.
    """

    def __init__(self) -> None:
        self.events: dict[int, Event] = {}
        self.geometries: dict[int, ToldGeometries] = {}
        self._boxes: GrowableTable | None = None
        self._limits = Limits()

    def copy(self) -> RememberedEvents:
        """The same, which goes on by itself."""
        found = copy(self)
        found.events, found.geometries = dict(self.events), dict(self.geometries)
        found._boxes = None if self._boxes is None else self._boxes.copy()
        return found

    def limit(self, limits: Limits) -> None:
        """Goes on within other limits: what cannot be read within some has no box within these."""
        self._limits, self._boxes = limits, None
        self.geometries.clear()

    def begin(self, events: Mapping[int, Event]) -> None:
        """Begins with these events."""
        self.events, self.geometries, self._boxes = dict(events), {}, None

    def remember(self, numbers: Sequence[int], events: Collection[Event], entities: int) -> None:
        """Goes on with newer events of some entities, by their numbers, of so many `entities` that there are."""
        self.events.update(zip(numbers, events, strict=True))
        for number in numbers:
            self.geometries.pop(number, None)
        if self._boxes is not None:
            self._set_boxes(self._boxes, zip(numbers, events, strict=True), entities)

    def renumber(self, numbers: Integers, gone: Flags, kept: Flags) -> None:
        """Drops what is known of entities that are gone; `numbers` has the new number of each that is `kept`."""
        self.events = {int(numbers[one]): event for one, event in self.events.items() if not gone[one]}
        self.geometries = {int(numbers[one]): own for one, own in self.geometries.items() if not gone[one]}
        if self._boxes is None:
            return
        # The geometries of the others are not read again: there may be very many.
        self._boxes.append(len(gone) - self._boxes.length)
        for name, nothing in BOX.items():
            self._boxes[name][gone] = nothing
        self._boxes.keep(kept)

    def boxes_of_points(self, reports: ReportTable, rules: Iterable[PairRule]) -> dict[int, BothBoxes]:
        """By number the boxes of all points as either side of those rules that hold only where they meet."""
        own = {rule.number: rule.boxes for rule in rules if rule.boxes and not math.isfinite(rule.metres)}
        made: dict[bool, PointBoxes] = {}
        for told in {told for both in own.values() for told in both}:
            made[told] = self._told_boxes(reports) if told else place_boxes(reports)
        return {number: (made[a], made[b]) for number, (a, b) in own.items()}

    def unread(self, told: PointBoxes, reports: ReportTable, first: int) -> Iterator[Event]:
        """The events from a point on whose geometries are not read for their limits."""
        points = first + np.flatnonzero(told.are_beyond(self._limits)[first:])
        rows = reports.row[reports.told(points[points >= reports.known] - reports.known)]
        yield from (self.events[point] for point in points[points < reports.known].tolist())
        yield from read(reports.table, rows) if len(rows) else ()

    def _told_boxes(self, reports: ReportTable) -> PointBoxes:
        """Of each point the box of the geometries that it tells."""
        if self._boxes is None:
            self._boxes = box_table()
            self._set_boxes(self._boxes, self.events.items(), reports.known)
        table = self._boxes
        table.append(reports.known - table.length)
        rows = [np.stack([table[name] for name in BOX], axis=1)]
        if len(reports.row):
            rows.append(np.array([told_box(event, self._limits) for event in read(reports.table, reports.row)]))
        found = np.concatenate(rows)
        if reports.origin is not None:
            found[reports.known :] = found[reports.origin]
        return PointBoxes.of(found)

    def _set_boxes(self, table: GrowableTable, events: Iterable[tuple[int, Event]], entities: int) -> None:
        # Entities may have come since it was last looked at.
        table.append(entities - table.length)
        for number, event in events:
            for name, value in zip(BOX, told_box(event, self._limits), strict=True):
                table[name][number] = value
