"""Managing clients, subscriptions and settings over HTTP."""

from __future__ import annotations

from nearcast.language import control
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
            changes = [change for event in events for change in control.changes(event, Settings())]
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
            await server.service.desk.reached(position)
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
