"""What an access server asks nodes for: said again and again, as a provider may come, or begin anew, meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nearcast.foraging.foraging_rules import Above, told
from nearcast.foraging.neighbour_shares import NeighbourShares
from nearcast.foraging.request_index import RequestIndex
from nearcast.model.event import Place
from nearcast.model.filter import Atom
from nearcast.model.foraging import Request
from nearcast.model.values import Value

MOST_REQUESTS = 400
"""Requests of a server that hold at one time, of which each source has a share; more are refused."""

MOST_AT_ONCE = 2
"""Requests that are said again at one time: nodes take some ten a second of one origin."""

Question = tuple[Place, float, tuple[Atom, ...]]


@dataclass(slots=True)
class ServerRequest:
    """A request, until when it holds, when it is said next, and whose it is."""

    request: Request
    until: float
    next: float
    source: str


class ServerRequests:
    """The requests of a server that hold, each said again after `repeat` seconds, or later where there are many."""

    def __init__(self, repeat: float, most: int = MOST_REQUESTS) -> None:
        self._repeat = repeat
        self._asked: dict[Question, ServerRequest] = {}
        self._index = RequestIndex()
        self.shares = NeighbourShares(most)

    def __len__(self) -> int:
        return len(self._asked)

    def hold(self, request: Request, source: str, now: float) -> bool:
        """Takes a request of a source; False if that has its share already. The same question again goes on."""
        self._forget(now)
        question = (request.place, request.within, request.conditions)
        known, until = self._asked.get(question), now + request.valid
        if known is None and not self.shares.hold(source):
            return False
        for condition in request.conditions:
            self._index.register(condition, until, request.within, source)
        if known is None:
            self._asked[question] = ServerRequest(request, until, now + self._repeat, source)
        else:
            known.until = max(known.until, until)
        return True

    def wants(self, name: str, value: Value, now: float, above: Above, situations: frozenset[str]) -> bool:
        """Whether a value is of what the server asked for, by its class or one above it."""
        wider = told(name, value, above, situations)
        return any(self._index.match(wide, value, now) is not None for wide in wider)

    def due(self, now: float, most: int = MOST_AT_ONCE) -> list[Request]:
        """The requests to be said again now, each for as long as it still holds, under the id of the first time."""
        self._forget(now)
        waiting = sorted((asked for asked in self._asked.values() if asked.next <= now), key=lambda asked: asked.next)
        for asked in waiting[:most]:
            asked.next = now + self._repeat
        return [replace(asked.request, time=now, valid=asked.until - now) for asked in waiting[:most]]

    def _forget(self, now: float) -> None:
        """Drops what nobody asks any more."""
        for question in [question for question, asked in self._asked.items() if asked.until <= now]:
            self.shares.release(self._asked.pop(question).source)
