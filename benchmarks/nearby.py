"""Receivers that move, each with "within D of me": `python -m benchmarks.nearby [--receivers 100000] [--batch 64 …]`.

Figures are events per CPU-second of this process, from Arrow to pairs of events and receivers, one receiver in a
hundred having moved since the batch before. Beside it what one would use instead: all distances by NumPy (haversine, a
sphere), candidates by a tree of boxes (Shapely), and rows of bits, at a number of receivers at which they end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from benchmarks.machine import machine
from nearcast.geo.distance import SHORTEST
from nearcast.matching.bitset import FilterGroup, MatchedPairs
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.filter import And, Atom, Distance, Operator, This, User
from nearcast.runtime import jit_warmup
from nearcast.state.timeline import Environment, Timeline

Floats = npt.NDArray[np.float64]

CORNER = np.array([[11.0], [48.0]])
"""The south-western corner of a field of one degree by one, about 74 by 111 km."""

MOVED = 100
"""One receiver of so many moves from batch to batch."""

ROUNDS = 4
FEW = 1_000
"""Receivers at which rows of bits are set beside."""

WHOLE = 256
"""Events that all receivers' distances are computed for."""


def main() -> None:
    """Prints a line per batch size, and what is set beside."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receivers", type=int, default=100_000)
    parser.add_argument("--batch", type=int, nargs="*", default=[64, 1_024, 16_384])
    options = parser.parse_args()
    jit_warmup.wait_for_warmup()
    print(machine())
    _agree()
    scene = Scene(options.receivers)
    rates = {f"nearcast, batch {size:,}": scene.rate(size) for size in options.batch}
    print(f"{options.receivers:,} receivers, {scene.found / scene.events:.1f} of them concerned by an event")
    print(f"  compiled in {scene.compiling:.2f} CPU-s")
    rates["all distances by NumPy, a sphere"] = _by_numpy(scene)
    rates["candidates by a tree of boxes, batch 16,384"] = _by_boxes(scene)
    for name, rate in rates.items():
        print(f"  {name:46}{rate:>12,.0f} events/s  {rate / rates['all distances by NumPy, a sphere']:>9,.1f} × NumPy")
    many, rows = Scene(FEW), Scene(FEW, many=FEW + 1)
    ours, theirs = many.rate(1_024), rows.rate(1_024)
    print(f"{FEW:,} receivers, batch 1,024")
    print(f"  nearcast {ours:,.0f} events/s, by rows of bits {theirs:,.0f}: {ours / theirs:,.1f} ×")


class Scene:
    """Receivers that move, the index of their filters, and events."""

    def __init__(self, receivers: int, many: int = 0, seed: int = 1) -> None:
        self._chance = np.random.default_rng(seed)
        self.limits = np.round(self._chance.uniform(100, 1_000, receivers))
        self.x, self.y = self._chance.random((2, receivers)) + CORNER
        began = time.process_time()
        self._index = FilterMatcher(
            [_group(number, limit) for number, limit in enumerate(self.limits.tolist())], many=many
        )
        self.compiling = time.process_time() - began
        places = zip(self.x.tolist(), self.y.tolist(), strict=True)
        self._users: Timeline[str, Place | None] = Timeline(
            {f"r{number}": Place("geographic", *place) for number, place in enumerate(places)}
        )
        self._position = 0
        self.events = self.found = 0

    def rate(self, size: int) -> float:
        """Events per CPU-second in batches of so many, after one to begin with."""
        self.match(self.batch(size))
        spent, events = 0.0, 0
        for _ in range(ROUNDS):
            table = self.batch(size)
            began = time.process_time()
            found = self.match(table)
            spent += time.process_time() - began
            events += size
            self.found += len(found.lanes)
        self.events += events
        return events / spent

    def match(self, table: pa.Table) -> MatchedPairs:
        """The pairs of a batch, at whose start some have moved."""
        return self._index.match(table, Environment(self._users))

    def batch(self, size: int) -> pa.Table:
        """Events somewhere; before them some receivers have moved."""
        self._users = self._users.after()
        movers = self._chance.choice(len(self.x), max(1, len(self.x) // MOVED), replace=False)
        self.x[movers], self.y[movers] = self._chance.random((2, len(movers))) + CORNER
        for mover in movers.tolist():
            place = Place("geographic", float(self.x[mover]), float(self.y[mover]))
            self._users.record_change(f"r{mover}", self._position, place)
        return to_table(list(self._happening(size)))

    def _happening(self, size: int) -> Iterator[Event]:
        x, y = self._chance.random((2, size)) + CORNER
        sizes = self._chance.integers(0, 100, size)
        for lon, lat, given in zip(x.tolist(), y.tolist(), sizes.tolist(), strict=True):
            self._position += 1
            place = Place("geographic", lon, lat)
            yield Event("e", "closure", "city", place=place, attributes=(("size", given),), position=self._position)


def _group(number: int, limit: float) -> FilterGroup:
    near = Atom(Distance(User(f"r{number}"), This()), Operator.LE, limit)
    return And((near, Atom("size", Operator.GE, number % 50))), (0, 0)


def _agree() -> None:
    """Both ways of matching find the same."""
    many, rows = Scene(FEW), Scene(FEW, many=FEW + 1)
    for _ in range(3):
        found = [
            set(zip(pairs.lanes.tolist(), pairs.groups.tolist(), strict=True))
            for pairs in (scene.match(scene.batch(2_000)) for scene in (many, rows))
        ]
        assert found[0] == found[1] != set(), "they differ"


def _by_numpy(scene: Scene) -> float:
    """All distances between receivers and some events, and which are within the limits."""
    x, y = np.random.default_rng(2).random((2, WHOLE)) + CORNER

    def work() -> int:
        near = 0
        for lon, lat in zip(np.radians(x), np.radians(y), strict=True):
            mine, across = np.radians(scene.y), np.radians(scene.x) - lon
            half = np.sin((mine - lat) / 2) ** 2 + np.cos(mine) * np.cos(lat) * np.sin(across / 2) ** 2
            near += int((2 * 6_371_000 * np.arcsin(np.sqrt(half)) <= scene.limits).sum())
        return near

    return WHOLE / _spent(work)


def _by_boxes(scene: Scene, size: int = 16_384) -> float:
    """Which receivers' boxes the events are in: what is left to do is most of the work where they are many."""
    x, y = np.random.default_rng(2).random((2, size)) + CORNER
    high = np.degrees(scene.limits / SHORTEST)
    wide = high / np.cos(np.radians(scene.y + high))

    def work() -> int:
        boxes = shapely.box(scene.x - wide, scene.y - high, scene.x + wide, scene.y + high)
        return len(shapely.STRtree(boxes).query(shapely.points(x, y))[0])

    return size / _spent(work)


def _spent(work: Callable[[], int]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
