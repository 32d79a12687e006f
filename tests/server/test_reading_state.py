"""What is so now, over HTTP: dead letters, relations and situations that hold, the newest report of an entity."""

from __future__ import annotations

from typing import Any

import pytest

from nearcast.journal.memory import MemoryJournal
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.relation import RELATION_EVENT
from nearcast.model.situation import SITUATION_TYPE
from nearcast.server.access import tokens_from
from nearcast.server.admin.journal_views import ActiveDerivations, NewestReports
from nearcast.state.derived import Cause, derived_event
from tests.server.conftest import Running, run, running, unit, until
from tests.written_events import write_event

RELATION = {"a": "type = 'unit'", "b": "type = 'unit'", "when": "distance(a, b) < 50"}


def relation(detect: str, a: str, b: str | list[str], id: str = "close") -> tuple[str, dict[str, Any]]:
    """What tells that a relation began or ended."""
    return RELATION_EVENT, {"relation": id, "detect": detect, "a": a, "b": b}


def situation(phase: str, id: str, rule: str = "fire") -> tuple[str, dict[str, Any]]:
    """What tells that a situation began, was updated or ended."""
    return SITUATION_TYPE, {"situation": rule, "class": "Fire", "id": id, "phase": phase}


def told(journal: MemoryJournal, *events: tuple[str, dict[str, Any]], first: int = 1) -> None:
    """Writes derived events, one of each position."""
    found = [
        derived_event(type_, "s", str(at), "x", data, Cause(at, None, None), None, 1)
        for at, (type_, data) in enumerate(events, first)
    ]
    journal.commit_range("derived", to_table(found), first + len(events) - 1)


async def page(server: Running, path: str, **parameters: Any) -> Any:
    """What a page says."""
    answer = await server.http.get(path, params=parameters)
    assert 200 == answer.status_code, answer.text
    return answer.json()


def test_what_holds_is_read_page_by_page() -> None:
    """In the order in which it began, with what was told last; what ended is not there, and it goes on from there."""

    async def test() -> None:
        journal = MemoryJournal()
        pairs = [relation("enter", f"a{n}", "b") for n in range(5)]
        told(journal, *pairs, relation("exit", "a1", "b"), relation("dwell", "a0", "b"), relation("enter", "z", ["y"]))
        async with running(journal) as server:
            (await server.http.put("/relations/close", json=RELATION)).raise_for_status()
            found, after = [], "0"
            while after:
                one = await page(server, "/active/relations", limit=2, after=after)
                found += [(each["a"], each["detect"]) for each in one["relations"]]
                after = one["next"]
            enter = [(name, "enter") for name in ("a2", "a3", "a4", "z")]
            assert [("a0", "dwell"), *enter] == found
            told(journal, relation("exit", "a2", "b"), relation("exit", "z", ["y", "x"]), first=9)
            names = [one["a"] for one in (await page(server, "/active/relations"))["relations"]]
            assert ["a0", "a3", "a4"] == names
            assert [] == (await page(server, "/active/relations", relation="other"))["relations"]

    run(test)


def test_a_rule_may_be_named_active() -> None:
    """It is read by its name as any other; what holds has a path that is nobody's name."""

    async def test() -> None:
        journal = MemoryJournal()
        told(journal, relation("enter", "a", "b"), situation("begin", "1"))
        rule = {"class": "Fire", "when": "Temperature > 80", "within": 100, "valid": "10 s"}
        ontology = {"classes": {"Temperature": {}}, "situations": {"Fire": None}}
        async with running(journal) as server:
            (await server.http.put("/settings", json={"ontology": ontology})).raise_for_status()
            (await server.http.put("/relations/close", json=RELATION)).raise_for_status()
            for kind, one in (("relations", RELATION), ("situations", rule)):
                listed = await page(server, f"/active/{kind}")
                assert 1 == len(listed[kind])
                assert listed == await page(server, f"/{kind}/active")
                (await server.http.put(f"/{kind}/active", json=one)).raise_for_status()
                assert "active" == (await page(server, f"/{kind}/active"))["id"]
                assert listed == await page(server, f"/active/{kind}")
                (await server.http.delete(f"/{kind}/active")).raise_for_status()
                assert listed == await page(server, f"/{kind}/active")

    run(test)


def test_of_relations_whose_end_is_not_told_nothing_is_said() -> None:
    """Nor of those that are defined no more."""

    async def test() -> None:
        journal = MemoryJournal()
        told(journal, relation("enter", "a", "b"), relation("enter", "a", "b", "gone"))
        async with running(journal) as server:
            await server.http.put("/relations/close", json={**RELATION, "detect": ["enter"]})
            assert [] == (await page(server, "/active/relations"))["relations"]

    run(test)


def test_situations_are_there_until_they_end() -> None:
    """Those of one rule, if it is asked for."""

    async def test() -> None:
        journal = MemoryJournal()
        phases = [situation("begin", "1"), situation("begin", "2"), situation("update", "1"), situation("end", "2")]
        told(journal, *phases, situation("begin", "3", "flood"))
        async with running(journal) as server:
            found = (await page(server, "/active/situations"))["situations"]
            assert [("1", "update"), ("3", "begin")] == [(one["id"], one["phase"]) for one in found]
            found = (await page(server, "/active/situations", situation="flood"))["situations"]
            assert ["3"] == [one["id"] for one in found]

    run(test)


