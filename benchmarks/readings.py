"""Rules and moving sensors for measuring the inference of situations: seeded, as tables of EVENTS."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.model.columns import ATTRIBUTE, EVENTS, TIME
from nearcast.model.filter import And, Atom, Count, Entities, Filter, Operator
from nearcast.model.ontology import Area, ContextClass, Ontology, SituationClass
from nearcast.model.situation import Situation

CLASSES = 20
QUARTERS = 4
"""Named places along a side."""

SIDE = 10_000.0
"""Metres: the side of the square in which sensors move."""

RARE = 0.02
"""The share of readings that satisfy a condition: situations are rare, or nobody would want to hear of them."""

Floats = npt.NDArray[np.float64]


def ontology(areas: bool = False) -> Ontology:
    """Twenty classes of readings, and ten of situations; perhaps with named places."""
    classes = tuple(ContextClass(f"Class{number}") for number in range(CLASSES))
    return Ontology(
        classes, tuple(SituationClass(f"Situation{number}") for number in range(10)), tuple(quarters()) if areas else ()
    )


def rules(count: int, chance: np.random.Generator) -> list[Situation]:
    """Rules of two or three conditions on different classes, within 50 to 200 m, readings valid for 10 s."""
    return [_rule(number, chance) for number in range(count)]


def _rule(number: int, chance: np.random.Generator) -> Situation:
    names = chance.choice(CLASSES, chance.integers(2, 4), replace=False)
    conditions = tuple(_condition(int(name), chance) for name in names)
    within = float(chance.choice([50, 100, 200]))
    return Situation(f"rule{number}", f"Situation{number % 10}", And(conditions), within, valid=10.0)


def counting(count: int, chance: np.random.Generator) -> list[Situation]:
    """Rules that count the sensors of a tenth of all names, within 100 to 300 m or in one of the named quarters."""
    return [_counting(number, chance) for number in range(count)]


def _counting(number: int, chance: np.random.Generator) -> Situation:
    named = Entities(Atom("source", Operator.LIKE, f"sensor{number % 9 + 1}%"))
    id, concludes = f"count{number}", f"Situation{number % 10}"
    if number % 2:
        least = round(5_000 / QUARTERS**2 * chance.uniform(0.95, 1.02))
        area = f"quarter{chance.integers(QUARTERS**2)}"
        return Situation(id, concludes, Atom(Count(named), Operator.GE, least), area=area)
    within = float(chance.choice([100, 200, 300]))
    least = round(5_000 * 3.2 * within**2 / SIDE**2 * 3 + 2)
    return Situation(id, concludes, Atom(Count(named), Operator.GE, least), within, valid=10.0)


def quarters() -> Iterator[Area]:
    """The squares of which the one in which sensors move is made."""
    side = SIDE / QUARTERS
    for number in range(QUARTERS**2):
        west, south = number % QUARTERS * side, number // QUARTERS * side
        corners = [(west, south), (west + side, south), (west + side, south + side), (west, south + side)]
        yield Area(f"quarter{number}", None, f"POLYGON(({', '.join(f'{x} {y}' for x, y in [*corners, corners[0]])}))")


def _condition(name: int, chance: np.random.Generator) -> Filter:
    """Values are uniform from 0 to 100: the rare ones lie at either end."""
    share = 100 * RARE * 2 * chance.random()
    if chance.random() < 0.5:
        return Atom(f"Class{name}", Operator.GT, 100 - share)
    return Atom(f"Class{name}", Operator.LT, share)


class Sensors:
    """Sensors that walk at up to 10 m/s, each of one class, whose values are new with every reading."""

    def __init__(self, count: int, chance: np.random.Generator) -> None:
        self._chance = chance
        self.x, self.y = chance.uniform(0, SIDE, count), chance.uniform(0, SIDE, count)
        self._speed = chance.uniform(-7, 7, (count, 2))
        self.name = chance.integers(0, CLASSES, count)
        self._names = pa.array([f"sensor{number}" for number in range(count)])
        self._position = 0

    def seconds(self, count: int, rate: int) -> Iterator[pa.Table]:
        """A table of EVENTS for every second, with so many readings each."""
        for second in range(count):
            yield self._second(second, rate)

    def _second(self, second: int, rate: int) -> pa.Table:
        self.x = (self.x + self._speed[:, 0]) % SIDE
        self.y = (self.y + self._speed[:, 1]) % SIDE
        which = self._chance.integers(0, len(self.x), rate)
        start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000_000) + second * 1_000_000
        moments = pa.array(start + np.sort(self._chance.integers(0, 1_000_000, rate))).cast(TIME)
        positions = np.arange(self._position + 1, self._position + rate + 1)
        self._position += rate
        columns = {
            "position": pa.array(positions),
            "id": pa.array(positions.astype(str)),
            "type": pa.repeat("reading", rate),
            "source": self._names.take(pa.array(which)),
            "time": moments,
            "accepted": moments,
            "coordinates": pa.repeat("planar", rate),
            "x": pa.array(self.x[which]),
            "y": pa.array(self.y[which]),
            "attributes": self._attributes(which),
            "part": pa.array(np.zeros(rate, np.int32)),
        }
        return pa.table([columns.get(field.name, pa.nulls(rate, field.type)) for field in EVENTS], schema=EVENTS)

    def _attributes(self, which: npt.NDArray[np.int64]) -> pa.Array:
        names = pa.array([f"Class{number}" for number in range(CLASSES)]).take(pa.array(self.name[which]))
        values = pa.array(self._chance.uniform(0, 100, len(which)))
        fields = {"name": names, "double": values}
        nulls = (pa.nulls(len(which), field.type) for field in ATTRIBUTE)
        parts = [fields.get(field.name, null) for field, null in zip(ATTRIBUTE, nulls, strict=True)]
        entries = pa.StructArray.from_arrays(parts, fields=list(ATTRIBUTE))
        offsets = pa.array(np.arange(len(which) + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, entries).cast(EVENTS.field("attributes").type)
