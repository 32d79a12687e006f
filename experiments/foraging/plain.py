"""The simulation with the nodes themselves on a simulated radio: slow, the reference for the compiled one.

What the compiled one cannot do, caching, adapting and limits, is measured here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.foraging.kernel import Simulated
from experiments.foraging.setting import CLASSES, CONDITIONS, RULES, SMOKING, Setting, rules_of
from experiments.foraging.world import Floats, sensors
from nearcast.foraging.forager import ForagingNode, ForagingSettings
from nearcast.foraging.foraging_rules import ForagingRule
from nearcast.model.event import Place
from nearcast.model.foraging import Message, MessageId, Request
from nearcast.model.values import Value


def simulate_plainly(
    setting: Setting, places: Floats, values: Floats, manner: ForagingSettings | None = None
) -> Simulated:
    """One run over given places and values, as `kernel.simulate`; `manner`: how nodes work, else as the scheme does."""
    nodes = nodes_of(setting, manner or ForagingSettings(polled=setting.scheme.polled))
    sent = [0, 0]
    fired = np.zeros((setting.duration, setting.requestors, 2), dtype=np.bool_)
    for now in range(setting.duration):
        here = [Place("planar", float(x), float(y)) for x, y in places[now]]
        hearers = neighbours(places[now], setting.reach)
        for number, node in enumerate(nodes):
            node.measure(_read(values[now, number]), here[number], now)
        # Requests first: what is measured in a time unit meets the filters that came in it.
        asked = [(number, message) for number, node in enumerate(nodes) for message in node.ask(here[number], now)]
        flood = [(len(nodes) - 1, message) for message in _flood(setting, here[-1], now)]
        _spread([*flood, *asked], nodes, here, hearers, now, sent)
        told = [(number, message) for number, node in enumerate(nodes) for message in node.respond(here[number], now)]
        _spread(told, nodes, here, hearers, now, sent)
        for number in range(setting.requestors):
            truths = nodes[number].requestor.truths(here[number], now)
            fired[now, number] = [truth is True for truth in truths.values()]
            nodes[number].requestor.knowledge.forget(now)
    return Simulated(sent[0], sent[1], fired)


def nodes_of(setting: Setting, manner: ForagingSettings) -> list[ForagingNode]:
    """The nodes of a setting, each with its sensors and rules."""
    return [
        ForagingNode(f"n{number}", _rules(setting, number), measured, manner)
        for number, measured in enumerate(sensors(setting))
    ]


def _rules(setting: Setting, number: int) -> Sequence[ForagingRule]:
    if number >= setting.requestors:
        return []
    names = rules_of(setting.part, number, setting.requestors)
    scheme = setting.scheme
    return [ForagingRule(name, name, RULES[name], setting.within, scheme.valid, scheme.threshold) for name in names]


def _flood(setting: Setting, place: Place, now: int) -> Iterator[Message]:
    """The requests of a node that floods: all for the same, each a message of its own."""
    for number in range(setting.flooding):
        yield Request(
            MessageId("flooder", now * setting.flooding + number), place, setting.within, now, 1, (CONDITIONS[0],)
        )


def neighbours(here: Floats, reach: float) -> list[list[int]]:
    """Who hears each node."""
    apart = np.hypot(*(here[:, None, axis] - here[None, :, axis] for axis in (0, 1)))
    np.fill_diagonal(apart, np.inf)
    return [np.flatnonzero(row <= reach).tolist() for row in apart]


def _read(values: Floats) -> list[tuple[str, Value]]:
    return [
        (name, bool(value > SMOKING) if name == "Smoke" else float(value))
        for name, value in zip(CLASSES, values, strict=True)
        if not np.isnan(value)
    ]


def _spread(
    begun: Sequence[tuple[int, Message]],
    nodes: Sequence[ForagingNode],
    here: Sequence[Place],
    hearers: Sequence[Sequence[int]],
    now: int,
    sent: list[int],
) -> None:
    """Broadcasts messages and all that follows from them, until there is silence."""
    # First come, first served: a message is heard by all near before anything that follows from it.
    waiting = deque(begun)
    while waiting:
        sender, message = waiting.popleft()
        sent[0 if isinstance(message, Request) else 1] += 1
        for hearer in hearers[sender]:
            answers = nodes[hearer].hear(message, nodes[sender].id, here[hearer], now)
            waiting.extend((hearer, answer) for answer in answers)
