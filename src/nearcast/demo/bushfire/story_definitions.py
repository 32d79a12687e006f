"""Who wants what on a bushfire afternoon, as a definitions document: roles and tasks, clients, subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nearcast.demo.bushfire.valley import CONTROLLER, DUTY_OFFICER, SECTORS, Person

EVENT_TYPES = ("incident", "crew", "weather", "request", "road", "chat", "document")

RoleTask = tuple[str, str]
RoleVectors = Mapping[RoleTask, Sequence[float]]

CONTROL: RoleTask = ("incident controller", "control")
RELIEVED: RoleTask = ("incident controller", "relieved")
COMMAND: RoleTask = ("sector commander", "command")
OVERVIEW: RoleTask = ("duty officer", "overview")
PATROL: RoleTask = ("crew leader", "patrol")
ATTACK: RoleTask = ("crew leader", "attack")
WITHDRAW: RoleTask = ("crew leader", "withdraw")
HOME: RoleTask = ("resident", "home")
LEAVING: RoleTask = ("resident", "leaving")
SAFE: RoleTask = ("resident", "safe")


@dataclass(frozen=True, slots=True)
class StorySubscription:
    """A subscription, and by role and task how much each of its filter's atoms matters."""

    id: str
    clients: Sequence[str]
    filter: str | dict[str, Any]
    relevance: RoleVectors
    options: Mapping[str, Any] = field(default_factory=dict)


def definitions(people: Sequence[Person]) -> dict[str, Any]:
    """The definitions document of the afternoon for these people; `yaml.safe_dump` makes a file of it."""
    wishes = list(_wishes(people))
    roles: dict[str, dict[str, dict[str, list[float]]]] = {}
    for wish in wishes:
        for (role, task), vector in wish.relevance.items():
            roles.setdefault(role, {}).setdefault(task, {})[wish.id] = list(vector)
    return {
        "awareness": {"bandwidth": {"maximum": 3750}},
        "channels": {"valley": {"coordinates": "geographic", "types": list(EVENT_TYPES)}},
        "roles": roles,
        "clients": [_client(person) for person in people],
        "subscriptions": [
            {"id": wish.id, "clients": list(wish.clients), "filter": wish.filter, **wish.options} for wish in wishes
        ],
    }


def _client(person: Person) -> dict[str, Any]:
    return {
        "id": person.id,
        "role": person.role,
        "task": person.task,
        "readings": {"bandwidth": round(person.bandwidth)},
        "position": person.home.degrees(),
    }


def _wishes(people: Sequence[Person]) -> Iterator[StorySubscription]:
    commanders = [f"sector {sector}" for sector in SECTORS]
    yield _situation([CONTROLLER, *commanders, DUTY_OFFICER])
    yield _danger([CONTROLLER, *commanders])
    for sector in SECTORS:
        yield from _sector(sector)
    for person in people:
        if person.role == "crew leader":
            yield from _crew(person.id)
        elif person.role == "resident":
            yield from _resident(person.id)


def _situation(clients: Sequence[str]) -> StorySubscription:
    """The whole valley, for those who lead: the same filter for all, weighed by what each has to do."""
    incidents = {"all": ["type = 'incident'", {"any": ["alert_rank >= 3", "rise = true", "alert_rank <= 2"]}]}
    wind = "type = 'weather' AND gust >= 60"
    tree = {"any": [incidents, "type = 'request'", "type = 'road'", wind, "type = 'document'", "type = 'chat'"]}
    return StorySubscription(
        "situation",
        clients,
        tree,
        {
            CONTROL: (1, 1, 1, 0.6, 1, 0.6, 0.8, 0.8, 0.6, 0.3),
            RELIEVED: (0.3, 0.3, 0.3, 0, 0, 0, 0, 0, 0.3, 0.3),
            COMMAND: (0.6, 0.6, 0.6, 0.3, 0, 0, 1, 1, 0, 0),
            OVERVIEW: (1, 0.8, 0.6, 0.2, 0.4, 0.3, 0.4, 0.4, 0.5, 0),
        },
    )


