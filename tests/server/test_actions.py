"""What situations call for is run: webhooks, signed and tried again, Python actions; what fails is a dead letter."""

from __future__ import annotations

import asyncio
import errno
import gzip
import hashlib
import hmac
import json
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from nearcast.errors import JournalError, Mark
from nearcast.journal.memory import MemoryJournal
from nearcast.language.cql2 import parse
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.situation import Action, Effect, Run, Webhook
from nearcast.server import action_runner as module
from nearcast.server import webhook_post
from nearcast.server.action_runner import ActionRunner
from nearcast.server.action_targets import ActionTarget
from nearcast.server.config import ServerLimits
from nearcast.server.ingest.group_commit import QueueFull
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions.outcomes import RefusedInput
from nearcast.server.webhook_post import ActionFailed
from nearcast.state.registry import Registry
from tests.server.conftest import run, until

LIMITS = ServerLimits()


class Receiver:
    """A web server that answers as it is told, and keeps what it got."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.got = list(answers), []  # type: ignore[var-annotated]
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        self.got.append((headers, await reader.readexactly(int(headers["content-length"]))))
        status = self.answers.pop(0) if self.answers else 204
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/fires"
        async with server:
            yield


class Scene:
    """A journal with actions to be run, and what runs them."""

    def __init__(self, *effects: Effect, mark: Path | None = None) -> None:
        self.journal, self.letters = MemoryJournal(), []  # type: ignore[var-annotated]
        self.unwritten: list[Exception] = []
        self.registry = Registry()
        self.registry.actions["act"] = Action("act", parse("Fire", Mark("here")), effects)
        self.mark, self.metrics = mark, ServerMetrics()

    def call(self, position: int, effect: str = "webhook", action: str = "act", id: str = "") -> bytes:
        data = {"action": action, "effect": effect, "situation": {"id": "fire@1"}}
        id = id or f"a{position}"
        document = {"specversion": "1.0", "id": id, "type": "nearcast.action", "source": "s", "data": data}
        payload = json.dumps(document).encode()
        event = Event(id, "nearcast.action", "s", payload=payload, position=position, part=1)
        self.journal.commit_range("derived", to_table([event]), position)
        return payload

    async def bury(self, letter: RefusedInput) -> None:
        """Writes a dead letter, unless it is to fail."""
        if self.unwritten:
            raise self.unwritten.pop(0)
        self.letters.append(letter)

    @asynccontextmanager
    async def running(self, limits: ServerLimits = LIMITS) -> AsyncIterator[ActionRunner]:
        actions = ActionRunner(
            self.journal,
            self.registry,
            self.bury,
            self.metrics,
            self.mark,
            0.001,
            private=True,
            limits=limits,
        )
        task = asyncio.create_task(actions.run())
        # What is called for before it has seen where the log ends is no affair of its.
        await until(lambda: actions.noted is not None)
        yield actions
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def reasons(self) -> list[str]:
        return [letter.reason for letter in self.letters if isinstance(letter, RefusedInput)]


def test_a_webhook_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver can tell that the body is ours, and that it has it already."""
    monkeypatch.setenv("NEARCAST_SECRET_KEY", "swordfish")

    async def test() -> None:
        receiver = Receiver()
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url, "NEARCAST_SECRET_KEY"))
            async with scene.running():
                payload = scene.call(1)
                await until(lambda: receiver.got)
        headers, body = receiver.got[0]
        seconds, found = (part.split("=")[1] for part in headers["x-nearcast-signature"].split(","))
        expected = hmac.new(b"swordfish", f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
        assert (payload, expected, "a1") == (body, found, headers["idempotency-key"])

    run(test)


def test_what_fails_is_tried_again() -> None:
    """Until it succeeds."""

    async def test() -> None:
        receiver = Receiver(500, 429, 503)
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url))
            async with scene.running() as actions:
                scene.call(1)
                await until(lambda: actions.through == 1 and len(receiver.got) == 4)
        assert [] == scene.letters

    run(test)


def test_what_never_succeeds_is_a_dead_letter() -> None:
    """With its reason and the event; others are run meanwhile."""

    async def test() -> None:
        receiver = Receiver(*[500] * LIMITS.action_attempts)
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url))
            async with scene.running():
                payload = scene.call(1)
                await until(lambda: scene.letters)
        last = LIMITS.action_attempts
        assert [f"expected an answer of 200 to 299, got 500; given up at attempt {last}"] == scene.reasons
        assert payload == scene.letters[0].content

    run(test)


