"""The three simulations of the thesis (§7.3), from its files and through the stages that live events take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions.files import DefinitionSet, load
from nearcast.model.changes import Change, ClientChange
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.stages.decide import decide, priorities
from nearcast.stages.fold import StateFold

FILES = Path(__file__).parent / "thesis"
Heard = list[tuple[str, str, int]]


def definitions(folder: Path, text: str) -> DefinitionSet:
    """Definitions beside the thesis' files."""
    for file in FILES.glob("*.xml"):
        (folder / file.name).write_text(file.read_text())
    (folder / "definitions.yaml").write_text(text)
    return load([folder / "definitions.yaml"])


def heard(found: DefinitionSet, story: Sequence[Event | Change]) -> Heard:
    """(client, event, priority) of a story that goes on from definitions, in the order of events."""
    items = [*found.changes(), *story]
    events = [
        replace(item if isinstance(item, Event) else to_event(item, f"change {position}", "test"), position=position)
        for position, item in enumerate(items, 1)
    ]
    ids, rows = {event.position: event.id for event in events}, []
    for batch in StateFold().fold(to_table(events), changes):
        deliveries = decide(batch, batch.events)
        for row, urgency in zip(deliveries.to_pylist(), priorities(batch, deliveries).tolist(), strict=True):
            rows.append((row["client"], ids[row["position"]], urgency))
    return rows


def unit(id: str, affiliation: str, x: float = 0, y: float = 0) -> Event:
    return Event(id, "unit", "c2", subject=id, place=Place("planar", x, y), attributes=(("affiliation", affiliation),))


def got(rows: Heard, client: str) -> set[str]:
    return {event for name, event, _ in rows if name == client}


SELECTIVITY = """\
awareness: {bandwidth: {maximum: 3750}}
roles: roles.xml
clients:
  - {id: A, role: team leader, task: defense}
  - {id: B, role: team leader, task: intelligence}
subscriptions:
  - {id: flatscape, clients: [A, B], filter: subscription.xml}
"""


def test_selectivity(tmp_path: Path) -> None:
    """§7.3.1: of six units, three of each client, A gets the hostile and friendly, B the hostile and neutral ones."""
    units = [unit(f"{affiliation} of {client}", affiliation) for client in "AB" for affiliation in "HFN"]
    rows = heard(definitions(tmp_path, SELECTIVITY), units)
    assert {"H of A", "F of A", "H of B", "F of B"} == got(rows, "A")
    assert {"H of A", "N of A", "H of B", "N of B"} == got(rows, "B")


NETWORK = """\
awareness: {bandwidth: {maximum: 3750}}
roles: roles.xml
clients:
  - {id: leader, role: platoon leader, task: offense, readings: {bandwidth: 3750.0}}
subscriptions:
  - {id: flatscape, client: leader, filter: subscription.xml}
"""


def everything(moment: str) -> list[Event]:
    """One event for each atom of listing 6-1."""
    documents = [Event(f"{type} {moment}", type, "c2") for type in ("document", "time", "overlay", "chat")]
    return [*documents, *(unit(f"{affiliation} {moment}", affiliation) for affiliation in "HFN")]


def test_network_awareness(tmp_path: Path) -> None:
    """§7.3.2: all at once while the bandwidth is good; when it drops, three priorities."""
    drop = ClientChange("leader", readings={"bandwidth": 195.6})
    rows = heard(definitions(tmp_path, NETWORK), [*everything("before"), drop, *everything("after")])
    urgency = {event: priority for _, event, priority in rows}
    before = {f"{name} before": 0 for name in ("document", "time", "overlay", "chat", "H", "F", "N")}
    after = {"document": 0, "chat": 0, "H": 0, "F": 0, "N": 1, "time": 2, "overlay": 2}
    assert {**before, **{f"{name} after": priority for name, priority in after.items()}} == urgency


def test_the_role_is_the_default_one(tmp_path: Path) -> None:
    """Listing 7-3 makes the platoon leader's offense the default: a client that states nothing hears the same."""
    text = NETWORK.replace("role: platoon leader, task: offense, ", "").replace("3750.0", "195.6")
    urgency = {event: priority for _, event, priority in heard(definitions(tmp_path, text), everything("now"))}
    assert {0, 1, 2} == set(urgency.values())
    assert urgency["N now"] == 1


LOCATION = """\
channels: {ops: {coordinates: planar}}
clients:
  - {id: user1, position: {x: 0, y: 0}}
subscriptions:
  - {id: nearby, client: user1, filter: nearby.xml, relevance: [1, 0.3, 0.3, 0.8, 1, 1, 1, 0.9, 0.5]}
"""
CLUSTER_A = {"a1": (20, 30), "a2": (-40, 10), "a3": (0, -50), "a4": (60, -20)}
CLUSTER_B = {"b1": (-120, 200), "b2": (-150, 180), "b3": (-80, 220)}


def test_location_awareness(tmp_path: Path) -> None:
    """§7.3.3: at (0, 0) the client sees the four units of cluster A only, at (−100, 150) the three of B only."""
    clusters = {**CLUSTER_A, **CLUSTER_B}

    def reports(moment: str) -> list[Event]:
        return [unit(f"{name} {moment}", "HFN"[number % 3], *at) for number, (name, at) in enumerate(clusters.items())]

    move = ClientChange("user1", place=Place("planar", -100, 150))
    rows = heard(definitions(tmp_path, LOCATION), [*reports("first"), move, *reports("then")])
    expected = {f"{name} first" for name in CLUSTER_A} | {f"{name} then" for name in CLUSTER_B}
    assert expected == got(rows, "user1")


@pytest.mark.parametrize(("expected", "x"), [({"u"}, 150), (set(), 150.0001)])
def test_the_distance_is_inclusive(tmp_path: Path, expected: set[str], x: float) -> None:
    """`<= 150` holds at 150 metres, and not beyond."""
    assert expected == got(heard(definitions(tmp_path, LOCATION), [unit("u", "H", x)]), "user1")
