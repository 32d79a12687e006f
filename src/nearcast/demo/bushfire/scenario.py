"""The bushfire afternoon as steps in time: events, changes of receivers, changes of links."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

from nearcast.demo.bushfire.afternoon import ALERT_LEVELS, MINUTES, Actor, Fire, Minute, Wind, afternoon
from nearcast.demo.bushfire.link_changes import CUT_OFF, LinkChange, bandwidth, link_changes
from nearcast.demo.bushfire.messages import StoryMessage, chat, happenings, paper
from nearcast.demo.bushfire.story_definitions import definitions
from nearcast.demo.bushfire.valley import CONTROLLER, STATIONS, Person, Point, cast
from nearcast.errors import Fault
from nearcast.importers.event_documents import Document, client_change, document, moment

SHARES = {"crew": 0.4, "incident": 0.2, "weather": 0.2, "chat": 0.17, "document": 0.03}
"""Of the events of a second."""

SOURCES = {
    "incident": "fire-control",
    "road": "fire-control",
    "crew": "vehicles",
    "weather": "weather-bureau",
    "request": "radio",
    "chat": "radio",
    "document": "desk",
}
RECEIVERS = "receivers"
NOTICED = 0.2
"""Seconds after which a client tells the bandwidth that its link has come to."""


@dataclass(frozen=True, slots=True)
class StoryStep:
    """Something that happens `at` seconds from the start.

    `event`: `document` is a CloudEvent to publish. `client`: `document` is a `nearcast.client` event by which `client`
    changes its readings, position, role or task. `link`: the link of `client` gives `bandwidth` kbit/s from here on, 0
    for a dead one; a client whose link lives says so in a step of its own. Over a dead link no client says where it is;
    but headquarters may change its role or task meanwhile.
    """

    at: float
    kind: Literal["event", "client", "link"]
    client: str = ""
    document: Document = field(default_factory=dict)
    bandwidth: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """A bushfire afternoon of four hours, told in `seconds`, with about `rate` events a second; pure in its arguments.

    Events carry the afternoon's own clock, which begins at `start`: told in 60 seconds, it runs 240 times as fast.
    Raises `Fault` for arguments that tell no story.
    """

    seed: int = 1
    seconds: float = 60.0
    rate: float = 15.0
    crews: int = 6
    residents: int = 14
    start: datetime = datetime(2024, 1, 20, 2, 0, tzinfo=UTC)

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("rate", self.rate)):
            if not 0 < value < math.inf:
                raise Fault(f"{name} above 0", str(value))
        if min(self.crews, self.residents) < 0:
            raise Fault("crews and residents from 0 on", f"{self.crews} and {self.residents}")

    @cached_property
    def people(self) -> tuple[Person, ...]:
        """The receivers."""
        return cast(self.seed, self.crews, self.residents)

    @cached_property
    def minutes(self) -> tuple[Minute, ...]:
        """What happens, minute by minute."""
        return afternoon(self.seed, self.people)

    @cached_property
    def _changes(self) -> list[LinkChange]:
        return link_changes(self.seed, self.people)

    def definitions(self) -> dict[str, Any]:
        """The definitions document: channels, roles, clients, subscriptions."""
        return definitions(self.people)

    def steps(self) -> Iterator[StoryStep]:
        """Everything that happens, by time, up to and including `seconds`."""
        streams = [self._links(), self._handover(), self._tasks(), *self._published(), *self._movements()]
        return heapq.merge(*streams, key=lambda step: step.at)

    def documents(self) -> Iterator[Document]:
        """The same as an events file: events and changes of clients; links appear as the readings they cause."""
        return (step.document for step in self.steps() if step.kind != "link")

    def _links(self) -> Iterator[StoryStep]:
        steps = [step for change in self._changes for step in self._link(change)]
        return iter(sorted(steps, key=lambda step: step.at))

    def _link(self, change: LinkChange) -> Iterator[StoryStep]:
        at = self._at(change.minute)
        yield StoryStep(at, "link", change.client, bandwidth=change.bandwidth)
        noticed = at + NOTICED
        if change.bandwidth and noticed <= self.seconds:
            yield self._client(noticed, change.client, "link", readings={"bandwidth": change.bandwidth})

    def _handover(self) -> Iterator[StoryStep]:
        """The controller is cut off: the commander of sector north takes over. When it returns it is relieved."""
        yield self._client(self._at(CUT_OFF + 4), "sector north", "role", role="incident controller", task="control")
        yield self._client(self._at(CUT_OFF + 5), CONTROLLER, "role", task="relieved")

    def _tasks(self) -> Iterator[StoryStep]:
        for before, now in itertools.pairwise(self.minutes):
            for was, actor in zip(before.crews + before.residents, now.crews + now.residents, strict=True):
                if was.task != actor.task:
                    yield self._client(self._at(now.minute), actor.person.id, "task", task=actor.task)

    def _published(self) -> Iterator[Iterator[StoryStep]]:
        """One stream for each publisher; a rise comes before what follows from it in the same minute."""
        for fire in self.minutes[-1].fires:
            yield self._incident(fire)
        yield self._said(happenings(self.minutes), "happening")
        if self.crews:
            yield self._said(self._spoken("chat", chat), "chat")
        yield self._said(self._spoken("document", paper), "document")
        for name in STATIONS:
            yield self._weather(name)
        for index in range(self.crews):
            yield self._crew(index)

    def _movements(self) -> Iterator[Iterator[StoryStep]]:
        """One stream for each receiver that moves: it says where it is, as long as its link lives."""
        for index in range(self.crews):
            yield self._moves("crews", index)
        for index in range(self.residents):
            yield self._moves("residents", index)

    def _said(self, messages: Iterable[StoryMessage], name: str) -> Iterator[StoryStep]:
        for number, message in enumerate(messages, start=1):
            id = f"{name}-{number}"
            yield self._event(self._at(message.minute), message.type, id, message.subject, message.data)

    def _spoken(self, kind: str, speak: Callable[[random.Random, Minute, int], StoryMessage]) -> Iterator[StoryMessage]:
        chance = random.Random(f"{kind} {self.seed}")
        for index, at in enumerate(self._times(kind, kind, 1)):
            message = speak(chance, self.minutes[int(self._minute(at))], index)
            yield StoryMessage(self._minute(at), message.type, message.subject, message.data)

    def _weather(self, name: str) -> Iterator[StoryStep]:
        chance = random.Random(f"weather {name} {self.seed}")
        for number, at in enumerate(self._times("weather", name, len(STATIONS)), start=1):
            data = _weather(self.minutes[int(self._minute(at))].wind, chance)
            data |= {"station": name, **STATIONS[name].degrees()}
            yield self._event(at, "weather", f"{name}-{number}", f"station {name}", data)

    def _crew(self, index: int) -> Iterator[StoryStep]:
        for number, at in enumerate(self._times("crew", f"crew {index}", self.crews), start=1):
            crew, place, speed = self._whereabouts("crews", index, at)
            data = {"sector": crew.person.sector, "task": crew.task, "speed": round(speed, 1), **place.degrees()}
            yield self._event(at, "crew", f"{crew.person.id}-{number}", crew.person.id, data)

    def _incident(self, last: Fire) -> Iterator[StoryStep]:
        """Reports at intervals, and at once when the alert level changes."""
        history = {now.minute: fire for now in self.minutes for fire in now.fires if fire.name == last.name}
        changes = [self._at(fire.since) for fire in history.values() if fire.since and fire.since in history]
        lit = self._at(min(history))
        regular = self._times("incident", last.name, 4)
        rank: int | None = None
        for number, at in enumerate(sorted({lit, *changes, *(at for at in regular if at > lit)}), start=1):
            # A change's own moment, computed there and back, may lie a rounding before its minute.
            minute = min(MINUTES, math.floor(self._minute(at) + 1e-6))
            fire = history[minute]
            data = _incident(fire, self.minutes[minute].wind)
            data["rise"] = rank is not None and fire.rank > rank
            rank = fire.rank
            yield self._event(at, "incident", f"{fire.name}-{number}", fire.name, data)

    def _moves(self, kind: Literal["crews", "residents"], index: int) -> Iterator[StoryStep]:
        person = getattr(self.minutes[0], kind)[index].person
        last: Point = person.home
        for at in self._times("crew", f"moves {person.id}", 2 * max(1, self.crews)):
            _, place, _ = self._whereabouts(kind, index, at)
            if place != last and bandwidth(self._changes, person.id, self._minute(at)):
                yield self._client(at, person.id, "place", position=place.degrees())
                last = place

    def _whereabouts(self, kind: Literal["crews", "residents"], index: int, at: float) -> tuple[Actor, Point, float]:
        """The actor at a moment, its place between two minutes, and its speed in km/h."""
        minute = self._minute(at)
        whole = min(int(minute), MINUTES - 1)
        was, actor = (getattr(self.minutes[m], kind)[index] for m in (whole, whole + 1))
        return was, was.place.between(actor.place, minute - whole), math.dist(was.place, actor.place) * 60

    def _times(self, kind: str, name: str, publishers: int) -> Iterator[float]:
        """When one of so many publishers of a kind speaks: at a steady pace, from a moment of its own."""
        period = publishers / (SHARES[kind] * self.rate)
        first = random.Random(f"{name} {self.seed}").uniform(0, period)
        return itertools.takewhile(
            lambda at: at <= self.seconds, (first + number * period for number in itertools.count())
        )

    def _event(self, at: float, type: str, id: str, subject: str, data: dict[str, Any]) -> StoryStep:
        return StoryStep(at, "event", document=document(type, SOURCES[type], id, self._clock(at), data, subject))

    def _client(self, at: float, client: str, what: str, **changes: Any) -> StoryStep:
        id = f"{client}-{what}-{at:.6f}"
        return StoryStep(at, "client", client, client_change(RECEIVERS, id, self._clock(at), client, **changes))

    def _at(self, minute: float) -> float:
        return minute / MINUTES * self.seconds

    def _minute(self, at: float) -> float:
        return at / self.seconds * MINUTES

    def _clock(self, at: float) -> str:
        return moment(self.start, self._minute(at) * 60)


def _weather(wind: Wind, chance: random.Random) -> dict[str, Any]:
    gust = round(wind.gust + chance.gauss(0, 2), 1)
    return {
        "temperature": round(wind.temperature + chance.gauss(0, 0.4), 1),
        "humidity": round(wind.humidity + chance.gauss(0, 1)),
        "wind": round(wind.speed, 1),
        "gust": gust,
        "wind_from": round(wind.towards + 180) % 360,
        "danger": "catastrophic" if gust >= 75 else "extreme" if gust >= 55 else "high",
    }


def _incident(fire: Fire, wind: Wind) -> dict[str, Any]:
    return {
        "name": fire.name,
        "sector": fire.sector,
        "category": fire.category,
        "alert_level": ALERT_LEVELS[fire.rank],
        "alert_rank": fire.rank,
        "status": fire.status,
        "size": round(fire.size, 1),
        "wind": round(wind.speed),
        **fire.head.degrees(),
    }