def test_what_is_refused_for_good_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 404, an action that is gone, a Python action that nobody registered."""
    monkeypatch.setattr(module, "registered", lambda: {})

    async def test() -> None:
        receiver = Receiver(404)
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url), Run("ring"))
            async with scene.running():
                scene.call(1)
                scene.call(2, action="gone")
                scene.call(3, "run")
                await until(lambda: len(scene.letters) == 3)
        assert 1 == len(receiver.got)
        assert all(reason.endswith("given up at attempt 1") for reason in scene.reasons)

    run(test)


def test_what_is_given_up_is_done_only_once_its_dead_letter_is_written(tmp_path: Path) -> None:
    """While the journal takes no letter the mark stays: who goes on in its place would run the action again."""

    async def fail() -> None:
        receiver = Receiver(400)
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url), mark=tmp_path / "mark")
            scene.unwritten = [JournalError("full"), QueueFull(), *[JournalError("away")] * 1_000]
            async with scene.running() as actions:
                scene.call(1)
                await until(lambda: len(scene.unwritten) < 1_000)
                assert ([], 0) == (scene.letters, actions.through)
                scene.unwritten.clear()
                await until(lambda: actions.noted == 1)
        assert ["expected an answer of 200 to 299, got 400; given up at attempt 1"] == scene.reasons
        assert 1 == len(receiver.got)

    run(fail)


def test_a_webhook_is_never_unsigned_by_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the variable of its secret is not set nothing is sent."""
    monkeypatch.delenv("NEARCAST_SECRET_KEY", raising=False)

    async def test() -> None:
        receiver = Receiver()
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url, "NEARCAST_SECRET_KEY"))
            async with scene.running():
                scene.call(1)
                await until(lambda: scene.letters)
        assert [] == receiver.got
        assert "KEY" in scene.reasons[0]

    run(test)


