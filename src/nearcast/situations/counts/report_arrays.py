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

NAME, FORM, SAID, AT, BEHIND = 0, 1, 2, 3, 4
"""Columns of `facts` of a node: as what it counts, the form of its point, what it said, its moment and position."""

KEY, NEXT, BEFORE = 0, 1, 2
"""Columns of chains: the cell, and the neighbours, by their places among all."""

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
    """`pairs` (entities × names, 3). Of nodes, which are reports that count, or may: `points` (nodes, 3), `facts`
    (nodes, 5), `chains` (nodes × levels, 3); `heads` are the first of these by bucket, `free` says how many nodes are
    free, and which. `widths` of cells (names, levels): 0 where there are no more. `looks` (looks, 5) and `bounds`
    (looks, 6), by name from `first_look` on. `discs` (discs, 6), `followed` (discs, 5), `disc_chains` and `disc_heads`
    as of nodes. What is told is written to `told`; `hits` counts for each look.
    """

    pairs: Integers
    points: Floats
    facts: Integers
    chains: Integers
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
