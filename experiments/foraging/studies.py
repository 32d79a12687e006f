"""What is run: the paper's four experiments, and what it leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from experiments.foraging.run import Run
from experiments.foraging.setting import (
    CFOR5,
    CFOR10,
    CPOL1,
    CPOL2,
    EXPERIMENTS,
    SPEEDS,
    Setting,
    Values,
    settings_of,
)
from nearcast.foraging.forager import ForagingSettings
from nearcast.foraging.message_filter import MessageBounds, MessageRates
from nearcast.foraging.requestor import AdaptiveInterval

SIZES = (100, 300, 1_000, 3_000, 10_000)
CROWDS = (100, 200, 400, 700, 1_000)
THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
CHANGING: tuple[Values, ...] = ("noise", "walk", "inertia")
MANNERS = {
    "as the paper": ForagingSettings(),
    "relays keep responses": ForagingSettings(keeps=2.0),
    "requests follow the neighbourhood": ForagingSettings(adapting=AdaptiveInterval(least=0.4, most=2.0, window=2.0)),
    "rates are limited": ForagingSettings(bounds=MessageBounds(rates=MessageRates(150.0, 300.0, 3.0, 12.0))),
}

FLOOD = 30
"""Requests a time unit of a node that floods: some fifty times what an honest one sends."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it: how many seeds, the first of them; for how long; whether large and slow ones are among them."""

    seeds: int = 20
    first: int = 1
    duration: int = 200
    beyond: bool = True
    readings: str | None = None

    @property
    def chosen(self) -> range:
        """The seeds."""
        return range(self.first, self.first + self.seeds)


def runs(plan: Plan, experiments: Sequence[str] = EXPERIMENTS) -> list[Run]:
    """Every run of a plan, the longest first; those in the same world next to each other."""
    found = [*_paper(plan, experiments), *(_beyond(plan) if plan.beyond else ())]
    if plan.readings:
        found += _real(plan, plan.readings)
    return sorted(found, key=lambda run: (-run.cost, run.study, run.x, run.setting.part, run.seed))


def _paper(plan: Plan, experiments: Sequence[str]) -> Iterator[Run]:
    for experiment in EXPERIMENTS:
        for x, setting in settings_of(experiment) if experiment in experiments else ():
            yield from _seeds(plan, experiment, setting.scheme.name, x, setting)


def _seeds(
    plan: Plan,
    study: str,
    line: str,
    x: float,
    setting: Setting,
    manner: ForagingSettings | None = None,
    most: int | None = None,
) -> Iterator[Run]:
    for seed in plan.chosen[:most]:
        yield Run(study, line, x, replace(setting, duration=plan.duration), seed, manner)


def _beyond(plan: Plan) -> Iterator[Run]:
    for scheme in (CFOR5, CPOL1):
        for nodes in SIZES:
            grown = replace(_sized(nodes), scheme=scheme)
            # As dense as in the paper, so the field grows.
            wide = replace(grown, side=grown.side * (nodes / 100) ** 0.5)
            yield from _seeds(plan, "size", scheme.name, nodes, wide, most=max(3, min(20, 20_000 // nodes)))
        for nodes in CROWDS:
            yield from _seeds(plan, "crowd", scheme.name, nodes, replace(_sized(nodes), scheme=scheme), most=5)
    for scheme in (CFOR5, CPOL1):
        for threshold in THRESHOLDS:
            lazy = Setting(scheme.lazy(threshold), "B")
            yield from _seeds(plan, "threshold", scheme.name, threshold, lazy)
    for scheme in (CFOR5, CFOR10, CPOL1, CPOL2):
        for number, values in enumerate(CHANGING):
            lazy = Setting(scheme.lazy(), "B", values=values)
            yield from _seeds(plan, "values", scheme.name, number, lazy)
    for name, manner in MANNERS.items():
        for speed in SPEEDS[::2]:
            yield from _seeds(plan, "manners", name, speed, Setting(CFOR10, speed=speed), manner, 10)
    for name in ("as the paper", "rates are limited"):
        yield from _seeds(plan, "flood", name, FLOOD, Setting(CFOR10, flooding=FLOOD), MANNERS[name], 10)


def _sized(nodes: int) -> Setting:
    """The setting with more nodes, of which as large a share ask and provide."""
    return Setting(nodes=nodes, requestors=2 * nodes // 5, providers=2 * nodes // 5)


def _real(plan: Plan, source: str) -> Iterator[Run]:
    setting = Setting(CFOR5, values="real", duration=plan.duration)
    for part in ("A", "B"):
        for planted in (False, True):
            for seed in plan.chosen:
                line = f"part {part}, {'a fire planted' if planted else 'as recorded'}"
                yield Run("recorded", line, 0, replace(setting, part=part), seed, source=source, planted=planted)
