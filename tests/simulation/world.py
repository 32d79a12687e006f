"""What simulated systems know, and what happens in them: of `tests.system.history` more, so that things are derived.

Units come near each other, are in zones and in crowds, and it gets hot where they are; what tells of that is defined,
replaced and removed while everything runs.
"""

from __future__ import annotations

import random
from typing import Any

from tests.system import history

Document = dict[str, Any]

UNITS = "type = 'unit'"
MOVING = "type IN ('unit', 'ship', 'walker')"
BEHIND = 15.0
"""Seconds by which what ships report is older than what others do."""

CHANNELS: Document = {
    "ground": {"coordinates": "planar"},
    "relay": {"coordinates": "planar", "types": ["ship"], "clock": "own"},
    "paths": {"coordinates": "planar", "types": ["walker"], "order": "arrival"},
}
"""Ships have a clock of their own, that of walkers cannot be trusted."""

HOOKS = "http://hooks:9000/called"
"""Where webhooks are posted to."""

DERIVED = ("nearcast.relation", "nearcast.zone", "nearcast.situation")


def definitions(clients: list[str], chance: random.Random) -> Document:
    """Those of the history, with relations, zones and rules; each client wants some of what they tell."""
    found: Document = history.definitions(clients)
    found["ontology"] = {
        "classes": {"Heat": {"unit": "degC", "within": 80}},
        "situations": {"Fire": {}, "Crowd": {}},
    }
    if chance.random() < 0.5:
        found["channels"] = CHANNELS
    found["relations"] = [relation(number, chance) for number in range(3)]
    found["zones"] = {"squares": layer(chance)}
    found["situations"] = [rule(number, chance) for number in range(2)]
    for number, id in enumerate(clients):
        filter = f"type = '{DERIVED[number % 3]}'"
        found["subscriptions"].append({"id": f"derived of {id}", "client": id, "filter": filter, "relevance": [0.5]})
    return found


def actions(definitions: Document, chance: random.Random) -> list[Document]:
    """Webhooks for what subscriptions select, and where something is derived, for that."""
    forms: list[Document] = [{"subscription": chance.choice(definitions["subscriptions"])["id"]}]
    if "relations" in definitions:
        forms += [{"relation": "relation 0"}, {"when": chance.choice(("Fire", "Crowd")), "phases": ["begin", "end"]}]
    return [{"id": f"hook {number}", "webhook": HOOKS, **form} for number, form in enumerate(forms)]


def decide_at_once(definitions: Document, clients: list[str], chance: random.Random) -> None:
    """Lets servers decide the events of one channel too; some of it they have to leave to the pipeline."""
    channels: Document = definitions.get("channels") or {"ground": {"coordinates": "planar"}}
    name = chance.choice([*channels])
    definitions["channels"] = {**channels, name: {**channels[name], "delivery": "decentralised"}}
    for id in clients:
        if chance.random() < 0.5:
            filter = "size > 50 AND size > PREVIOUS(size)"
            definitions["subscriptions"].append({"id": f"grown {id}", "client": id, "filter": filter})


LIMITS: Document = {
    "entities": (6, 15, 40),
    "entity_age": ("5 s", "20 s"),
    "entity_bytes": (500,),
    "entities_bytes": (4_000, 12_000),
    "relation_partners": (1, 2),
    "relation_pairs": (1, 3, 10),
    "relation_looks": (1, 3),
    "relation_begins": (1,),
    "relation_burst": (1, 4),
    "zones_at_once": (1,),
    "waiting_reports": (1, 3),
}
"""Limits, with values so small that they are met."""


def limits(chance: random.Random) -> Document:
    """Some limits that are met, so that something is forgotten, or is not begun."""
    names = chance.sample([*LIMITS], chance.randint(1, 4))
    return {name: chance.choice(LIMITS[name]) for name in names}


