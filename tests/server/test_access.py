"""Who is let in."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from nearcast.cli.server import _tokens_of
from nearcast.cli.system import without_secrets
from nearcast.client.server_addresses import ServerAddresses
from nearcast.errors import AccessError, EventError, RightError, SessionError, SetupError
from nearcast.language.control_events import changes
from nearcast.model.changes import ClockTick
from nearcast.model.columns import to_events
from nearcast.model.subscription import Settings
from nearcast.server.access import allow, bearer, tokens_from, tokens_in
from nearcast.server.app import create_app, listen
from nearcast.server.config import ServerConfig, loopback
from nearcast.server.origins import check_origin
from tests.server.conftest import received, run, running, unit, until

TOKENS = tokens_from("sensor:aaa:publish phone:bbb:receive=a ops:c:c:manage,receive,publish")


def test_tokens_are_read_from_one_text() -> None:
    """A name, a secret that may hold colons, rights; receive may be bound to a client."""
    sensor, phone, ops = TOKENS
    assert ("sensor", "aaa", {"publish"}) == (sensor.name, sensor.secret, sensor.rights)
    assert ({"receive"}, {"a"}) == (phone.rights, phone.clients)
    assert ("c:c", frozenset()) == (ops.secret, ops.clients)


@pytest.mark.parametrize("text", ["secret", "a:b", "a:b:", "a:b:read", "a::publish", ":b:publish"])
def test_a_token_that_is_not_one_is_refused_without_telling_it(text: str) -> None:
    """The error names the place, not the secret."""
    with pytest.raises(SetupError, match="word 1") as caught:
        tokens_from(text)
    assert "b:" not in str(caught.value).replace("DASHBOARD:", "").replace("dashboard:SECRET", "")


def test_a_token_may_be_bound_to_sources_and_types() -> None:
    """Each by itself or by how it begins; what would end a word or a right is percent-encoded."""
    city, urn, wide = tokens_from(
        "city:s:publish,sources=city|harbour/*,types=queue urn:s:publish,sources=urn%3Aa%2Cb wide:s:publish"
    )
    assert (("city", "harbour/*"), ("queue",), {"publish"}) == (city.sources, city.types, city.rights)
    assert (("urn:a,b",), ()) == (urn.sources, wide.sources)
    for source, type in (("city", "queue"), ("harbour/7", "queue")):
        city.check_event(source, type)
    for source, type, told in (("City", "queue", "source"), ("harbour", "queue", "source"), ("city", "queues", "type")):
        with pytest.raises(EventError, match=f"expected an event whose {told} is among .* the token city is bound"):
            city.check_event(source, type)
    wide.check_event("anything", "at all")


@pytest.mark.parametrize("rights", ["sources=a", "publish,sources=", "publish,sources=a|", "publish,source=a"])
def test_a_bound_that_binds_nothing_is_refused(rights: str) -> None:
    """Who writes one means something by it."""
    with pytest.raises(SetupError, match="word 1"):
        tokens_from(f"a:b:{rights}")


def test_tokens_may_be_in_a_file(tmp_path: Path) -> None:
    """One in a line, with comments; what is wrong is told with the file, without a secret."""
    file = tmp_path / "tokens"
    file.write_text("# of the town\ncity:aaa:publish,sources=city  # its own\n\nops:b:b:manage\n")
    assert [("city", "aaa"), ("ops", "b:b")] == [(one.name, one.secret) for one in tokens_in(file)]
    for content in ("", "# none", "city:swordfish:read"):
        file.write_text(content)
        with pytest.raises(SetupError, match=re.escape(str(file))) as caught:
            tokens_in(file)
        assert "swordfish" not in str(caught.value)
    with pytest.raises(SetupError, match="No such file"):
        tokens_in(tmp_path / "none")


def test_a_file_of_tokens_that_others_may_read_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do; it is read all the same."""
    file = tmp_path / "tokens"
    file.write_text("ops:swordfish:manage")
    for mode, told in ((0o600, False), (0o640, True), (0o604, True)):
        file.chmod(mode)
        assert ["ops"] == [one.name for one in _tokens_of(file)]
        said = capsys.readouterr().err
        assert told == ("chmod 600" in said) and "swordfish" not in said


