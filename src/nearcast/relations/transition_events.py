"""The events that relations cause: what they tell, and in which order (semantics §7).

Of one cause, what lapsed with its time comes first, then what it did itself, then what had lasted when it began;
relations in the order of their definitions, pairs by their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from nearcast.model.event import Event, Place, place_data
from nearcast.model.relation import RELATION_EVENT, RELATIONS, Detection
from nearcast.model.values import time_text
from nearcast.state.derived import Cause, derived_event

Reason = Literal["left", "silent", "removed"]
"""Why something ended though nothing says that its predicate failed: an entity is no longer of its side, was not heard
for too long, or the relation itself was removed."""

REASON_NAMES: tuple[Reason, ...] = ("left", "silent", "removed")

EXPIRED, CAUSED, OVERDUE = 0, 1, 2

DETECTIONS: tuple[Detection, ...] = ("dwell", "exit", "enter")
"""What is told, in the order of telling."""


@dataclass(frozen=True, slots=True)
class Participant:
    """One of those that something is told of: its name and where it is."""

    entity: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class Transition:
    """One thing to tell. `b` is one entity of a pair, or those around `a` in a gathering, whose number is `count`.

    `phase` is `EXPIRED`, `CAUSED` or `OVERDUE`, `sequence` the number of the relation. `present`: it held when it was
    asked for. `time`: when it fell due; None: it is of the moment of its cause.
    """

    phase: int
    sequence: int
    relation: str
    detect: Detection
    a: Participant
    b: tuple[Participant, ...]
    distance: float | None
    since: datetime | None
    reason: Reason | None = None
    present: bool = False
    count: int | None = None
    time: datetime | None = None

    @property
    def order(self) -> tuple[int, int, str, str, int]:
        """Ascends in the order of telling, among what one event causes."""
        other = self.b[0].entity if self.count is None else ""
        return self.phase, self.sequence, self.a.entity, other, DETECTIONS.index(self.detect)


def transition_events(told: Iterable[Transition], cause: Cause, first: int) -> list[Event]:
    """The events that tell it, in order; their parts count from `first`."""
    ordered = sorted(told, key=lambda one: one.order)
    return [transition_event(one, cause, part) for part, one in enumerate(ordered, first)]


def transition_event(told: Transition, cause: Cause, part: int) -> Event:
    """The event that tells it."""
    names = [told.relation, told.a.entity] + [one.entity for one in told.b if told.count is None]
    path = "/".join(map(escaped_name, names))
    subject, id = f"nearcast/relations/{path}", f"{path}/{cause.position}.{part}"
    return derived_event(RELATION_EVENT, RELATIONS, id, subject, _data(told), cause, told.a.place, part, told.time)


def escaped_name(name: str) -> str:
    """A name as a part of a subject."""
    # Names may have slashes of their own: two pairs with one subject would be one entity, and conflated into one.
    return name.replace("%", "%25").replace("/", "%2F")


def _data(told: Transition) -> dict[str, Any]:
    """What the event tells; what is not known is left out."""
    pair = told.count is None
    names = [one.entity for one in told.b]
    places = [_position(one.place) for one in told.b]
    data: dict[str, Any] = {
        "relation": told.relation,
        "detect": told.detect,
        "a": told.a.entity,
        "b": names[0] if pair else names,
        "a_position": _position(told.a.place),
        "b_position": places[0] if pair else [place for place in places if place],
        "distance": told.distance,
        "since": None if told.since is None else time_text(told.since),
        "reason": told.reason,
        "present": told.present or None,
        "count": told.count,
    }
    # The event is where `a` is; who reads it anew finds its place as in any other event.
    data |= _position(told.a.place) or {}
    return {name: value for name, value in data.items() if value is not None}


def _position(place: Place | None) -> dict[str, float] | None:
    return None if place is None else place_data(place)
