"""Atoms that compute: rows of bits for them, whole columns at once where that is easy, else by the plain evaluator.

What an expression reads of an event — a few attributes, its place, its predecessor's attributes — is its key: equal
keys have equal truth, so every distinct key of a chunk is decided once.

What reads an attribute that no event of the chunk has is UNKNOWN for all of them, and costs nothing: a client may name
thousands that never come.

What is not decided so stays open: lanes with several values or none, numbers that doubles may not hold exactly,
functions not spoken here. They are decided one by one, so that every outcome is that of the plain evaluator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from nearcast.filters.expressions import truth_of
from nearcast.filters.spatial_atoms import spatial_atoms
from nearcast.filters.truth import COMPARE, Truth
from nearcast.geo import shapes
from nearcast.geo.distance import Floats, geodesic, surely_beyond, unit_vectors
from nearcast.geo.geometry_work import CORNER
from nearcast.geo.line_pieces import around
from nearcast.matching.batch_columns import Rows, pack, words
from nearcast.matching.spatial.alike_places import alike_places
from nearcast.matching.spatial.written_boxes import WrittenBoxes
from nearcast.model.arrays import Flags, Integers, Truths
from nearcast.model.columns import places_of
from nearcast.model.event import Place
from nearcast.model.expression import (
    COMPARISONS,
    GEOMETRY,
    TOLD_GEOMETRY,
    Box,
    Call,
    Constant,
    Expression,
    Property,
    Shape,
    attributes,
    needed,
    remembered,
    users,
)
from nearcast.model.filter import Atom
from nearcast.model.geometry_budget import GeometryWork
from nearcast.model.limits import Limits
from nearcast.model.sequence import BITS
from nearcast.model.values import EXACT, Value, is_exact
from nearcast.state.previous_values import Rows as ValueRows
from nearcast.state.previous_values import names_of, values_of
from nearcast.state.repository import entities
from nearcast.state.timeline import Environment, Excess

OPEN = 2

NONE = np.zeros(0, np.int64)

KNOWN = 1 << 16
"""Expressions of which is known what they read: an index that is made anew asks again for those that it had."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number of each lane; `known`: it has one; `sure`: that, and whether it has one, is what exact work gives."""

    values: Floats
    known: Flags
    sure: Flags


class ColumnVectors:
    """The columns of a chunk, made when they are first asked for and shared by all predicates."""

    def __init__(
        self,
        own: Mapping[str, ValueRows],
        places: Sequence[Place | None],
        size: int,
        limits: Limits,
    ) -> None:
        self.size, self.limits = size, limits
        self._own = own
        self._places = places
        self._numbers: dict[str, Numbers] = {}
        self._points: LanePlaces | None = None

    def numbers(self, name: str) -> Numbers:
        """The lanes' numbers under a name, sure where there is just one and a double holds it."""
        if name not in self._numbers:
            sure = np.array([len(row) == 1 and _exact(row[0]) for row in self._own[name]], np.bool_)
            found = [row[0] if one else 0.0 for row, one in zip(self._own[name], sure.tolist(), strict=True)]
            self._numbers[name] = Numbers(np.array(found, np.float64), sure, sure)
        return self._numbers[name]

    def points(self) -> LanePlaces:
        """The lanes' own geometries, where these are points."""
        if self._points is None:
            shaped = np.zeros(self.size, np.bool_)
            for name in sorted(GEOMETRY & self._own.keys()):
                shaped |= [bool(row) for row in self._own[name]]
            there = [place or Place("planar", 0.0, 0.0) for place in self._places]
            self._points = LanePlaces(
                np.array([place.x for place in there], np.float64),
                np.array([place.y for place in there], np.float64),
                np.array([place is not None for place in self._places], np.bool_),
                np.array([place.coordinates == "geographic" for place in there], np.bool_),
                shaped,
            )
        return self._points


@dataclass(frozen=True)
class LanePlaces:
    """Places of lanes: whether there is one, whether in degrees; `shaped` lanes tell a geometry beside it."""

    x: Floats
    y: Floats
    known: Flags
    geographic: Flags
    shaped: Flags

    @cached_property
    def points(self) -> npt.NDArray[np.object_]:
        """The places as geometries: made once for all atoms, as they take longer to make than to compare."""
        return np.asarray(shapely.points(self.x, self.y))

    @cached_property
    def vectors(self) -> Floats:
        """The same as unit vectors."""
        return unit_vectors(self.x, self.y)


