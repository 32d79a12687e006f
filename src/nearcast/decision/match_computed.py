"""The rows of computed atoms in a chunk: expressions over distinct values, by the plain evaluator's own functions.

What an expression reads of an event — a few attributes, its place, its predecessor's attributes — is its key: equal
keys have equal truth, so every distinct key is decided once per batch's chunk.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nearcast.decision.compute import Truth, truth_of
from nearcast.decision.event_values import Rows as ValueRows
from nearcast.decision.event_values import values_of
from nearcast.decision.match_points import pack
from nearcast.decision.match_rows import Rows, words
from nearcast.decision.repository import entities
from nearcast.decision.timeline import Surrounding
from nearcast.model.expression import GEOMETRY, Call, attributes, remembered, users
from nearcast.model.filter import Atom
from nearcast.model.place import Place
from nearcast.model.values import Value

SHAPES = ("geom", "geometry")
"""The attributes that may hold the event's own geometry."""


@dataclass(frozen=True, slots=True)
class _Reads:
    """What one expression reads of an event."""

    attributes: tuple[str, ...]
    remembered: tuple[str, ...]
    users: tuple[str, ...]
    place: bool


@dataclass(slots=True)
class _Lane:
    """One event of a chunk, as expressions read it."""

    lane: int
    own: Mapping[str, ValueRows]
    before: Mapping[str, Sequence[tuple[Value, ...] | None]]
    clients: Mapping[str, Sequence[Place | None]]
    places: Sequence[Place | None]

    @property
    def place(self) -> Place | None:
        """Where the event is."""
        return self.places[self.lane]

    def values(self, name: str) -> Sequence[Value]:
        """Every value of an attribute of the event."""
        return self.own[name][self.lane]

    def previous(self, name: str) -> Sequence[Value] | None:
        """The same of the entity's previous event; None if there was none."""
        return self.before[name][self.lane]

    def user(self, name: str) -> Place | None:
        """Where that client was last known to be."""
        return self.clients[name][self.lane]


class ComputedAtoms:
    """Computed atoms compiled: what each of them reads."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self.atoms = list(atoms)
        self._calls = [atom.name for atom in self.atoms if isinstance(atom.name, Call)]
        self._reads = [_reads(call) for call in self._calls]

    def rows(self, events: pa.Table, around: Surrounding) -> tuple[Rows, Rows]:
        """Truth and comparable rows, shape (atoms, words) each, of a chunk of a table of EVENTS."""
        holds, comparable = np.zeros((2, len(self.atoms), len(events)), np.bool_)
        lane = self._lane(events, around)
        for number, (call, reads) in enumerate(zip(self._calls, self._reads, strict=True)):
            truths = list(_truths(call, reads, lane, len(events)))
            holds[number] = [truth is True for truth in truths]
            comparable[number] = [truth is not None for truth in truths]
        width = words(len(events))
        return pack(holds, width), pack(comparable, width)

    def _lane(self, events: pa.Table, around: Surrounding) -> _Lane:
        """The chunk's events, as far as the atoms read them."""
        positions = events.column("position").to_pylist()
        asked = {name for reads in self._reads for name in reads.remembered}
        about = entities(events).to_pylist() if asked else []
        clients = {name for reads in self._reads for name in reads.users}
        return _Lane(
            0,
            values_of(events, [name for reads in self._reads for name in reads.attributes]),
            {
                name: [around.previous[name].at(*pair) for pair in zip(about, positions, strict=True)]
                for name in asked
                if name in around.previous
            },
            {name: [around.users.at(name, position) for position in positions] for name in clients},
            _places(events) if any(reads.place for reads in self._reads) else [],
        )


def _reads(call: Call) -> _Reads:
    names = attributes(call)
    own = any(name.lower() in GEOMETRY for name in names)
    read = (*names, *SHAPES) if own else names
    return _Reads(tuple(dict.fromkeys(read)), remembered(call), users(call), own)


def _places(events: pa.Table) -> list[Place | None]:
    columns = (events.column(name).to_pylist() for name in ("coordinates", "x", "y", "z"))
    return [None if kind is None else Place(kind, x, y, z) for kind, x, y, z in zip(*columns, strict=True)]


def _truths(call: Call, reads: _Reads, lane: _Lane, count: int) -> Iterator[Truth]:
    """The truth of a predicate for every event of the chunk."""
    known: dict[Hashable, Truth] = {}
    for lane.lane in range(count):
        key = _key(reads, lane)
        if key not in known:
            known[key] = truth_of(call, lane)
        yield known[key]


def _key(reads: _Reads, lane: _Lane) -> Hashable:
    """All that the truth depends on; with types, for Python holds 1 and True to be equal."""
    own = [lane.values(name) for name in reads.attributes]
    before = [lane.previous(name) for name in reads.remembered]
    typed = [None if values is None else tuple((type(value), value) for value in values) for values in (*own, *before)]
    return (*typed, *(lane.user(name) for name in reads.users), lane.place if reads.place else None)
