"""Posts over kept connections, against a server that answers what the test says, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from nearcast.client.post_connections import PostAnswer, PostConnections, ProxiedPosts, posts_to
from nearcast.errors import SessionError

HEAD = b"HTTP/1.1 202 Accepted\r\n"
ANSWER = HEAD + b"content-length: 2\r\n\r\n{}"


class Answering:
    """A server: of each request it keeps the bytes, and answers with what is next, closing where that is None."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers, self.requests, self.connections = [*answers], list[bytes](), 0
        self.serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task
        self.serving.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0) if self.answers else ANSWER
                if answer is None:
                    break
                writer.write(answer)
                if b"close" in answer or (b"content-length" not in answer and b"chunked" not in answer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def connections(server: Answering, base: str = "") -> AsyncIterator[PostConnections]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        posts = PostConnections(httpx.URL(f"http://127.0.0.1:{port}{base}"), "/events", {"Authorization": "Bearer t"})
        try:
            yield posts
        finally:
            await posts.close()
            await asyncio.gather(*server.serving)


def run(server: Answering, test: Callable[[PostConnections], Awaitable[object]]) -> object:
    async def work() -> object:
        async with connections(server) as posts:
            return await test(posts)

    return asyncio.run(work())


OK = PostAnswer(202, b"{}")


def test_one_connection_carries_post_after_post() -> None:
    """With the headers of all and those of each; the body as it is."""
    server = Answering()

    async def test(posts: PostConnections) -> list[PostAnswer]:
        return [await posts.post(body, {"X-Own": "1"}) for body in (b"[]", b"", b"x" * 300_000)]

    assert [OK] * 3 == run(server, test)
    assert 1 == server.connections
    assert server.requests[0].startswith(b"POST /events HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer t\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\n[]" in server.requests[0]
    assert 300_000 == server.requests[2].count(b"x")


def test_an_address_with_a_path_is_one_of_a_server_below_it() -> None:
    """As behind a proxy that has several."""
    server = Answering()

    async def test() -> None:
        async with connections(server, "/below/") as posts:
            await posts.post(b"[]", {})

    asyncio.run(test())
    assert server.requests[0].startswith(b"POST /below/events HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER,
        HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
        HEAD + b"\r\n{}",
        HEAD + b"connection: close\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
def test_answers_come_in_every_form_that_http_has(answer: bytes) -> None:
    """In parts, without a length, behind what is no answer yet; and the next post is answered too."""

    async def test(posts: PostConnections) -> list[PostAnswer]:
        return [await posts.post(b"[]", {}) for _ in range(2)]

    assert [OK, OK] == run(Answering(answer), test)


def test_a_connection_that_was_closed_meanwhile_costs_nothing() -> None:
    """Nothing was answered on it, so the same is posted once more, on a new one."""
    server = Answering(ANSWER, None)

    async def test(posts: PostConnections) -> list[PostAnswer]:
        return [await posts.post(b"[]", {}) for _ in range(2)]

    assert [OK, OK._replace(again=True)] == run(server, test)
    assert (3, 2) == (len(server.requests), server.connections)


@pytest.mark.parametrize(
    "answer", [None, b"SSH-2.0-OpenSSH_9.2\r\n", HEAD + b"content-length: 9\r\nconnection: close\r\n\r\n{}"]
)
def test_what_is_no_answer_is_an_error_of_the_connection(answer: bytes | None) -> None:
    """None at all, something else, or a part of one: who publishes tries again later."""
    with pytest.raises(OSError, match=r"answer|closed"):
        run(Answering(answer), lambda posts: posts.post(b"[]", {}))


def test_nobody_gets_the_answer_of_a_post_that_was_given_up() -> None:
    """Its connection ends with it."""
    server = Answering(b"", ANSWER)

    async def test(posts: PostConnections) -> PostAnswer:
        waiting = asyncio.create_task(posts.post(b"[1]", {}))
        while not server.requests:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return await posts.post(b"[2]", {})

    assert OK == run(server, test)
    assert 2 == server.connections


def test_posts_at_the_same_moment_have_a_connection_each() -> None:
    """And the connections are kept for those that follow."""
    server = Answering()

    async def test(posts: PostConnections) -> list[PostAnswer]:
        found = [*await asyncio.gather(*(posts.post(b"[]", {}) for _ in range(5)))]
        return [*found, *[await posts.post(b"[]", {}) for _ in range(5)]]

    assert [OK] * 10 == run(server, test)
    assert 5 == server.connections


def test_a_header_cannot_be_two() -> None:
    """A token that was read with its line's end is told, not sent."""
    with pytest.raises(SessionError, match="is the token whole"):
        posts_to("http://127.0.0.1:1", "/events", {"Authorization": "Bearer t\r\nX-Other: 1"})


def test_proxies_are_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the environment names; and an address may have a user's name."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(posts_to("http://127.0.0.1:1", "/events", {}), PostConnections)
    assert isinstance(posts_to("http://user:word@127.0.0.1:1", "/events", {}), ProxiedPosts)
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:2")
    assert isinstance(posts_to("http://127.0.0.1:1", "/events", {}), ProxiedPosts)
