"""One run measured: messages and detection ratios, of a setting and a seed, whichever simulation it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.foraging.kernel import Simulated, observe, simulate
from experiments.foraging.plain import simulate_plainly
from experiments.foraging.recorded import recorded
from experiments.foraging.setting import CFOR5, Setting
from experiments.foraging.world import Floats, places, readings
from nearcast.foraging.forager import ForagingSettings

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Run:
    """What is run: one point of one line of a study, with one seed.

    `manner`: how the nodes work where they differ from the scheme; then they are simulated one by one. `source`: the
    file of recorded readings; `planted`: whether a fire is put among them.
    """

    study: str
    line: str
    x: float
    setting: Setting
    seed: int
    manner: ForagingSettings | None = None
    source: str | None = None
    planted: bool = False

    @property
    def cost(self) -> float:
        """About how long it takes, to begin with the longest."""
        return self.setting.nodes * self.setting.duration * (50 if self.manner else 1)


@dataclass(frozen=True, slots=True)
class Measured:
    """Messages as requests and as responses, with all forwards; ASDR and ASDR′ (NaN where nothing was to be detected);
    how many rules fired; and which share of it on values that no longer held.
    """

    requests: int
    responses: int
    asdr: float
    asdr_own: float
    fired: int
    outdated: float

    @property
    def messages(self) -> int:
        """All of them."""
        return self.requests + self.responses


def measured(run: Run) -> Measured:
    """What a run gives."""
    # Whatever does not concern the world is as usual: then runs that differ in it alone find the same world.
    world = _world(replace(run.setting, scheme=CFOR5, flooding=0), run.seed, run.source, run.planted)
    return rated(_simulated(run, world.places, world.values), world.every, world.by_itself)


class World(NamedTuple):
    """Where nodes are, what they read, and what an observer would detect."""

    places: Floats
    values: Floats
    every: Flags
    by_itself: Flags


# Two: of ten thousand nodes each has a hundred megabytes.
@lru_cache(2)
def _world(setting: Setting, seed: int, source: str | None, planted: bool) -> World:
    values = recorded(setting, seed, source, planted) if source else readings(setting, seed)
    where = places(setting, seed)
    return World(where, values, *observe(setting, where, values))


def _simulated(run: Run, where: Floats, values: Floats) -> Simulated:
    if run.manner is None:
        return simulate(run.setting, where, values)
    return simulate_plainly(run.setting, where, values, run.manner)


def rated(simulated: Simulated, every: Flags, by_itself: Flags) -> Measured:
    """A simulation beside what an observer saw; arrays are (time, requestor, rule)."""
    fired = simulated.fired
    total = int(fired.sum())
    return Measured(
        simulated.requests,
        simulated.responses,
        _ratio(fired & every, every),
        _ratio(fired & every, by_itself),
        total,
        float((fired & ~every).sum() / total) if total else 0.0,
    )


def _ratio(fired: Any, observed: Any) -> float:
    """The mean over requestors of what fired ÷ what should have, of those for which something should have."""
    should, did = observed.sum(axis=(0, 2)), fired.sum(axis=(0, 2))
    asked = should > 0
    return float(np.mean(did[asked] / should[asked])) if asked.any() else float("nan")
