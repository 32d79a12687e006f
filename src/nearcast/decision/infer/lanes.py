"""The rules that await readings equally long, and how they take readings in: each at its own time, within that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from nearcast.decision.infer.areas import Areas
from nearcast.decision.infer.engine import Engine, Happening
from nearcast.decision.infer.readings import Centre, Reading
from nearcast.model.place import Place
from nearcast.model.values import Value


@dataclass(frozen=True, slots=True)
class Observed:
    """What an event tells of its entity at a moment: where it is, the place it names, the values of classes."""

    entity: str
    moment: int
    position: int
    place: Place | None
    named: str | None
    read: Mapping[str, Value]


@dataclass(slots=True)
class Lane:
    """The rules of one lateness. `held` are observations that wait, `places` where entities are, since when."""

    lateness: int
    engine: Engine
    areas: Areas
    held: list[tuple[int, str, int, Observed]] = field(default_factory=list)
    places: dict[str, tuple[int, Place]] = field(default_factory=dict)

    @property
    def due(self) -> int | None:
        """The stream's time at which something happens here by itself; None: nothing waits."""
        # Of a moment more may come until the last one that is not too late: it is over a microsecond after that.
        waiting = self.held[0][0] + 1 if self.held else None
        found = [moment for moment in (self.engine.due, waiting) if moment is not None]
        return min(found) + self.lateness if found else None

    def visit(self, time: int, observed: Sequence[Observed], cause: int) -> Iterator[Happening]:
        """Lets the stream's time pass up to `time`; the last of what was observed came then, the rest before."""
        if not self.lateness:
            yield from self.engine.advance(time, cause)
            for one in observed:
                yield from self._take(one, cause)
            return
        self.note(observed)
        while self.held and self.held[0][0] < time - self.lateness:
            one = heappop(self.held)[-1]
            yield from self.engine.advance(one.moment, cause)
            yield from self._take(one, cause)
        yield from self.engine.advance(time - self.lateness, cause)

    def centre(self, entity: str, place: Place | None) -> Centre:
        """An entity as a middle: where it says it is, else where it last was."""
        if place is None and entity in self.places:
            place = self.places[entity][1]
        return Centre(entity, place, self.areas.of(entity, place, None))

    def note(self, observed: Sequence[Observed]) -> None:
        """Takes in where entities are, by events that let nothing happen."""
        for one in observed:
            if self.lateness:
                # Of one moment by what they are, not by when they came.
                heappush(self.held, (one.moment, one.entity, one.position, one))
            elif one.place is not None:
                self.places[one.entity] = (one.moment, one.place)

    def _take(self, one: Observed, cause: int) -> Iterator[Happening]:
        if one.place is not None and (not self.lateness or self._since(one.entity) <= one.moment):
            self.places[one.entity] = (one.moment, one.place)
        if one.read:
            yield from self.engine.take(list(self._readings(one)), cause)

    def _since(self, entity: str) -> int:
        return self.places[entity][0] if entity in self.places else 0

    def _readings(self, one: Observed) -> Iterator[Reading]:
        """The readings of an event. It is where it says, else where its entity last was."""
        place = one.place or (self.places[one.entity][1] if one.entity in self.places else None)
        areas = self.areas.of(one.entity, place, one.named)
        for name, value in one.read.items():
            newest = self.engine.scene.readings.newest(one.entity, name) if self.lateness else None
            # Later than it may be: what came in its place since is newer.
            if newest is None or newest.moment <= one.moment:
                yield Reading(name, value, one.entity, place, one.moment, one.position, areas)
