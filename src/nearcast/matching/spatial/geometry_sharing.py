"""The work on geometries that is allowed for one event, shared by the atoms of all filters (semantics §12).

Nearly all events tell no geometry, and are at a point: what atoms take for one is known beforehand, and does not come
to the limit. For the others the atoms are decided here, one after the other in their order, until the work is done;
who matches finds their truths. What a box or a circle around the event's geometries shows takes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.filters.expressions import truth_of
from nearcast.filters.spatial_atoms import in_order, spatial_atoms
from nearcast.geo import shapes
from nearcast.geo.distance import SHORTEST, SLACK, Floats, unit_vectors
from nearcast.geo.line_pieces import ANYWHERE
from nearcast.matching.bitset import MatchedPairs
from nearcast.matching.computed_atoms import ChunkFacts, ExpressionReads, facts_of, reads_of, sequences_of
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.arrays import Flags, Integers, Truths
from nearcast.model.columns import EVENTS
from nearcast.model.event import Place
from nearcast.model.expression import (
    GEOMETRY,
    SPATIAL,
    TOLD_GEOMETRY,
    Box,
    Call,
    Constant,
    Expression,
    Property,
    Shape,
    parts,
)
from nearcast.model.filter import Atom, Filter, atoms
from nearcast.model.geometry_budget import SPENT, EventGeometryWork, GeometryWork
from nearcast.model.limits import Limits
from nearcast.model.values import Value
from nearcast.state.previous_values import names_of, values_of
from nearcast.state.spatial_windows import DecidedGeometries, SpatialWindows
from nearcast.state.timeline import Environment, Excess

MANY = 1 << 26
"""Truths that are kept at once: of more, the events are decided part by part."""

KNOWN = 1 << 16
"""Atoms of which is known what they are about."""

POINT = shapes.at(Place("planar", 0.0, 0.0))

POINTS_APART = 200
"""Units that the distance of two points takes at most."""

NOWHERE = (np.inf, np.inf, -np.inf, -np.inf)


Match = Callable[[pa.Table, Environment], MatchedPairs]


def match_within_budget(match: Match, events: pa.Table, around: Environment) -> MatchedPairs:
    """What `match` gives for a table of EVENTS, ascending, where no event takes more work than is allowed."""
    if not around.spatial.atoms or not len(events):
        return match(events, around)
    shared = _shared(around.spatial, around.limits)
    lanes = shared.lanes(events, around)
    found, begin = [], 0
    most = max(1, MANY // len(around.spatial.atoms))
    for first in range(0, max(1, len(lanes)), most):
        own = lanes[first : first + most]
        end = len(events) if first + most >= len(lanes) else int(lanes[first + most])
        pairs = match(events.slice(begin, end - begin), shared.environment(events, own, around))
        found.append(MatchedPairs(pairs.lanes + pairs.lanes.dtype.type(begin), pairs.groups, pairs.levels))
        begin = end
    return found[0] if len(found) == 1 else MatchedPairs(*map(np.concatenate, zip(*map(_columns, found), strict=True)))


def selected_within_budget(
    index: FilterMatcher, spatial: SpatialWindows, events: pa.Table, limits: Limits, excess: Counter[Excess]
) -> list[Flags]:
    """For each condition of an index which events of a table of EVENTS satisfy it, where `spatial` are the atoms with
    which its own share the work that is allowed for an event. What comes to a limit is counted in `excess`.
    """
    around = Environment(limits=limits, spatial=spatial)
    if not spatial.atoms or not len(events):
        return index.held(events, around, excess)
    # Truths are found by ascending sequences; the newest events of all entities are in no order.
    order = np.argsort(sequences_of(events), kind="stable")
    ordered: Flags = np.asarray(order[1:] > order[:-1])
    sorted_ = events if ordered.all() else events.take(pa.array(order))
    shared = _shared(spatial, limits)
    found = index.held(sorted_, shared.environment(sorted_, shared.lanes(sorted_, around), around), excess)
    if sorted_ is events:
        return found
    back = np.argsort(order, kind="stable")
    return [flags[back] for flags in found]


def fixed_spatial(filters: Iterable[Filter]) -> SpatialWindows:
    """The spatial atoms of filters that do not change."""
    return SpatialWindows.of(in_order(atom for filter in filters for atom in spatial_atoms(filter)))


class SingleFilter:
    """One filter by itself, for many events; it may be pickled."""

    def __init__(self, filter: Filter) -> None:
        self._index = FilterMatcher([(filter, (0,) * sum(1 for _ in atoms(filter)))])
        self._around = Environment(spatial=fixed_spatial([filter]))

    def selects(self, table: pa.Table) -> Flags:
        """Which events of a table it selects, if nothing is known besides them; they need no positions."""
        numbered = table.set_column(
            table.schema.get_field_index("position"), EVENTS.field("position"), pa.array(np.arange(1, len(table) + 1))
        )
        found = np.zeros(len(table), np.bool_)
        found[match_within_budget(self._index.match, numbered, self._around).lanes] = True
        return found


def _columns(pairs: MatchedPairs) -> tuple[Any, Any, Any]:
    return pairs.lanes, pairs.groups, pairs.levels


_SHARED: WeakKeyDictionary[SpatialWindows, tuple[Limits, SharedGeometryWork]] = WeakKeyDictionary()


def _shared(spatial: SpatialWindows, limits: Limits) -> SharedGeometryWork:
    """What is known of the atoms, kept as long as they are."""
    known = _SHARED.get(spatial)
    if known is None or known[0] != limits:
        known = _SHARED[spatial] = limits, SharedGeometryWork(spatial, limits)
    return known[1]


class _SpatialAtom(NamedTuple):
    """What is known of an atom before there are events.

    `name`: where it compares a written geometry with the event's own, by which name; then `box` is around the written
    one, or, where metres are asked for, `middle` and `reach` of the circle that the event must come near. `point`: the
    units that it takes at most for an event at a point.
    """

    call: Call
    reads: ExpressionReads
    name: str
    box: shapes.Bounds
    middle: tuple[float, ...]
    reach: float
    disjoint: bool
    point: int


@lru_cache(maxsize=KNOWN)
def _known(atom: Atom, limits: Limits) -> _SpatialAtom:
    call = atom.name
    assert isinstance(call, Call), "it reads geometries"
    name, written = _written(call)
    geometry = shapes.written(written, limits.geometry_work) if written is not None else None
    point = min(sum(_for_a_point(part, limits) for part in parts(call)), limits.geometry_work)
    found = _SpatialAtom(call, reads_of(call), "", NOWHERE, (0.0, 0.0, 0.0), np.inf, False, point)
    if geometry is None or geometry.shape is None or not np.isfinite(geometry.bounds).all():
        return found
    if call.function in SPATIAL:
        return found._replace(name=name, box=geometry.bounds, disjoint=call.function == "S_DISJOINT")
    metres = call.arguments[2]
    if not isinstance(metres, Constant) or isinstance(metres.value, bool) or not isinstance(metres.value, (int, float)):
        return found
    middle, radius = geometry.disc
    reach = min(metres.value, ANYWHERE) + radius
    return found._replace(name=name, middle=tuple(middle.tolist()), reach=reach)


def _written(call: Call) -> tuple[str, Shape | Box | None]:
    """The name of the event's own geometry and the literal beside it, where an atom compares just these."""
    if call.function not in SPATIAL and call.function != "S_DWITHIN":
        return "", None
    a, b = call.arguments[:2]
    for literal, own in ((a, b), (b, a)):
        if isinstance(own, Property) and own.name.lower() in GEOMETRY and isinstance(literal, (Shape, Box)):
            return own.name, literal
    return "", None


