"""A fixed history for a system under test: reports of units, clients that change, subscriptions that come and go."""

from __future__ import annotations

import random
from typing import Any

Document = dict[str, Any]

SOURCE = "history"
ENTITIES = 24
KINDS = ("H", "F", "N")
SIDE = 1000.0


def definitions(clients: list[str]) -> Document:
    """Two lasting subscriptions for every client, one of them about a distance; the priority follows the context."""
    subscriptions: list[Document] = []
    for number, id in enumerate(clients):
        kind = KINDS[number % 3]
        tree = {"any": [{"when": f"kind = '{kind}'", "relevance": 1}, {"when": "size > 80", "relevance": 0.3}]}
        near = f"type = 'unit' AND distance(user('{id}'), this) <= 250"
        subscriptions.append({"id": f"kinds of {id}", "client": id, "filter": tree})
        subscriptions.append({"id": f"near {id}", "client": id, "filter": near, "relevance": [0.6, 0.6]})
    return {
        "awareness": {"bandwidth": {"maximum": 3750}},
        "clients": [{"id": id, "readings": {"bandwidth": 3750}, "position": {"x": 500, "y": 500}} for id in clients],
        "subscriptions": subscriptions,
    }


def documents(clients: list[str], count: int, seed: int = 1) -> list[Document]:
    """The history: mostly reports; now and then a client moves, its context changes, a subscription comes, goes,
    is replaced by another of its name."""
    chance = random.Random(f"history {seed}")
    return [_document(chance, clients, number) for number in range(count)]


def _document(chance: random.Random, clients: list[str], number: int) -> Document:
    kind = chance.choices(("report", "move", "context", "comes", "goes"), (90, 4, 3, 2, 1))[0]
    client = chance.choice(clients)
    if kind == "move":
        return _event("nearcast.client", number, {"client": client, "position": _place(chance)})
    if kind == "context":
        readings = {"bandwidth": chance.choice((1000.0, 2000.0, 3750.0))}
        return _event("nearcast.client", number, {"client": client, "readings": readings})
    passing = f"passing {client}"
    if kind == "comes":
        filter = f"subject = 'unit {chance.randrange(ENTITIES)}' OR size < {chance.randrange(5, 40)}"
        asked = {"id": passing, "client": client, "filter": filter, "relevance": [1, 0.3]}
        return _event("nearcast.subscription", number, asked)
    if kind == "goes":
        return _event("nearcast.subscription.removed", number, {"subscription": passing})
    report = {"kind": chance.choice(KINDS), "size": chance.randrange(100), "number": number, **_place(chance)}
    return {**_event("unit", number, report), "subject": f"unit {chance.randrange(ENTITIES)}"}


def _event(type: str, number: int, data: Document) -> Document:
    return {"specversion": "1.0", "id": f"h{number}", "type": type, "source": SOURCE, "data": data}


def _place(chance: random.Random) -> dict[str, float]:
    return {"x": round(chance.uniform(0, SIDE), 1), "y": round(chance.uniform(0, SIDE), 1)}
