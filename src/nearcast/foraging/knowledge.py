"""What a node knows: values and what they are good for; and responses that it may give again.

An answer from here is older than one of the provider's: how long it counts is stretched to the moment it is said
again, and no further.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nearcast.filters.evaluate import NO_CONTEXT, atom_truth, truth
from nearcast.filters.truth import Truth
from nearcast.foraging.foraging_rules import Above, only, told
from nearcast.foraging.provider import answer_to
from nearcast.geo.distance import distance
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom, Filter
from nearcast.model.foraging import Request, Response
from nearcast.model.values import Value

MOST = 10_000
"""Values that are kept; when there are so many that count, new ones of others are not taken."""


@dataclass(frozen=True, slots=True)
class KnownValue:
    """A value: who measured it, where and when; how far from there and until when (exclusive) it counts."""

    value: Value
    provider: str
    place: Place | None
    within: float
    time: float
    until: float


class KnowledgeBase:
    """The newest value of each class and provider; what is stale or too far away is as if it were not there."""

    def __init__(self, above: Above = only, situations: frozenset[str] = frozenset()) -> None:
        self.above, self.situations = above, situations
        self._known: dict[tuple[str, str], KnownValue] = {}

    def __len__(self) -> int:
        return len(self._known)

    def begin_anew(self) -> None:
        """Forgets everything."""
        self._known.clear()

    def keep_newest(self, name: str, known: KnownValue) -> None:
        """Takes a value unless a newer one of its class and provider is there."""
        key = (name, known.provider)
        before = self._known.get(key)
        # By the time of measuring: along different ways an older value may be heard later.
        if before is None or before.time <= known.time:
            self._known[key] = known

    def keep_response(self, response: Response, now: float, ignored: frozenset[str] = frozenset()) -> None:
        """Takes the values of a response; those of classes that the node measures itself are none of its business.

        How long a value counts runs on the hearer's own clock, but never longer than the response says.
        """
        # A clock that is ahead at the provider makes no value count longer than it says.
        until = now + response.valid - max(0.0, now - response.time)
        # Swept only when there is no room: what is stale is left out wherever it is asked for.
        if len(self._known) >= MOST:
            self.forget(now)
        for name, value in response.values:
            there = (name, response.provider) in self._known
            if name not in ignored and (there or len(self._known) < MOST):
                known = KnownValue(value, response.provider, response.place, response.within, response.time, until)
                self.keep_newest(name, known)

    def forget(self, now: float) -> None:
        """Drops what no longer counts."""
        self._known = {key: known for key, known in self._known.items() if known.until > now}

    def known(self, place: Place, now: float) -> Iterator[tuple[str, KnownValue]]:
        """What counts at a place and time, with the class it was given under."""
        for (name, _), known in self._known.items():
            if known.until > now and (known.place is None or _near(place, known)):
                yield name, known

    def facts(self, place: Place, now: float) -> Event:
        """What counts at a place and time, as the attributes of an event: each class and those above it."""
        values = [
            (wide, known.value)
            for name, known in self.known(place, now)
            for wide in told(name, known.value, self.above, self.situations)
        ]
        return Event("facts", "facts", "knowledge", attributes=tuple(values))


def _near(place: Place, known: KnownValue) -> bool:
    apart = distance(place, known.place) if known.place else None
    return apart is not None and apart <= known.within


def holds(when: Filter, facts: Event) -> Truth:
    """Whether a condition holds over facts; a class of which nothing is known makes it UNKNOWN, never false."""
    return atom_truth(when, facts, NO_CONTEXT) if isinstance(when, Atom) else truth(when, facts, NO_CONTEXT)


class ResponseCache:
    """The newest response of each provider, for `lasting` after it was measured; at most `most` of them."""

    def __init__(self, lasting: float, most: int = 1_000) -> None:
        self._lasting, self._most = lasting, most
        self._responses: dict[str, Response] = {}

    def keep(self, response: Response, now: float) -> None:
        """Keeps a response in place of an older one of its provider."""
        before = self._responses.get(response.provider)
        # Relayed by many, the same response is heard again and again.
        if before and before.time >= response.time:
            return
        self._responses[response.provider] = response
        # First what is over, all at once; the oldest one by one only where that does not help.
        if len(self._responses) > self._most:
            self._responses = {name: one for name, one in self._responses.items() if now - one.time <= self._lasting}
        if len(self._responses) > self._most:
            del self._responses[min(self._responses, key=lambda name: self._responses[name].time)]

    def answers(self, request: Request, now: float) -> Iterator[Response]:
        """What is kept and wanted, of providers that are as near to the requestor as it asks.

        What was said at this very moment is on its way already.
        """
        for response in self._responses.values():
            age = now - response.time
            answer = answer_to(request.conditions, request.within, response.values)
            apart = distance(response.place, request.place)
            if 0 < age <= self._lasting and answer and apart is not None and apart <= request.within:
                yield replace(response, values=tuple(answer[1]), within=answer[0], valid=age + response.valid)
