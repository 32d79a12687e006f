"""Readings out of columns: an attribute whose name is a context class is a reading of it, by the event's entity.

So is one whose name the class lists among its `attributes`, and `NAME.value`; `NAME.unit` beside it is its unit. A
situation's name with true or false tells whether there is one. Of several values of an event the last counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.filters.evaluate import NO_CONTEXT
from nearcast.filters.spatial_atoms import spatial_atoms, spent_budget
from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.spatial.geometry_sharing import fixed_spatial, selected_within_budget
from nearcast.model.columns import entries_of, places_of
from nearcast.model.event import Event, Place
from nearcast.model.filter import Filter, Not
from nearcast.model.limits import Limits
from nearcast.model.ontology import ContextClass, Ontology
from nearcast.model.situation import ACTION_TYPE, SITUATION_TYPE
from nearcast.model.values import Value, moment_at
from nearcast.situations.counts.entity_counts import UNKNOWN
from nearcast.situations.readings import NamedAreas
from nearcast.situations.rule_plan import with_inherited
from nearcast.situations.units import conversion, converted
from nearcast.state.derived import Cause
from nearcast.state.lateness import NEVER, moments_of
from nearcast.state.previous_values import typed
from nearcast.state.repository import entities
from nearcast.state.timeline import Excess

PLACE = "place"
"""The attribute by which an event names the place it is in."""


EXACT = float(1 << 53)
"""Up to here doubles have all integers."""

MOST_REASONS = 200
"""Classes and reasons that are counted apart: senders write units, and may think of as many as they like."""


@dataclass(frozen=True, slots=True)
class _Column:
    """What an attribute tells: a reading of a class, in a unit if that is not the class' own; or the unit of one."""

    name: str
    unit: str | None = None
    tells_unit: bool = False


class ReportedReadings(NamedTuple):
    """What one event tells: its row, the values of classes, and the place that it names."""

    row: int
    read: Mapping[str, Value]
    place: str | None