def _for_a_point(part: Expression, limits: Limits) -> int:
    """The units that a comparison takes at most where every geometry that is not written is a point."""
    if not isinstance(part, Call):
        return 0
    if part.function == "IS NULL":
        # It may look twice at what it is of.
        return limits.geometry_work * isinstance(part.arguments[0], Call)
    if part.function not in SPATIAL and part.function != "S_DWITHIN":
        return 0
    a, b = (_or_point(side, limits) for side in part.arguments[:2])
    if a.shape is None or b.shape is None:
        return limits.geometry_work
    if part.function in SPATIAL:
        return shapes.comparing(part.function, a, b)
    return POINTS_APART if a.single and b.single else limits.geometry_work


def _or_point(side: Expression, limits: Limits) -> shapes.Geometry:
    return shapes.written(side, limits.geometry_work) if isinstance(side, (Shape, Box)) else POINT


class _Outline(NamedTuple):
    """What is around an event's geometries: a box, and a circle for each; `None` for the middles if some are planar."""

    box: shapes.Bounds
    middles: list[Floats] | None
    radii: list[float]


class _LaneTruths(NamedTuple):
    """Of one event the truths of all atoms, and the limits that it came to, each as often as an atom did."""

    truths: Truths
    beyond: list[str]


class SharedGeometryWork:
    """The atoms of all filters, and what of it can be said for all events alike."""

    def __init__(self, spatial: SpatialWindows, limits: Limits) -> None:
        self._spatial, self._limits = spatial, limits
        self._atoms = [_known(atom, limits) for atom in spatial.atoms]
        self._names = tuple(dict.fromkeys(name for one in self._atoms for name in one.reads.attributes))
        own = dict.fromkeys(one.name for one in self._atoms if one.name)
        self._own = tuple(dict.fromkeys([*own, *TOLD_GEOMETRY])) if own else ()
        self._boxes = np.array([one.box for one in self._atoms], np.float64)
        self._middles = np.array([one.middle for one in self._atoms], np.float64)
        self._reaches = np.array([one.reach for one in self._atoms], np.float64)
        self._boxed: Flags = np.asarray(np.isfinite(self._boxes).all(axis=1))
        self._disjoint = np.array([one.disjoint for one in self._atoms], np.bool_)
        self._by_name = {name: np.array([one.name == name for one in self._atoms], np.bool_) for name in own}
        self._points = np.array([one.point for one in self._atoms], np.int64)
        self._ends = spatial.ends()
        self._remembered = tuple(dict.fromkeys(name for one in self._atoms for name in one.reads.remembered))
        self._alone = not self._remembered and not any(one.reads.users for one in self._atoms)

    def environment(self, events: pa.Table, lanes: Integers, around: Environment) -> Environment:
        """The surroundings with the truths of atoms for some of the events, given by their numbers."""
        if not len(lanes):
            return around
        chosen = events.take(pa.array(lanes))
        truths = np.empty((len(lanes), len(self._atoms)), np.int8)
        whose = zip(chosen.column("source").to_pylist(), chosen.column("type").to_pylist(), strict=True)
        for row, (source, type_), one in zip(truths, whose, self.decide(chosen, around), strict=True):
            row[:] = one.truths
            around.excess.update((source, type_, limit) for limit in one.beyond)
        numbers = {atom: number for number, atom in enumerate(self._spatial.atoms)}
        return replace(around, decided=DecidedGeometries(sequences_of(chosen), numbers, truths))

    def lanes(self, events: pa.Table, around: Environment) -> Integers:
        """The events that may take more than is allowed: those that tell geometries, and others of which it is known.

        Only for these the atoms are decided one after the other.
        """
        there = names_of(events)
        told = np.zeros(len(events), np.bool_)
        for rows in values_of(events, [name for name in self._names if name in there]).values():
            told |= list(map(_tells, rows))
        tracks = [around.previous[name] for name in self._remembered if name in around.previous]
        # Whose predecessor told one is seen one by one.
        told |= any(_tells(row) for track in tracks for row in track.base.values())
        told |= any(_tells(row) for track in tracks for rows in track.changes.values() for _, row in rows)
        if int(self._points.sum()) > self._limits.event_geometry_work:
            told |= self._at_points(events) > self._limits.event_geometry_work
        return np.flatnonzero(told)

    def _at_points(self, events: pa.Table) -> npt.NDArray[np.int64]:
        """The units that each event takes at most, taken as a point."""
        x, y = (np.nan_to_num(events.column(name).to_numpy().astype(np.float64), nan=np.inf) for name in ("x", "y"))
        units = np.zeros(len(events), np.int64)
        finite = np.isfinite(x)
        planar: Flags = pc.equal(events.column("coordinates"), "planar").fill_null(False).to_numpy()
        vectors = unit_vectors(np.where(finite, x, 0.0), np.where(finite, y, 0.0))
        for number, one in enumerate(self._atoms):
            if self._boxed[number]:
                west, south, east, north = one.box
                near = (x >= west) & (x <= east) & (y >= south) & (y <= north)
                units[near] += one.point
            elif one.name:
                chords = vectors - self._middles[number]
                near = (chords * chords).sum(axis=1) <= _farthest(self._reaches[number : number + 1])
                units[near | planar] += one.point
            else:
                units += one.point
        return units

    def decide(self, events: pa.Table, around: Environment) -> Iterator[_LaneTruths]:
        """The truths of each of some events."""
        there = names_of(events)
        chunk = facts_of(events, around, [one.reads for one in self._atoms], there)
        known: dict[Any, _LaneTruths] = {}
        positions = events.column("position").to_numpy()
        stretches = np.searchsorted(self._ends, positions).tolist()
        places: Sequence[Place | None] = chunk.places or [None] * len(events)
        for lane, stretch in enumerate(stretches):
            key = (stretch, places[lane], *(chunk.typed(name)[lane] for name in self._names)) if self._alone else lane
            if key not in known:
                known[key] = self._decided(chunk, lane, self._spatial.at(int(positions[lane])))
            yield known[key]

    def _decided(self, chunk: ChunkFacts, lane: int, there: Flags) -> _LaneTruths:
        """The truths for one event, in the order of the atoms, until the work that is allowed is done."""
        chunk.lane = lane
        truths = np.full(len(self._atoms), -1, np.int8)
        apart = self._apart(chunk) & there
        for own in self._by_name.values():
            # The first of them reads what the event tells.
            apart[np.flatnonzero(own & there)[:1]] = False
        together, beyond, end = EventGeometryWork(self._limits), list[str](), len(self._atoms)
        for number in np.flatnonzero(there & ~apart).tolist():
            if any(not chunk.own[name][lane] for name in self._atoms[number].reads.needed):
                continue
            chunk.work = GeometryWork(self._limits)
            truth = truth_of(self._atoms[number].call, chunk)
            truths[number] = -1 if truth is None else truth
            together.count(chunk.work)
            beyond += [chunk.work.beyond] * bool(chunk.work.beyond)
            if together.beyond:
                end = number + 1
                break
        apart[end:] = False
        truths[apart] = self._disjoint[apart]
        return _LaneTruths(truths, beyond + [SPENT] * int(np.count_nonzero(there[end:])))

    def _apart(self, chunk: ChunkFacts) -> Flags:
        """Which atoms compare the event's own geometry with one that is surely apart, or farther than is asked for."""
        found = np.zeros(len(self._atoms), np.bool_)
        outline = self._outline(chunk) if self._own else None
        if outline is None:
            return found
        west, south, east, north = self._boxes.T
        left, low, right, high = outline.box
        found |= self._boxed & ((west > right) | (east < left) | (south > high) | (north < low))
        if outline.middles is None:
            return found
        named = np.isfinite(self._reaches)
        for middle, radius in zip(outline.middles, outline.radii, strict=True):
            chords = self._middles - middle
            named &= (chords * chords).sum(axis=1) > _farthest(self._reaches + radius)
        return found | named

    def _outline(self, chunk: ChunkFacts) -> _Outline | None:
        """What is around the geometries that an event tells as its own, and the point where it is; None where some
        geometry has to be looked at more closely, or there is none.
        """
        found = [] if chunk.place is None else [shapes.at(chunk.place)]
        corners = cost = 0
        texts = (value for name in self._own for value in chunk.own[name][chunk.lane])
        for text in texts:
            one = shapes.told(text, self._limits.geometry_work) if isinstance(text, str) else None
            if one is None:
                continue
            corners, cost = corners + one.corners, cost + one.cost
            if one.shape is None or corners > self._limits.geometry_corners or cost > self._limits.geometry_work:
                return None
            found.append(one)
        if not found or not np.isfinite([one.bounds for one in found]).all():
            return None
        boxes = np.array([one.bounds for one in found])
        (west, south), (east, north) = boxes[:, :2].min(axis=0).tolist(), boxes[:, 2:].max(axis=0).tolist()
        discs = None if any(one.planar for one in found) else [one.disc for one in found]
        middles = None if discs is None else [middle for middle, _ in discs]
        return _Outline((west, south, east, north), middles, [radius for _, radius in discs or ()])


def _tells(values: Sequence[Value]) -> bool:
    """Whether there may be a geometry among values."""
    return any(isinstance(value, str) and value.startswith("{") for value in values)


def _farthest(metres: Floats) -> Floats:
    """`surely_beyond` of many, and a little more for rounding: what is beyond this is by that, too."""
    angle = np.minimum(np.maximum(metres, 0.0) / SHORTEST, np.pi)
    return ((2 * np.sin(angle / 2)) ** 2 * (1 + SLACK) + SLACK**2) * (1 + SLACK)