def truths_of(call: Call, vectors: ColumnVectors) -> Truths:
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


def _compared(call: Call, vectors: ColumnVectors) -> Truths | None:
    a, b = (_numbers(argument, vectors) for argument in call.arguments)
    if a is None or b is None:
        return None
    return _decided(COMPARE[call.function](a.values, b.values), a.known & b.known, a.sure & b.sure)


def _between(call: Call, vectors: ColumnVectors) -> Truths | None:
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


def _numbers(expression: Expression, vectors: ColumnVectors) -> Numbers | None:
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


def _related(call: Call, vectors: ColumnVectors) -> Truths | None:
    found = _written(call)
    if found is None:
        return None
    literal, left = found
    function = call.function if left else shapes.CONVERSE.get(call.function, call.function)
    points, geometry = vectors.points(), shapes.written(literal, vectors.limits.geometry_work)
    if _compares_too_much(geometry, vectors.limits):
        return None
    try:
        # The literal is prepared, and only a prepared left side is fast.
        holds = shapes.SPATIAL[function](geometry.shape, points.points)
    except shapely.GEOSException:
        return None
    return _decided(holds, points.known, ~points.shaped)


def _box_of(call: Call, limits: Limits) -> shapes.Bounds | None:
    """The box outside of which a predicate is FALSE for points; None where there is none, or it is not compared."""
    if call.function not in shapes.SPATIAL or call.function == "S_DISJOINT":
        return None
    found = _written(call)
    geometry = shapes.written(found[0], limits.geometry_work) if found else None
    return None if geometry is None or _compares_too_much(geometry, limits) else geometry.bounds


def _compares_too_much(geometry: shapes.Geometry, limits: Limits) -> bool:
    """Whether comparing a written geometry with a point may take more than is allowed: one by one it will be seen."""
    # A point is held against each edge of a line.
    return geometry.shape is None or 2 * CORNER * (geometry.corners + 1) > limits.geometry_work


def _near(call: Call, vectors: ColumnVectors) -> Truths | None:
    """Far points by their chords, the others of a written point by geodesics; near ones of lines stay open."""
    found = _written(call)
    limit = call.arguments[2]
    metres = limit.value if isinstance(limit, Constant) else None
    if found is None or isinstance(metres, bool) or not isinstance(metres, (int, float)):
        return None
    geometry, points = shapes.written(found[0], vectors.limits.geometry_work), vectors.points()
    if _compares_too_much(geometry, vectors.limits):
        return None
    shape = geometry.shape
    middle, radius = around(shape)
    if middle is None:
        return None
    chords = points.vectors - unit_vectors(*(np.array([end]) for end in middle))
    near = (chords * chords).sum(axis=1) <= surely_beyond(metres + radius)
    holds = np.zeros(vectors.size, np.bool_)
    single = shapely.get_type_id(shape) == 0
    lanes = np.flatnonzero(near & points.known & points.geographic) if single else np.array([], np.intp)
    x, y = (np.full(len(lanes), end) for end in middle)
    # A point is within 0 m of itself, but no nearer.
    holds[lanes] = (geodesic(points.x[lanes], points.y[lanes], x, y) <= metres) & (metres >= 0)
    planar = points.known & ~points.geographic
    return _decided(holds, points.known, ~points.shaped & ~planar & (single | ~near))


@dataclass(frozen=True, slots=True)
class ExpressionReads:
    """What one expression reads of an event; where one of the `needed` is absent it is UNKNOWN."""

    attributes: tuple[str, ...]
    remembered: tuple[str, ...]
    users: tuple[str, ...]
    place: bool
    needed: frozenset[str]

    def reads_place_alone(self, there: AbstractSet[str]) -> bool:
        """Whether its truth rests on an event's place alone, where events have only some attributes."""
        return not (self.remembered or self.users or there & set(self.attributes))


