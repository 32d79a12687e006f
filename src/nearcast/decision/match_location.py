"""The truth of location atoms over a chunk of events (SEMANTICS §4).

Between one moving user (or fixed point) and the event itself, all atoms and lanes are computed together; geographic
ones first by bounds on the sphere, so that a geodesic is solved only where the bounds leave it open. Terms about
entities walk through the chunk event by event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.decision.evaluate import satisfies
from nearcast.decision.location import (
    Floats,
    geodesic,
    planar,
    surely_beyond,
    surely_within,
    unit_vectors,
)
from nearcast.decision.match_rows import Rows
from nearcast.decision.timeline import Member, Positions, Surrounding
from nearcast.model.filter import Atom, Count, Distance, Entities, Located, Operator, This, User
from nearcast.model.place import Place

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Points:
    """Places as arrays of one shape: whether geographic, whether known, x, y, and z (0 and not `high` if unknown)."""

    known: Flags
    geographic: Flags
    x: Floats
    y: Floats
    z: Floats
    high: Flags

    def take(self, index: npt.NDArray[np.intp]) -> Points:
        """The points at these indices, in their shape."""
        return Points(*(getattr(self, name)[index] for name in Points.__slots__))

    def lanes(self, first: int, last: int) -> Points:
        """The points from `first` up to but not including `last`."""
        return Points(*(getattr(self, name)[first:last] for name in Points.__slots__))


def points_of(places: Sequence[Place | None]) -> Points:
    """Places as arrays; None is unknown."""
    there = [place if place else Place("planar", 0.0, 0.0) for place in places]
    return Points(
        np.array([place is not None for place in places], np.bool_),
        np.array([place.coordinates == "geographic" for place in there], np.bool_),
        np.array([place.x for place in there], np.float64),
        np.array([place.y for place in there], np.float64),
        np.array([place.z or 0.0 for place in there], np.float64),
        np.array([place.z is not None for place in there], np.bool_),
    )


def event_points(table: pa.Table) -> Points:
    """The places of the events of a table of EVENTS."""
    coordinates = table.column("coordinates")
    z = table.column("z")
    return Points(
        np.asarray(coordinates.is_valid()),
        np.asarray(pc.equal(coordinates, "geographic").fill_null(False)),
        table.column("x").fill_null(0.0).to_numpy(),
        table.column("y").fill_null(0.0).to_numpy(),
        z.fill_null(0.0).to_numpy(),
        np.asarray(z.is_valid()),
    )


def metres(a: Points, b: Points) -> tuple[Floats, Flags]:
    """Distances of points pair by pair, broadcast, and which are known: both known and of one kind of coordinates."""
    known = a.known & b.known & (a.geographic == b.geographic)
    high = a.high & b.high
    result = planar(a.x - b.x, a.y - b.y, np.where(high, a.z - b.z, 0.0))
    round_earth = known & a.geographic
    if round_earth.any():
        sides = np.broadcast_arrays(a.x, a.y, b.x, b.y)
        result[round_earth] = geodesic(*(side[round_earth] for side in sides))
    return result, known


@dataclass(frozen=True, slots=True)
class Simple:
    """An atom about the distance of one anchor (a user or a fixed point) and the event."""

    atom: Atom
    anchor: User | Place


def simple(atom: Atom) -> Simple | None:
    """The atom as one between an anchor and the event, if it is such."""
    term = atom.name
    if not isinstance(term, Distance) or This() not in (term.a, term.b):
        return None
    other = term.b if term.a == This() else term.a
    return Simple(atom, other) if isinstance(other, (User, Place)) else None


def simple_rows(
    atoms: Sequence[Simple], around: Surrounding, positions: Positions, events: Points, width: int
) -> tuple[Rows, Rows]:
    """Truth and comparable rows of simple atoms, shape (atoms, words) each, for events at these positions."""
    anchors = list(dict.fromkeys(atom.anchor for atom in atoms))
    points = _anchor_points(anchors, around, positions)
    known = points.known & events.known & (points.geographic == events.geographic)
    tests = [_tests(atom.atom) for atom in atoms]
    number = {anchor: index for index, anchor in enumerate(anchors)}
    which = np.array([number[atom.anchor] for atom, own in zip(atoms, tests, strict=True) for _ in own], np.intp)
    limits = np.array([limit for own in tests for _, limit in own], np.float64)
    side = _sides(points, events, known, which, limits)
    holds = np.zeros((len(atoms), len(positions)), np.bool_)
    index = 0
    for row, own in enumerate(tests):
        parts = [_by_side(operator, side[index + offset]) for offset, (operator, _) in enumerate(own)]
        joined = np.logical_and if atoms[row].atom.operator is Operator.BETWEEN else np.logical_or
        holds[row] = joined.reduce(parts, axis=0) if parts else False
        index += len(own)
    comparable = known[[number[atom.anchor] for atom in atoms]]
    comparable[[row for row, own in enumerate(tests) if not own]] = False
    return pack(holds & comparable, width), pack(comparable, width)


def pack(flags: Flags, width: int) -> Rows:
    """Flags of shape (n, lanes) as rows of bits, shape (n, words)."""
    padded = np.zeros((flags.shape[0], width * 64), np.bool_)
    padded[:, : flags.shape[1]] = flags
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def _tests(atom: Atom) -> list[tuple[Operator, float]]:
    """The comparisons with one number each that an atom is made of; a literal of another kind makes none."""
    numbers = [
        float(value) for value in _literals(atom) if not isinstance(value, bool) and isinstance(value, (int, float))
    ]
    if atom.operator is Operator.BETWEEN:
        return [(Operator.GE, numbers[0]), (Operator.LE, numbers[1])] if len(numbers) == 2 else []
    operator = Operator.EQ if atom.operator is Operator.IN else atom.operator
    return [(operator, number) for number in numbers]


def _literals(atom: Atom) -> tuple[object, ...]:
    return atom.value if isinstance(atom.value, tuple) else (atom.value,)


def _anchor_points(anchors: Sequence[User | Place], around: Surrounding, positions: Positions) -> Points:
    """Where each anchor is at each event, shape (anchors, lanes)."""
    places: list[Place | None] = []
    index = np.zeros((len(anchors), len(positions)), np.intp)
    for row, anchor in enumerate(anchors):
        segments = [(0, anchor)] if isinstance(anchor, Place) else around.users.segments(anchor.name, positions)
        for start, place in segments:
            index[row, start:] = len(places)
            places.append(place)
    return points_of(places).take(index)


def _sides(
    points: Points, events: Points, known: Flags, which: npt.NDArray[np.intp], limits: Floats
) -> npt.NDArray[np.int8]:
    """Whether each distance is below (−1), at (0) or beyond (1) its test's limit, shape (tests, lanes)."""
    flat = _flat_distances(points, events)
    side = np.sign(flat[which] - limits[:, None]).astype(np.int8)
    round_rows = (known & points.geographic)[which]
    if round_rows.any():
        chord = _chords(points, events)[which]
        within = np.array([surely_within(limit) for limit in limits])[:, None]
        beyond = np.array([surely_beyond(limit) for limit in limits])[:, None]
        side = np.where(round_rows, np.where(chord > beyond, 1, -1).astype(np.int8), side)
        row, lane = np.nonzero(round_rows & (chord > within) & (chord <= beyond))
        exact = geodesic(points.x[which[row], lane], points.y[which[row], lane], events.x[lane], events.y[lane])
        side[row, lane] = np.sign(exact - limits[row])
    return side


