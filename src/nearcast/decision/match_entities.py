"""Location atoms about entities, or about users alone: event by event through the chunk (SEMANTICS §4)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nearcast.decision.evaluate import satisfies
from nearcast.decision.match_points import Points, metres, pack, points_of
from nearcast.decision.match_rows import Rows
from nearcast.decision.timeline import Member, Positions, Surrounding
from nearcast.model.filter import Atom, Count, Distance, Entities, Located, This
from nearcast.model.place import Place


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
    distances, known = metres(a.upright(), b)
    return [float(value) for value in distances[known]]


def _count(term: Count, found: tuple[Points, ...]) -> list[int]:
    if term.around is None or term.within is None:
        return [len(found[0].x)]
    if not found[1].known.any():
        return []
    distances, known = metres(found[0].upright(), found[1])
    return [int(((distances <= term.within) & known).any(axis=1).sum())]
