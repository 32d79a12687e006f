"""What people say and write on the bushfire afternoon, and what follows from what happens."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nearcast.demo.bushfire.afternoon import EMERGENCY, Actor, Fire, Minute
from nearcast.demo.bushfire.valley import ROADS, SECTORS, VILLAGES

CHAT = (
    "Refilling at {village}, back in twenty.",
    "Smoke is lying low over {village}.",
    "Anyone got a spare radio battery?",
    "Sandwiches at the {village} hall.",
    "Cattle on {road}, drive slowly.",
    "Copy that, thanks.",
)

DOCUMENTS = (
    ("Fire danger forecast", "Extreme. Westerly to 50 km/h, southerly change with strong gusts in the afternoon."),
    ("Roster for the night shift", "Relief crews report to Wirrabee showground; bring water and spare masks."),
    ("Aerial photographs", "Line scans of the western ridges, taken at noon, with notes on access tracks."),
    ("Map of water points", "Dams, tanks and hydrants by sector, with the turning room for tankers."),
)


@dataclass(frozen=True, slots=True)
class StoryMessage:
    """Something said, written or announced: the event's type, entity and data."""

    minute: float
    type: str
    subject: str
    data: dict[str, Any]


def happenings(minutes: Sequence[Minute]) -> Iterator[StoryMessage]:
    """Requests and roads: what follows at once from a change between two minutes, by time."""
    for before, now in itertools.pairwise(minutes):
        ranks = {fire.name: fire.rank for fire in before.fires}
        for fire in now.fires:
            if (fire.rank == EMERGENCY) != (ranks.get(fire.name) == EMERGENCY):
                yield _road(now.minute, fire)
        for was, crew in zip(before.crews, now.crews, strict=True):
            if crew.task == "withdraw" and was.task != "withdraw":
                yield _request(now.minute, crew, "withdrawal", f"{crew.person.id} withdraws, the wind has turned.")
            elif ranks.get(crew.fire) == 2 and any(f.name == crew.fire and f.rank == EMERGENCY for f in now.fires):
                yield _request(now.minute, crew, "support", f"{crew.person.id} asks for aircraft at {crew.fire}.")


def chat(chance: random.Random, now: Minute, index: int) -> StoryMessage:
    """Small talk of a crew."""
    crew = chance.choice(now.crews)
    text = chance.choice(CHAT).format(village=chance.choice(list(VILLAGES)), road=ROADS[crew.person.sector])
    data = {"text": text, "sector": crew.person.sector, **crew.place.degrees()}
    return StoryMessage(now.minute, "chat", crew.person.id, data)


def paper(chance: random.Random, now: Minute, index: int) -> StoryMessage:
    """A document for those who plan; long, as documents are."""
    title, text = DOCUMENTS[index % len(DOCUMENTS)]
    pages = chance.randint(2, 6)
    return StoryMessage(
        now.minute, "document", title, {"title": title, "pages": pages, "text": " ".join([text] * pages)}
    )


def _road(minute: int, fire: Fire) -> StoryMessage:
    road, closed = ROADS[fire.sector], fire.rank == EMERGENCY
    data = {"status": "closed" if closed else "open", "because": fire.name, "sector": fire.sector}
    return StoryMessage(minute, "road", road, {"road": road, **data, **SECTORS[fire.sector].degrees()})


def _request(minute: int, crew: Actor, kind: str, text: str) -> StoryMessage:
    data = {"kind": kind, "text": text, "sector": crew.person.sector, **crew.place.degrees()}
    return StoryMessage(minute, "request", crew.person.id, data)