def _flat_distances(points: Points, events: Points) -> Floats:
    if points.geographic.all():
        return np.zeros(points.x.shape)
    high = points.high & events.high
    return planar(points.x - events.x, points.y - events.y, np.where(high, points.z - events.z, 0.0))


def _chords(points: Points, events: Points) -> Floats:
    """Squared chords on the unit sphere between each anchor and each event."""
    apart = unit_vectors(points.x, points.y) - unit_vectors(events.x, events.y)
    squares: Floats = np.einsum("alk,alk->al", apart, apart)
    return squares


_SIDES = {
    Operator.LT: lambda side: side < 0,
    Operator.LE: lambda side: side <= 0,
    Operator.GT: lambda side: side > 0,
    Operator.GE: lambda side: side >= 0,
    Operator.EQ: lambda side: side == 0,
    Operator.NE: lambda side: side != 0,
}


def _by_side(operator: Operator, side: npt.NDArray[np.int8]) -> Flags:
    flags: Flags = _SIDES[operator](side)
    return flags


def walked_rows(atom: Atom, around: Surrounding, positions: Positions, events: Points, width: int) -> tuple[Rows, Rows]:
    """Truth and comparable rows, shape (1, words) each, of an atom about entities, event by event."""
    holds, comparable = np.zeros((2, len(positions)), np.bool_)
    term = atom.name
    assert isinstance(term, (Distance, Count))
    sides = [term.a, term.b] if isinstance(term, Distance) else [term.of, term.around]
    walkers = [_walk(side, around, positions, events) for side in sides if side is not None]
    for lane, found in enumerate(zip(*walkers, strict=True)):
        numbers = _distances(*found) if isinstance(term, Distance) else _count(term, found)
        truths = [truth for truth in (satisfies(atom, number) for number in numbers) if truth is not None]
        comparable[lane], holds[lane] = bool(truths), any(truths)
    return pack(holds[None], width), pack(comparable[None], width)


def _walk(side: Located, around: Surrounding, positions: Positions, events: Points) -> Iterator[Points]:
    """The points of one side of a term, for each event in turn."""
    if isinstance(side, Entities):
        points = points_of([])
        for members, changed in around.entities[side].walk(positions.tolist()):
            if changed or len(points.x) != len(members):
                points = _member_points(members)
            yield points
    elif isinstance(side, This):
        for lane in range(len(positions)):
            yield events.lanes(lane, lane + 1)
    else:
        for position in positions.tolist():
            place = side if isinstance(side, Place) else around.users.at(side.name, position)
            yield points_of([place] if place else [])


def _member_points(members: dict[str, Member]) -> Points:
    return points_of([member.place for member in members.values()])


def _distances(a: Points, b: Points) -> list[float]:
    distances, known = metres(_column(a), b)
    return [float(value) for value in distances[known]]


def _count(term: Count, found: tuple[Points, ...]) -> list[int]:
    if term.around is None or term.within is None:
        return [len(found[0].x)]
    if not found[1].known.any():
        return []
    distances, known = metres(_column(found[0]), found[1])
    return [int(((distances <= term.within) & known).any(axis=1).sum())]


def _column(points: Points) -> Points:
    return Points(*(getattr(points, name)[:, None] for name in Points.__slots__))
