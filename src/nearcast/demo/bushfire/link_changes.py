"""The links of the bushfire afternoon: most are fair, the radio tower burns, the controller is cut off."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nearcast.demo.bushfire.afternoon import MINUTES
from nearcast.demo.bushfire.valley import CONTROLLER, Person

SLOW = 6.0
"""kbit/s of the satellite link that remains where the tower is gone: one or two events a second."""

CUT_OFF, BACK = 138.0, 195.0
"""Minutes between which the controller's link is dead."""


@dataclass(frozen=True, slots=True)
class LinkChange:
    """From `minute` on the client's link gives `bandwidth` kbit/s; 0: it is dead."""

    minute: float
    client: str
    bandwidth: float


def link_changes(seed: int, people: Sequence[Person]) -> list[LinkChange]:
    """Every change of every link, by time; the first ones at minute 0."""
    changes = [change for person in people for change in _link(random.Random(f"link {seed} {person.id}"), person)]
    return sorted(changes, key=lambda change: change.minute)


def bandwidth(changes: Sequence[LinkChange], client: str, minute: float) -> float:
    """What the client's link gives at a minute, in kbit/s."""
    past = (change.bandwidth for change in reversed(changes) if change.client == client and change.minute <= minute)
    return next(past, 0.0)


def _link(chance: random.Random, person: Person) -> Iterator[LinkChange]:
    troubles = _troubles(person)
    for minute, bandwidth in _fair(chance, person):
        if not any(begin <= minute < end for begin, end, _ in troubles):
            yield LinkChange(minute, person.id, bandwidth)
    for begin, end, bandwidth in troubles:
        yield LinkChange(begin, person.id, bandwidth)
        # Where one trouble turns into the next there is no good moment between them.
        if not any(next_begin == end for next_begin, *_ in troubles):
            yield LinkChange(end, person.id, round(person.bandwidth))


def _fair(chance: random.Random, person: Person) -> Iterator[tuple[float, float]]:
    """A fair link changes with the ground one drives over, every quarter of an hour or so."""
    yield 0.0, round(person.bandwidth)
    minute = chance.uniform(8, 24)
    while minute < MINUTES and person.role in ("crew leader", "resident"):
        yield minute, round(person.bandwidth * chance.choice((0.3, 0.6, 1, 1.5)))
        minute += chance.uniform(8, 24)


def _troubles(person: Person) -> list[tuple[float, float, float]]:
    """(begin, end, kbit/s) of the times when a link is not what it should be."""
    if person.id == CONTROLLER:
        return [(CUT_OFF, BACK, 0)]
    if person.id == "crew 3":
        return [(80, 104, 0)]
    if person.id == "crew 5":
        return [(96, 180, SLOW)]
    if person.sector == "north" or person.village == "Cullens Gap":
        return [] if person.role == "sector commander" else [(84, 108, SLOW), (108, 148, 0)]
    return []
