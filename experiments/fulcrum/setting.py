"""The sweep: every strategy at every rate over campuses from several seeds, as tasks; and the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.fulcrum.campus import Setting
from experiments.fulcrum.count import STRATEGIES, Count, Task
from experiments.fulcrum.late import LateTask

RATES = (1.0, 2.0, 5.0, 10.0)
DELAYS = (0.0, 1.0, 10.0, 60.0)
"""Seconds that a message is under way."""

QUICK = 0.06
"""The share of the people in a quick run."""

PUBLISHED = {
    "rings": 0.165,
    "entered": 0.013,
    "suppressed": 0.82,
    "subscriber": 2.5,
    "common-node": 0.773,
    "range-ring": 0.27,
    "range-ring at 10": 0.027,
}
"""The paper's shares of original events, and its hops per original event."""

PUBLISHED_WEEK = {
    "users": 643,
    "relations": 2_165,
    "reports": 360_067,
    "related": 348_112,
    "together": 1_028,
}
"""The paper's week (§5.1); it says that reports were concentrated on half of the users."""

PUBLISHED_BROKERS = ((125, 155, 165, 112), (131, 140, 167, 115), (125, 171, 224, 126), (85, 110, 122, 92))
"""The paper's table 1: relations by broker of the subscriber, then of the buddy."""

PUBLISHED_USERS = (("stationary", 22_657, 6), ("stationary", 11_743, 2), ("mobile", 1_008, 127), ("mobile", 4_746, 145))
"""The paper's table 2: activity, original events, range ring events."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is compared: rates are times the paper's."""

    rates: tuple[float, ...] = RATES
    seeds: tuple[int, ...] = (1,)
    metres: float = 10.0
    quick: bool = False

    def campus(self, seed: int) -> Setting:
        """The people of a seed."""
        setting = replace(Setting(), seed=seed)
        return setting.smaller(QUICK) if self.quick else setting

    def tasks(self) -> list[Task]:
        """The longest first: high rates, and strategies that cost most."""
        names = sorted(STRATEGIES, key=["shared-ring", "parallel-line"].__contains__, reverse=True)
        return [
            Task(name, rate, self.campus(seed), self.metres)
            for rate in sorted(self.rates, reverse=True)
            for name in names
            for seed in self.seeds
        ]

    def late_tasks(self) -> list[LateTask]:
        """The same movement with ever slower messages."""
        return [LateTask(seconds, self.campus(self.seeds[0]), pairs=4 if self.quick else 60) for seconds in DELAYS]


def by_strategy(counts: Sequence[Count], rate: float) -> dict[str, list[Count]]:
    """The counts of a rate by strategy, in the order in which strategies are compared."""
    at = [count for count in counts if count.rate == rate]
    return {name: [count for count in at if count.strategy == name] for name in STRATEGIES}


def messages(count: Count) -> int:
    """What leaves entry nodes for other nodes: every report where reports travel, else rings, and proximity events."""
    return (count.reports if count.strategy in ("subscriber", "common-node") else count.rings) + count.entered
