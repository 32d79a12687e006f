"""What a node knows: values and what they are good for; and responses that it may give again.

An answer from here is older than one of the provider's: how long it counts is stretched to the moment it is said
again, and no further.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from nearcast.filters.evaluate import NO_CONTEXT, atom_truth, truth
from nearcast.filters.truth import Truth
from nearcast.foraging.foraging_rules import Above, only, told
from nearcast.foraging.neighbour_shares import NeighbourShares
from nearcast.foraging.provider import answer_to
from nearcast.geo.distance import distance
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom, Filter
from nearcast.model.foraging import Request, Response
from nearcast.model.values import Value

MOST = 20_000
"""Values of others that are kept; a neighbour that has brought its share brings no new ones until some are stale."""


@dataclass(frozen=True, slots=True)
class KnownValue:
    """A value: who measured it, where and when; how far from there and until when (exclusive) it counts.

    `time` and `until` are of the clock of the node that knows it, `measured` of the provider's, by which its values
    have an order. `neighbour`: who brought it; None for the node itself.
    """

    value: Value
    provider: str
    place: Place | None
    within: float
    time: float
    until: float
    measured: float
    neighbour: str | None = None


class KnowledgeBase:
    """The newest value of each class and provider; what is stale or too far away is as if it were not there."""

    def __init__(self, above: Above = only, situations: frozenset[str] = frozenset()) -> None:
        self.above, self.situations = above, situations
        self._known: dict[tuple[str, str], KnownValue] = {}
        self.shares = NeighbourShares(MOST)
        self.outdated = 0

    def __len__(self) -> int:
        return len(self._known)

    def begin_anew(self) -> None:
        """Forgets everything."""
        self._known.clear()
        self.shares.clear()

    def keep_newest(self, name: str, known: KnownValue) -> None:
        """Takes a value unless a newer one of its class and provider is there, or its neighbour has no room left."""
        key = (name, known.provider)
        before = self._known.get(key)
        # By the time of measuring: along different ways an older value may be heard later.
        if before is not None and before.measured > known.measured:
            return
        # Who renews what another neighbour brought does not take it over: it would be that one's to give.
        neighbour = known.neighbour if before is None else before.neighbour
        if before is None and neighbour is not None and not self.shares.hold(neighbour):
            return
        self._known[key] = replace(known, neighbour=neighbour) if neighbour != known.neighbour else known

    def keep_response(
        self, response: Response, now: float, ignored: frozenset[str] = frozenset(), neighbour: str = ""
    ) -> None:
        """Takes the values of a response that a neighbour brought; those of classes that the node measures itself are
        none of its business.

        How long a value counts runs on the hearer's own clock, but never longer than the response says. One that does
        not say how old its values are, and whose time is so long ago that they never count, is `outdated`.
        """
        age = age_of(response, now)
        until = now if response.retracted else now + response.valid - age
        self.outdated += response.age is None and age >= response.valid
        # Swept only when there is no room: what is stale is left out wherever it is asked for.
        if not self.shares.admits(neighbour):
            self.forget(now)
        for name, value in response.values:
            # What is taken back need not be remembered by who has not heard of it.
            if name in ignored or (response.retracted and (name, response.provider) not in self._known):
                continue
            where, measured = (response.place, response.within), response.time
            self.keep_newest(name, KnownValue(value, response.provider, *where, now - age, until, measured, neighbour))

    def forget(self, now: float) -> None:
        """Drops what no longer counts."""
        for key in [key for key, known in self._known.items() if known.until <= now]:
            neighbour = self._known.pop(key).neighbour
            if neighbour is not None:
                self.shares.release(neighbour)

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


def age_of(response: Response, now: float) -> float:
    """How old the values of a response are that is heard now: as old as it says, whatever clock its provider has.

    From one that does not say it is the difference of the two clocks, and not less than nothing.
    """
    return max(0.0, now - response.time if response.age is None else response.age)


def _near(place: Place, known: KnownValue) -> bool:
    apart = distance(place, known.place) if known.place else None
    return apart is not None and apart <= known.within


def holds(when: Filter, facts: Event) -> Truth:
    """Whether a condition holds over facts; a class of which nothing is known makes it UNKNOWN, never false."""
    return atom_truth(when, facts, NO_CONTEXT) if isinstance(when, Atom) else truth(when, facts, NO_CONTEXT)


class ResponseCache:
    """The newest response of each provider, for `lasting` after it was measured; at most `most` of them."""

    def __init__(self, lasting: float, most: int = 2_000) -> None:
        self._lasting = lasting
        # With when it was measured, by this node's own clock, and who brought it.
        self._responses: dict[str, tuple[Response, float, str]] = {}
        self._shares = NeighbourShares(most)

    def keep(self, response: Response, now: float, neighbour: str = "") -> None:
        """Keeps a response in place of an older one of its provider; none that was taken back."""
        before = self._responses.get(response.provider)
        # Relayed by many, the same response is heard again and again.
        known = before[0].time if before else -inf
        if known > response.time or (known == response.time and not response.retracted):
            return
        if before:
            self._drop(response.provider)
        if response.retracted:
            return
        if not self._shares.admits(neighbour):
            for name in [name for name, (_, time, _) in self._responses.items() if now - time > self._lasting]:
                self._drop(name)
        if self._shares.hold(neighbour):
            self._responses[response.provider] = (response, now - age_of(response, now), neighbour)

    def _drop(self, provider: str) -> None:
        self._shares.release(self._responses.pop(provider)[2])

    def answers(self, request: Request, now: float) -> Iterator[Response]:
        """What is kept and wanted, of providers that are as near to the requestor as it asks.

        What was said at this very moment is on its way already.
        """
        for response, time, _ in self._responses.values():
            age = now - time
            answer = answer_to(request.conditions, request.within, response.values)
            apart = distance(response.place, request.place)
            if 0 < age <= self._lasting and answer and apart is not None and apart <= request.within:
                yield replace(response, values=tuple(answer[1]), within=answer[0], valid=age + response.valid, age=age)
