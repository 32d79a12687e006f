"""Cells of reports that count, compiled: which one a point is in, and chains of what is in the same."""

from __future__ import annotations

import numpy as np

from nearcast.geo.distance import SHORTEST
from nearcast.model.arrays import Integers
from nearcast.runtime.jit_cache import compiled
from nearcast.situations.counts.report_arrays import (
    AT,
    BEHIND,
    HIGH,
    KEY,
    NEXT,
    NOWHERE,
    ON_GLOBE,
    TAG,
    ReportArrays,
    X,
    Y,
    Z,
)

FURTHEST = 2.0**60
"""Numbers of cells end here: what lies beyond is all in the last one, where it is as near as it was."""

MIX = 0x1E3779B97F4A7C15
SPREAD = 0x2545F4914F6CDD1D
SHIFT = 24
ROOM = 1e-8
SLACK = 1e-9
"""A little more than asked for is looked through, so that rounding hides nothing."""


@compiled
def cell_number(at: float, width: float) -> int:
    """The number of a cell along one axis."""
    return int(np.floor(min(max(at / width, -FURTHEST), FURTHEST)))


@compiled
def cell_key(name: int, level: int, x: int, y: int, z: int) -> int:
    """Others may have the same: what is found by it is of any cell."""
    return (((name * MIX + level) * MIX + x) * MIX + y) * MIX + z


@compiled
def bucket_of(key: int, heads: Integers) -> int:
    """Where the chain of a cell begins: others may be in it too."""
    return (key * SPREAD >> SHIFT) & (len(heads) - 1)


@compiled
def scale_of(form: int) -> float:
    """Metres to one of a point's coordinates: on the globe never more than the way over the ground has."""
    return SHORTEST if form == ON_GLOBE else 1.0


@compiled
def key_at(name: int, level: int, x: float, y: float, z: float, form: int, width: float) -> int:
    """The cell of a point."""
    scale = scale_of(form)
    third = cell_number(z * scale, width) if form == ON_GLOBE else 0
    return cell_key(name, level, cell_number(x * scale, width), cell_number(y * scale, width), third)


@compiled
def _tag(name: int, level: int, levels: int, form: int, said: int) -> int:
    """Of which name and size of cells a row is, the form of its point, and what was said."""
    return (name * levels + level) << 4 | form << 2 | said


@compiled
def _chain(own: ReportArrays, row: int, key: int) -> None:
    bucket = bucket_of(key, own.heads)
    first = own.heads[bucket]
    own.rows[row, KEY], own.rows[row, NEXT], own.before[row] = key, first, -1
    if first >= 0:
        own.before[first] = row
    own.heads[bucket] = row


@compiled
def _unchain(own: ReportArrays, row: int) -> None:
    behind, before = own.rows[row, NEXT], own.before[row]
    if before >= 0:
        own.rows[before, NEXT] = behind
    else:
        own.heads[bucket_of(own.rows[row, KEY], own.heads)] = behind
    if behind >= 0:
        own.before[behind] = before


@compiled
def is_within(
    dx: float, dy: float, dz: float, form: int, other: int, metres: float, within: float, beyond: float
) -> int:
    """Whether two points that are so far apart along the axes are within so many metres: 0, 1, or 2 where only a
    geodesic tells.
    """
    if form == ON_GLOBE or other == ON_GLOBE:
        if form != other:
            return 0
        apart = dx * dx + dy * dy + dz * dz
        return 0 if apart > beyond else 1 if apart <= within else 2
    if abs(dx) > metres or abs(dy) > metres:
        return 0
    if form != HIGH or other != HIGH:
        dz = 0.0
    return 1 if np.sqrt(dx * dx + dy * dy + dz * dz) <= metres else 0


@compiled
def enter_cells(own: ReportArrays, node: int) -> None:
    """Puts a node, of which the first row says all, into its cells."""
    rows, spots, levels = own.rows, own.spots, own.widths.shape[1]
    first = node * levels
    whose = rows[first, TAG] >> 4
    name, form, said = whose // levels, rows[first, TAG] >> 2 & 3, rows[first, TAG] & 3
    if form == NOWHERE:
        return
    x, y, z = spots[first, X], spots[first, Y], spots[first, Z]
    for level in range(levels):
        width, row = own.widths[name, level], first + level
        if width == 0.0:
            return
        rows[row, TAG] = _tag(name, level, levels, form, said)
        spots[row, X], spots[row, Y], spots[row, Z] = x, y, z
        rows[row, AT], rows[row, BEHIND] = rows[first, AT], rows[first, BEHIND]
        _chain(own, row, key_at(name, level, x, y, z, form, width))


@compiled
def leave_cells(own: ReportArrays, node: int) -> None:
    """Takes a node out of them."""
    levels = own.widths.shape[1]
    first = node * levels
    name = (own.rows[first, TAG] >> 4) // levels
    if own.rows[first, TAG] >> 2 & 3 == NOWHERE:
        return
    for level in range(levels):
        if own.widths[name, level] == 0.0:
            return
        _unchain(own, first + level)


@compiled
def move_cells(
    own: ReportArrays, node: int, x: float, y: float, z: float, form: int, said: int, moment: int, position: int
) -> None:
    """Brings a node elsewhere; mostly that is in the same cells."""
    rows, spots, levels = own.rows, own.spots, own.widths.shape[1]
    first = node * levels
    name = (rows[first, TAG] >> 4) // levels
    if form == NOWHERE or rows[first, TAG] >> 2 & 3 == NOWHERE:
        leave_cells(own, node)
        write_row(own, first, name, x, y, z, form, said, moment, position)
        enter_cells(own, node)
        return
    for level in range(levels):
        width, row = own.widths[name, level], first + level
        if width == 0.0:
            return
        rows[row, TAG] = _tag(name, level, levels, form, said)
        spots[row, X], spots[row, Y], spots[row, Z] = x, y, z
        rows[row, AT], rows[row, BEHIND] = moment, position
        key = key_at(name, level, x, y, z, form, width)
        if key != rows[row, KEY]:
            _unchain(own, row)
            _chain(own, row, key)


@compiled
def write_row(
    own: ReportArrays,
    first: int,
    name: int,
    x: float,
    y: float,
    z: float,
    form: int,
    said: int,
    moment: int,
    position: int,
) -> None:
    """Writes the first row of a node."""
    own.rows[first, TAG] = _tag(name, 0, own.widths.shape[1], form, said)
    own.spots[first, X], own.spots[first, Y], own.spots[first, Z] = x, y, z
    own.rows[first, AT], own.rows[first, BEHIND] = moment, position
