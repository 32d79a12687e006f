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
from nearcast.filters.term_work import units_at_point
from nearcast.filters.truth import Truth
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
    Property,
    Shape,
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

LOOKS = 256
"""Looks at reports that are made at once: a report may be long, and is copied for each."""

NOWHERE = (np.inf, np.inf, -np.inf, -np.inf)


Match = Callable[[pa.Table, Environment], MatchedPairs]


def match_within_budget(match: Match, events: pa.Table, around: Environment) -> MatchedPairs:
    """What `match` gives for a table of EVENTS, ascending, where no event takes more work than is allowed."""
    if not around.spatial.atoms or not len(events):
        return match(events, around)
    found = []
    for part in _parts(events, around):
        pairs = match(part.events, part.around)
        found.append(MatchedPairs(pairs.lanes + pairs.lanes.dtype.type(part.begin), pairs.groups, pairs.levels))
    return found[0] if len(found) == 1 else MatchedPairs(*map(np.concatenate, zip(*map(_columns, found), strict=True)))


class BudgetedSelection(NamedTuple):
    """For each condition which events satisfy it, and of which events some atoms were left, for the work was done."""

    flags: list[Flags]
    left: Flags


def select_within_budget(
    index: FilterMatcher, spatial: SpatialWindows, events: pa.Table, limits: Limits, excess: Counter[Excess]
) -> BudgetedSelection:
    """For each condition of an index which events of a table of EVENTS satisfy it, where `spatial` are the atoms with
    which its own share the work that is allowed for an event. What comes to a limit is counted in `excess`.
    """
    around, left = Environment(limits=limits, spatial=spatial), np.zeros(len(events), np.bool_)
    if not spatial.atoms or not len(events):
        flags = index.held(events, around)
        excess.update(around.excess)
        return BudgetedSelection(flags, left)
    # Truths are found by ascending sequences; the newest events of all entities are in no order.
    order = np.argsort(sequences_of(events), kind="stable")
    ordered: Flags = np.asarray(order[1:] > order[:-1])
    sorted_ = events if ordered.all() else events.take(pa.array(order))
    parts: list[list[Flags]] = []
    for part in _parts(sorted_, around):
        parts.append(index.held(part.events, part.around))
        if part.around.decided is not None:
            left[part.begin + part.lanes] = part.around.decided.left
    excess.update(around.excess)
    found = BudgetedSelection([np.concatenate(each) for each in zip(*parts, strict=True)], left)
    if sorted_ is events:
        return found
    back = np.argsort(order, kind="stable")
    return BudgetedSelection([flags[back] for flags in found.flags], found.left[back])


def selected_within_budget(
    index: FilterMatcher, spatial: SpatialWindows, events: pa.Table, limits: Limits, excess: Counter[Excess]
) -> list[Flags]:
    """The same without the events of which atoms were left."""
    return select_within_budget(index, spatial, events, limits, excess).flags


class ReportLooks(NamedTuple):
    """Rows of a table, each looked at as of a position."""

    rows: Integers
    positions: Integers


def selected_as_of(
    index: FilterMatcher,
    spatial: SpatialWindows,
    reports: pa.Table,
    looks: ReportLooks,
    limits: Limits,
    excess: Counter[Excess],
) -> list[Flags]:
    """For each condition of an index which looks at reports satisfy it: at rows of a table of EVENTS, each with the
    atoms that are there as of some position, whenever the report came. Those at one report are behind each other: each
    atom is compared with it once.
    """
    around, shared = Environment(limits=limits, spatial=spatial), _shared(spatial, limits)
    parts: list[list[Flags]] = []
    for first in range(0, max(1, len(looks.rows)), LOOKS):
        chosen = _numbered(reports.take(pa.array(looks.rows[first : first + LOOKS])))
        as_of = looks.positions[first : first + LOOKS]
        parts.append(index.held(chosen, shared.environment(chosen, np.arange(len(chosen)), around, as_of)))
    excess.update(around.excess)
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


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
        found = np.zeros(len(table), np.bool_)
        found[match_within_budget(self._index.match, _numbered(table), self._around).lanes] = True
        return found


