"""What is told of pairs, as columns: whom, where both were, since when, and by which event.

A crowd that gathers tells of hundreds of thousands of pairs. As columns each takes a hundred bytes, until
`transition_tables` makes events of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.geo.distance import geodesic, planar
from nearcast.model.arrays import Flags, Floats, Integers, placed
from nearcast.model.event import Place
from nearcast.model.relation import Detection
from nearcast.relations.entity_table import COORDINATES, GEOGRAPHIC, NOWHERE, PLANAR, EntityTable
from nearcast.relations.pair_rules import PairRules
from nearcast.relations.reports import ReportTable, moment_of, names_in_order
from nearcast.relations.transition_events import DETECTIONS, REASON_NAMES, Participant, Transition
from nearcast.relations.transitions import LEAVES
from nearcast.state.lateness import NEVER

AtRow = tuple[int, Transition]
"""A thing to tell, and the row of the stretch that causes it."""

NO_REASON = -1


class PlaceColumns(NamedTuple):
    """Places: of which kind each is, and its coordinates; z is not a number where there is no height."""

    kind: npt.NDArray[np.int8]
    x: Floats
    y: Floats
    z: Floats

    def select(self, which: Integers) -> PlaceColumns:
        """Some of them."""
        return PlaceColumns(self.kind[which], self.x[which], self.y[which], self.z[which])

    def places(self) -> list[Place | None]:
        """Each as a place."""
        return [
            None if kind == NOWHERE else Place(COORDINATES[kind], x, y, None if z != z else z)
            for kind, x, y, z in zip(*(column.tolist() for column in self), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class ToldPairs:
    """Each is caused by a row, in a phase, told by a relation: a number, of which `relations` has the id.

    `detect` is a place in `DETECTIONS`; `a` and `b` are places in `names`, which ascend, `a_place` and `b_place` in
    `places`; `started_at` and `time` are in microseconds since 1970, the latter is `NEVER` where it is that of the
    cause; `reason` is a place in `REASON_NAMES`, or `NO_REASON`.
    """

    relations: Mapping[int, str]
    names: Sequence[str]
    places: PlaceColumns
    row: Integers
    phase: Integers
    sequence: Integers
    detect: Integers
    a: Integers
    b: Integers
    a_place: Integers
    b_place: Integers
    started_at: Integers
    reason: Integers
    time: Integers
    present: Flags

    def __len__(self) -> int:
        return len(self.row)

    def order(self) -> Integers:
        """Ascending by row, and in the order of telling among what one row causes; see `Transition.order`."""
        found: Integers = np.lexsort((self.detect, self.b, self.a, self.sequence, self.phase, self.row))
        return found

    def select(self, which: Integers) -> ToldPairs:
        """Some of them."""
        return ToldPairs(self.relations, self.names, self.places, *(getattr(self, name)[which] for name in COLUMNS))

    def metres(self) -> tuple[Floats, Flags]:
        """How far both are apart, and of which of them that is known."""
        a, b = self.places.select(self.a_place), self.places.select(self.b_place)
        metres = np.zeros(len(self))
        flat = np.flatnonzero((a.kind == PLANAR) & (b.kind == PLANAR))
        with np.errstate(over="ignore", invalid="ignore"):
            dx, dy, dz = (one[flat] - other[flat] for one, other in zip(a[1:], b[1:], strict=True))
            metres[flat] = planar(dx, dy, np.where(np.isnan(dz), 0.0, dz))
        globe = np.flatnonzero((a.kind == GEOGRAPHIC) & (b.kind == GEOGRAPHIC))
        if len(globe):
            metres[globe] = geodesic(a.x[globe], a.y[globe], b.x[globe], b.y[globe])
        return metres, (a.kind == b.kind) & (a.kind != NOWHERE)

    def transitions(self) -> Iterator[AtRow]:
        """Each by itself, with its row."""
        places = self.places.places()
        metres, known = self.metres()
        columns = (*(getattr(self, name) for name in COLUMNS), metres, known)
        for row, phase, sequence, detect, a, b, here, there, since, reason, time, present, apart, measured in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            yield (
                row,
                Transition(
                    phase,
                    sequence,
                    self.relations[sequence],
                    DETECTIONS[detect],
                    Participant(self.names[a], places[here]),
                    (Participant(self.names[b], places[there]),),
                    apart if measured else None,
                    moment_of(since),
                    None if reason == NO_REASON else REASON_NAMES[reason],
                    present,
                    time=moment_of(time),
                ),
            )


COLUMNS = (
    *("row", "phase", "sequence", "detect", "a", "b", "a_place", "b_place", "started_at", "reason"),
    *("time", "present"),
)
"""The columns of `ToldPairs` that have a value for each."""

NOTHING_TOLD = ToldPairs(
    {},
    (),
    PlaceColumns(np.zeros(0, np.int8), *(np.zeros(0) for _ in range(3))),
    *(np.zeros(0, np.bool_ if name == "present" else np.int64) for name in COLUMNS),
)


def told_pairs(
    rules: PairRules,
    known: EntityTable,
    reports: ReportTable,
    rule: npt.NDArray[np.integer],
    entities: tuple[Integers, Integers],
    points: tuple[Integers, Integers],
    detect: Detection,
    started_at: Integers,
    row: Integers | int = 0,
    phase: Integers | int = 0,
    reason: Integers | int = NO_REASON,
    time: Integers | int = NEVER,
    present: bool = False,
) -> ToldPairs:
    """What is told of pairs of some rules, by number, whose entities are at some points; one value is of all."""
    numbers, rank, count = *names_in_order(known.names, np.concatenate(entities)), len(rule)
    there, at = placed(np.concatenate(points))
    own, which = np.unique(rule, return_inverse=True)
    found = [one for number in own.tolist() if (one := rules.all[number])]
    assert len(found) == len(own), "what is told is of a relation that there is"
    sequence = np.array([one.sequence for one in found], np.int64)
    full = (np.broadcast_to(np.asarray(value, np.int64), count) for value in (row, phase, reason, time))
    row, phase, reason, time = full
    return ToldPairs(
        relations={one.sequence: one.relation.id for one in found},
        names=numbers,
        places=PlaceColumns(*(reports.column(name, there) for name in PlaceColumns._fields)),
        row=row,
        phase=phase,
        sequence=sequence[which],
        detect=np.full(count, DETECTIONS.index(detect)),
        a=rank[:count],
        b=rank[count:],
        a_place=at[:count],
        b_place=at[count:],
        started_at=started_at,
        reason=reason,
        time=time,
        present=np.full(count, present),
    )


def joined_told(parts: Sequence[ToldPairs]) -> ToldPairs:
    """All of them together."""
    parts = [one for one in parts if len(one)]
    if len(parts) < 2:
        return parts[0] if parts else NOTHING_TOLD
    names = sorted({name for one in parts for name in one.names})
    place = {name: index for index, name in enumerate(names)}
    columns: dict[str, list[npt.NDArray[np.integer]]] = {name: [] for name in COLUMNS}
    offset = 0
    for one in parts:
        rank = np.array([place[name] for name in one.names], np.int64)
        moved = {"a": rank[one.a], "b": rank[one.b], "a_place": one.a_place + offset, "b_place": one.b_place + offset}
        for name in COLUMNS:
            columns[name].append(moved.get(name, getattr(one, name)))
        offset += len(one.places.x)
    return ToldPairs(
        {number: id for one in parts for number, id in one.relations.items()},
        names,
        PlaceColumns(*(np.concatenate(column) for column in zip(*(one.places for one in parts), strict=True))),
        *(np.concatenate(columns[name]) for name in COLUMNS),
    )


def reasons_of(effect: Integers) -> Integers:
    """Why each of some ends came, by the effect that made them."""
    # Effects that have a reason lie one below the other, in the order of the reasons.
    return np.where(effect <= LEAVES, LEAVES - effect, NO_REASON)
