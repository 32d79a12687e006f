"""Predicates over whole columns at once: arithmetic and comparisons of numbers, and geometries against a written one.

What is not decided so stays open: lanes with several values or none, numbers that doubles may not hold exactly,
functions not spoken here. They are decided one by one, so that every outcome is that of the plain evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

from nearcast.decision import shapes
from nearcast.decision.event_values import Rows
from nearcast.decision.location import Floats, geodesic, surely_beyond, unit_vectors
from nearcast.decision.match.points import Flags
from nearcast.decision.truths import COMPARE
from nearcast.model.expression import COMPARISONS, GEOMETRY, Box, Call, Constant, Expression, Property, Shape
from nearcast.model.place import Place
from nearcast.model.values import EXACT, Value, is_exact

Truths = npt.NDArray[np.int8]
"""Of each lane 1 TRUE, 0 FALSE, −1 UNKNOWN, or `OPEN`: not decided."""

OPEN = 2


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number of each lane; `known`: it has one; `sure`: that, and whether it has one, is what exact work gives."""

    values: Floats
    known: Flags
    sure: Flags


class Vectors:
    """The columns of a chunk, made when they are first asked for and shared by all predicates."""

    def __init__(self, own: Mapping[str, Rows], places: Sequence[Place | None], size: int) -> None:
        self.size = size
        self._own = own
        self._places = places
        self._numbers: dict[str, Numbers] = {}
        self._points: Points | None = None

    def numbers(self, name: str) -> Numbers:
        """The lanes' numbers under a name, sure where there is just one and a double holds it."""
        if name not in self._numbers:
            sure = np.array([len(row) == 1 and _exact(row[0]) for row in self._own[name]], np.bool_)
            found = [row[0] if one else 0.0 for row, one in zip(self._own[name], sure.tolist(), strict=True)]
            self._numbers[name] = Numbers(np.array(found, np.float64), sure, sure)
        return self._numbers[name]

    def points(self) -> Points:
        """The lanes' own geometries, where these are points."""
        if self._points is None:
            shaped = np.zeros(self.size, np.bool_)
            for name in sorted(GEOMETRY & self._own.keys()):
                shaped |= [bool(row) for row in self._own[name]]
            there = [place or Place("planar", 0.0, 0.0) for place in self._places]
            self._points = Points(
                np.array([place.x for place in there], np.float64),
                np.array([place.y for place in there], np.float64),
                np.array([place is not None for place in self._places], np.bool_),
                np.array([place.coordinates == "geographic" for place in there], np.bool_),
                shaped,
            )
        return self._points


@dataclass(frozen=True, slots=True)
class Points:
    """Places of lanes: whether there is one, whether in degrees; `shaped` lanes tell a geometry beside it."""

    x: Floats
    y: Floats
    known: Flags
    geographic: Flags
    shaped: Flags


def truths_of(call: Call, vectors: Vectors) -> Truths:
    """The truth of a predicate in each lane, `OPEN` where it has to be decided alone."""
    found = None
    if call.function in COMPARISONS:
        found = _compared(call, vectors)
    elif call.function == "BETWEEN":
        found = _between(call, vectors)
    elif call.function in shapes.SPATIAL:
        found = _related(call, vectors)
    elif call.function == "S_DWITHIN":
        found = _near(call, vectors)
    return np.full(vectors.size, OPEN, np.int8) if found is None else found


def _exact(value: Value) -> bool:
    """Whether a value is a number that a double holds; a NaN is no number to compute with."""
    return is_exact(value) and value == value


def _decided(holds: Flags, known: Flags, sure: Flags) -> Truths:
    return np.where(sure, np.where(known, holds, -1), OPEN).astype(np.int8)


def _compared(call: Call, vectors: Vectors) -> Truths | None:
    a, b = (_numbers(argument, vectors) for argument in call.arguments)
    if a is None or b is None:
        return None
    return _decided(COMPARE[call.function](a.values, b.values), a.known & b.known, a.sure & b.sure)


