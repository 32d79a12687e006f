"""The pairs of parts as one, in compiled code: groups by their numbers, without those that are gone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.bits import Pairs
from nearcast.decision.match.kept import compiled

Short = npt.NDArray[np.int32]
Levels = npt.NDArray[np.int8]


def numbered(found: Sequence[tuple[Pairs, Short]]) -> Pairs:
    """Each part's pairs with its numbers for groups, less those below zero; the arrays of a single part are reused."""
    parts = [(_arrays(pairs), numbers) for pairs, numbers in found]
    [(lanes, groups, levels), _], *others = parts
    if others:
        # Memory that nobody had before costs more than all that is written to it here: it is taken once.
        size = sum(len(own) for (own, *_), _ in parts)
        lanes, groups, levels = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int8)
    count = 0
    for arrays, numbers in parts:
        count = append(*arrays, numbers, lanes, groups, levels, count)
    return Pairs(lanes[:count], groups[:count], levels[:count])


def _arrays(pairs: Pairs) -> tuple[Short, Short, Levels]:
    # Also to be written: one level for all pairs may be one byte that is shown as many, which nobody may write.
    kinds = (pairs.lanes, np.int32), (pairs.groups, np.int32), (pairs.levels, np.int8)
    lanes, groups, levels = (np.require(column, kind, ["C", "W"]) for column, kind in kinds)
    return lanes, groups, levels


@compiled
def append(
    lanes: Short, groups: Short, levels: Levels, numbers: Short,
    own_lanes: Short, own_groups: Short, own_levels: Levels, at: int,
) -> int:  # fmt: skip
    """Writes pairs behind others, or over themselves; returns where they end."""
    for pair in range(len(groups)):
        number = numbers[groups[pair]]
        own_lanes[at] = lanes[pair]
        own_groups[at] = number
        own_levels[at] = levels[pair]
        at += 1 if number >= 0 else 0
    return at