def _numbered(table: pa.Table) -> pa.Table:
    """The events at positions from 1 on."""
    positions = pa.array(np.arange(1, len(table) + 1))
    return table.set_column(table.schema.get_field_index("position"), EVENTS.field("position"), positions)


class _EventPart(NamedTuple):
    """Some of a table's events, from a row on: those by number of which the truths of atoms are in `around`."""

    begin: int
    events: pa.Table
    lanes: Integers
    around: Environment


def _parts(events: pa.Table, around: Environment) -> Iterator[_EventPart]:
    """The events part by part, with the truths of atoms for those that may take more work than is allowed."""
    shared, begin = _shared(around.spatial, around.limits), 0
    lanes, most = shared.lanes(events, around), max(1, MANY // len(around.spatial.atoms))
    for first in range(0, max(1, len(lanes)), most):
        end = len(events) if first + most >= len(lanes) else int(lanes[first + most])
        part, own = events.slice(begin, end - begin), lanes[first : first + most] - begin
        yield _EventPart(begin, part, own, shared.environment(part, own, around))
        begin = end


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
    point = units_at_point(call, limits)
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


class _Outline(NamedTuple):
    """What is around an event's geometries: a box, and a circle for each; `None` for the middles if some are planar."""

    box: shapes.Bounds
    middles: list[Floats] | None
    radii: list[float]


class _LaneTruths(NamedTuple):
    """Of one event the truths of all atoms, and the limits that it came to, each as often as an atom did."""

    truths: Truths
    beyond: list[str]


_Compared = tuple[Truth, GeometryWork]
"""What an atom is for an event, and what that took."""


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

    def environment(
        self, events: pa.Table, lanes: Integers, around: Environment, as_of: Integers | None = None
    ) -> Environment:
        """The surroundings with the truths of atoms for some of the events, given by their numbers.

        The atoms are those that are there at the positions of the events, or at others that are given.
        """
        if not len(lanes):
            return around
        chosen = events.take(pa.array(lanes))
        truths, left = np.empty((len(lanes), len(self._atoms)), np.int8), np.zeros(len(lanes), np.bool_)
        whose = zip(chosen.column("source").to_pylist(), chosen.column("type").to_pylist(), strict=True)
        found = self.decide(chosen, around, as_of)
        for number, ((source, type_), one) in enumerate(zip(whose, found, strict=True)):
            truths[number], left[number] = one.truths, SPENT in one.beyond
            around.excess.update((source, type_, limit) for limit in one.beyond)
        numbers = {atom: number for number, atom in enumerate(self._spatial.atoms)}
        return replace(around, decided=DecidedGeometries(sequences_of(chosen), numbers, truths, left))

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

    def decide(self, events: pa.Table, around: Environment, as_of: Integers | None = None) -> Iterator[_LaneTruths]:
        """The truths of each of some events, by the atoms that are there at its position, or at another."""
        there = names_of(events)
        chunk = facts_of(events, around, [one.reads for one in self._atoms], there)
        known: dict[Any, _LaneTruths] = {}
        positions = events.column("position").to_numpy() if as_of is None else as_of
        stretches = np.searchsorted(self._ends, positions).tolist()
        places: Sequence[Place | None] = chunk.places or [None] * len(events)
        last: Any = None
        compared: dict[int, _Compared] = {}
        for lane, stretch in enumerate(stretches):
            own = (places[lane], *(chunk.typed(name)[lane] for name in self._names)) if self._alone else lane
            if (stretch, own) not in known:
                if own != last:
                    last, compared = own, {}
                known[stretch, own] = self._decided(chunk, lane, self._spatial.at(int(positions[lane])), compared)
            yield known[stretch, own]

    def _decided(self, chunk: ChunkFacts, lane: int, there: Flags, compared: dict[int, _Compared]) -> _LaneTruths:
        """The truths for one event, in the order of the atoms, until the work that is allowed is done.

        `compared` keeps what was, for the same event where other atoms are there.
        """
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
            if number not in compared:
                chunk.work = GeometryWork(self._limits)
                compared[number] = truth_of(self._atoms[number].call, chunk), chunk.work
            truth, work = compared[number]
            truths[number] = -1 if truth is None else truth
            together.count(work)
            beyond += [work.beyond] * bool(work.beyond)
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
