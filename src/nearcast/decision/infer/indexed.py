"""Readings in cells: those near a centre are found without looking at others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nearcast.decision.infer.completing import Completing
from nearcast.decision.infer.grid import Cell, beside, cell_of, level_of
from nearcast.decision.infer.plan import Plan
from nearcast.decision.infer.readings import Centre, Reading, is_near
from nearcast.model.ontology import Ontology

Cells = dict[Cell, dict[str, Reading]]
"""The readings of one class in cells of one size, by entity."""


@dataclass(slots=True)
class IndexedReadings:
    """The newest reading of every class by every entity. `levels` are the sizes of cells that a class is asked for by,
    `areas` the named places that matter.
    """

    levels: Mapping[str, Collection[int]] = field(default_factory=dict)
    areas: frozenset[str] = frozenset()
    completing: Completing = field(default_factory=lambda: Completing(Plan(Ontology())))
    _sizes: list[int] = field(default_factory=list)
    _all: dict[tuple[str, str], tuple[Reading, Mapping[int, Cell]]] = field(default_factory=dict)
    _cells: dict[tuple[str, int], Cells] = field(default_factory=dict)
    # What was found around the centre that was asked for last.
    _centre: Centre | None = None
    _around: dict[int, tuple[Cell, ...]] = field(default_factory=dict)
    _found: dict[tuple[Collection[str], float], list[Reading]] = field(default_factory=dict)
    _inside: dict[tuple[str, str], dict[str, Reading]] = field(default_factory=lambda: defaultdict(dict))

    def prepare(self, levels: Mapping[str, Collection[int]], areas: frozenset[str], completing: Completing) -> None:
        """Sorts what there is into cells of other sizes, for other conditions."""
        self.levels, self.areas, self.completing = levels, areas, completing
        self._centre = None
        self._sizes = sorted({level for found in levels.values() for level in found})
        self._cells = {(name, level): {} for name, found in levels.items() for level in found}
        self._inside.clear()
        # What no rule asks for is not kept.
        kept = [one for one, _ in self._all.values() if one.name in levels]
        self._all = {}
        for reading in kept:
            self.put(reading)

    def put(self, reading: Reading) -> Reading | None:
        """Takes a reading in; gives the one that it replaces."""
        self._centre = None
        key = (reading.entity, reading.name)
        place = reading.place
        cells = {} if place is None else {level: cell_of(place, level) for level in self._sizes}
        old = self._all.get(key)
        self._all[key] = (reading, cells)
        if old is not None:
            self._displace(*old, reading, cells)
        self._place(reading, cells)
        self.completing.put(reading, cells)
        return None if old is None else old[0]

    def _place(self, reading: Reading, cells: Mapping[int, Cell]) -> None:
        if cells:
            for level in self.levels.get(reading.name, ()):
                here = self._cells[reading.name, level]
                cell = cells[level]
                if cell in here:
                    here[cell][reading.entity] = reading
                else:
                    here[cell] = {reading.entity: reading}
        if reading.areas and self.areas:
            for area in reading.areas & self.areas:
                self._inside[reading.name, area][reading.entity] = reading

    def _displace(self, old: Reading, before: Mapping[int, Cell], new: Reading, after: Mapping[int, Cell]) -> None:
        """Takes a reading out of where the one that replaces it is not."""
        for level in self.levels.get(old.name, ()) if before else ():
            cell = before[level]
            if cell != after.get(level):
                cells = self._cells[old.name, level]
                del cells[cell][old.entity]
                if not cells[cell]:
                    del cells[cell]
        if old.areas:
            for area in (old.areas - new.areas) & self.areas:
                del self._inside[old.name, area][old.entity]

    def newest(self, entity: str, name: str) -> Reading | None:
        """The newest reading of a class by an entity."""
        found = self._all.get((entity, name))
        return None if found is None else found[0]

    def near(self, names: Collection[str], centre: Centre, metres: float) -> Iterable[Reading]:
        """The readings of these classes within metres of a centre."""
        if centre is not self._centre:
            self._centre = centre
            self._around.clear()
            self._found.clear()
        # Many rules ask for the same around one reading.
        key = (names, metres)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = list(self._near(names, centre, metres))
        return found

    def _near(self, names: Collection[str], centre: Centre, metres: float) -> Iterator[Reading]:
        for name in names:
            own = self.newest(centre.entity, name)
            if own is not None and (own.place is None or centre.place is None):
                yield own
        if centre.place is None:
            return
        level = level_of(metres)
        around = self._around.get(level)
        if around is None:
            around = self._around[level] = tuple(beside(cell_of(centre.place, level)))
        for name in names:
            cells = self._cells.get((name, level))
            if cells:
                for cell in around:
                    if cell in cells:
                        for one in cells[cell].values():
                            if is_near(centre, one, metres):
                                yield one

    def inside(self, names: Collection[str], area: str) -> Iterable[Reading]:
        """The readings of these classes in a named place."""
        return [one for name in names for one in self._inside.get((name, area), {}).values()]

    def everything(self) -> Iterable[Reading]:
        """All readings."""
        return [one for one, _ in self._all.values()]
