"""What there is of every entity, as columns: the moment, the position and the bytes of its newest report."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.model.arrays import Flags, Integers
from nearcast.state.lateness import NEVER, counting, moments_of

ROOM = 64
"""Entities for which there is room at first."""

COLUMNS = ("moment", "position", "size")


class EntityLedger:
    """Entities by number, each with the moment, the position and the size of its newest report.

    `late` counts the reports that came late; they are not in it.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.late = 0
        self._columns = {name: np.full(ROOM, NEVER) for name in COLUMNS}

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, column: str) -> Integers:
        """A column of all entities, by number."""
        return self._columns[column][: len(self.numbers)]

    def numbered(self, names: pa.ChunkedArray) -> Integers:
        """The number of each name; a new one gets the next."""
        coded = names.combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        own = [self.numbers.setdefault(name, len(self.numbers)) for name in coded.dictionary.to_pylist()]
        self._make_room()
        return np.array(own, np.int64)[coded.indices.to_numpy()] if own else np.zeros(0, np.int64)

    def _make_room(self) -> None:
        if len(self.numbers) > len(self._columns["moment"]):
            for name, column in self._columns.items():
                larger = np.full(2 * len(self.numbers), NEVER)
                larger[: len(column)] = column
                self._columns[name] = larger

    def counting(self, number: Integers, events: pa.Table) -> Flags:
        """Which of some reports, of entities by number, count."""
        return counting(number, moments_of(events), self["moment"])

    def set(self, number: Integers, events: pa.Table, sizes: npt.NDArray[np.int64]) -> None:
        """Takes reports that count, in order."""
        # Of numbers that come several times NumPy keeps what is assigned last.
        self["moment"][number] = moments_of(events)
        self["position"][number] = events.column("position").to_numpy()
        self["size"][number] = sizes

    def forget(self, names: Iterable[str]) -> None:
        """Drops entities; the others are numbered anew."""
        gone = {self.numbers[name] for name in names if name in self.numbers}
        kept = np.ones(len(self), np.bool_)
        kept[list(gone)] = False
        columns = {name: self[name][kept] for name in COLUMNS}
        self.numbers = {
            name: number
            for number, name in enumerate(name for name, number in self.numbers.items() if number not in gone)
        }
        self._columns = {name: np.append(column, np.full(ROOM, NEVER)) for name, column in columns.items()}
