"""Names in paths."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from nearcast.server.access import tokens_from
from tests.server.conftest import received, run, running, unit, until

NAMES = (
    "fleet/van-7",
    "/",
    "50%2F50",
    "100 %",
    "a/stream",
    "<script>alert(1)</script>",
    "zürich/車 🚒",
    "a?b#c",
    "x" * 500,
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_may_have_any_characters(name: str) -> None:
    """Of a client, a subscription, a relation: put, read, listed and removed under the same name."""

    async def test() -> None:
        async with running() as server:
            for kind, body in (
                ("clients", {}),
                ("subscriptions", {"client": name, "filter": "type = 'unit'"}),
                ("relations", {"a": "type = 'unit'", "b": "type = 'unit'", "when": "distance(a, b) < 50"}),
            ):
                path = f"/{kind}/{quote(name, safe='')}"
                assert name == (await server.http.put(path, json=body)).json()["document"]["id"]
                assert name == (await server.http.get(path)).json()["id"]
                assert [name] == [one["id"] for one in (await server.http.get(f"/{kind}")).json()]
                assert 200 == (await server.http.delete(path)).status_code

    run(test)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_receives_under_any_name(name: str) -> None:
    """Over a WebSocket, and what waits for it is told."""

    async def test() -> None:
        async with running() as server:
            path = quote(name, safe="")
            await server.http.put(f"/clients/{path}", json={})
            await server.http.put("/subscriptions/s", json={"client": name, "filter": "type = 'unit'"})
            await server.publish(unit("1"))
            await until(lambda: server.service.session_manager.session(name).waiting.waiting)
            assert 1 == (await server.http.get(f"/clients/{path}/waiting")).json()["waiting"]
            async with server.client(name) as client:
                assert ["1"] == [one.event["id"] for one in await received(client, 1)]

    run(test)


def test_a_token_for_one_name_is_not_one_for_another_that_looks_alike() -> None:
    """`a%2Fb` is called so, and is not `a/b`."""

    async def test() -> None:
        tokens = tokens_from("one:secret:receive=a/b all:other:manage")
        async with running(tokens=tokens) as server:
            manage = {"Authorization": "Bearer other"}
            for name in ("a/b", "a%2Fb"):
                await server.http.put(f"/clients/{quote(name, safe='')}", json={}, headers=manage)
            receive = {"Authorization": "Bearer secret"}
            assert 200 == (await server.http.get("/clients/a%2Fb/waiting", headers=receive)).status_code
            assert 403 == (await server.http.get("/clients/a%252Fb/waiting", headers=receive)).status_code

    run(test)
