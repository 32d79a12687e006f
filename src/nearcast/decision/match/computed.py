"""The rows of computed atoms in a chunk: whole columns at once where that is easy, else by the plain evaluator.

What an expression reads of an event — a few attributes, its place, its predecessor's attributes — is its key: equal
keys have equal truth, so every distinct key of a chunk is decided once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from nearcast.decision.compute import truth_of
from nearcast.decision.event_values import Rows as ValueRows
from nearcast.decision.event_values import values_of
from nearcast.decision.match.points import pack
from nearcast.decision.match.rows import Rows, words
from nearcast.decision.match.vectors import OPEN, Truths, Vectors, truths_of
from nearcast.decision.repository import entities
from nearcast.decision.timeline import Surrounding
from nearcast.model.columns import places_of
from nearcast.model.expression import GEOMETRY, TOLD_GEOMETRY, Call, attributes, remembered, users
from nearcast.model.filter import Atom
from nearcast.model.place import Place
from nearcast.model.values import Value


@dataclass(frozen=True, slots=True)
class _Reads:
    """What one expression reads of an event."""

    attributes: tuple[str, ...]
    remembered: tuple[str, ...]
    users: tuple[str, ...]
    place: bool


class ComputedAtoms:
    """Computed atoms compiled: what each of them reads."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self.atoms = list(atoms)
        self._calls = [atom.name for atom in self.atoms if isinstance(atom.name, Call)]
        self._reads = [_reads(call) for call in self._calls]

    def rows(self, events: pa.Table, around: Surrounding) -> tuple[Rows, Rows]:
        """Truth and comparable rows, shape (atoms, words) each, of a chunk of a table of EVENTS."""
        truths = np.empty((len(self.atoms), len(events)), np.int8)
        chunk = self._chunk(events, around)
        vectors = Vectors(chunk.own, chunk.places, len(events))
        for number, (call, reads) in enumerate(zip(self._calls, self._reads, strict=True)):
            truths[number] = truths_of(call, vectors)
            _decide(call, reads, chunk, truths[number])
        width = words(len(events))
        return pack(truths == 1, width), pack(truths >= 0, width)

    def _chunk(self, events: pa.Table, around: Surrounding) -> _Chunk:
        """The chunk's events, as far as the atoms read them."""
        positions = events.column("position").to_pylist()
        asked = {name for reads in self._reads for name in reads.remembered}
        about = entities(events).to_pylist() if asked else []
        clients = {name for reads in self._reads for name in reads.users}
        return _Chunk(
            values_of(events, [name for reads in self._reads for name in reads.attributes]),
            {name: _before(around, name, about, positions) for name in asked},
            {name: [around.users.at(name, position) for position in positions] for name in clients},
            places_of(events) if any(reads.place for reads in self._reads) else [],
        )


@dataclass(slots=True)
class _Chunk:
    """The events of a chunk as expressions read them: the facts of one of them at a time, that of `lane`."""

    own: Mapping[str, ValueRows]
    before: Mapping[str, Sequence[tuple[Value, ...] | None]]
    clients: Mapping[str, Sequence[Place | None]]
    places: Sequence[Place | None]
    lane: int = 0
    _typed: dict[str, list[Hashable]] = field(default_factory=dict)

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

    def keys(self, reads: _Reads) -> Iterable[Hashable]:
        """For each event all that a truth depends on."""
        sides: list[Sequence[Hashable]] = [self._keys(name, self.own[name]) for name in reads.attributes]
        sides += [self._keys(f"previous {name}", self.before[name]) for name in reads.remembered]
        sides += [self.clients[name] for name in reads.users]
        sides += [self.places] if reads.place else []
        # An expression of literals alone is decided once.
        return zip(*sides, strict=True) if sides else iter(())

    def _keys(self, name: str, rows: Sequence[tuple[Value, ...] | None]) -> list[Hashable]:
        """Values with their types, for Python holds 1 and True to be equal."""
        if name not in self._typed:
            self._typed[name] = [None if row is None else (row, tuple(map(type, row))) for row in rows]
        return self._typed[name]


def _decide(call: Call, reads: _Reads, chunk: _Chunk, truths: Truths) -> None:
    """Fills in what is open, event by event, each distinct key once."""
    lanes = np.flatnonzero(truths == OPEN).tolist()
    if not lanes:
        return
    keys = list(chunk.keys(reads)) or [()] * len(truths)
    known: dict[Hashable, int] = {}
    for lane in lanes:
        key = keys[lane]
        if key not in known:
            chunk.lane = lane
            truth = truth_of(call, chunk)
            known[key] = -1 if truth is None else int(truth)
        truths[lane] = known[key]


def _before(
    around: Surrounding, name: str, about: Sequence[str], positions: Sequence[int]
) -> list[tuple[Value, ...] | None]:
    track = around.previous.get(name)
    return [track.at(*pair) if track else None for pair in zip(about, positions, strict=True)]


def _reads(call: Call) -> _Reads:
    names = attributes(call)
    own = any(name.lower() in GEOMETRY for name in names)
    read = (*names, *TOLD_GEOMETRY) if own else names
    return _Reads(tuple(dict.fromkeys(read)), remembered(call), users(call), own)