def test_the_pipeline_gets_no_tokens_and_no_secrets() -> None:
    """All else it gets."""
    given = {"NEARCAST_TOKENS": "a", "NEARCAST_TOKEN": "b", "NEARCAST_SECRET_X": "c", "NEARCAST_URL": "d", "PATH": "e"}
    assert {"NEARCAST_URL": "d", "PATH": "e"} == without_secrets(given)


def test_a_publisher_publishes_only_as_what_it_is() -> None:
    """Another source is a fault of that event alone, by HTTP in any form."""

    async def test() -> None:
        tokens = tokens_from("city:aaa:publish,sources=city,types=unit")
        async with running(tokens=tokens) as server, server.publisher(token="aaa") as publisher:
            own = {**unit("1"), "source": "city"}
            others = [{**unit("2"), "source": "harbour"}, {**own, "id": "3", "type": "other"}]
            published = await publisher.publish([own, *others])
            assert [1, None, None] == published.positions
            assert ["harbour", "other"] == [fault.came for fault in published.faults.values()]
            assert {1: "event 1", 2: "event 2"} == {index: str(one.where) for index, one in published.faults.items()}

    run(test)


def test_rights_are_checked() -> None:
    """Without, with a wrong, with a lesser token; for another client."""
    assert allow(TOKENS, "aaa", "publish") == TOKENS[0]
    assert allow((), None, "manage") is None
    with pytest.raises(AccessError, match="got none"):
        allow(TOKENS, None, "publish")
    with pytest.raises(AccessError, match="not known"):
        allow(TOKENS, "zzz", "publish")
    with pytest.raises(RightError, match="sensor"):
        allow(TOKENS, "aaa", "manage")
    with pytest.raises(RightError, match="client b"):
        allow(TOKENS, "bbb", "receive", "b")
    watcher = tokens_from("prometheus:ppp:watch")
    assert watcher[0] == allow(watcher, "ppp", "watch") and allow(TOKENS, "c:c", "watch")
    for right in ("manage", "publish", "receive"):
        with pytest.raises(RightError):
            allow(watcher, "ppp", right)  # type: ignore[arg-type]


def test_a_token_comes_in_the_header_or_the_query() -> None:
    """The header wins."""
    assert ("x", "y", "y", None) == (bearer("Bearer x", "y"), bearer(None, "y"), bearer("Basic x", "y"), bearer(None))


def test_it_refuses_to_listen_beyond_loopback_without_tokens() -> None:
    """Both the application and the socket."""
    config = ServerConfig(Path("unused"), host="0.0.0.0")
    with pytest.raises(SetupError, match="NEARCAST_TOKENS"):
        create_app(config)
    with pytest.raises(SetupError, match="NEARCAST_TOKENS"):
        listen(config)
    ServerConfig(Path("unused"), host="0.0.0.0", tokens=TOKENS).check()


def test_a_port_that_is_taken_is_told() -> None:
    """With what to do."""
    with listen(ServerConfig(Path("unused"), port=0)) as first:
        first.listen()
        with pytest.raises(SetupError, match="choose another port"):
            listen(ServerConfig(Path("unused"), port=first.getsockname()[1]))


def test_loopback_is_known() -> None:
    """By name and address."""
    assert all(loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"))
    assert not any(loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""))


def test_every_door_asks_for_its_token() -> None:
    """401 without, 403 with a lesser one; the stream refuses with a code that the client library understands."""

    async def test() -> None:
        async with running(tokens=TOKENS) as server:
            for method, path in (("POST", "/events"), ("GET", "/clients"), ("GET", "/status"), ("GET", "/metrics")):
                assert 401 == (await server.http.request(method, path)).status_code
                lesser = {"Authorization": "Bearer bbb"}
                assert 403 == (await server.http.request(method, path, headers=lesser)).status_code
            assert (
                403
                == (await server.http.get("/clients/b/waiting", headers={"Authorization": "Bearer bbb"})).status_code
            )
            for token, error in ((None, AccessError), ("zzz", AccessError), ("aaa", RightError)):
                async with server.client("a", token=token) as client:
                    with pytest.raises(error):
                        await received(client, 1)

    run(test)


