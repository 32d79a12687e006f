"""From the values that a search chose to an event that has them, held against the plain evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nearcast.decision.algebra.expressions import read_alone
from nearcast.decision.algebra.search import USUAL, Candidate
from nearcast.decision.evaluate import truth
from nearcast.decision.location import WGS84
from nearcast.model.event import Event
from nearcast.model.expression import Call
from nearcast.model.filter import Distance, Filter, This, User
from nearcast.model.place import Place
from nearcast.model.values import Value


@dataclass(frozen=True, slots=True)
class Witness:
    """An event, and where users are, such that a filter is TRUE."""

    event: Event
    users: tuple[tuple[str, Place], ...] = ()

    def user(self, name: str) -> Place | None:
        """Where that client is."""
        return dict(self.users).get(name)

    def entities(self) -> Iterable[Event]:
        """The repository is empty."""
        return ()


def witness(candidate: Candidate, filter: Filter, but: Filter | None = None) -> Witness | None:
    """The witness that a candidate describes, if the evaluator finds `filter` TRUE of it and `but` not; else None."""
    own = dict(USUAL)
    attributes: list[tuple[str, Value]] = []
    apart: dict[Distance, float] = {}
    named = {variable.name for variable, values in candidate.values.items() if values}
    for variable, values in candidate.values.items():
        name = variable.name
        if isinstance(name, str) and name in USUAL:
            own[name] = values[0]
        elif isinstance(name, str):
            attributes += [(name, value) for value in values]
        elif isinstance(name, Call) and (read := read_alone(name)):
            # A text without case and accents is mostly its own; if not, the evaluator says so.
            attributes += [(read, value) for value in values if read not in named]
        elif isinstance(name, Distance) and values and isinstance(values[0], (int, float)):
            apart[name] = float(values[0])
    # Counts, and distances to entities, are left as they come: the evaluator says whether it is a witness anyway.
    place, users = _places(apart)
    found = Witness(_event(own, attributes, place), tuple(users.items()))
    refused = but is None or truth(but, found.event, found) is not True
    return found if refused and truth(filter, found.event, found) is True else None


def _places(apart: Mapping[Distance, float]) -> tuple[Place | None, dict[str, Place]]:
    """Where the event and users are, such that distances between them, or to one point, are as wanted."""
    place = Place("planar", 0.0, 0.0) if apart else None
    for term, metres in apart.items():
        point = next((side for side in (term.a, term.b) if isinstance(side, Place)), None)
        if point and This() in (term.a, term.b):
            place = _beside(point, metres)
    users = {
        here.name: _beside(place, metres)
        for term, metres in apart.items()
        for here, there in ((term.a, term.b), (term.b, term.a))
        if isinstance(here, User) and isinstance(there, This) and place
    }
    return place, users


def _beside(place: Place, metres: float) -> Place:
    """A place so far from another one, to the east; up to rounding, which is for the evaluator to judge."""
    if place.coordinates == "planar":
        return Place("planar", place.x + metres, place.y)
    x, y, _ = WGS84.fwd(place.x, place.y, 90.0, metres)
    return Place("geographic", float(x), float(y))


def _event(own: dict[str, Value], attributes: list[tuple[str, Value]], place: Place | None) -> Event:
    return Event(str(own["id"]), str(own["type"]), str(own["source"]), place=place, attributes=tuple(attributes))
