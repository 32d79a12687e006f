"""Hops by kind of message: `report` that travels, `ring` from one entry node to another, `notice` to a subscriber.

Counted in two ways. *Alone*: each relation as if it were the only one, as the paper does. *Joined*: as brokers that
share subscriptions would, a message that several want crosses each link once, and a pair of mutual buddies exchanges
rings once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from experiments.fulcrum.together import Pair
from experiments.fulcrum.world import World
from nearcast.suppression.strategies.seam import Strategy

Hops = dict[str, int]


@dataclass(frozen=True, slots=True)
class Sent:
    """What was published: by each side of a pair, or by a subject to all its partners; and what each pair came to."""

    sides: Mapping[Pair, tuple[int, int]] = field(default_factory=dict)
    subjects: Mapping[int, int] = field(default_factory=dict)
    changes: Mapping[Pair, list[tuple[int, bool]]] | None = None

    def by_user(self, world: World) -> Counter[int]:
        """Reports that each user published, once for each relation if they are not shared."""
        found = Counter(dict(self.subjects))
        for pair, sides in self.sides.items():
            for user, number in zip(pair, sides, strict=True):
                found[user] += number * world.pairs[pair]
        return found


def alone(strategy: Strategy, world: World, sent: Sent, entered: Mapping[Pair, int]) -> Hops:
    """Hops of each relation for itself, added up."""
    brokers = _brokers(world)
    hops = {"report": 0, "ring": 0, "notice": 0}
    for relation in world.relations:
        subscriber = world.at[relation[0]]
        pair = (min(relation), max(relation))
        for user in relation:
            way = _way(strategy, world, user, pair, subscriber)
            hops["report"] += way * len(world.tracks[user])
        hops["ring"] += sum(sent.sides.get(pair, ())) * world.overlay.links(world.at[pair[0]], [world.at[pair[1]]])
        hops["notice"] += _notice(strategy, world, pair, subscriber) * entered[pair]
    for user, number in sent.subjects.items():
        hops["ring"] += number * sum(world.overlay.links(world.at[user], [broker]) for broker in brokers[user])
    return hops


def joined(strategy: Strategy, world: World, sent: Sent, entered: Mapping[Pair, int]) -> Hops:
    """Hops where what several want crosses each link once."""
    hops = {"report": _reports_joined(strategy, world), "ring": 0, "notice": 0}
    for pair, sides in sent.sides.items():
        hops["ring"] += sum(sides) * world.overlay.links(world.at[pair[0]], [world.at[pair[1]]])
    brokers = _brokers(world)
    for user, number in sent.subjects.items():
        hops["ring"] += number * world.overlay.links(world.at[user], brokers[user])
    for subscriber, buddy in world.relations:
        pair = (min(subscriber, buddy), max(subscriber, buddy))
        hops["notice"] += _notice(strategy, world, pair, world.at[subscriber]) * entered[pair]
    return hops


def _way(strategy: Strategy, world: World, user: int, pair: Pair, subscriber: str) -> int:
    """Hops of one report to where its relation is evaluated, if reports travel there."""
    here = world.at[user]
    if strategy.evaluated == "subscriber":
        return world.overlay.links(here, [subscriber]) + 1
    if strategy.evaluated == "common":
        return world.overlay.links(here, [world.overlay.common(*(world.at[one] for one in pair))])
    return 0


def _notice(strategy: Strategy, world: World, pair: Pair, subscriber: str) -> int:
    """Hops of the news that a pair is near, from where that is found out to the subscriber."""
    if strategy.evaluated == "subscriber":
        return 0
    a, b = (world.at[user] for user in pair)
    found = world.overlay.common(a, b) if strategy.evaluated == "common" else a
    return world.overlay.links(found, [subscriber]) + 1


def _reports_joined(strategy: Strategy, world: World) -> int:
    """Hops of all reports that travel, each to everybody who wants it at once."""
    if strategy.evaluated == "entry":
        return 0
    wanted: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for relation in world.relations:
        common = world.overlay.common(*(world.at[user] for user in relation))
        subscriber = relation[0]
        for user in relation:
            # A subscriber is a client to whom the last hop goes; at a common node a report has arrived.
            wanted[user].add((world.at[subscriber], subscriber) if strategy.evaluated == "subscriber" else (common, -1))
    return sum(
        len(world.tracks[user])
        * (
            world.overlay.links(world.at[user], {broker for broker, _ in targets})
            + sum(client >= 0 for _, client in targets)
        )
        for user, targets in wanted.items()
    )


def _brokers(world: World) -> dict[int, list[str]]:
    """The brokers of each user's partners, one for each partner."""
    found: dict[int, list[str]] = defaultdict(list)
    for a, b in world.pairs:
        found[a].append(world.at[b])
        found[b].append(world.at[a])
    return found
