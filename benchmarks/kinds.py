"""Other filters and events than the workload's: what a matcher may meet that W1, W2 and W3 do not have."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nearcast.model.event import Place
from nearcast.model.filter import And, Atom, Distance, Filter, Not, Operator, This, User

Attributes = dict[str, str | int]
SEED = 20_260_102
VALUES = 1_000


@dataclass(frozen=True, slots=True)
class Kind:
    """Filters and events of one kind, drawn with a seed; where events and users are, if it matters."""

    name: str
    filter: Callable[[random.Random], Filter]
    events: Callable[[int], list[Attributes]]
    users: int = 0


def kinds() -> list[Kind]:
    """All kinds."""
    return [
        Kind("skewed values", _conjunction(_skewed), lambda count: _events(count, 1.6, 1.0)),
        Kind("flat values", _conjunction(_flat), lambda count: _events(count, 0.0, 1.0)),
        Kind("sparse attributes", _conjunction(_flat), lambda count: _events(count, 0.0, 0.1)),
        Kind("30 % missing", _conjunction(_flat), lambda count: _events(count, 1.0, 0.7)),
        Kind("negations only", _negations, lambda count: _events(count, 1.0, 1.0)),
        Kind("location terms", _near, lambda count: _events(count, 1.0, 1.0), users=10_000),
    ]


def _flat(chance: random.Random) -> int:
    return chance.randrange(VALUES)


def _skewed(chance: random.Random) -> int:
    # Most filters ask for what most events have.
    return min(VALUES - 1, int(chance.paretovariate(0.6)) - 1)


def _conjunction(value: Callable[[random.Random], int]) -> Callable[[random.Random], Filter]:
    def drawn(chance: random.Random) -> Filter:
        """One or two texts, one or two bounds."""
        equal = [Atom(name, Operator.EQ, f"v{value(chance)}") for name in _names(chance, "s", chance.randint(1, 2))]
        return And((*equal, *_bounds(chance, chance.randint(1, 2))))

    return drawn


def _negations(chance: random.Random) -> Filter:
    """Only what must not be: no literal that few events satisfy."""
    names = _names(chance, "s", 2)
    sets = [tuple(sorted({f"v{chance.randrange(20)}" for _ in range(5)})) for _ in names]
    some = [Not(Atom(name, Operator.IN, among)) for name, among in zip(names, sets, strict=True)]
    return And((*some, *(Not(bound) for bound in _bounds(chance, 3, 0.05, 0.3))))


def _near(chance: random.Random) -> Filter:
    """Within a distance of one receiver, and of a kind."""
    metres = chance.uniform(200, 2_000)
    here = Atom(Distance(User(f"user {chance.randrange(10_000)}"), This()), Operator.LE, metres)
    return And((here, *_bounds(chance, 1)))


def _names(chance: random.Random, kind: str, count: int) -> list[str]:
    return [f"{kind}{number}" for number in chance.sample(range(10), count)]


def _bounds(chance: random.Random, count: int, least: float = 0.2, most: float = 0.8) -> list[Atom]:
    """Bounds on numbers up to 10,000 that so large a share of the events keeps."""
    names = _names(chance, "n", count)
    return [Atom(name, Operator.LT, int(10_000 * chance.uniform(least, most))) for name in names]


def _events(count: int, skew: float, there: float) -> list[Attributes]:
    """Events with ten texts, spread by Zipf's law with this exponent, and ten numbers; of each a share is there."""
    chance = np.random.default_rng(SEED)
    shares = 1.0 / np.arange(1, VALUES + 1) ** skew
    below = np.cumsum(shares / shares.sum())
    texts = np.minimum(np.searchsorted(below, chance.random((count, 10))), VALUES - 1)
    numbers = chance.integers(0, 10_000, (count, 10))
    kept = chance.random((count, 20)) < there
    return [_event(*row) for row in zip(texts.tolist(), numbers.tolist(), kept.tolist(), strict=True)]


def _event(texts: list[int], numbers: list[int], kept: list[bool]) -> Attributes:
    every: Sequence[tuple[str, str | int]] = [
        *((f"s{index}", f"v{value}") for index, value in enumerate(texts)),
        *((f"n{index}", value) for index, value in enumerate(numbers)),
    ]
    return {name: value for (name, value), there in zip(every, kept, strict=True) if there}


def place(chance: random.Random) -> Place:
    """Somewhere in a square of 100 km."""
    return Place("planar", chance.uniform(0, 100_000), chance.uniform(0, 100_000), None)
