"""Readings in cells: those near a centre are found without looking at others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nearcast.decision.infer.completing import Completing, Condition
from nearcast.decision.infer.grid import Cell, around, cell_of, joined, level_of
from nearcast.decision.infer.plan import Plan, Rule
from nearcast.decision.infer.readings import Centre, Reading, is_near
from nearcast.model.ontology import Ontology
from nearcast.model.place import Place

WIDER = 2
"""How many sizes of cells one may stand for: putting readings into cells is more frequent than looking there."""

Record = tuple[Reading, tuple[Cell, ...], Sequence[Condition]]
"""A reading, the cells that it is in, and the conditions that it makes hold."""


@dataclass(slots=True)
class _Kept:
    """The newest readings of one class by entity; in which cells of each size which entities are."""

    levels: tuple[int, ...] = ()
    records: dict[str, Record] = field(default_factory=dict)
    cells: tuple[dict[Cell, dict[str, None]], ...] = ()

    def move(self, entity: str, before: tuple[Cell, ...], after: tuple[Cell, ...]) -> None:
        """Takes an entity out of some cells and into others."""
        for cells, cell in zip(self.cells, before, strict=False):
            del cells[cell][entity]
            if not cells[cell]:
                del cells[cell]
        for cells, cell in zip(self.cells, after, strict=False):
            cells.setdefault(cell, {})[entity] = None


@dataclass(slots=True)
class IndexedReadings:
    """The newest reading of every class by every entity. `areas` are the named places that matter."""

    areas: frozenset[str] = frozenset()
    completing: Completing = field(default_factory=lambda: Completing(Plan(Ontology())))
    _kept: dict[str, _Kept] = field(default_factory=dict)
    # What was found around the centre that was asked for last.
    _centre: Centre | None = None
    _around: dict[int, list[Cell]] = field(default_factory=dict)
    _found: dict[tuple[Collection[str], float], list[Reading]] = field(default_factory=dict)
    _inside: dict[tuple[str, str], dict[str, Reading]] = field(default_factory=lambda: defaultdict(dict))

    def prepare(self, levels: Mapping[str, Collection[int]], areas: frozenset[str], completing: Completing) -> None:
        """Sorts what there is into cells of other sizes, for other conditions; `levels`: those a class is asked by."""
        self.areas, self.completing = areas, completing
        self._centre = None
        self._inside.clear()
        before = self._kept
        sizes = {name: joined(found, WIDER) for name, found in levels.items()}
        self._kept = {name: _Kept(found, {}, tuple({} for _ in found)) for name, found in sizes.items()}
        # What no rule asks for is not kept.
        for name in levels:
            for reading, _, _ in before[name].records.values() if name in before else ():
                self.put(reading)

    def put(self, reading: Reading) -> bool:
        """Takes a reading in; whether it makes some condition hold, or that in whose place it comes did."""
        self._centre = None
        name, value, entity, place, _, _, areas = reading
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = _Kept()
        cells: tuple[Cell, ...] = ()
        if place is not None:
            cells = tuple([cell_of(place, level) for level in kept.levels])
        held = self.completing.held(name, value)
        old = kept.records.get(entity)
        kept.records[entity] = (reading, cells, held)
        before: Sequence[Condition] = ()
        if old is None:
            kept.move(entity, (), cells)
        else:
            before = old[2]
            if old[1] != cells:
                kept.move(entity, old[1], cells)
            for area in old[0].areas & self.areas if old[0].areas else ():
                del self._inside[name, area][entity]
        for area in areas & self.areas if areas else ():
            self._inside[name, area][entity] = reading
        if old is not None and before:
            # The old one first: in its cell the new one has the same key.
            self.completing.remove(old[0])
        if held:
            self.completing.add(reading)
        return bool(held or before)

    def completed(self, reading: Reading, now: int) -> Iterable[Rule]:
        """The rules that a reading that was put may complete at a moment."""
        return self.completing.rules(reading, self._kept[reading.name].records[reading.entity][2], now)

    def newest(self, entity: str, name: str) -> Reading | None:
        """The newest reading of a class by an entity."""
        kept = self._kept.get(name)
        found = None if kept is None else kept.records.get(entity)
        return None if found is None else found[0]

    def near(self, names: Collection[str], centre: Centre, metres: float) -> Iterable[Reading]:
        """The readings of these classes within metres of a centre."""
        # By identity, which is quick: all that looks around one centre has the very same.
        if centre is not self._centre:
            self._centre = centre
            self._around.clear()
            self._found.clear()
        # Many rules ask for the same around one reading.
        key = (names, metres)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._near(names, centre, metres)
        return found

    def _near(self, names: Collection[str], centre: Centre, metres: float) -> list[Reading]:
        found: list[Reading] = []
        for name in names:
            # What is nowhere is in no cell.
            own = self.newest(centre.entity, name)
            if own is not None and (own.place is None or centre.place is None):
                found.append(own)
        if centre.place is None:
            return found
        least = level_of(metres)
        for name in names:
            kept = self._kept.get(name)
            number = (
                next((number for number, level in enumerate(kept.levels) if level >= least), None) if kept else None
            )
            if kept is not None and number is not None:
                cells, records = kept.cells[number], kept.records
                for cell in self._cells_around(centre.place, kept.levels[number]):
                    if cell in cells:
                        candidates = [records[entity][0] for entity in cells[cell]]
                        found += [one for one in candidates if is_near(centre, one, metres)]
        return found

    def _cells_around(self, place: Place, level: int) -> list[Cell]:
        found = self._around.get(level)
        if found is None:
            found = self._around[level] = around(place, level)
        return found

    def inside(self, names: Collection[str], area: str) -> Iterable[Reading]:
        """The readings of these classes in a named place."""
        return [one for name in names for one in self._inside.get((name, area), {}).values()]

    def everything(self) -> Iterable[Reading]:
        """All readings."""
        return [one for kept in self._kept.values() for one, _, _ in kept.records.values()]
