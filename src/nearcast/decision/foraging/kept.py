"""Responses that a relay keeps for a short while, to answer requests that their provider may not hear.

An answer from here is older than one of the provider's: how long it counts is stretched to the moment it is said
again, and no further.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nearcast.decision.foraging.provider import answer_to
from nearcast.decision.location import distance
from nearcast.model.foraging import Request, Response


class Kept:
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