def test_a_python_action_gets_event_and_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that raises is tried again."""
    got: list[Any] = []

    def ring(event: dict[str, Any], arguments: dict[str, Any]) -> None:
        got.append((event["id"], arguments))
        if len(got) == 1:
            raise ValueError("no bell")

    monkeypatch.setattr(module, "registered", lambda: {"ring": ring})

    async def test() -> None:
        scene = Scene(Run("ring", '{"times": 3}'))
        async with scene.running() as actions:
            scene.call(5, "run")
            await until(lambda: actions.through == 5 and len(got) == 2)

    run(test)
    assert [("a5", {"times": 3})] * 2 == got


class Misbehaving(Receiver):
    """A web server that answers once and for all in a way of its own, and counts who came."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.sent = way, 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.got.append(({}, b""))
        try:
            if self.way == "bomb":
                body = gzip.compress(bytes(64 << 20))
                head = f"HTTP/1.1 200 x\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
            elif self.way == "redirect":
                writer.write(b"HTTP/1.1 307 x\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
            else:
                for one in b"HTTP/1.1 200 x\r\n" + b"X: 1\r\n" * 1000:
                    writer.write(bytes([one]))
                    await writer.drain()
                    self.sent += 1
                    await asyncio.sleep(0.05)
        except OSError:
            pass
        finally:
            writer.close()


def test_a_target_that_drips_ends_in_time_and_holds_up_no_other() -> None:
    """Each byte comes soon after the one before; what counts is the whole. Others are served meanwhile."""
    little = ServerLimits(webhook_seconds=2.0, action_attempts=1)

    async def test() -> None:
        good, bad = Receiver(), Misbehaving("drip")
        async with good.serving(), bad.serving():
            scene = Scene(Webhook(bad.url))
            scene.registry.actions["good"] = Action("good", parse("Fire", Mark("here")), (Webhook(good.url),))
            async with scene.running(little) as actions:
                for position in range(1, 40):
                    scene.call(position)
                scene.call(40, action="good")
                await until(lambda: good.got)
                # The many wait still, and are known not to have been run.
                assert actions.through == 0 and [] == scene.letters
                await until(lambda: scene.letters)
        assert scene.reasons[0].startswith("expected an answer within 2 s, got none")

    run(test)


def test_an_answer_is_neither_decompressed_nor_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB of zeros come as 64 kB, and no more than a little of them is taken."""
    read: list[int] = []
    raw = httpx.Response.aiter_raw

    async def counted(self: httpx.Response, size: int | None = None) -> AsyncIterator[bytes]:
        async for piece in raw(self, size):
            read.append(len(piece))
            yield piece

    monkeypatch.setattr(httpx.Response, "aiter_raw", counted)

    async def test() -> None:
        bad = Misbehaving("bomb")
        async with bad.serving():
            scene = Scene(Webhook(bad.url))
            async with scene.running() as actions:
                scene.call(1)
                await until(lambda: actions.through == 1)
        assert [] == scene.letters
        assert LIMITS.webhook_answer_bytes < sum(read) <= LIMITS.webhook_answer_bytes + 4096

    run(test)


def test_a_redirect_is_not_followed() -> None:
    """It leads to an address that nobody declared."""

    async def test() -> None:
        bad = Misbehaving("redirect")
        async with bad.serving():
            scene = Scene(Webhook(bad.url))
            async with scene.running():
                scene.call(1)
                await until(lambda: scene.letters)
        assert (1, ["expected an answer of 200 to 299, got 307; given up at attempt 1"]) == (
            len(bad.got),
            scene.reasons,
        )

    run(test)


def test_a_target_that_fails_is_left_alone_and_tried_one_at_a_time() -> None:
    """What is beyond its queue is a dead letter at once, with the reason; it goes on where it answers again."""
    few = ServerLimits(actions_waiting=20)

    async def test() -> None:
        receiver = Receiver(*[503] * (few.action_failures + 3))
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url))
            async with scene.running(few) as actions:
                scene.call(1)
                await until(lambda: len(receiver.got) > few.action_failures)
                scene.call(2)
                await until(lambda: actions.through == 2, 10)
                target = ActionTarget("x", actions._once, actions._tried, actions._end, 0.001, few)  # type: ignore[arg-type]
                target.failures = few.action_failures
                target._closed_until = asyncio.get_running_loop().time() + 60
                events = [Event(str(one), "t", "s", payload=scene.call(one)) for one in range(3, 40)]
                for event in events:
                    target.submit(event)
                await until(lambda: len(scene.letters) >= len(events) - 20 - few.actions_at_once)
                assert 1 == sum("at most 20 actions that wait for x" in one for one in scene.reasons[:1])
                assert 0 < scene.metrics.actions.labels("webhook", "overflowed")._value.get()
                await target.close()

    run(test)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.9", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1",
        "fe80::1", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::",
        "fd00:ec2::254",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public_are_closed(address: str) -> None:
    """Also an IPv4 address within one of IPv6."""
    assert not webhook_post.is_public(address)
    assert webhook_post.is_public("93.184.216.34") and webhook_post.is_public("2606:2800:220:1::1")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/x", "http://localhost:9/x", "http://[::1]:9/", "http://2130706433/"]
)
def test_this_machine_is_reached_only_where_that_is_allowed(url: str) -> None:
    """Whatever the name; nothing is tried again, and what is told does not have the path."""

    async def test() -> None:
        scene = Scene(Webhook(url))
        actions = ActionRunner(scene.journal, scene.registry, scene.bury, scene.metrics, None, 0.001)
        task = asyncio.create_task(actions.run())
        await until(lambda: actions.noted is not None)
        scene.call(1)
        await until(lambda: scene.letters)
        task.cancel()
        assert "--private-webhooks" in scene.reasons[0] and scene.reasons[0].endswith("given up at attempt 1")

    run(test)


def test_a_secret_is_of_a_variable_that_is_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may define actions must not sign with, and so learn of, whatever the environment holds."""
    monkeypatch.setenv("NEARCAST_TOKENS", "a:swordfish:manage")

    async def test() -> None:
        receiver = Receiver()
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url, "NEARCAST_TOKENS"))
            async with scene.running():
                scene.call(1)
                await until(lambda: scene.letters)
        assert [] == receiver.got
        assert "NEARCAST_SECRET_" in scene.reasons[0] and "swordfish" not in scene.reasons[0]

    run(test)


def test_names_in_any_script_are_posted() -> None:
    """Ids are made of the names of actions and situations; headers are ASCII."""

    async def test() -> None:
        receiver = Receiver()
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url))
            async with scene.running():
                scene.call(1, id="lösche 5%:火@1")
                await until(lambda: receiver.got)
        assert "l%c3%b6sche 5%25:%e7%81%ab@1" == receiver.got[0][0]["idempotency-key"]

    run(test)