def test_a_publisher_cannot_manage() -> None:
    """Control events need the right, also through POST /events; with it, a client gets what it asks for."""

    async def test() -> None:
        async with running(tokens=TOKENS) as server:
            control = {**unit("c1"), "type": "nearcast.client", "data": {"client": "a"}}
            async with server.publisher(token="aaa") as publisher:
                with pytest.raises(RightError):
                    await publisher.publish([control])
            server.http.headers["Authorization"] = "Bearer c:c"
            await server.declare("a")
            async with server.publisher(token="aaa") as publisher, server.client("a", token="bbb") as client:
                await publisher.publish([unit("e1")])
                server.pipeline.decide()
                assert "e1" == (await received(client, 1))[0].event["id"]

    run(test)


def test_a_tick_needs_the_right_to_manage_and_is_not_ahead_of_its_acceptance() -> None:
    """Who may not manage moves no clock; whoever may moves it no further than to when it was accepted.

    It is no report of anybody, and reaches nobody.
    """

    async def test() -> None:
        tick = {**unit("t1"), "type": "nearcast.tick", "data": {"clock": "9999-01-01T00:00:00Z"}}
        async with running(tokens=TOKENS) as server:
            server.http.headers["Authorization"] = "Bearer c:c"
            await server.declare("a", filter="TRUE")
            before = server.journal.end("events")
            async with server.publisher(token="aaa") as publisher:
                with pytest.raises(RightError):
                    await publisher.publish([tick])
            assert before == server.journal.end("events")
            async with server.publisher(token="c:c") as publisher:
                faults = (await publisher.publish([{**tick, "data": {"clock": "soon"}}])).faults
                assert ["a time, as in 2020-01-31T12:00:00Z"] == [fault.expected for fault in faults.values()]
                assert not (await publisher.publish([tick, unit("e1", subject="u2")])).faults
            [stored] = to_events(server.journal.read("events", before, 1))
            assert stored.accepted and [ClockTick(stored.accepted)] == changes(stored, Settings())
            server.pipeline.decide()
            async with server.client("a", token="bbb") as client:
                assert ["e1"] == [one.event["id"] for one in await received(client, 1)]
            for name, status in (("u1", 404), ("u2", 200)):
                assert status == (await server.http.get(f"/entities/{name}")).status_code

    run(test)


def test_a_browser_gives_its_token_in_the_address() -> None:
    """It can set no header on a WebSocket."""

    async def test() -> None:
        async with running(tokens=TOKENS) as server:
            server.http.headers["Authorization"] = "Bearer c:c"
            await server.declare("a")
            async with connect(f"ws{server.url[4:]}/clients/a/stream?token=bbb") as socket:
                assert '"hello"' in await socket.recv()
            async with server.http.stream(
                "GET", "/clients/a/events?token=bbb", headers={"Authorization": ""}
            ) as events:
                assert 200 == events.status_code
            for path in ("/clients/a/waiting?token=bbb", "/clients?token=c:c", "/metrics?token=c:c"):
                assert 401 == (await server.http.get(path, headers={"Authorization": ""})).status_code

    run(test)


def test_a_token_is_in_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Though it is in the address, which is."""

    async def test() -> None:
        async with running(tokens=TOKENS) as server:
            for token in ("bbb", "zzz"):
                async with connect(f"ws{server.url[4:]}/clients/a/stream?takeover=true&token={token}") as socket:
                    with pytest.raises(ConnectionClosed):
                        await socket.recv()

    with caplog.at_level(logging.INFO):
        run(test)
    assert "takeover=true&token=…" in caplog.text
    assert ("bbb" in caplog.text, "zzz" in caplog.text) == (False, False)


def test_without_tokens_pages_of_other_sites_are_kept_out() -> None:
    """By their origin, and by a host name that only resolves to this machine."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
                assert 401 == (await server.http.get("/clients", headers=headers)).status_code
            assert 200 == (await server.http.get("/clients", headers={"Origin": server.url})).status_code
            async with connect(f"ws{server.url[4:]}/clients/a/stream", origin="https://evil.example") as socket:
                with pytest.raises(ConnectionClosed) as caught:
                    await socket.recv()
            assert caught.value.rcvd and 4401 == caught.value.rcvd.code

    run(test)