def _between(call: Call, vectors: Vectors) -> Truths | None:
    sides = [_numbers(argument, vectors) for argument in call.arguments]
    there = [side for side in sides if side is not None]
    if len(there) < len(sides):
        return None
    value, low, high = there
    holds = (value.values >= low.values) & (value.values <= high.values)
    return _decided(holds, value.known & low.known & high.known, value.sure & low.sure & high.sure)


_ARITHMETIC: dict[str, Callable[[Floats, Floats], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
}
# Not `DIV` and `^`: whether their operands are integers decides how they round.


def _numbers(expression: Expression, vectors: Vectors) -> Numbers | None:
    """A numeric expression in every lane; None for one of another kind."""
    if isinstance(expression, Property):
        return vectors.numbers(expression.name)
    if isinstance(expression, Constant) and isinstance(expression.value, (int, float)) and _exact(expression.value):
        always = np.ones(vectors.size, np.bool_)
        return Numbers(np.full(vectors.size, float(expression.value)), always, always)
    if not isinstance(expression, Call) or expression.function not in _ARITHMETIC:
        return None
    a, b = (_numbers(argument, vectors) for argument in expression.arguments)
    if a is None or b is None:
        return None
    with np.errstate(all="ignore"):
        values = _ARITHMETIC[expression.function](a.values, b.values)
    finite = np.isfinite(values)
    # A result beyond may be of integers, which stay exact where doubles do not.
    return Numbers(values, a.known & b.known & finite, a.sure & b.sure & (~finite | (np.abs(values) <= EXACT)))


def _written(call: Call) -> tuple[Shape | Box, bool] | None:
    """The literal beside the event's own geometry, and whether it stands left; None for other arguments."""
    a, b = call.arguments[:2]
    for literal, other, left in ((a, b, True), (b, a, False)):
        own = isinstance(other, Property) and other.name.lower() in GEOMETRY
        if own and isinstance(literal, (Shape, Box)):
            return literal, left
    return None


def _related(call: Call, vectors: Vectors) -> Truths | None:
    found = _written(call)
    if found is None:
        return None
    literal, left = found
    function = call.function if left else shapes.CONVERSE.get(call.function, call.function)
    points = vectors.points()
    try:
        # The literal is prepared, and only a prepared left side is fast.
        holds = shapes.SPATIAL[function](shapes.written(literal).shape, shapely.points(points.x, points.y))
    except shapely.GEOSException:
        return None
    return _decided(holds, points.known, ~points.shaped)


def _near(call: Call, vectors: Vectors) -> Truths | None:
    """Far points by their chords, the others of a written point by geodesics; near ones of lines stay open."""
    found = _written(call)
    limit = call.arguments[2]
    metres = limit.value if isinstance(limit, Constant) else None
    if found is None or isinstance(metres, bool) or not isinstance(metres, (int, float)):
        return None
    shape, points = shapes.written(found[0]).shape, vectors.points()
    middle, radius = shapes.around(shape)
    if middle is None:
        return None
    chords = unit_vectors(points.x, points.y) - unit_vectors(*(np.array([end]) for end in middle))
    near = (chords * chords).sum(axis=1) <= surely_beyond(metres + radius)
    holds = np.zeros(vectors.size, np.bool_)
    single = shapely.get_type_id(shape) == 0
    lanes = np.flatnonzero(near & points.known & points.geographic) if single else np.array([], np.intp)
    x, y = (np.full(len(lanes), end) for end in middle)
    # A point is within 0 m of itself, but no nearer.
    holds[lanes] = (geodesic(points.x[lanes], points.y[lanes], x, y) <= metres) & (metres >= 0)
    planar = points.known & ~points.geographic
    return _decided(holds, points.known, ~points.shaped & ~planar & (single | ~near))
