"""Readings in cells: those near a centre are found without looking at others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from nearcast.decision.infer.grid import Cell, beside, cell_of, level_of
from nearcast.decision.infer.readings import Centre, Reading, is_near

Cells = dict[Cell, dict[str, Reading]]
"""The readings of one class in cells of one size, by entity."""


@dataclass(slots=True)
class IndexedReadings:
    """The newest reading of every class by every entity. `levels` are the sizes of cells that a class is asked for by,
    `areas` the named places that matter.
    """

    levels: Mapping[str, Collection[int]] = field(default_factory=dict)
    areas: frozenset[str] = frozenset()
    _all: dict[tuple[str, str], Reading] = field(default_factory=dict)
    _cells: dict[tuple[str, int], Cells] = field(default_factory=dict)
    _inside: dict[tuple[str, str], dict[str, Reading]] = field(default_factory=lambda: defaultdict(dict))

    def prepare(self, levels: Mapping[str, Collection[int]], areas: frozenset[str]) -> None:
        """Sorts what there is into cells of other sizes."""
        self.levels, self.areas = levels, areas
        self._cells = {(name, level): {} for name, found in levels.items() for level in found}
        self._inside.clear()
        # What no rule asks for is not kept.
        self._all = {key: one for key, one in self._all.items() if one.name in levels}
        for reading in self._all.values():
            self._place(reading)

    def put(self, reading: Reading) -> Reading | None:
        """Takes a reading in; gives the one that it replaces."""
        key = (reading.entity, reading.name)
        old = self._all.get(key)
        self._all[key] = reading
        if old is not None:
            self._displace(old, reading)
        self._place(reading)
        return old

    def _place(self, reading: Reading) -> None:
        place = reading.place
        if place is not None:
            for level in self.levels.get(reading.name, ()):
                cells = self._cells[reading.name, level]
                cell = cell_of(place, level)
                here = cells.get(cell)
                if here is None:
                    cells[cell] = {reading.entity: reading}
                else:
                    here[reading.entity] = reading
        if reading.areas and self.areas:
            for area in reading.areas & self.areas:
                self._inside[reading.name, area][reading.entity] = reading

    def _displace(self, old: Reading, new: Reading) -> None:
        """Takes a reading out of where the one that replaces it is not."""
        if old.place is not None and old.place != new.place:
            for level in self.levels.get(old.name, ()):
                cell = cell_of(old.place, level)
                here = self._cells[old.name, level][cell]
                del here[old.entity]
                if not here:
                    del self._cells[old.name, level][cell]
        for area in (old.areas - new.areas) & self.areas:
            del self._inside[old.name, area][old.entity]

    def newest(self, entity: str, name: str) -> Reading | None:
        """The newest reading of a class by an entity."""
        return self._all.get((entity, name))

    def near(self, names: Collection[str], centre: Centre, metres: float) -> Iterable[Reading]:
        """The readings of these classes within metres of a centre."""
        found = []
        for name in names:
            own = self._all.get((centre.entity, name))
            if own is not None and (own.place is None or centre.place is None):
                found.append(own)
        if centre.place is None:
            return found
        level = level_of(metres)
        around = list(beside(cell_of(centre.place, level)))
        for name in names:
            cells = self._cells.get((name, level))
            if cells:
                for cell in around:
                    here = cells.get(cell)
                    if here is not None:
                        found += [one for one in here.values() if is_near(centre, one, metres)]
        return found

    def inside(self, names: Collection[str], area: str) -> Iterable[Reading]:
        """The readings of these classes in a named place."""
        return [one for name in names for one in self._inside.get((name, area), {}).values()]
