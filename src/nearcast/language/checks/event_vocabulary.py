"""What events have, gathered as they go by: types, attributes, values, and from whom each subject comes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nearcast.errors import Mark
from nearcast.model.event import Event
from nearcast.model.values import Kind, kind_of, time_of

MOST_NAMES = 10_000
"""Names of attributes that are told apart; beyond it any name may be there."""

MOST_TEXTS = 1_000
"""Different texts of one attribute that are kept; beyond it any text may be there."""

MOST_SUBJECTS = 100_000
"""Subjects that are looked at; those which come first."""

FEW = 3
"""Types and sources of one subject that are kept: as many as a warning names."""

LATITUDES = frozenset({"lat", "latitude"})
LONGITUDES = frozenset({"lon", "lng", "long", "longitude"})
"""Last parts of attributes' names, in lower case, under which others tell where something is."""


@dataclass(slots=True)
class AttributeUse:
    """The values of one attribute: their kinds, and its texts while these are few (None: too many)."""

    kinds: set[Kind] = field(default_factory=set)
    texts: set[str] | None = field(default_factory=set)

    def include(self, value: object) -> None:
        """Takes a value in."""
        kind = kind_of(value)  # type: ignore[arg-type]
        self.kinds.add(kind)
        if isinstance(value, str) and self.texts is not None:
            self.texts.add(value)
            if len(self.texts) > MOST_TEXTS:
                self.texts = None

    def compares(self, kind: Kind) -> bool:
        """Whether some value may compare with a literal of this kind; a text that names a moment is one."""
        return kind in self.kinds or (
            kind == "time"
            and "text" in self.kinds
            and (self.texts is None or any(time_of(text) is not None for text in self.texts))
        )


@dataclass(slots=True)
class SubjectUse:
    """From whom the events about one subject come and of which types they are, and where the second kind began."""

    entity: str
    types: dict[str, None]
    sources: dict[str, None]
    where: Mark | None = None


class EventVocabulary:
    """What the events so far have."""

    def __init__(self) -> None:
        self.events = 0
        self.attributes: dict[str, AttributeUse] = {}
        self.subjects: dict[str, SubjectUse] = {}
        self.placed = 0
        self.told_otherwise: tuple[str, str] | None = None
        """The names of a latitude and a longitude in an event without a place, the first ones."""
        self.misplaced = 0
        """Events without a place that have these."""

    def include(self, event: Event, where: Mark | None = None) -> None:
        """Takes an event of the world in."""
        self.events += 1
        for name in ("type", "source", "subject"):
            self._include(name, getattr(event, name))
        self._include("id", None)
        if event.time is not None:
            self._include("time", event.time)
        for name, value in event.attributes:
            self._include(name, value)
        if event.place is None:
            self._look_for_place(event)
        else:
            self.placed += 1
        if event.subject is not None:
            self._subject(event, event.subject, where)

    def names(self) -> set[str] | None:
        """The names of attributes; None where there are too many to know them all."""
        return None if len(self.attributes) >= MOST_NAMES else set(self.attributes)

    def texts(self, name: str) -> set[str] | None:
        """The texts that an attribute has; None where they are too many, or may be any."""
        found = self.attributes.get(name)
        return None if found is None else found.texts

    def mixed(self) -> Iterable[SubjectUse]:
        """The subjects of several types or sources."""
        return (one for one in self.subjects.values() if len(one.types) > 1 or len(one.sources) > 1)

    def _include(self, name: str, value: object) -> None:
        if name not in self.attributes and len(self.attributes) >= MOST_NAMES:
            return
        use = self.attributes.setdefault(name, AttributeUse())
        if name == "id":
            # Every event has one of its own.
            use.kinds.add("text")
            use.texts = None
        elif value is not None:
            use.include(value)

    def _look_for_place(self, event: Event) -> None:
        """Whether an event without a place tells one under other names."""
        last = {name.rpartition(".")[2].lower(): name for name, _ in event.attributes}
        latitude = next((last[one] for one in sorted(LATITUDES) if one in last), None)
        longitude = next((last[one] for one in sorted(LONGITUDES) if one in last), None)
        if latitude is not None and longitude is not None:
            self.misplaced += 1
            self.told_otherwise = self.told_otherwise or (latitude, longitude)

    def _subject(self, event: Event, subject: str, where: Mark | None) -> None:
        # By entity: where a channel tells sources apart, one subject of two sources is two.
        entity = event.entity
        found = self.subjects.get(entity)
        if found is None:
            if len(self.subjects) < MOST_SUBJECTS:
                self.subjects[entity] = SubjectUse(subject, {event.type: None}, {event.source: None})
            return
        for known, own in ((found.types, event.type), (found.sources, event.source)):
            if own not in known and len(known) < FEW:
                known[own] = None
                found.where = found.where or where
