"""A delivered event: a CloudEvent with typed fields, which can be read as the mapping that it is, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nearcast.errors import Mark
from nearcast.model.event import OWN
from nearcast.model.values import Value, time_of


# Not compared by field: as a mapping it equals the dict of the same CloudEvent.
@dataclass(frozen=True, slots=True, eq=False)
class DeliveredEvent(Mapping[str, Any]):
    """A CloudEvent as it was delivered. `document` is its JSON object; `event["id"]` and `event.id` are the same.

    An event that the server has lost is an empty one: its texts are empty, and it is false.
    """

    document: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The id: together with the source it names the event."""
        return str(self.document.get("id", ""))

    @property
    def source(self) -> str:
        """Who published it."""
        return str(self.document.get("source", ""))

    @property
    def type(self) -> str:
        """What kind of event it is."""
        return str(self.document.get("type", ""))

    @property
    def subject(self) -> str | None:
        """What it is about, if that is not its source."""
        subject: str | None = self.document.get("subject")
        return subject

    @property
    def time(self) -> datetime | None:
        """When it happened, in UTC; None where the publisher did not say."""
        written = self.document.get("time")
        return time_of(written) if isinstance(written, str) else None

    @property
    def data(self) -> Any:
        """What it tells: mostly a dict; None if nothing."""
        return self.document.get("data")

    @property
    def attributes(self) -> dict[str, Value | list[Value]]:
        """Its attributes as filters name them, made anew each time: nested data by dotted names, a list of several
        values, without what is null.
        """
        from nearcast.language.cloudevents import read_event  # who only reads data starts without it

        found: dict[str, Value | list[Value]] = {}
        if not self.document:
            return found
        event = read_event(dict(self.document), Mark("event"))
        own = [(name, value) for name in OWN if (value := getattr(event, name)) is not None]
        for name, value in (*own, *event.attributes):
            there = found.get(name)
            found[name] = value if there is None else [*(there if isinstance(there, list) else [there]), value]
        return found

    def __getitem__(self, name: str) -> Any:
        return self.document[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)