def test_an_action_that_cannot_be_tried_at_all_is_a_dead_letter() -> None:
    """It is not lost without a word."""

    async def test() -> None:
        scene = Scene(Webhook("http://host:port:too/"))
        async with scene.running():
            scene.call(1)
            await until(lambda: scene.letters)
        assert "InvalidURL" in scene.reasons[0]

    run(test)


def test_python_actions_that_hang_or_exit_stop_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own threads are not theirs, and sys.exit is an error like others."""
    go_on = threading.Event()
    monkeypatch.setattr(module, "registered", lambda: {"hang": lambda *_: go_on.wait(), "exit": lambda *_: sys.exit()})

    async def test() -> None:
        scene = Scene(Run("hang"))
        scene.registry.actions["exit"] = Action("exit", parse("Fire", Mark("here")), (Run("exit"),))
        async with scene.running() as actions:
            scene.call(1, "run", "exit")
            await until(lambda: scene.letters)
            for position in range(2, LIMITS.actions_at_once + 2):
                scene.call(position, "run")
            await until(lambda: len(actions._open) == LIMITS.actions_at_once)
            try:
                async with asyncio.timeout(60):
                    assert 1 == await asyncio.to_thread(lambda: 1)
            finally:
                go_on.set()
        assert scene.reasons[0].startswith("SystemExit")

    run(test)


def test_a_journal_that_fails_at_the_start_only_delays_the_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not given up for good before the first is read."""

    async def test() -> None:
        receiver = Receiver()
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url))
            ends = iter([JournalError("not just now"), 0])

            def end(log: str) -> int:
                """Fails once."""
                found = next(ends, None)
                if isinstance(found, JournalError):
                    raise found
                return MemoryJournal.end(scene.journal, log) if found is None else found

            monkeypatch.setattr(scene.journal, "end", end)
            async with scene.running():
                scene.call(1)
                await until(lambda: receiver.got)

    run(test)


def test_nothing_is_forgotten_over_a_restart(tmp_path: Path) -> None:
    """What was not run when the server ended is run by the next; what was is not run again."""

    async def test() -> None:
        receiver = Receiver(500)
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url), mark=tmp_path / "mark")
            scene.call(1)
            async with scene.running() as actions:
                await until(lambda: (tmp_path / "mark").exists() and actions.through == 1)
            scene.call(2)
            async with scene.running():
                await until(lambda: len(receiver.got) == 3)
        assert ["a1", "a1", "a2"] == [headers["idempotency-key"] for headers, _ in receiver.got]

    run(test)


def test_of_two_servers_one_runs_the_actions(tmp_path: Path) -> None:
    """The other goes on where it ends, from the mark that it left."""

    async def test() -> None:
        first, second = (
            ActionRunner(MemoryJournal(), Registry(), AsyncMock(), ServerMetrics(), tmp_path / "mark") for _ in range(2)
        )
        read: list[ActionRunner] = []
        for one in (first, second):
            one._read_mark = lambda one=one: read.append(one) or 0  # type: ignore[assignment, misc]
        tasks = [asyncio.create_task(first.run())]
        await until(lambda: read == [first])
        tasks.append(asyncio.create_task(second.run()))
        await asyncio.sleep(0.1)
        assert [first] == read
        tasks[0].cancel()
        await until(lambda: read == [first, second])
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(test)


def test_a_disk_without_locks_does_not_keep_actions_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a second server is not told of; waiting for a turn would be for ever."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", flock)

    async def test() -> None:
        receiver = Receiver()
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url), mark=tmp_path / "mark")
            scene.call(1)
            async with scene.running():
                await until(lambda: len(receiver.got) == 1)

    run(test)


def test_what_was_given_up_is_run_once_more() -> None:
    """By the event that told of it; where it fails again that is told to who asked."""

    async def test() -> None:
        receiver = Receiver(404, 404)
        async with receiver.serving():
            scene = Scene(Webhook(receiver.url))
            async with scene.running() as actions:
                payload = scene.call(1)
                await until(lambda: scene.letters)
                with pytest.raises(ActionFailed):
                    await actions.run_again(scene.letters[0].content)
                await actions.run_again(scene.letters[0].content)
            assert [payload] * 3 == [body for _, body in receiver.got]

    run(test)
