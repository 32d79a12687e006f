"""Managing clients, subscriptions and settings over HTTP."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import pytest

from nearcast.language import control_events
from nearcast.model.changes import ClientChange, SubscriptionChange
from nearcast.model.columns import to_events
from nearcast.model.subscription import Settings
from tests.server.conftest import run, running


def test_what_was_written_is_read_at_once_and_stands_in_the_journal() -> None:
    """The answer comes when the change is in effect."""

    async def test() -> None:
        async with running() as server:
            body = {"readings": {"bandwidth": 100}, "position": {"x": 1, "y": 2}}
            put = await server.http.put("/clients/a", json=body)
            assert (200, 1) == (put.status_code, put.json()["position"])
            got = (await server.http.get("/clients/a")).json()
            assert {"id": "a", "readings": {"bandwidth": 100.0}, "position": {"x": 1.0, "y": 2.0}} == got
            await server.http.put("/clients/a", json={"readings": {"battery": 50}})
            assert {"bandwidth": 100.0, "battery": 50.0} == (await server.http.get("/clients/a")).json()["readings"]
            await server.http.put("/subscriptions/s", json={"client": "a", "filter": "n > 1", "ttl": 5})
            assert ["s"] == [one["id"] for one in (await server.http.get("/subscriptions")).json()]
            events = to_events(server.journal.read("events", 0, 10))
            changes = [change for event in events for change in control_events.changes(event, Settings())]
            assert [ClientChange, ClientChange, SubscriptionChange] == [type(change) for change in changes]

    run(test)


def test_what_is_removed_is_gone() -> None:
    """And asking for it again is a fault of its own."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            for path in ("/subscriptions/all-a", "/clients/a"):
                assert (200, 200, 404, 404) == (
                    (await server.http.get(path)).status_code,
                    (await server.http.delete(path)).status_code,
                    (await server.http.get(path)).status_code,
                    (await server.http.delete(path)).status_code,
                )

    run(test)


def test_a_faulty_filter_is_told_with_its_place() -> None:
    """Line and column within the filter's text; nothing is changed."""

    async def test() -> None:
        async with running() as server:
            body = {"client": "a", "filter": "type = 'unit'\n  AND size ! 3"}
            answer = await server.http.put("/subscriptions/s", json=body)
            assert (422, 2) == (answer.status_code, answer.json()["line"])
            assert answer.json()["column"] >= 7
            assert 404 == (await server.http.get("/subscriptions/s")).status_code

    run(test)


def test_every_fault_of_a_document_is_told() -> None:
    """Unknown fields, wrong kinds, another id than the path's, relevance of the wrong length."""

    async def test() -> None:
        async with running() as server:
            for path, body in (
                ("/clients/a", {"id": "b"}),
                ("/clients/a", {"rank": 1}),
                ("/clients/a", {"readings": {"bandwidth": -1}}),
                ("/clients/a", {"position": {"x": 1}}),
                ("/subscriptions/s", {"client": "a"}),
                ("/subscriptions/s", {"client": "a", "filter": "n > 1", "relevance": [1, 1]}),
                ("/subscriptions/s", {"client": "a", "filter": "n > 1", "ttl": 0}),
                ("/settings", {"levels": 0}),
                ("/settings", {"colour": "red"}),
            ):
                answer = await server.http.put(path, json=body)
                assert (422, True) == (answer.status_code, bool(answer.json()["faults"][0]["expected"])), (path, body)
            assert 0 == server.journal.end("events")

    run(test)


def test_a_dry_request_only_checks() -> None:
    """The position is 0 and the journal empty."""

    async def test() -> None:
        async with running() as server:
            body = {"client": "a", "filter": "n > 1"}
            answer = await server.http.put("/subscriptions/s?dry=true", json=body)
            assert (200, 0, "n > 1") == (
                answer.status_code,
                answer.json()["position"],
                answer.json()["document"]["filter"],
            )
            assert (0, 404) == (server.journal.end("events"), (await server.http.get("/subscriptions/s")).status_code)

    run(test)


def test_dry_settings_are_answered_as_they_would_be() -> None:
    """As with clients and subscriptions: not as they are."""

    async def test() -> None:
        async with running() as server:
            answer = await server.http.put("/settings?dry=true", json={"levels": 5})
            assert (0, 5) == (answer.json()["position"], answer.json()["document"]["levels"])
            assert 3 == (await server.http.get("/settings")).json()["levels"]

    run(test)


def test_settings_are_replaced() -> None:
    """Levels, awareness and roles as in a definition file."""

    async def test() -> None:
        async with running() as server:
            body = {"awareness": {"bandwidth": {"maximum": 3750}}, "matrix": "restriction"}
            assert 200 == (await server.http.put("/settings", json=body)).status_code
            assert [[-1, -1, 0], [-1, 1, 0], [0, 0, 0]] == (await server.http.get("/settings")).json()["matrix"]

    run(test)


def test_changes_by_others_are_seen() -> None:
    """A definition published as an event counts like one that was put."""

    async def test() -> None:
        async with running() as server:
            event = {
                "specversion": "1.0",
                "id": "1",
                "type": "nearcast.client",
                "source": "me",
                "data": {"client": "b", "role": "leader"},
            }
            async with server.publisher() as publisher:
                [position] = (await publisher.publish([event])).positions
            await server.service.session_manager.reached(position)
            assert "leader" == (await server.http.get("/clients/b")).json()["role"]

    run(test)


def test_a_document_that_is_too_large_is_refused() -> None:
    """Without holding it; the server goes on."""

    async def test() -> None:
        async with running() as server:
            answer = await server.http.put("/subscriptions/s", content=b" " * (5 << 20))
            assert (413, "a body of at most 4,194,304 bytes") == (answer.status_code, answer.json()["expected"])
            assert 200 == (await server.http.get("/settings")).status_code

    run(test)