def relation(number: int, chance: random.Random) -> Document:
    """A relation in one of the forms that there are of its number: of any two, of two that are named, of gatherings."""
    sides = chance.choice((UNITS, MOVING))
    pair = {"a": sides, "b": chance.choice((sides, MOVING)), "when": f"distance(a, b) < {chance.randint(20, 60)}"}
    late = {"lateness": chance.choice((0, 4, 9))}
    lasting = {"for": chance.randint(2, 20), "detect": ["enter", "dwell", "exit"]}
    silent = {"time_to_live": chance.randint(10, 60)}
    forms: tuple[tuple[Document, ...], ...] = (
        (pair | {"margin": 10}, pair | lasting | late, pair | silent | late, pair | lasting | silent),
        (
            {"a": {"entity": "unit 1"}, "b": sides, "when": "distance(a, b) < 300 AND a.size < b.size"} | lasting,
            {"a": sides, "b": sides, "when": "distance(a, b) < 40", "scope": {"local": "server-1"}} | silent,
        ),
        (
            {"among": UNITS, "within": 150, "count": 3} | silent,
            {"among": UNITS, "within": 200, "count": 4} | lasting | silent | late,
        ),
    )
    return {"id": f"relation {number}", **chance.choice(forms[number])}


def layer(chance: random.Random) -> Document:
    """The rule of a layer, and its zones."""
    rule: Document = {"of": chance.choice((UNITS, MOVING)), "coordinates": "planar", "margin": chance.choice((0, 20))}
    if chance.random() < 0.5:
        rule |= {"for": chance.randint(2, 20), "detect": ["enter", "dwell", "exit"]}
    if chance.random() < 0.5:
        rule["time_to_live"] = chance.randint(10, 60)
    return {**rule, "features": [square(number, chance) for number in range(3)]}


def square(number: int, chance: random.Random) -> Document:
    """A zone."""
    x, y, side = chance.randint(0, 800), chance.randint(0, 800), chance.randint(50, 200)
    ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
    return {"type": "Feature", "id": f"square {number}", "geometry": {"type": "Polygon", "coordinates": [ring]}}


def rule(number: int, chance: random.Random) -> Document:
    """A rule: of readings, or of how many are around or in a zone."""
    valid = {"valid": chance.randint(5, 60)}
    forms: tuple[tuple[Document, ...], ...] = (
        (
            {"class": "Fire", "when": "Heat > 80", "margin": 10},
            {"class": "Fire", "when": "Heat > 70 AND AVG(Heat, 30 s) > 40", "for": chance.randint(2, 20)},
        ),
        (
            {"class": "Crowd", "when": "count(uform(kind = 'H')) >= 3", "within": 200},
            {"class": "Crowd", "when": f"count(uform({UNITS})) >= 2", "in": {"zones": "squares"}},
        ),
    )
    return {"id": f"rule {number}", **chance.choice(forms[number]), **valid, "lateness": chance.choice((0, 0, 4, 9))}


def documents(clients: list[str], count: int, seed: int) -> list[Document]:
    """The history, in which some units measure heat, and now and then what derives is another."""
    chance = random.Random(f"world {seed}")
    return [_document(one, chance) for one in history.documents(clients, count, seed)]


def _document(one: Document, chance: random.Random) -> Document:
    if one["type"] != "unit":
        return one
    if chance.random() < 0.03:
        type, data = chance.choice((_relation, _square, _rule))(chance)
        return {**{name: one[name] for name in ("specversion", "id", "source")}, "type": type, "data": data}
    if chance.random() < 0.4:
        one["data"]["Heat"] = chance.randint(0, 120)
    kind = chance.choices(("unit", "ship", "walker"), (6, 2, 1))[0]
    return {**one, "type": kind, "subject": one["subject"].replace("unit", kind)}


def _relation(chance: random.Random) -> tuple[str, Document]:
    number = chance.randrange(3)
    if number and chance.random() < 0.3:
        return "nearcast.relation.removed", {"relation": f"relation {number}"}
    return "nearcast.relation.defined", relation(number, chance)


def _square(chance: random.Random) -> tuple[str, Document]:
    if chance.random() < 0.3:
        found = {name: value for name, value in layer(chance).items() if name != "features"}
        return "nearcast.zones.defined", {"id": "squares", **found}
    number = chance.randrange(3)
    change: Document = {"removed": [f"square {number}"]} if chance.random() < 0.3 else {}
    return "nearcast.zones.changed", {
        "layer": "squares",
        "coordinates": "planar",
        **(change or {"features": [square(number, chance)]}),
    }


def _rule(chance: random.Random) -> tuple[str, Document]:
    number = chance.randrange(2)
    if chance.random() < 0.3:
        return "nearcast.situation.removed", {"situation": f"rule {number}"}
    return "nearcast.situation.defined", rule(number, chance)