class ComputedAtoms:
    """Computed atoms compiled: what each of them reads."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self.atoms = list(atoms)
        self._calls = [atom.name for atom in self.atoms if isinstance(atom.name, Call)]
        self._spatial = [any(spatial_atoms(atom)) for atom in self.atoms]
        self._reads = [reads_of(call) for call in self._calls]
        self._boxes: tuple[int, WrittenBoxes] | None = None

    def rows(self, events: pa.Table, around: Environment) -> tuple[Rows, Rows]:
        """Truth and comparable rows, shape (atoms, words) each, of a chunk of a table of EVENTS."""
        there = names_of(events)
        live = self._live(there)
        truths = np.full((len(self.atoms), len(events)), -1, np.int8)
        truths[live] = self._decided(events, around, live, there)
        return packed_truths(truths)

    def truths_by_place(self, events: pa.Table, around: Environment) -> Truths | None:
        """The truths of all atoms, shape (atoms, events), each decided once for each place: where events have many
        places, or an atom rests on something else of them, None.
        """
        there = names_of(events)
        live = self._live(there)
        if not all(self._reads[number].reads_place_alone(there) for number in live):
            return None
        truths = np.full((len(self.atoms), len(events)), -1, np.int8)
        if live:
            if around.decided is not None and len(around.decided.placed(sequences_of(events))[0]):
                return None
            alike, apart = alike_places(events), replace(around, excess=Counter())
            if 2 * len(alike.first) > len(events):
                return None
            found = self._decided(events.take(pa.array(alike.first)), apart, live, there)
            # What is beyond a limit is counted where chunks are decided.
            if apart.excess:
                return None
            truths[live] = found[:, alike.which]
        return truths

    def _live(self, there: AbstractSet[str]) -> list[int]:
        """The atoms that may be decided where events have only some attributes."""
        return [number for number, reads in enumerate(self._reads) if reads.needed <= there]

    def _decided(self, events: pa.Table, around: Environment, live: Sequence[int], there: AbstractSet[str]) -> Truths:
        truths = np.full((len(live), len(events)), OPEN, np.int8)
        chunk = facts_of(events, around, [self._reads[number] for number in live], there)
        vectors = ColumnVectors(chunk.own, chunk.places, len(events), around.limits)
        lanes, at = (NONE, NONE) if around.decided is None else around.decided.placed(sequences_of(events))
        apart = self._apart(vectors, live)
        if apart.any():
            points = vectors.points()
            truths[apart] = _decided(np.zeros(len(events), np.bool_), points.known, ~points.shaped)
        # What is apart is decided for all of them at once, but for events that tell geometries, or are decided already.
        alone = ~apart if not len(lanes) and not (truths[apart] == OPEN).any() else np.ones(len(live), np.bool_)
        for one in np.flatnonzero(alone).tolist():
            number, row = live[one], truths[one]
            if not apart[one]:
                row[:] = truths_of(self._calls[number], vectors)
            if around.decided is not None and len(lanes) and self._spatial[number]:
                row[lanes] = around.decided.of(self.atoms[number], at)
            _decide(self._calls[number], self._reads[number], chunk, row)
        around.excess.update(_excess(events, chunk.excess))
        return truths

    def _apart(self, vectors: ColumnVectors, live: Sequence[int]) -> Flags:
        """Of which of some predicates no point of a chunk is in the box of what is written in them."""
        if not any(self._spatial):
            return np.zeros(len(live), np.bool_)
        limits = vectors.limits
        if self._boxes is None or self._boxes[0] != limits.geometry_work:
            boxes = [
                _box_of(call, limits) if own else None for call, own in zip(self._calls, self._spatial, strict=True)
            ]
            self._boxes = limits.geometry_work, WrittenBoxes(boxes)
        points = vectors.points()
        return self._boxes[1].apart(points.x[points.known], points.y[points.known])[live]


def packed_truths(truths: Truths) -> tuple[Rows, Rows]:
    """Truth and comparable rows of the truths of atoms, shape (atoms, events)."""
    width = words(truths.shape[1])
    return pack(truths == 1, width), pack(truths >= 0, width)


def sequences_of(events: pa.Table) -> Integers:
    """The sequence of each event of a table."""
    position: Integers = events.column("position").to_numpy()
    return position << BITS | events.column("part").to_numpy()


def facts_of(
    events: pa.Table, around: Environment, listed: Sequence[ExpressionReads], there: Collection[str]
) -> ChunkFacts:
    """The chunk's events, as far as atoms that read so much need them; `there` are the attributes that some have."""
    positions = events.column("position").to_pylist()
    asked = {name for reads in listed for name in reads.remembered}
    about = entities(events).to_pylist() if asked else []
    clients = {name for reads in listed for name in reads.users}
    read = dict.fromkeys(name for reads in listed for name in reads.attributes)
    nothing: ValueRows = [()] * len(events)
    return ChunkFacts(
        {**dict.fromkeys(read, nothing), **values_of(events, [name for name in read if name in there])},
        {name: _before(around, name, about, positions) for name in asked},
        {name: [around.users.at(name, position) for position in positions] for name in clients},
        places_of(events) if any(reads.place for reads in listed) else [],
        around.limits,
    )


