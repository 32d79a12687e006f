"""What every strategy of a sweep meets: people with brokers, their reports at a rate, and who is related to whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from experiments.fulcrum.campus import Campus, Setting
from experiments.fulcrum.engine import Track
from experiments.fulcrum.overlay import Overlay, crossbar
from experiments.fulcrum.together import Pair


@dataclass
class World:
    """A campus whose reports are sampled at a rate, on an overlay.

    `relations` are subscriber and buddy by number, `pairs` how many relations each pair has, `at` each user's broker,
    `tracks` the reports of users with relations, in the order of all of them; `reports` are those of everybody,
    `active` is how many report.
    """

    setting: Setting
    rate: float
    overlay: Overlay = field(default_factory=crossbar)

    def __post_init__(self) -> None:
        campus = Campus(self.setting)
        self.relations = campus.relations
        sizes = [len(way.sampled(self.rate)[0]) for way in campus.ways]
        self.reports, self.active = sum(sizes), sum(map(bool, sizes))
        self.mobile = [way.mobile for way in campus.ways]
        self.at = [f"edge {edge}" for edge in campus.edge]
        self.pairs: Counter[Pair] = Counter((min(pair), max(pair)) for pair in self.relations)
        related = {user for pair in self.pairs for user in pair}
        samples = {user: campus.ways[user].sampled(self.rate) for user in sorted(related)}
        times = np.concatenate([sample[0] for sample in samples.values()])
        users = np.repeat(list(samples), [len(sample[0]) for sample in samples.values()])
        ranks = np.empty(len(times), np.int64)
        ranks[np.lexsort((users, times))] = np.arange(len(times))
        ends = np.cumsum([len(sample[0]) for sample in samples.values()])
        cuts = np.split(ranks, ends[:-1])
        self.tracks = {user: Track(cut, *samples[user]) for user, cut in zip(samples, cuts, strict=True)}