@pytest.mark.parametrize(
    "headers, allowed",
    [
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "http://127.0.0.1:1"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "https://map.example", "Sec-Fetch-Site": "cross-site"}, True),
        ({"Origin": "https://map.example:8443"}, False),
    ],
)
def test_a_page_of_another_origin_reaches_no_client(headers: dict[str, str], allowed: bool) -> None:
    """Not even by an image, which has no origin; who receives meanwhile goes on, unless the origin is allowed."""

    async def test() -> None:
        async with running(origins=("https://map.example",)) as server:
            await server.declare("a")
            async with server.client("a") as client:
                await client.connected()
                async with server.http.stream("GET", "/clients/a/events", headers=headers) as events:
                    assert events.status_code == (409 if allowed else 401)
                async with connect(f"ws{server.url[4:]}/clients/a/stream", additional_headers=headers) as socket:
                    with pytest.raises(ConnectionClosed) as caught:
                        await socket.recv()
                assert caught.value.rcvd and (4409 if allowed else 4401) == caught.value.rcvd.code
                await server.publish(unit("e1"))
                assert "e1" == (await received(client, 1))[0].event["id"]

    run(test)


def test_an_origin_that_is_allowed_hears_so() -> None:
    """Before a request, and with every answer; others hear nothing."""

    async def test() -> None:
        async with running(origins=("https://map.example",)) as server:
            await server.declare("a")
            asks = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization"}
            for origin, status in ("https://map.example", 200), ("https://evil.example", 400):
                answer = await server.http.options("/clients/a", headers={"Origin": origin, **asks})
                assert status == answer.status_code
                assert (status == 200) == (answer.headers.get("access-control-allow-origin") == origin)
            origin = {"Origin": "https://map.example"}
            for path in ("/clients", "/clients/nobody"):
                answer = await server.http.get(path, headers=origin)
                assert "https://map.example" == answer.headers["access-control-allow-origin"]
            async with server.http.stream("GET", "/clients/a/events", headers=origin) as events:
                assert "https://map.example" == events.headers["access-control-allow-origin"]

    run(test)


def test_by_default_no_other_origin_may_read_anything() -> None:
    """There is no answer for it, and none before."""

    async def test() -> None:
        async with running() as server:
            headers = {"Origin": "https://map.example", "Access-Control-Request-Method": "GET"}
            for method in ("OPTIONS", "GET"):
                answer = await server.http.request(method, "/clients", headers=headers)
                assert "access-control-allow-origin" not in answer.headers

    run(test)


@pytest.mark.parametrize("origin", ["map.example", "https://map.example/", "https://map.example/a", "*", "null"])
def test_what_is_no_origin_is_told(origin: str) -> None:
    """With an example."""
    with pytest.raises(SetupError, match="expected an origin such as"):
        check_origin(origin)


