"""One strategy at one rate over one campus: what was sent, by kind, and how many hops that is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from experiments.fulcrum.campus import Setting
from experiments.fulcrum.engine import changes, flow
from experiments.fulcrum.hops import Sent, alone, joined
from experiments.fulcrum.together import Together
from experiments.fulcrum.world import World
from nearcast.suppression.strategies.choice import chosen
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.seam import Strategy, ThresholdPredicate

STRATEGIES: dict[str, dict[str, float]] = {
    "subscriber": {},
    "common-node": {},
    "range-ring": {},
    "parallel-line": {},
    "speed-bound": {"speed": 2.0},
    "shared-ring": {},
}
"""What is compared, with parameters: nobody on a campus is faster than 2 m/s for long."""

SHOWN = 3
"""Users of each kind whose reports and rings are shown."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one task of the sweep does: `rate` times the setting's reports; near is within `metres`."""

    strategy: str
    rate: float
    setting: Setting
    metres: float = 10.0


@dataclass(frozen=True, slots=True)
class User:
    """What a user reported, and what of it was published, in all its relations."""

    mobile: bool
    reports: int
    rings: int


@dataclass(frozen=True, slots=True)
class Count:
    """What a task came to.

    `reports`: of users with relations; `weighted`: the same, once for each relation. `rings`: reports published to
    other nodes, `entered`: how often a buddy came near, both by relation. `alone`: hops if each relation were alone, as
    the paper counts; `joined`: hops where a message that several want crosses each link once. `equal`: whether
    each pair came to what evaluating every report gives. `seconds`: of the processor.
    """

    strategy: str
    rate: float
    seed: int
    reports: int
    weighted: int
    active: int
    rings: int
    entered: int
    alone: dict[str, int]
    joined: dict[str, int]
    equal: bool
    seconds: float
    users: tuple[User, ...] = ()

    @property
    def per_event(self) -> float:
        """Hops per original event as the paper counts: of a report of one relation, where reports travel."""
        original = self.weighted if self.strategy in ("subscriber", "common-node") else self.reports
        return self.alone["report"] / original + (self.alone["ring"] + self.alone["notice"]) / self.reports

    @property
    def joined_per_event(self) -> float:
        """Hops per original event, everything that travels counted, links shared."""
        return sum(self.joined.values()) / self.reports

    @property
    def suppressed(self) -> float:
        """The share of original events that neither ring nor proximity events stand for; 0 where all travel."""
        return 0.0 if self.alone["report"] else 1 - (self.rings + self.entered) / self.reports

    def analytic(self, local: float = 0.25) -> float | None:
        """The paper's formula with our shares; `local`: of pairs at one broker. None for what it has no formula for."""
        near, rings = self.entered / self.reports, self.rings / self.reports
        match self.strategy:
            case "subscriber":
                return local + (1 - local) * 3
            case "common-node":
                return local * near + (1 - local) * (1 + near * 2)
            case "shared-ring":
                return None
        return local * near + (1 - local) * (rings * 2 + near * 2)


def count(task: Task) -> Count:
    """Runs one task: a function of its argument, but for the seconds it takes."""
    began = time.process_time()
    world, bound = World(task.setting, task.rate), ThresholdPredicate(DIMENSIONS["planar"], task.metres)
    strategy = chosen(task.strategy, STRATEGIES[task.strategy], bound)
    wanted = {pair: changes(bound, world.tracks[pair[0]], world.tracks[pair[1]]) for pair in world.pairs}
    entered = {pair: sum(holds for _, holds in turns) for pair, turns in wanted.items()}
    sent = _sent(strategy, bound, world)
    sizes = {user: len(track) for user, track in world.tracks.items()}
    published = sent.by_user(world)
    return Count(
        task.strategy,
        task.rate,
        task.setting.seed,
        reports=sum(sizes.values()),
        weighted=sum(sizes[user] for relation in world.relations for user in relation),
        active=sum(all(sizes[user] for user in relation) for relation in world.relations),
        rings=published.total(),
        entered=sum(number * entered[pair] for pair, number in world.pairs.items()),
        alone=alone(strategy, world, sent, entered),
        joined=joined(strategy, world, sent, entered),
        equal=sent.changes is None or sent.changes == wanted,
        seconds=time.process_time() - began,
        users=tuple(_shown(world, sizes, published)),
    )


def _sent(strategy: Strategy, bound: ThresholdPredicate, world: World) -> Sent:
    """What the strategy publishes; nothing where reports travel instead."""
    if strategy.evaluated != "entry":
        return Sent()
    if strategy.shared:
        shared = Together(strategy, bound, world.tracks, world.pairs).run()
        return Sent({}, dict(shared.published), {pair: shared.changes[pair] for pair in world.pairs})
    flows = {pair: flow(strategy, bound, world.tracks[pair[0]], world.tracks[pair[1]]) for pair in world.pairs}
    sides = {pair: (len(one.published["a"]), len(one.published["b"])) for pair, one in flows.items()}
    return Sent(sides, {}, {pair: one.changes for pair, one in flows.items()})


def _shown(world: World, sizes: dict[int, int], published: Counter[int]) -> Iterable[User]:
    """The users of each kind who reported most."""
    most = sorted(sizes, key=lambda user: -sizes[user])
    for mobile in (False, True):
        for user in [user for user in most if world.mobile[user] == mobile][:SHOWN]:
            yield User(mobile, sizes[user], published[user])
