"""The newest readings, found by class, entity, place and named place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nearcast.geo.dynamic_index import Cell, SpatialHash, cells_around, joined_levels
from nearcast.model.event import Place
from nearcast.model.ontology import Ontology
from nearcast.situations.readings import ContextReading, SituationCentre, is_near
from nearcast.situations.rule_plan import PlannedRule, RulePlan
from nearcast.situations.trigger_index import TriggerCondition, TriggerIndex

WIDER = 2
"""How many sizes of cells one may stand for: putting readings into cells is more frequent than looking there."""


@dataclass(slots=True, eq=False)
class _Newest:
    """The newest reading of a class by an entity, and the conditions that it makes hold."""

    reading: ContextReading
    held: Sequence[TriggerCondition]


@dataclass(slots=True)
class _ClassReadings:
    """The newest readings of one class by entity, and those of them that are somewhere by their places."""

    by_place: SpatialHash[str, _Newest]
    by_entity: dict[str, _Newest] = field(default_factory=dict)


@dataclass(slots=True)
class IndexedReadingStore:
    """The newest reading of every class by every entity. `areas` are the named places that matter."""

    areas: frozenset[str] = frozenset()
    completing: TriggerIndex = field(default_factory=lambda: TriggerIndex(RulePlan(Ontology())))
    _by_class: dict[str, _ClassReadings] = field(default_factory=dict)
    # What was found around the centre that was asked for last.
    _centre: SituationCentre | None = None
    _around: dict[int, tuple[Cell, ...]] = field(default_factory=dict)
    _found: dict[tuple[Collection[str], float], list[ContextReading]] = field(default_factory=dict)
    _inside: dict[tuple[str, str], dict[str, ContextReading]] = field(default_factory=lambda: defaultdict(dict))

    def prepare(self, levels: Mapping[str, Collection[int]], areas: frozenset[str], completing: TriggerIndex) -> None:
        """Sorts what there is into cells of other sizes, for other conditions; `levels`: those a class is asked by."""
        self.areas, self.completing = areas, completing
        self._centre = None
        self._inside.clear()
        before = self._by_class
        self._by_class = {
            name: _ClassReadings(SpatialHash(joined_levels(found, WIDER))) for name, found in levels.items()
        }
        # What no rule asks for is not kept.
        for name in levels:
            for newest in before[name].by_entity.values() if name in before else ():
                self.put_reading(newest.reading)

    def put_reading(self, reading: ContextReading) -> bool:
        """Takes a reading in; whether it makes some condition hold, or that in whose place it comes did."""
        self._centre = None
        name, value, entity, place, _, _, areas = reading
        of_class = self._by_class.get(name)
        if of_class is None:
            of_class = self._by_class[name] = _ClassReadings(SpatialHash(()))
        held = self.completing.held(name, value)
        old: ContextReading | None = None
        before: Sequence[TriggerCondition] = ()
        newest = of_class.by_entity.get(entity)
        if newest is None:
            newest = of_class.by_entity[entity] = _Newest(reading, held)
        else:
            old, before = newest.reading, newest.held
            newest.reading, newest.held = reading, held
            for area in old.areas & self.areas if old.areas else ():
                del self._inside[name, area][entity]
        if place is not None:
            of_class.by_place.insert(entity, place, newest)
        elif old is not None and old.place is not None:
            of_class.by_place.remove(entity)
        for area in areas & self.areas if areas else ():
            self._inside[name, area][entity] = reading
        if old is not None and before:
            # The old one first: in its cell the new one has the same key.
            self.completing.remove_reading(old)
        if held:
            self.completing.add_reading(reading)
        return bool(held or before)

    def forget(self, entities: Collection[str], held: Collection[tuple[str, str]]) -> None:
        """Drops the readings of some entities, but for those whose keys are held."""
        self._centre = None
        for name, of_class in self._by_class.items():
            for entity in entities:
                newest = of_class.by_entity.get(entity)
                if newest is None or newest.reading.key in held:
                    continue
                del of_class.by_entity[entity]
                of_class.by_place.remove(entity)
                for area in newest.reading.areas & self.areas:
                    del self._inside[name, area][entity]
                if newest.held:
                    self.completing.remove_reading(newest.reading)

    def completed(self, reading: ContextReading, now: int) -> Iterable[PlannedRule]:
        """The rules that a reading that was put may complete at a moment."""
        return self.completing.rules(reading, self._by_class[reading.name].by_entity[reading.entity].held, now)

    def newest(self, entity: str, name: str) -> ContextReading | None:
        """The newest reading of a class by an entity."""
        of_class = self._by_class.get(name)
        found = None if of_class is None else of_class.by_entity.get(entity)
        return None if found is None else found.reading

    def near(self, names: Collection[str], centre: SituationCentre, metres: float) -> Iterable[ContextReading]:
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

    def _near(self, names: Collection[str], centre: SituationCentre, metres: float) -> list[ContextReading]:
        found: list[ContextReading] = []
        for name in names:
            # What is nowhere is in no cell.
            own = self.newest(centre.entity, name)
            if own is not None and (own.place is None or centre.place is None):
                found.append(own)
        if centre.place is None:
            return found
        for name in names:
            of_class = self._by_class.get(name)
            if of_class is not None:
                near = of_class.by_place.candidates(centre.place, metres, self._cells_around)
                found += [one.reading for one in near if is_near(centre, one.reading, metres)]
        return found

    def _cells_around(self, place: Place, level: int) -> tuple[Cell, ...]:
        """The cells around the centre, for every class that is asked for there."""
        found = self._around.get(level)
        if found is None:
            found = self._around[level] = cells_around(place, level)
        return found

    def inside(self, names: Collection[str], area: str) -> Iterable[ContextReading]:
        """The readings of these classes in a named place."""
        return [one for name in names for one in self._inside.get((name, area), {}).values()]

    def everything(self) -> Iterable[ContextReading]:
        """All readings."""
        return (newest.reading for of_class in self._by_class.values() for newest in of_class.by_entity.values())

    def __len__(self) -> int:
        return sum(len(of_class.by_entity) for of_class in self._by_class.values())