def test_a_session_is_taken_over_by_intent_only() -> None:
    """Without it the second connection is told, by a status or a code, and the first one goes on."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            address = f"ws{server.url[4:]}/clients/a/stream"
            async with connect(address) as first:
                assert '"hello"' in await first.recv()
                assert 409 == (await server.http.get("/clients/a/events")).status_code
                async with connect(address) as second:
                    with pytest.raises(ConnectionClosed, match="takeover=true"):
                        await second.recv()
                await first.send('{"ping": 5}')
                while '"pong":5' not in await first.recv():
                    pass
                async with connect(address + "?takeover=true") as second:
                    assert '"hello"' in await second.recv()
                    with pytest.raises(ConnectionClosed, match="took over"):
                        while True:
                            await first.recv()

    run(test)


def test_two_clients_of_one_name_do_not_fight() -> None:
    """The one that takes over stays; the other is told, and one that never takes over is refused."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            async with server.client("a") as first, server.client("a") as second:
                await first.connected()
                await second.connected()
                with pytest.raises(SessionError, match="took over"):
                    await received(first, 1)
                async with server.client("a", takeover="never") as third:
                    with pytest.raises(SessionError, match="in use"):
                        await third.connected()
                await server.publish(unit("e1"))
                assert "e1" == (await received(second, 1))[0].event["id"]
                assert 2 == server.service.session_manager.session("a").connections

    run(test)


def test_a_client_has_its_own_session_back_at_once() -> None:
    """Though the server still has the old connection; one that another took meanwhile it leaves alone."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            async with server.client("a", takeover="never") as client:
                await client.connected()
                assert client._connection
                client._connection.transport.abort()
                await until(lambda: client.connections == 2)
                await server.publish(unit("e1"))
                assert "e1" == (await received(client, 1))[0].event["id"]
                client._servers = ServerAddresses("http://127.0.0.1:9")
                client._connection.transport.abort()
                await until(lambda: not client.online)
                async with server.client("a") as other:
                    await other.connected()
                    client._servers = ServerAddresses(server.url)
                    with pytest.raises(SessionError, match="in use"):
                        await received(client, 1)

    run(test)


def test_a_host_that_names_none_is_refused() -> None:
    """As a page of another site, not as an error of the server."""

    async def test() -> None:
        async with running() as server:
            for headers in ({"Host": "[::1"}, {"Origin": "http://[::1"}):
                assert 401 == (await server.http.get("/clients", headers=headers)).status_code

    run(test)


def test_an_unknown_client_is_told() -> None:
    """A typing error should not wait for ever."""

    async def test() -> None:
        async with running() as server:
            with pytest.raises(SessionError, match="PUT /clients"):
                await received(server.client("nobody"), 1)
            with pytest.raises(SessionError, match="PUT /clients"):
                await server.client("nobody").connected()
            assert 404 == (await server.http.get("/clients/nobody/waiting")).status_code

    run(test)


def test_the_description_is_open() -> None:
    """OpenAPI names every path and the token."""

    async def test() -> None:
        async with running() as server:
            found = (await server.http.get("/openapi.json")).json()
            assert {"/events", "/clients/{id}", "/subscriptions/{id}", "/settings", "/status"} <= found["paths"].keys()
            assert "HTTPBearer" in found["components"]["securitySchemes"]
            page = await server.http.get("/docs")
            assert 200 == page.status_code
            # Nothing from elsewhere: it is to show without the internet.
            assert [] == re.findall(r"""(?:src|href)=["'](?:https?:)?//""", page.text)

    run(test)


def test_the_address_of_the_server_leads_to_what_there_is() -> None:
    """Who opens it in a browser is not told that there is nothing."""

    async def test() -> None:
        async with running() as server:
            assert "/docs" == (await server.http.get("/", follow_redirects=True)).url.path

    run(test)


def test_a_path_or_method_that_there_is_not_is_a_fault_as_all_are() -> None:
    """With what was expected and what came; the description says the same form."""

    async def test() -> None:
        async with running() as server:
            unknown, method = await server.http.get("/klients"), await server.http.put("/status")
            assert (404, "GET /klients") == (unknown.status_code, unknown.json()["came"])
            assert (405, "PUT /status") == (method.status_code, method.json()["came"][:11])
            found = (await server.http.get("/openapi.json")).json()
            refused = found["paths"]["/clients/{id}"]["put"]["responses"]["default"]["content"]["application/json"]
            form = found["components"]["schemas"][refused["schema"]["$ref"].rsplit("/", 1)[1]]
            assert unknown.json().keys() <= form["properties"].keys()
            assert "HTTPValidationError" not in found["components"]["schemas"]

    run(test)
