"""Relations, situation rules and actions come and go over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from nearcast.model.columns import to_events
from nearcast.model.event import Event
from tests.server.conftest import Running, run, running

CLOSE = {"a": "type = 'car'", "b": "type = 'car'", "when": "distance(a, b) < 10"}
ONTOLOGY = {"classes": {"Temperature": {"unit": "degC"}}, "situations": {"Fire": {}, "Alarm": {}}}
FIRE = {"class": "Fire", "when": "Temperature > 80", "within": 100}
RULES: list[tuple[str, dict[str, Any], str]] = [
    ("relations", CLOSE, "nearcast.relation"),
    ("situations", FIRE, "nearcast.situation"),
    ("actions", {"when": "Fire", "publish": {"type": "alert"}}, "nearcast.action"),
]


async def prepared(server: Running) -> None:
    (await server.http.put("/settings", json={"ontology": ONTOLOGY})).raise_for_status()


@pytest.mark.parametrize("many, document, type", RULES, ids=[many for many, _, _ in RULES])
def test_a_rule_is_put_found_and_deleted(many: str, document: dict[str, Any], type: str) -> None:
    """Each change is an event in the journal, in effect when it is answered."""

    async def test() -> None:
        async with running() as server:
            await prepared(server)
            put = await server.http.put(f"/{many}/r", json=document)
            assert 200 == put.status_code, put.text
            written = put.json()
            assert "r" == written["document"]["id"]
            assert [written["document"]] == (await server.http.get(f"/{many}")).json()
            assert written["document"] == (await server.http.get(f"/{many}/r")).json()
            assert 200 == (await server.http.delete(f"/{many}/r")).status_code
            assert [] == (await server.http.get(f"/{many}")).json()
            assert 404 == (await server.http.delete(f"/{many}/r")).status_code
            events: list[Event] = to_events(server.journal.read("events", 0, 100))
            assert [f"{type}.defined", f"{type}.removed"] == [event.type for event in events[1:]]

    run(test)


@pytest.mark.parametrize(
    "many, document, expected",
    [
        ("relations", {**CLOSE, "when": "distance(a, b) <"}, "the end of the filter"),
        ("relations", {"a": "type = 'car'"}, "when"),
        ("situations", {**FIRE, "class": "Flood"}, "a situation of the ontology"),
        ("actions", {"when": "Flood", "publish": {"type": "alert"}}, "Flood"),
    ],
)
def test_a_faulty_rule_is_refused_with_what_was_expected(many: str, document: dict[str, Any], expected: str) -> None:
    """And nothing is written."""

    async def test() -> None:
        async with running() as server:
            await prepared(server)
            end = server.journal.end("events")
            answer = await server.http.put(f"/{many}/r", json=document)
            assert 422 == answer.status_code or 400 == answer.status_code
            assert expected in answer.text
            assert end == server.journal.end("events")

    run(test)


def test_a_rule_that_no_stage_could_take_is_refused() -> None:
    """Put by itself, or published among others, which are taken."""
    data: list[dict[str, Any]] = [{"id": id, **CLOSE, "detect": ["enter"]} for id in ("first", "bad", "last")]
    data[1]["time_to_live"] = "1000000000 d"
    kind = {"specversion": "1.0", "type": "nearcast.relation.defined", "source": "s"}
    expected = "time_to_live: time_to_live: a hundred years at most"

    async def test() -> None:
        async with running() as server:
            answer = await server.http.put("/relations/bad", json=data[1])
            assert (422, expected, "request") == (answer.status_code, *at(answer.json()))
            batch = [{**kind, "id": one["id"], "data": one} for one in data]
            headers = {"Content-Type": "application/cloudevents-batch+json"}
            answer = await server.http.post("/events", json=batch, headers=headers)
            assert (202, [1, None, 2]) == (answer.status_code, answer.json()["positions"])
            [fault] = answer.json()["faults"]
            assert (1, expected) == (fault["index"], fault["expected"])
            assert ["first", "last"] == [event.id for event in to_events(server.journal.read("events", 0, 9))]

    def at(told: dict[str, Any]) -> tuple[str, str]:
        """What was expected, and where."""
        return told["expected"], told["where"]

    run(test)


def test_rules_that_would_stand_on_each_other_are_refused_with_the_way() -> None:
    """Fire would need an alarm, which needs a fire."""

    async def test() -> None:
        async with running() as server:
            await prepared(server)
            first = await server.http.put("/situations/fire", json={"class": "Fire", "when": "Alarm", "within": 100})
            assert 200 == first.status_code, first.text
            answer = await server.http.put("/situations/alarm", json={"class": "Alarm", "when": "Fire", "within": 100})
            assert 400 <= answer.status_code < 500
            assert "a cycle" in answer.text and "→" in answer.text

    run(test)
