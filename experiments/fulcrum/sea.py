"""Ships of one type that may pass within 500 m: real reports, in the order of the file, in which times go back."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from experiments.fulcrum.engine import Track, changes, flow
from experiments.fulcrum.together import Pair, Together
from nearcast.importers import ais
from nearcast.suppression.strategies.choice import chosen
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.seam import ThresholdPredicate

METRES = 500.0
CELL = 0.1
"""Degrees: ships of which both were first seen in one cell are a pair."""

PAIRS = 400
"""Of a type, chosen at random where there are more."""

TYPES = {
    "fishing": (30, 31),
    "towing": (31, 33),
    "pleasure": (36, 38),
    "passenger": (60, 70),
    "cargo": (70, 80),
    "tanker": (80, 90),
}
"""AIS codes, from and below."""

STRATEGIES: dict[str, dict[str, float]] = {
    "range-ring": {},
    "parallel-line": {},
    "speed-bound": {"speed": 15.0},
    "shared-ring": {},
}


@dataclass(frozen=True, slots=True)
class Sea:
    """Ships of a type under a strategy: `facts` were published of `reports`, both once for each pair of a ship.

    Where rings are shared, what is published once for all pairs of a ship counts for each: the share is comparable.
    """

    type: str
    strategy: str
    ships: int
    pairs: int
    reports: int
    facts: int
    changes: int
    equal: bool


def sea(path: Path, seed: int = 1, pairs: int = PAIRS) -> Iterator[Sea]:
    """Every type with every strategy."""
    ships = _tracks(path)
    for name, (lowest, beyond) in TYPES.items():
        of_type = {ship: track for ship, (code, track) in ships.items() if lowest <= code < beyond}
        chosen_pairs = _pairs(of_type, random.Random(f"{seed} {name}"), pairs)
        for strategy, parameters in STRATEGIES.items():
            yield _run(name, strategy, parameters, of_type, chosen_pairs)


def _run(name: str, strategy: str, parameters: dict[str, float], ships: dict[int, Track], pairs: list[Pair]) -> Sea:
    bound = ThresholdPredicate(DIMENSIONS["geodesic"], METRES, "<=")
    made = chosen(strategy, parameters, bound)
    wanted = {pair: changes(bound, ships[pair[0]], ships[pair[1]]) for pair in pairs}
    if made.shared:
        together = Together(made, bound, ships, pairs).run()
        found = {pair: together.changes[pair] for pair in pairs}
        facts = sum(together.published[ship] for pair in pairs for ship in pair)
    else:
        flows = {pair: flow(made, bound, ships[pair[0]], ships[pair[1]]) for pair in pairs}
        found = {pair: one.changes for pair, one in flows.items()}
        facts = sum(one.facts for one in flows.values())
    concerned = {ship for pair in pairs for ship in pair}
    reports = sum(len(ships[ship]) for pair in pairs for ship in pair)
    turns = sum(map(len, wanted.values()))
    return Sea(name, strategy, len(concerned), len(pairs), reports, facts, turns, found == wanted)


def _tracks(path: Path) -> dict[int, tuple[int, Track]]:
    """Type and track of each ship that says what it is; numbers that two ships share jump between them."""
    rows: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    codes: dict[str, int] = {}
    for order, event in enumerate(ais.events(path)):
        data = event["data"]
        rows[event["subject"]].append((order, data["lon"], data["lat"]))
        codes.setdefault(event["subject"], data.get("vessel_type", 0))
    return {number: (codes[ship], _track(rows[ship])) for number, ship in enumerate(sorted(rows))}


def _track(rows: Iterable[tuple[int, float, float]]) -> Track:
    orders, x, y = np.array(list(rows)).T
    return Track(orders.astype(np.int64), orders, np.ascontiguousarray(x), np.ascontiguousarray(y), "geographic")


def _pairs(ships: dict[int, Track], chance: random.Random, most: int) -> list[Pair]:
    """Pairs of ships that were first seen in one cell."""
    cells: dict[tuple[int, int], list[int]] = defaultdict(list)
    for ship, track in ships.items():
        cells[int(track.x[0] // CELL), int(track.y[0] // CELL)].append(ship)
    found = [pair for cell in cells.values() for pair in combinations(cell, 2)]
    return sorted(chance.sample(found, min(most, len(found))))
