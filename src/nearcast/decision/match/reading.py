"""What flat filters ask of events: the columns, the atoms as tests of their codes, and the filters over these atoms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.asked import NEARBY, POINTS
from nearcast.decision.match.codes import Classes
from nearcast.decision.match.flat import FALSE, TRUE, Flat
from nearcast.decision.match.nearby import inner
from nearcast.decision.match.tests import Key
from nearcast.model.filter import Atom

Short = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Atoms:
    """Atoms as tests of codes, side by side: `kind`, `column`, and `low`, `high`, bounds of codes or into `points`.

    Of one about what is near `low` is its number among these, and `high` the truth that it has only near.
    """

    kind: Short
    column: Short
    low: Short
    high: Short
    points: Short


class Reading(NamedTuple):
    """Flat filters whose atoms are numbered among themselves; `nearby` are those about what is near.

    `others` are the atoms that codes do not show, by number.
    """

    tokens: Short
    starts: Short
    classes: npt.NDArray[np.int16]
    class_starts: Short
    nearby: list[Atom]
    others: dict[int, Atom]


def compiled(flat: Flat) -> tuple[dict[Key, Classes], Atoms, Reading]:
    """The columns with the classes of their values, the atoms as tests of these, and the filters over these atoms."""
    # Connectives are negative, so they come first.
    given = flat.tokens
    numbers, ranks = np.unique(given, return_inverse=True)
    least = int(np.searchsorted(numbers, 0))
    tokens: Short = np.where(given < 0, given, ranks - least).astype(np.int32)
    numbers = numbers[least:]
    nearby: list[Atom] = []
    fields = np.zeros((4, len(numbers)), np.int64)
    others = dict(enumerate(flat.vocabulary.opaque(numbers)))
    for number, atom in others.items():
        near = inner(atom)
        if near is not None:
            fields[:, number] = NEARBY, -1, len(nearby), TRUE if near else FALSE
            nearby.append(atom)
    columns: dict[Key, Classes] = {}
    points = [np.array([], np.int32)]
    size = 0
    for column, (key, (which, asked)) in enumerate(flat.vocabulary.asked(numbers).items()):
        columns[key], own, listed = asked.compiled()
        own[1:, own[0] == POINTS] += size
        fields[0, which], fields[1, which], fields[2:, which] = own[0], column, own[1:]
        points.append(listed.astype(np.int32))
        size += len(listed)
    kinds, places, lows, highs = fields.astype(np.int32)
    atoms = Atoms(kinds, places, lows, highs, np.concatenate(points))
    return columns, atoms, Reading(tokens, flat.starts, flat.classes, flat.class_starts, nearby, others)
