"""Reports that count as arrays: what their columns are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.model.arrays import Floats, Integers

NOWHERE, FLAT, HIGH, ON_GLOBE = 0, 1, 2, 3
"""Forms of points: none, planar, the same with a height, geographic: on the unit sphere."""

UNTOLD, FALSE, TRUE, DOUBTFUL = -1, 0, 1, 2
"""What a report may say of whether its entity counts."""

MOMENT, POSITION, NODE = 0, 1, 2
"""Columns of `pairs`: of an entity's newest report that it counts as something, and what is kept of one that counts."""

KEY, NEXT, TAG, X, Y, Z, AT, BEHIND = range(8)
"""Columns of `rows`: the cell; the next one in its bucket; whose it is, see `tag`; a report's point, moment, position.
Together they fill a line of the processor's cache, which is what looking at one costs.
"""

NAME, FORM = 0, 1
"""First columns of what is followed, and of looks."""

DISC_KEY, DISC_NEXT, DISC_BEFORE = 0, 1, 2
"""Columns of the chains of discs: the cell, and the neighbours."""

METRES, WITHIN, BEYOND = 3, 4, 5
"""Columns of the points of discs behind their points; of looks the same without a point in the first three."""

LEVEL, ENOUGH, VALID, AFTER = 1, 2, 3, 4
"""Columns of `looks` behind the name: the size of cells, how many are enough, how long they count, behind what."""

SIZE, SINCE, SPARE = 2, 3, 4
"""Columns of discs behind name and form: the size of cells; of which moment, or later, those are that were counted, and
how many more than enough.
"""

ABSENT = np.iinfo(np.int64).min
"""The moment of a report that is none."""


class ReportArrays(NamedTuple):
    """`pairs` (entities × names, 3). Of nodes, which are reports that count, or may: `rows` (nodes × levels, 8), of
    which `spots` are the same memory as doubles, and `before` what is before each in its bucket; `heads` are the first
    of these, `free` says how many nodes are free, and which. `widths` of cells (names, levels): 0 where there are no
    more. `looks` (looks, 5) and `bounds` (looks, 6), by name from `first_look` on. `discs` (discs, 6), `followed`
    (discs, 5), `disc_chains` and `disc_heads` as of nodes. What is told is written to `told`; `hits` counts for each
    look.
    """

    pairs: Integers
    rows: Integers
    spots: Floats
    before: Integers
    heads: Integers
    widths: Floats
    free: Integers
    looks: Integers
    bounds: Floats
    first_look: Integers
    discs: Floats
    followed: Integers
    disc_chains: Integers
    disc_heads: Integers
    told: Integers
    hits: Integers