def test_of_what_holds_no_more_is_kept_than_the_limit() -> None:
    """Those that began first are left out, and counted; data that people send does not meet it."""
    journal = MemoryJournal()
    told(journal, *(relation("enter", f"a{n}", "b") for n in range(5)))
    some, all_ = ActiveDerivations(journal, 3), ActiveDerivations(journal, 100)
    assert ["a2", "a3", "a4"] == [one.data["a"] for one in some.page(RELATION_EVENT, 0, 10)]
    assert (2, 0) == (some.left_out[RELATION_EVENT], all_.left_out[RELATION_EVENT])
    assert 5 == len(all_.page(RELATION_EVENT, 0, 10))


def test_the_newest_report_of_an_entity() -> None:
    """By its own time, among equals the later; what came late is not it. An unknown one is told."""

    async def test() -> None:
        async with running() as server:

            def at(second: int, id: str) -> dict[str, Any]:
                return {**unit(id, "fleet/7"), "time": f"2026-01-01T00:00:{second:02}Z"}

            await server.publish(at(5, "1"), at(9, "2"), at(9, "3"), at(7, "late"), unit("other"))
            found = await page(server, "/entities/fleet%2F7")
            assert ("fleet/7", 3, "3") == (found["entity"], found["position"], found["event"]["id"])
            await server.publish(at(10, "4"))
            assert "4" == (await page(server, "/entities/fleet%2F7"))["event"]["id"]
            assert 404 == (await server.http.get("/entities/nobody")).status_code

    run(test)


def test_entities_are_as_many_as_the_limit() -> None:
    """Those heard of last."""
    journal = MemoryJournal()
    for name in ("a", "b", "a", "c"):
        event = Event(f"{name}{journal.end('events')}", "t", "s", name)
        payload = str(write_event(event)).encode()
        journal.append("events", to_table([Event(event.id, "t", "s", name, payload=payload)]))
        newest = NewestReports(journal, 2)
        newest.payload(name)
    assert None is newest.payload("b")
    assert [3, 4] == [found[0] for name in ("a", "c") if (found := newest.payload(name))]


def test_dead_letters_are_read_and_taken_once_more() -> None:
    """Page by page. What fits by then is published; what does not is told again; a letter stays, and nothing is taken
    twice.
    """

    async def test() -> None:
        async with running() as server:
            await server.http.put("/settings", json={"channels": {"c": {"coordinates": "planar", "types": ["other"]}}})
            for id in ("e1", "e2"):
                assert 400 == (await server.http.post("/events", json=unit(id), headers=EVENT)).status_code
            await server.http.post("/events", content=b"\xff{", headers=EVENT)
            await until(lambda: server.journal.end("dead letters") == 3)
            first = await page(server, "/dead-letters", limit=2)
            assert ([1, 2], 2) == ([one["id"] for one in first["dead_letters"]], first["next"])
            second = await page(server, "/dead-letters", limit=2, after=2)
            assert (["/3s="], None) == ([one["content_base64"] for one in second["dead_letters"]], second["next"])
            assert 400 == (await server.http.post("/dead-letters/1/retry")).status_code
            await server.http.put("/settings", json={})
            again = [(await server.http.post("/dead-letters/1/retry")).json()["position"] for _ in range(2)]
            assert again[0] == again[1]
            assert "e1" == server.journal.read("events", again[0] - 1, 1)["id"][0].as_py()
            assert 404 == (await server.http.post("/dead-letters/4/retry")).status_code

    run(test)


EVENT = {"content-type": "application/cloudevents+json"}


@pytest.mark.parametrize(
    "path", ["/dead-letters?limit=0", "/dead-letters?limit=1001", "/dead-letters?after=-1", "/relations/active?after=x"]
)
def test_a_page_that_cannot_be_is_refused(path: str) -> None:
    """Pages are bounded."""

    async def test() -> None:
        async with running() as server:
            answer = await server.http.get(path)
            assert (422, True) == (answer.status_code, "expected" in answer.json())

    run(test)


def test_reading_it_takes_the_right_to_manage() -> None:
    """As the definitions do."""

    async def test() -> None:
        tokens = tokens_from("r:SECRET1:receive,publish m:SECRET2:manage")
        async with running(tokens=tokens) as server:
            for path in (
                "/dead-letters",
                "/active/relations",
                "/relations/active",
                "/situations/active",
                "/entities/a",
            ):
                codes = [
                    (await server.http.get(path, headers={"Authorization": f"Bearer {one}"})).status_code
                    for one in ("SECRET1", "SECRET2")
                ]
                assert (401, 403) == ((await server.http.get(path)).status_code, codes[0])
                assert codes[1] in (200, 404)
            assert 401 == (await server.http.post("/dead-letters/1/retry")).status_code

    run(test)