@pytest.mark.parametrize(
    ("status", "method", "path", "body", "expected", "came", "advice"),
    [
        (422, "PUT", "/clients/a", b"{", "JSON", "unexpected end of data", ""),
        (422, "PUT", "/clients/a", b"", "a JSON object", "nothing", "GET /openapi.json says"),
        (422, "PUT", "/clients/a", b"[]", "a JSON object", "other JSON", "GET /openapi.json says"),
        (422, "PUT", "/clients/a", b'{"role": "x", "role": "y"}', "each key once", "role again", "only one"),
        (422, "PUT", "/clients/a", b'{"readings": {"b": NaN}}', "JSON", "unexpected character", ""),
        (422, "PUT", "/clients/a", b'{"rank": 1}', "a field of a client", "rank", "known are id, role, task, readings"),
        (422, "PUT", "/subscriptions/s", b'{"client": "a", "tll": 1}', "a field of a", "tll", "did you mean ttl?"),
        (422, "PUT", "/clients/a?dry=maybe", b"{}", "dry: true or false", "'maybe'", ""),
        (422, "GET", "/wanted", b"", "type in the query", "none", "for example: ?type="),
        (404, "GET", "/nowhere", b"", "a path that there is", "GET /nowhere", "GET /docs shows what there is"),
        (405, "POST", "/clients/a", b"{}", "DELETE or GET or PUT for this path", "POST /clients/a", "GET /docs shows"),
    ],
)
def test_every_refusal_says_what_was_expected_and_what_came(
    status: int, method: str, path: str, body: bytes, expected: str, came: str, advice: str
) -> None:
    """In the form that all refusals have, whichever part of the server refuses."""

    async def test() -> None:
        async with running() as server:
            headers = {"Content-Type": "application/json"}
            answer = await server.http.request(method, path, content=body, headers=headers)
            told = answer.json()
            assert status == answer.status_code
            assert (expected, came, advice) == (
                told["expected"][: len(expected)],
                told["came"][: len(came)],
                (told["advice"] or "")[: len(advice)],
            )
            assert told["where"]
            assert told["faults"]

    run(test)


def test_documents_are_json() -> None:
    """Whatever else a body says that it is, is refused with what to send."""

    async def test() -> None:
        async with running() as server:
            for content_type in ("text/plain", "application/x-www-form-urlencoded"):
                answer = await server.http.put("/clients/a", content=b"{}", headers={"Content-Type": content_type})
                assert (415, f"content type {content_type}") == (answer.status_code, answer.json()["came"])
            headers = {"Content-Type": "application/merge-patch+json; charset=utf-8"}
            assert 200 == (await server.http.put("/clients/a", content=b"{}", headers=headers)).status_code

    run(test)


def test_a_place_that_no_channel_has_is_refused() -> None:
    """As the pipeline would, which could tell nobody."""

    async def test() -> None:
        async with running() as server:
            await server.http.put("/settings", json={"channels": {"roads": {"coordinates": "geographic"}}})
            answer = await server.http.put("/clients/a", json={"position": {"x": 1, "y": 2}})
            assert (422, "a planar one", "give lon and lat") == (
                answer.status_code,
                answer.json()["came"],
                answer.json()["advice"],
            )
            assert 200 == (await server.http.put("/clients/a", json={"position": {"lon": 1, "lat": 2}})).status_code

    run(test)


@pytest.mark.parametrize("id", ["%ff", "%00", "a%0Ab", "a%7f", "%20", "a%E2%80%A8"])
def test_what_can_be_no_name_is_refused(id: str) -> None:
    """Bytes that are no text, control characters, ends of lines, blanks alone: for clients and for what is defined."""

    async def test() -> None:
        async with running() as server:
            for path, body in (("clients", {}), ("subscriptions", {"client": "a", "filter": "n > 1"})):
                answer = await server.http.put(f"/{path}/{id}", json=body)
                assert (422, True) == (answer.status_code, answer.json()["expected"].startswith("id: a "))
            assert 0 == server.journal.end("events")

    run(test)


def test_names_in_any_script() -> None:
    """With blanks in them too."""

    async def test() -> None:
        async with running() as server:
            for id in ("Größe 7", "船長", "🚢", "d'Artagnan", "a.b:c"):
                answer = await server.http.put(f"/clients/{quote(id)}", json={})
                assert (200, id) == (answer.status_code, answer.json()["document"]["id"])

    run(test)


def test_a_large_definition_is_read_while_the_server_goes_on() -> None:
    """In a thread, also when it comes back from the journal, and then as it was read before."""

    async def test() -> None:
        async with running() as server:
            threads: list[str] = []
            whole = control_events.changes

            def noted(*given: Any) -> Any:
                threads.append(threading.current_thread().name)
                return whole(*given)

            filter = f"vessel IN {tuple(f'vessel {number}' for number in range(10_000))}"
            with patch.object(control_events, "changes", noted):
                answer = await server.http.put("/subscriptions/s", json={"client": "a", "filter": filter})
                assert (200, []) == (answer.status_code, threads)
                event = {"specversion": "1.0", "id": "1", "type": "nearcast.subscription", "source": "me"}
                event["data"] = {"id": "t", "client": "a", "filter": filter}
                async with server.publisher() as publisher:
                    [position] = (await publisher.publish([event])).positions
                await server.service.session_manager.reached(position)
                assert ["nearcast-reading_0"] == threads
            [one, other] = (await server.http.get("/subscriptions")).json()
            assert one["filter"] == other["filter"]

    run(test)