def _danger(clients: Sequence[str]) -> StorySubscription:
    """Crews within 2 km of a front that is an emergency; a place that waits for 30 seconds is of no use any more."""
    text = "type = 'crew' AND distance(uform(type = 'incident' AND alert_rank >= 3), this) <= 2000"
    vectors: RoleVectors = {CONTROL: (0.8, 0.8), RELIEVED: (0, 0), COMMAND: (1, 1)}
    return StorySubscription("crews in danger", clients, text, vectors, {"ttl": 30, "conflate": True})


def _sector(sector: str) -> Iterator[StorySubscription]:
    """A commander's own sector: its fires and calls first, its crews' places as they come, its talk last."""
    client = f"sector {sector}"
    heard = {"any": ["type = 'incident'", "type = 'request'", "type = 'road'", "type = 'chat'"]}
    vectors: RoleVectors = {CONTROL: (1, 0.6, 0.6, 0.3, 0.1), COMMAND: (1, 1, 1, 0.6, 0.2)}
    yield StorySubscription(f"own {client}", [client], {"all": [f"sector = '{sector}'", heard]}, vectors)
    crews = f"type = 'crew' AND sector = '{sector}'"
    vectors = {CONTROL: (0.2, 0.2), COMMAND: (0.6, 0.6)}
    yield StorySubscription(f"crews of {client}", [client], crews, vectors, {"ttl": 20, "conflate": True})


def _crew(id: str) -> Iterator[StorySubscription]:
    """A crew: fires, calls, wind and other crews around it, each mattering as much as its task makes it."""
    fires = {"all": ["type = 'incident'", _near(id, 15), {"any": ["alert_rank >= 3", "rise = true", "size >= 0"]}]}
    vectors: RoleVectors = {PATROL: (1, 1, 1, 0.8, 0.5), ATTACK: (1, 1, 1, 1, 0.6), WITHDRAW: (1, 1, 1, 0.7, 0.2)}
    yield StorySubscription(f"fires near {id}", [id], fires, vectors)
    calls = f"type = 'request' AND {_near(id, 12)}"
    yield StorySubscription(f"calls near {id}", [id], calls, {PATROL: (0.6, 0.6), ATTACK: (0.8, 0.8), WITHDRAW: (1, 1)})
    wind = {"all": ["type = 'weather'", _near(id, 20), {"any": ["gust >= 60", "gust < 60"]}]}
    vectors = {PATROL: (1, 1, 0.7, 0.2), ATTACK: (1, 1, 1, 0.3), WITHDRAW: (1, 1, 1, 0.1)}
    yield StorySubscription(f"wind near {id}", [id], wind, vectors, {"ttl": 60, "conflate": True})
    crews = f"type = 'crew' AND subject <> '{id}' AND {_near(id, 6)}"
    vectors = {PATROL: (0.2, 0.2, 0.2), ATTACK: (0.5, 0.5, 0.5), WITHDRAW: (0.4, 0.4, 0.4)}
    yield StorySubscription(f"crews near {id}", [id], crews, vectors, {"ttl": 20, "conflate": True})


def _resident(id: str) -> Iterator[StorySubscription]:
    """A resident: warnings near me, emergencies first; closed roads, above all when leaving."""
    levels = ["alert_level = 'Emergency Warning'", "rise = true", "alert_level = 'Watch and Act'", "alert_rank <= 1"]
    warnings = {"all": ["type = 'incident'", _near(id, 15), {"any": levels}]}
    vectors: RoleVectors = {
        HOME: (1, 1, 1, 1, 0.6, 0.3),
        LEAVING: (1, 1, 1, 0.8, 0.3, 0.1),
        SAFE: (1, 1, 0.5, 0.5, 0.2, 0),
    }
    yield StorySubscription(f"warnings near {id}", [id], warnings, vectors)
    roads = f"type = 'road' AND {_near(id, 20)}"
    yield StorySubscription(f"roads near {id}", [id], roads, {HOME: (0.5, 0.5), LEAVING: (1, 1), SAFE: (0.2, 0.2)})


def _near(id: str, kilometres: int) -> str:
    return f"distance(user('{id}'), this) <= {kilometres * 1000}"
