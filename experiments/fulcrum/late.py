"""What it costs that messages take time: facts sent again under another ring, answers, reports kept meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from experiments.fulcrum.campus import Setting
from experiments.fulcrum.engine import Track
from experiments.fulcrum.together import Pair
from experiments.fulcrum.world import World
from nearcast.suppression.strategies.builtin import RangeRing
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.guards import TakenReport
from nearcast.suppression.strategies.seam import SideName, ThresholdPredicate
from nearcast.testing.strategy_trials import Trace, every_report, run

KEEP = 300
"""Reports that an entry node keeps for a pair before it asks the other how far it is."""

UNITS = 2_000
"""Of the order of reports, in a second: thousandths, and for each a place for either side."""


@dataclass(frozen=True, slots=True)
class Late:
    """Pairs of two brokers, `seconds` apart: what was sent, and the most that one entry node kept for one pair.

    `late` are facts that newer reports had overtaken; `equal` says that the outcome was that of every report.
    """

    seconds: float
    reports: int
    facts: int
    answers: int
    late: int
    kept: int
    changes: int
    equal: bool


@dataclass(frozen=True, slots=True)
class LateTask:
    """So many pairs of a campus, at a rate, with messages that take so many seconds (0: at once)."""

    seconds: float
    setting: Setting
    rate: float = 1.0
    pairs: int = 60
    metres: float = 10.0


def late(task: LateTask) -> Late:
    """Runs the protocol itself over the pairs that report most."""
    world, bound = World(task.setting, task.rate), ThresholdPredicate(DIMENSIONS["planar"], task.metres)
    sums = [0] * 5
    most, equal = 0, True
    for pair in _busiest(world)[: task.pairs]:
        trace = list(_trace(*(world.tracks[user] for user in pair)))
        delays = repeat((round(task.seconds * UNITS),)) if task.seconds else None
        trial = run(RangeRing(), bound, trace, delays, KEEP)
        equal &= every_report(bound, trace) == trial.changes
        most = max(most, trial.kept)
        found = len(trace), trial.facts, trial.answers, trial.late, len(trial.changes)
        sums = [before + more for before, more in zip(sums, found, strict=True)]
    reports, facts, answers, late, changes = sums
    return Late(task.seconds, reports, facts, answers, late, most, changes, equal)


def _busiest(world: World) -> list[Pair]:
    """Pairs at two brokers, by what the less busy side reports."""
    remote = [pair for pair in world.pairs if world.at[pair[0]] != world.at[pair[1]]]
    return sorted(remote, key=lambda pair: (-min(len(world.tracks[user]) for user in pair), pair))


def _trace(a: Track, b: Track) -> Iterator[tuple[SideName, TakenReport]]:
    """The reports of two tracks, their order being their time."""
    found: Trace = [
        (side, TakenReport(int(report.time * 1_000) * 2 + (side == "b"), report.value, report.time))
        for side, track in _sides(a, b)
        for report in map(track.report, range(len(track)))
    ]
    return iter(sorted(found, key=lambda item: item[1].order))


def _sides(a: Track, b: Track) -> list[tuple[SideName, Track]]:
    return [("a", a), ("b", b)]
