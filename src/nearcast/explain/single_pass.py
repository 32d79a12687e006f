"""What was known as of an event that is found by its id, in one pass: no columns, nothing derived."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nearcast.errors import Fault
from nearcast.explain.explanation import ExplanationScene
from nearcast.explain.past_state import EntityChanges, Parse, PastState, changes_of, derives, rests_on_derived
from nearcast.model.changes import SettingsChange
from nearcast.model.event import Event
from nearcast.state.event_size import size_of
from nearcast.state.registry import Registry


@dataclass(slots=True)
class OwnEntityFirst:
    """The newest event of every entity, that of one of them first."""

    newest: dict[str, Event]
    entity: str

    def __iter__(self) -> Iterator[Event]:
        own = self.newest.get(self.entity)
        if own is not None:
            yield own
        yield from (event for event in self.newest.values() if event is not own)


class SinglePass:
    """Goes through the events of a history, none of them numbered yet, and holds of every entity the newest one.

    What it gives is None where that rests on more than events as they were published: on entities that are beyond
    limits, or on what is derived. Then the whole history is to be folded.
    """

    def __init__(self, id: str, source: str | None, registry: Registry, parse: Parse) -> None:
        self._past: PastState | None = None
        self._id, self._source, self._registry, self._parse = id, source, registry, parse
        self._before, self._after = EntityChanges(derives=derives(registry)), EntityChanges()
        self._seen: set[tuple[str, str]] = set()
        self._found: list[Event] = []
        self._newest: dict[str, Event] = {}
        self._bytes = 0
        self._bounded = False

    def follow(self, event: Event) -> None:
        """Goes one event further; one whose source and id came before is none."""
        key = (event.source, event.id)
        if key in self._seen:
            return
        self._seen.add(key)
        if event.id == self._id and self._source in (None, event.source):
            event = replace(event, position=len(self._seen))
            self._found.append(event)
            if len(self._found) == 1:
                self._look_around(event)
        if event.control:
            self._change(replace(event, position=len(self._seen)))
        elif not self._found:
            self._set_newest(event)

    def meant(self) -> PastState | None:
        """The state around the event that is meant, when all events were gone through.

        Raises `Fault` where there are several of the id, or none could be.
        """
        if len(self._found) > 1:
            raise several(self._id, [event.source for event in self._found])
        if not self._found and not self._before.derives:
            raise unknown(self._id, self._source, len(self._seen))
        return self._past

    def _look_around(self, event: Event) -> None:
        scene = ExplanationScene(self._registry.copy(), OwnEntityFirst(self._newest, event.entity), event)
        past = PastState(scene, self._before, self._after)
        if not self._bounded and not rests_on_derived(past):
            self._past = past

    def _change(self, event: Event) -> None:
        limits = self._registry.settings.limits
        for change in changes_of(event, self._registry, self._parse):
            self._bounded |= isinstance(change, SettingsChange) and change.settings.limits != limits
            self._registry.apply(change)
            (self._after if self._found else self._before).note(event.position, change)

    def _set_newest(self, event: Event) -> None:
        limits = self._registry.settings.limits
        size = size_of(event)
        if size > limits.entity_bytes:
            event = replace(event, attributes=())
            size = size_of(event)
        known = self._newest.get(event.entity)
        if known is not None and known.moment and event.moment and event.moment < known.moment:
            return
        # Anew, so that they stand in the order of their positions.
        self._newest.pop(event.entity, None)
        self._newest[event.entity] = event
        # Below the limits nothing is forgotten; what is beyond them the columns of the repository say.
        self._bytes += size
        many = len(self._newest) > limits.entities or self._bytes > limits.entities_bytes
        self._bounded |= many or limits.entity_age < math.inf


def several(id: str, sources: Sequence[str]) -> Fault:
    """What is wrong with an id that events of several sources have."""
    advice = f"choose one with --source: {', '.join(map(repr, sources))}"
    return Fault("one event", f"{len(sources)} with the id {id!r}", advice=advice)


def unknown(id: str, source: str | None, count: int, gone: int = 0) -> Fault:
    """What is wrong with an id that none of so many events has, of which the first are `gone`."""
    of = f" of {source!r}" if source is not None else ""
    if gone:
        expected = f"the id of one of the {count - gone:,} events from position {gone + 1:,} on"
        advice = "those before are no longer in the journal: give --archive DIR, where they were archived"
        return Fault(expected, f"{id!r}{of}", advice=advice)
    advice = "an event that could not be taken is in the log of dead letters; ids and sources are compared exactly"
    return Fault(f"the id of one of the {count:,} events there are", f"{id!r}{of}", advice=advice)
