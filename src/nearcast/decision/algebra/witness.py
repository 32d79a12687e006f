"""From the values that a search chose to an event that has them, held against the plain evaluator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nearcast.decision.algebra.search import USUAL, Candidate
from nearcast.decision.evaluate import truth
from nearcast.model.event import Event
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
    users: dict[str, Place] = {}
    for variable, values in candidate.values.items():
        name = variable.name
        if isinstance(name, str):
            if name in USUAL:
                own[name] = values[0]
            else:
                attributes += [(name, value) for value in values]
        elif isinstance(name, Distance) and values:
            users.update(_users(name, float(values[0])))  # type: ignore[arg-type]
    origin = Place("planar", 0.0, 0.0) if users else None
    found = Witness(_event(own, attributes, origin), tuple(users.items()))
    refused = but is None or truth(but, found.event, found) is not True
    return found if refused and truth(filter, found.event, found) is True else None


def _users(term: Distance, metres: float) -> Iterable[tuple[str, Place]]:
    """A user that is so far from the event, which stands at the origin."""
    for here, there in ((term.a, term.b), (term.b, term.a)):
        if isinstance(here, User) and isinstance(there, This):
            yield here.name, Place("planar", metres, 0.0)


def _event(own: dict[str, Value], attributes: list[tuple[str, Value]], place: Place | None) -> Event:
    return Event(str(own["id"]), str(own["type"]), str(own["source"]), place=place, attributes=tuple(attributes))
