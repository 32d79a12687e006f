"""A foraging node: requestor, relay and provider together; messages and readings in, messages out, time a value.

Whoever runs one (a simulation, an event loop) gives it what is heard and measured, and broadcasts what it returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from nearcast.foraging.foraging_rules import Above, ForagingRule, only
from nearcast.foraging.knowledge import KnownValue, ResponseCache
from nearcast.foraging.message_filter import MessageBounds, MessageFilter
from nearcast.foraging.provider import Answer, Provider, Readings
from nearcast.foraging.requestor import AdaptiveInterval, NeighbourhoodChange, NodeSituation, Requestor
from nearcast.model.event import Place
from nearcast.model.foraging import Message, MessageId, Request, Response
from nearcast.model.values import Value

MOST_VALUES = 64
"""In one response; a node that reads more at a time says them in several."""

FORGOTTEN = 0.001
"""Seconds: what is taken back counts so long at nodes that do not read that it is."""


@dataclass(frozen=True, slots=True)
class ForagingSettings:
    """How a node works.

    `fresh`: how long a value counts once it is measured, or heard. `polled`: requests are answered once and not kept
    (CPol). `at_once`: a new filter is held against what was measured last, too, for sensors that seldom report.
    `keeps`: how long others' responses are kept to answer with, 0 for never. `adapting`: how requests follow the
    neighbourhood.
    """

    fresh: float = 1.0
    polled: bool = False
    at_once: bool = False
    keeps: float = 0.0
    adapting: AdaptiveInterval | None = None
    bounds: MessageBounds = field(default_factory=MessageBounds)


class ForagingNode:
    """A node named `id`, which measures the classes `measured` and wants to know when its `rules` hold.

    What its rules conclude it tells those who ask for it. It also `serves` classes for which somebody else brings it
    values, as a bridge does. `situations` are the names that are situations, not classes.
    """

    def __init__(
        self,
        id: str,
        rules: Sequence[ForagingRule] = (),
        measured: Sequence[str] = (),
        manner: ForagingSettings = ForagingSettings(),
        above: Above = only,
        first: int = 0,
        serves: Sequence[str] = (),
        situations: Sequence[str] = (),
    ) -> None:
        self.id, self.manner = id, manner
        self.measured = frozenset(measured)
        self.above = above
        self.neighbours = NeighbourhoodChange(manner.adapting) if manner.adapting else None
        self.message_filter = MessageFilter(id, manner.bounds)
        self.situations = named = frozenset((*situations, *(rule.situation for rule in rules)))
        self.requestor = Requestor(rules, measured, above, self.neighbours, named)
        self.provider = Provider([*measured, *serves, *(rule.situation for rule in rules)], above, situations=named)
        self.kept = ResponseCache(manner.keeps) if manner.keeps else None
        self._readings: dict[str, KnownValue] = {}
        self._concluded: dict[str, bool] = {}
        self._told: dict[str, tuple[bool, float]] = {}
        self._number = first

    def begin_anew(self) -> None:
        """Forgets all that was known, asked and promised as of a time; but not which messages were taken already."""
        self.requestor.begin_anew()
        self.provider.begin_anew()
        self._readings.clear()
        self._concluded, self._told = {}, {}
        if self.kept:
            self.kept = ResponseCache(self.manner.keeps)

    def measure(self, readings: Readings, place: Place, now: float) -> None:
        """Takes what the node's own sensors read."""
        for name, value in readings:
            known = KnownValue(value, self.id, None, inf, now, now + self.manner.fresh, now)
            self._readings[name] = known
            self.requestor.knowledge.keep_newest(name, known)

    def ask(self, place: Place, now: float) -> list[Request]:
        """The requests that are due."""
        return [
            Request(self.next_id(), place, wanted.rule.within, now, wanted.valid, wanted.conditions)
            for wanted in self.requestor.due(place, now)
        ]

    def hear(self, message: Message, sender: str, place: Place, now: float) -> list[Message]:
        """What a node broadcasts on hearing a message: the message itself, once, and perhaps an answer."""
        if self.neighbours:
            self.neighbours.heard(sender, now)
        if not self.message_filter.accepts(message, sender, place, now):
            return []
        if isinstance(message, Request):
            return [message, *self._answers(message, sender, place, now)]
        self.learn(message, now, sender)
        if self.kept:
            self.kept.keep(message, now, sender)
        return [message]

    def learn(self, response: Response, now: float, sender: str = "") -> None:
        """Takes the values of a response, but of classes that the node measures itself."""
        self.requestor.knowledge.keep_response(response, now, self.requestor.supported, sender)

    def _answers(self, request: Request, sender: str, place: Place, now: float) -> Iterator[Message]:
        if self.manner.polled:
            yield from self._tell_own(self.provider.polled(request, self._provided(now)), place, now)
            return
        # Passed on before it is answered, as it is heard: others may be nearer to what is asked for.
        new = self.provider.register(request, now, sender)
        if self.manner.at_once and new:
            yield from self._tell_own(self.provider.answer_to(new, request.within, self._provided(now)), place, now)
        for kept in self.kept.answers(request, now) if self.kept else ():
            yield replace(kept, id=self.next_id())

    def readings(self, now: float) -> Readings:
        """What the node's sensors read last, as long as it counts."""
        return [(name, known.value) for name, known in self._readings.items() if known.until > now]

    def _provided(self, now: float) -> Readings:
        """What the node measured and inferred last, as long as it counts."""
        return [*self.readings(now), *self._concluded.items()]

    def respond(self, place: Place, now: float, readings: Readings | None = None) -> list[Response]:
        """At most one response, with those of some readings (None: all that count) that satisfy a filter."""
        if self.manner.polled:
            return []
        answer = self.provider.answer(self.readings(now) if readings is None else readings, now)
        return self._tell_own(answer, place, now)

    def _tell_own(self, answer: Answer | None, place: Place, now: float) -> list[Response]:
        """What the node itself measured or inferred: a response for each age, as each value counts from when it was."""
        within, values = answer or (0.0, ())
        by_age: dict[float, list[tuple[str, Value]]] = {}
        for name, value in values:
            read = self._readings.get(name)
            by_age.setdefault(max(0.0, now - read.time) if read else 0.0, []).append((name, value))
        parts = [
            (age, of_it[first : first + MOST_VALUES])
            for age, of_it in by_age.items()
            for first in range(0, len(of_it), MOST_VALUES)
        ]
        return [one for age, part in parts for one in self.tell((within, part), self.id, place, now, age)]

    def tell(self, answer: Answer | None, provider: str, place: Place, now: float, age: float = 0.0) -> list[Response]:
        """A response with readings of a provider, this node or one it speaks for, measured at `place`, `age` ago."""
        if answer is None:
            return []
        within, values = answer
        fresh = self.manner.fresh
        return [Response(self.next_id(), provider, place, within, now - age, fresh, tuple(values), age)]

    def changes(self, place: Place, now: float) -> list[NodeSituation]:
        """The situations that have begun, changed or ended; forgets what no longer counts."""
        self.requestor.knowledge.forget(now)
        return self.requestor.changes(place, now)

    def conclude(self, place: Place, now: float) -> list[Response]:
        """Tells those who ask which situations are here: as they begin and end, and again before that is stale."""
        concluded = self._concluded = self.requestor.concluded(place, now)
        if self.manner.polled:
            return []
        responses: list[Response] = []
        for name in dict.fromkeys((*concluded, *self._told)):
            value = concluded.get(name)
            before, since = self._told.get(name, (None, -inf))
            if value is not before or now - since >= self.manner.fresh / 2:
                responses += self._tell(name, value, before, place, now)
        return responses

    def _tell(self, name: str, value: bool | None, before: bool | None, place: Place, now: float) -> list[Response]:
        self._told.pop(name, None)
        answer = self.provider.answer([(name, value)], now) if value is not None else None
        if answer is not None and value is not None:
            self._told[name] = (value, now)
            return self.tell(answer, self.id, place, now)
        # Who was told one thing hears that it is so no longer, though he did not ask for another.
        heard = self.provider.answer([(name, before)], now) if before is not None else None
        if heard is None or before is None:
            return []
        if value is not None:
            return self.tell((heard[0], [(name, value)]), self.id, place, now)
        # Neither true nor false, as far as is known: what was said is to be forgotten.
        return [replace(one, valid=FORGOTTEN, retracted=True) for one in self.tell(heard, self.id, place, now)]

    def next_id(self) -> MessageId:
        """The id of a message that this node begins."""
        self._number += 1
        return MessageId(self.id, self._number)
