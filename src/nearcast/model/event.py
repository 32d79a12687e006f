"""An event: what happened, to which entity, when and where; and what a place is (semantics §1)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Literal

from nearcast.model.sequence import sequence
from nearcast.model.value_class import value_class
from nearcast.model.values import Value, time_text

Coordinates = Literal["planar", "geographic"]


@value_class
class Place:
    """A point. Planar: x, y, z in metres. Geographic: x = longitude, y = latitude in degrees WGS84, z = metres."""

    coordinates: Coordinates
    x: float
    y: float
    z: float | None = None


def place_data(place: Place) -> dict[str, float]:
    """A place as a document."""
    names = ("x", "y", "z") if place.coordinates == "planar" else ("lon", "lat", "alt")
    pairs = zip(names, (place.x, place.y, place.z), strict=True)
    return {name: value for name, value in pairs if value is not None}


CONTROL_PREFIX = "nearcast."
"""Events whose type begins so change the system itself; nobody can subscribe to them."""

DERIVED = ("nearcast.relation", "nearcast.situation", "nearcast.action", "nearcast.zone")
"""The types of events that nearcast derives from others: about the world like any other, but nobody publishes them."""

MAIN = "main"
"""The entry node of events that name none: those of a file, and those written before entry nodes had names."""

CLOCK_FALL = timedelta(hours=1)
"""How far before the newest report of its entity one is whose sender's clock fell back, and is not only behind."""

OWN = ("id", "type", "source", "subject", "time")
"""The fields of an event that are attributes by their names."""


@value_class
class Event:
    """One event. `attributes` are (name, value) pairs in document order; a list is the same name several times.

    `id`, `type`, `source`, `subject` and `time` are attributes by these names too. `payload` is the CloudEvent as it
    came, UTF-8 JSON. `accepted` is when nearcast took it, `position` its place in the journal (0: not yet there). Of a
    derived event `position` is that of its cause, and `part` (1, 2, …) tells it from others of the same cause. `node`
    is the entry node: the access server through which it entered, of a derived event that of the local relation which
    tells it; None is `MAIN`, or of a derived event all of them. `about` is the entity where its channel names entities
    by source and subject.
    """

    id: str
    type: str
    source: str
    subject: str | None = None
    time: datetime | None = None
    place: Place | None = None
    attributes: tuple[tuple[str, Value], ...] = ()
    payload: bytes = b""
    channel: str | None = None
    accepted: datetime | None = None
    position: int = 0
    part: int = 0
    node: str | None = None
    about: str | None = None

    @property
    def entity(self) -> str:
        """What the event is about: `about` if it has that, else its subject, else its source."""
        return self.about or (self.source if self.subject is None else self.subject)

    @property
    def moment(self) -> datetime | None:
        """When it happened, as far as that counts: its own time, but never after its acceptance, whatever its
        sender's clock says.
        """
        if self.time is None or self.accepted is None:
            return self.time or self.accepted
        return min(self.time, self.accepted)

    @property
    def control(self) -> bool:
        """Whether the event changes the system (a client, a subscription) instead of telling about the world."""
        return self.type.startswith(CONTROL_PREFIX) and self.type not in DERIVED

    @property
    def sequence(self) -> int:
        """Where the event is in the order of all events, derived ones too."""
        return sequence(self.position, self.part)

    def values(self, name: str) -> Iterator[Value]:
        """Every value of the attribute `name`, in document order; data named as a field counts where that is absent."""
        own = getattr(self, name) if name in OWN else None
        if own is not None:
            yield own
            return
        for key, value in self.attributes:
            if key == name:
                yield value


def source_and_subject(source: str, subject: str | None) -> str:
    """The entity that both name together: `SOURCE SUBJECT`, a space within the source as `%20`; the source alone is so
    without a subject.
    """
    # No such source has a space, so no two pairs have one name.
    first = source.replace(" ", "%20")
    return first if subject is None else f"{first} {subject}"


def cloud_event(
    id: str, type_: str, source: str, subject: str | None = None, time: datetime | None = None
) -> dict[str, Any]:
    """The CloudEvent, as JSON-able data, of what has these fields; its own data is still to come."""
    document: dict[str, Any] = {"specversion": "1.0", "id": id, "type": type_, "source": source}
    if subject is not None:
        document["subject"] = subject
    if time is not None:
        document["time"] = time_text(time)
    return document