def _excess(events: pa.Table, found: Iterable[tuple[int, str]]) -> Iterator[Excess]:
    """Which events were beyond which limit, given by their lanes."""
    for lane, limit in found:
        yield events.column("source")[lane].as_py(), events.column("type")[lane].as_py(), limit


@dataclass(slots=True)
class ChunkFacts:
    """The events of a chunk as expressions read them: the facts of one of them at a time, that of `lane`."""

    own: Mapping[str, ValueRows]
    before: Mapping[str, Sequence[tuple[Value, ...] | None]]
    clients: Mapping[str, Sequence[Place | None]]
    places: Sequence[Place | None]
    limits: Limits
    lane: int = 0
    work: GeometryWork = field(default_factory=GeometryWork)
    excess: list[tuple[int, str]] = field(default_factory=list)
    """Lanes of events that were beyond a limit, each with the limit's name, once for each atom."""
    _typed: dict[str, list[Hashable]] = field(default_factory=dict)

    def truth(self, call: Call, lane: int) -> Truth:
        """The truth of an atom for the event of a lane."""
        self.lane, self.work = lane, GeometryWork(self.limits)
        found = truth_of(call, self)
        if self.work.beyond:
            self.excess.append((lane, self.work.beyond))
        return found

    @property
    def place(self) -> Place | None:
        """Where the event is."""
        return self.places[self.lane]

    def values(self, name: str) -> Sequence[Value]:
        """Every value of an attribute of the event."""
        return self.own[name][self.lane]

    def previous(self, name: str) -> Sequence[Value] | None:
        """The same of the entity's previous event; None if there was none."""
        return self.before[name][self.lane]

    def user(self, name: str) -> Place | None:
        """Where that client was last known to be."""
        return self.clients[name][self.lane]

    def keys(self, reads: ExpressionReads) -> Iterable[Hashable]:
        """For each event all that a truth depends on."""
        sides: list[Sequence[Hashable]] = [self.typed(name) for name in reads.attributes]
        sides += [self._keys(f"previous {name}", self.before[name]) for name in reads.remembered]
        sides += [self.clients[name] for name in reads.users]
        sides += [self.places] if reads.place else []
        # An expression of literals alone is decided once.
        return zip(*sides, strict=True) if sides else iter(())

    def typed(self, name: str) -> Sequence[Hashable]:
        """The values of an attribute of every event, with their types."""
        return self._keys(name, self.own[name])

    def _keys(self, name: str, rows: Sequence[tuple[Value, ...] | None]) -> list[Hashable]:
        """Values with their types, for Python holds 1 and True to be equal."""
        if name not in self._typed:
            self._typed[name] = [None if row is None else (row, tuple(map(type, row))) for row in rows]
        return self._typed[name]


def _decide(call: Call, reads: ExpressionReads, chunk: ChunkFacts, truths: Truths) -> None:
    """Fills in what is open, event by event, each distinct key once."""
    lanes = np.flatnonzero(truths == OPEN).tolist()
    if not lanes:
        return
    keys = list(chunk.keys(reads)) or [()] * len(truths)
    known: dict[Hashable, int] = {}
    for lane in lanes:
        key = keys[lane]
        if key not in known:
            truth = chunk.truth(call, lane)
            known[key] = -1 if truth is None else int(truth)
        truths[lane] = known[key]


def _before(
    around: Environment, name: str, about: Sequence[str], positions: Sequence[int]
) -> list[tuple[Value, ...] | None]:
    track = around.previous.get(name)
    return [track.at(*pair) if track else None for pair in zip(about, positions, strict=True)]


@lru_cache(maxsize=KNOWN)
def reads_of(call: Call) -> ExpressionReads:
    """What an expression reads of an event."""
    names = attributes(call)
    own = any(name.lower() in GEOMETRY for name in names)
    read = (*names, *TOLD_GEOMETRY) if own else names
    return ExpressionReads(tuple(dict.fromkeys(read)), remembered(call), users(call), own, frozenset(needed(call)))