class CountedEvents:
    """Of which events the conditions are true that rules count entities by; `conditions` by how they are written.

    All of them share the work on an event's geometries (semantics §12): where one is not decided it is unknown whether
    the event counts.
    """

    def __init__(self, conditions: Mapping[str, Filter | None]) -> None:
        self.names = tuple(conditions)
        asked = [one for one in conditions.values() if one is not None]
        self._conditions = tuple(conditions.values())
        self._matcher = FilterMatcher((), [*asked, *map(Not, asked)])
        self._spatial = fixed_spatial(asked)

    def joined(
        self, table: pa.Table, reported: Iterable[ReportedReadings], limits: Limits, excess: Counter[Excess]
    ) -> list[ReportedReadings]:
        """What events tell, and whether they count: as readings with the values true, false and UNKNOWN."""
        flags = selected_within_budget(self._matcher, self._spatial, table, limits, excess)
        true, false = iter(flags[: len(flags) // 2]), iter(flags[len(flags) // 2 :])
        every = np.ones(len(table), np.bool_)
        columns = [
            (every, ~every) if condition is None else (next(true), next(false)) for condition in self._conditions
        ]
        codes = np.stack([true + 2 * ~(true | false) for true, false in columns], axis=1).astype(np.uint8)
        rows, width = codes.tobytes(), len(self.names)
        # Few rows differ from all others in what they say.
        alike: dict[bytes, dict[str, Value]] = {}
        told = {one.row: one for one in reported}
        found = []
        for row in np.flatnonzero(~_are_own(table)).tolist():
            own, code = told.get(row), rows[row * width : (row + 1) * width]
            counted = alike.get(code)
            if counted is None:
                counted = alike[code] = dict(zip(self.names, (SAID[one] for one in code), strict=True))
            place = None if own is None else own.place
            found.append(ReportedReadings(row, counted if own is None else {**own.read, **counted}, place))
        return found

    def undecided(self, event: Event, limits: Limits) -> dict[str, str]:
        """Why of an event it is unknown whether it counts, by what it is asked for as, where the work was too much."""
        listed = {
            name: list(spatial_atoms(one))
            for name, one in zip(self.names, self._conditions, strict=True)
            if one is not None
        }
        if not any(listed.values()):
            return {}
        budget = spent_budget(chain.from_iterable(listed.values()), event, NO_CONTEXT, limits)
        why = {name: next(filter(None, map(budget.reason, own)), "") for name, own in listed.items()}
        return {name: reason for name, reason in why.items() if reason}


SAID = (False, True, UNKNOWN)
"""What it is reported as whether an event counts: that it does not, does, and that nobody knows."""


def _are_own(table: pa.Table) -> npt.NDArray[np.bool_]:
    """Which events tell of situations and actions themselves."""
    return np.asarray(pc.is_in(table.column("type"), value_set=pa.array([SITUATION_TYPE, ACTION_TYPE])))


class UnusableReading(NamedTuple):
    """What an event has as a reading of a class and is none: the value, its unit as far as one is known, and why."""

    name: str
    value: Value
    unit: str | None
    why: str


class ReadingExtractor:
    """Finds the readings of some classes. `refused` counts what is none, by class and reason; with `places` also events
    that do nothing but name their place are found.
    """

    def __init__(self, ontology: Ontology, names: Collection[str], places: bool = False) -> None:
        self._places = places
        self.refused: Counter[tuple[str, str]] = Counter()
        self._classes = {one.name: with_inherited(ontology, one) for one in ontology.classes if one.name in names}
        self._columns = dict(self._listed(name for name in (one.name for one in ontology.situations) if name in names))
        self._names = pa.array([*self._columns, PLACE], pa.string())
        self._by_number = [*self._columns.values(), _Column(PLACE)]
        # What numbers need no look one by one: in the unit of their class, and between these.
        self._bounds = np.array([self._plain_bounds(one) for one in self._by_number])

    def _listed(self, situations: Iterator[str]) -> Iterator[tuple[str, _Column]]:
        for one in self._classes.values():
            for attribute, unit in (*one.attributes, (one.name, None)):
                yield attribute, _Column(one.name, unit)
                yield f"{attribute}.value", _Column(one.name, unit)
                yield f"{attribute}.unit", _Column(one.name, tells_unit=True)
        for name in situations:
            yield name, _Column(name)

    def _plain_bounds(self, column: _Column) -> tuple[float, float]:
        """Between which numbers are readings as they are; nothing is between, where that takes more than a look."""
        one = self._classes.get(column.name)
        if one is None or column.tells_unit or column.unit not in (None, one.unit):
            return math.inf, -math.inf
        return max(-EXACT, -EXACT if one.low is None else one.low), min(EXACT, EXACT if one.high is None else one.high)

    def reported(self, table: pa.Table) -> Iterator[ReportedReadings]:
        """What the events of a table tell, those that tell nothing left out."""
        entries, lanes = entries_of(table)
        which = pc.index_in(entries.field("name"), value_set=self._names)
        there = np.flatnonzero(np.asarray(which.is_valid()))
        there = there[~_are_own(table)[lanes[there]]]
        yield from self._rows(lanes[there], which.take(pa.array(there)), entries.take(pa.array(there)))

    def _rows(
        self, lanes: npt.NDArray[np.int64], which: pa.Array, entries: pa.StructArray
    ) -> Iterator[ReportedReadings]:
        plain, values = self._are_plain(which.to_numpy(), entries).tolist(), typed(entries)
        numbers = which.to_pylist()
        names = [one.name for one in self._by_number]
        starts = np.flatnonzero(np.diff(lanes, prepend=-1))
        ends = [*starts[1:].tolist(), len(lanes)][: len(starts)]
        for row, first, last in zip(lanes[starts].tolist(), starts.tolist(), ends, strict=True):
            if last == first + 1 and plain[first]:
                yield ReportedReadings(row, {names[numbers[first]]: values[first]}, None)
            else:
                read, place = self._row(numbers[first:last], values[first:last])
                if read or (self._places and place is not None):
                    yield ReportedReadings(row, read, place)

    def _are_plain(self, which: npt.NDArray[np.int32], entries: pa.StructArray) -> npt.NDArray[np.bool_]:
        """Which entries are readings as they are."""
        integers, doubles = entries.field("integer").cast(pa.float64(), safe=False), entries.field("double")
        values = pc.coalesce(doubles, integers).fill_null(math.nan).to_numpy(zero_copy_only=False)
        bounds = self._bounds[which]
        # Comparisons with what is no number are false.
        return (values >= bounds[:, 0]) & (values <= bounds[:, 1])

    def unusable(self, event: Event) -> list[UnusableReading]:
        """What of an event would be readings and are none; it is not counted."""
        numbers = {name: number for number, name in enumerate(self._columns)}
        known = [(numbers[name], value) for name, value in event.attributes if name in numbers]
        reported, _ = self._gathered([number for number, _ in known], [value for _, value in known])
        counted, found = self.refused, []
        for name, (value, unit) in reported.items():
            self.refused = Counter()
            if self._value(name, value, unit) is None:
                [(_, why)] = self.refused
                own = self._classes[name].unit if name in self._classes else None
                found.append(UnusableReading(name, value, unit or own, why))
        self.refused = counted
        return found

    def _row(self, numbers: list[int], values: list[Value]) -> tuple[dict[str, Value], str | None]:
        reported, place = self._gathered(numbers, values)
        read = {name: self._value(name, value, unit) for name, (value, unit) in reported.items()}
        return {name: value for name, value in read.items() if value is not None}, place

    def _gathered(
        self, numbers: list[int], values: list[Value]
    ) -> tuple[dict[str, tuple[Value, str | None]], str | None]:
        """What one event tells of each class, with its unit, and the place that it names."""
        found: dict[str, tuple[Value, str | None]] = {}
        units: dict[str, str] = {}
        place = None
        for number, value in zip(numbers, values, strict=True):
            column = self._by_number[number]
            if number == len(self._by_number) - 1:
                place = value if isinstance(value, str) else place
            elif column.tells_unit:
                units[column.name] = str(value)
            else:
                found[column.name] = (value, column.unit)
        for name, unit in units.items():
            if name in found:
                found[name] = found[name][0], unit
        return found, place

    def _value(self, name: str, value: Value, unit: str | None) -> Value | None:
        """The value in the unit of its class; None for one that is no reading."""
        one = self._classes.get(name)
        if one is None:
            return value if isinstance(value, bool) else self._refused(name, "neither true nor false")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return value
        if unit is not None and unit != one.unit:
            known = conversion(unit, one.unit) if one.unit is not None else None
            if known is None:
                return self._refused(name, f"the unit {unit[:40]}")
            value = converted(value, known)
        return value if _in_range(value, one) else self._refused(name, "out of range")

    def _refused(self, name: str, why: str) -> Value | None:
        apart = (name, why) in self.refused or len(self.refused) < MOST_REASONS
        self.refused[name, why if apart else "another reason"] += 1
        return None


def _in_range(value: float, one: ContextClass) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return (one.low is None or value >= one.low) and (one.high is None or value <= one.high)


class Observation(NamedTuple):
    """What an event, in a row of its table, tells of its entity at a moment: where it is, in which outlines that is,
    the place it names, the values of classes.
    """

    row: int
    entity: str
    moment: int
    position: int
    place: Place | None
    areas: frozenset[str]
    named: str | None
    read: Mapping[str, Value]


class LaneRows(NamedTuple):
    """What rules hear of a table: their clock at every row, and the positions of rows; what rows tell them, in order.
    Those `aside` came in channels by whose clocks they do not go: they say where their entities are, and wait for
    nothing.
    """

    times: list[int]
    positions: list[int]
    observed: Sequence[Observation]
    aside: frozenset[int] = frozenset()


class ObservedTable:
    """One table. `observed` is what rows tell, those that tell nothing left out, in order; an event without any time is
    of its clock at its row, `times`.
    """

    def __init__(
        self, table: pa.Table, reported: Sequence[ReportedReadings], times: npt.NDArray[np.int64], outlines: NamedAreas
    ) -> None:
        self.positions: list[int] = table.column("position").to_pylist()
        self._time, self._accepted = (table.column(name).cast(pa.int64()) for name in ("time", "accepted"))
        self._causes: dict[int, Cause] = {}
        self.observed = list(self._observed(table, reported, times, outlines))

    def _observed(
        self, table: pa.Table, reported: Sequence[ReportedReadings], times: npt.NDArray[np.int64], outlines: NamedAreas
    ) -> Iterator[Observation]:
        own = moments_of(table)
        moments = np.where(own == NEVER, times, own).tolist()
        about, where = entities(table).to_pylist(), places_of(table)
        by_row = dict(zip([one.row for one in reported], reported, strict=True))
        columns = zip(range(len(about)), about, moments, self.positions, where, outlines.around(where), strict=True)
        for row, entity, moment, position, place, areas in columns:
            found = by_row.get(row)
            if found is not None:
                yield Observation(row, entity, moment, position, place, areas, found.place, found.read)
            elif place is not None:
                yield Observation(row, entity, moment, position, place, areas, None, {})

    def cause(self, row: int) -> Cause:
        """An event as a cause."""
        if row not in self._causes:
            time, accepted = (column[row].as_py() for column in (self._time, self._accepted))
            moments = (None if one is None else moment_at(one) for one in (time, accepted))
            self._causes[row] = Cause(self.positions[row], *moments)
        return self._causes[row]
