"""A log on NATS that lost something, or is another one by now, is refused: never read as if it were whole."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from nearcast.errors import JournalError
from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.journal.jetstream.stream_api import JetStream, StreamMessage
from tests.journal.rows import deliveries, events, ids
from tests.nats_servers import NatsServer


@pytest.fixture
def nats(url: str) -> Iterator[NatsJournal]:
    """A journal of ten blocks of events and five of deliveries, each in a message."""
    with closing(NatsJournal(url)) as journal:
        for number in range(10):
            journal.append("events", events([f"{number}.{part}" for part in range(3)]))
        for through in range(6, 31, 6):
            journal.commit_range("deliveries", deliveries([through - 1, through]), through)
        yield journal


def delete(journal: NatsJournal, sequence: int) -> None:
    """Removes one message of the stream."""
    assert journal._stream.api(f"STREAM.MSG.DELETE.{journal._stream.name}", {"seq": sequence})["success"]


@pytest.mark.parametrize("number", [1, 2, 5, 9])
def test_a_message_that_is_gone_is_missed(nats: NatsJournal, url: str, number: int) -> None:
    """By whoever reads over it, or right behind it, with the position; what lies apart from it is read."""
    delete(nats, number)
    whole = [f"{block}.{part}" for block in range(10) for part in range(3)]
    with closing(NatsJournal(url)) as reader:
        with pytest.raises(JournalError, match=r"journal nats://.*log 'events'.*missing.*; stop, and restore"):
            reader.read("events", 0, 100)
        with pytest.raises(JournalError, match="missing"):
            reader.read("events", 3 * number, 3)
        if number < 9:
            assert whole[3 * number + 3 :] == ids(reader.read("events", 3 * number + 3, 100))
    if number > 1:
        assert whole[: 3 * number - 6] == ids(nats.read("events", 0, 3 * number - 6))


def test_a_log_whose_newest_messages_are_gone_is_refused(nats: NatsJournal, url: str, tmp_path: Path) -> None:
    """By who had it open, by who kept a table of its ids, and by whoever sees that more was decided."""
    with closing(NatsJournal(url, ids=tmp_path / "ids")) as other:
        assert [30] == other.positions("9.2")
    delete(nats, 10)
    nats._chains["events"]._tail = None
    with pytest.raises(JournalError, match="expected it to go to position 30, as the log 'deliveries' does, got 27"):
        NatsJournal(url)
    said = r"it went to position 30 .*, and ends at 27 now: its newest blocks are lost"
    with (
        patch.object(NatsJournal, "_check_ends"),
        closing(NatsJournal(url, ids=tmp_path / "ids")) as other,
        pytest.raises(JournalError, match=said),
    ):
        other.positions("1.1")


def test_who_writes_behind_an_end_that_is_gone_is_refused(nats: NatsJournal) -> None:
    """The log went back, as after a copy of it was restored: what is written now would have positions twice."""
    delete(nats, 10)
    with pytest.raises(
        JournalError, match=r"it ended at position 30 .*, and ends at 27 .*now: its newest blocks are lost"
    ):
        nats.append("events", events("x"))


@pytest.mark.parametrize("anew", [True, False])
def test_a_stream_that_was_deleted_is_missed(
    nats: NatsJournal, url: str, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """Also where another has its name by now: nothing of that is read or written as if it were the same."""
    monkeypatch.setattr("nearcast.journal.jetstream.stream_checks.LOOK_SECONDS", 0.0)
    nats._stream.api(f"STREAM.DELETE.{nats._stream.name}", {})
    if anew:
        with closing(NatsJournal(url)) as other:
            for number in range(20):
                other.append("events", events([number]))
    for call in (lambda: nats.end("events"), lambda: nats.append("events", events("x"))):
        with pytest.raises(JournalError, match=r"got another of that name|was replaced by another|the stream is gone"):
            call()


@pytest.mark.parametrize("seed", range(3))
def test_a_bit_that_is_flipped_is_told(nats: NatsJournal, url: str, seed: int) -> None:
    """Wherever in a message: its checksum is of all that it says."""
    chance, range_of = random.Random(seed), JetStream.range

    def flipped(self: JetStream, subject: str, sequence: int) -> list[StreamMessage]:
        found = range_of(self, subject, sequence)
        at = chance.randrange(len(found))
        data = bytearray(found[at].data)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        found[at] = found[at]._replace(data=bytes(data))
        return found

    with closing(NatsJournal(url)) as reader, patch.object(JetStream, "range", flipped):
        for _ in range(20):
            with pytest.raises(JournalError, match=r"message \d+ of the log 'events': (expected a block|it is not as)"):
                reader.read("events", 0, 100)


def test_blocks_of_another_log_or_in_another_order_are_refused(nats: NatsJournal, url: str) -> None:
    """Each is whole, and none is where it was written."""
    range_of = JetStream.range

    def shuffled(self: JetStream, subject: str, sequence: int) -> list[StreamMessage]:
        found = range_of(self, subject, sequence)
        datas = [message.data for message in found[1:] + found[:1]]
        return [message._replace(data=data) for message, data in zip(found, datas, strict=True)]

    refused("expected block 1, got block 2 .*: some are missing or replaced", url, shuffled)

    def of_deliveries(self: JetStream, subject: str, sequence: int) -> list[StreamMessage]:
        return range_of(self, subject.replace(".events", ".deliveries"), sequence)

    refused("it is not as it was written", url, of_deliveries)


def refused(said: str, url: str, read: Callable[..., list[StreamMessage]]) -> None:
    """What is read so is refused, with these words."""
    with (
        closing(NatsJournal(url)) as reader,
        patch.object(JetStream, "range", read),
        pytest.raises(JournalError, match=said),
    ):
        reader.read("events", 0, 100)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(4))
def test_what_is_flipped_on_the_servers_disk_is_told_or_changes_nothing(tmp_path: Path, seed: int) -> None:
    """Byte by byte in the files of the stream, while the server does not run."""
    chance, server = random.Random(seed), NatsServer(tmp_path).start()
    try:
        with closing(NatsJournal(server.url)) as journal:
            for number in range(20):
                journal.append("events", events([f"{number}.{part}" for part in range(5)]))
            whole = journal.read("events", 0, 100)
        server.kill()
        blocks = sorted((tmp_path / "store").rglob("msgs/*.blk"))
        content = bytearray(blocks[0].read_bytes())
        for _ in range(3):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        blocks[0].write_bytes(content)
        server.start()
        try:
            with closing(NatsJournal(server.url)) as journal:
                found = journal.read("events", 0, 100)
                # The end may be gone, which nothing else tells of here.
                assert whole.slice(0, len(found)) == found
                assert len(found) == journal.end("events")
        except JournalError as error:
            assert re.search("journal nats://", str(error))
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("setting", "said"),
    [({"max_age": 10**12}, "max_age 0, got 1000000000000"), ({"discard": "old", "max_msgs": 5}, "max_msgs -1, got 5")],
)
def test_a_stream_that_lets_go_of_messages_is_refused(url: str, setting: dict[str, object], said: str) -> None:
    """With the setting and what changes it."""
    with closing(NatsJournal(url)) as journal:
        config = journal._stream.info()["config"]
        journal._stream.change({**config, **setting})
    with pytest.raises(JournalError, match=f"expected a stream with {said}: it would not keep all; change that"):
        NatsJournal(url)


def test_how_writes_are_synced_is_told(nats_server: NatsServer, url: str, tmp_path: Path) -> None:
    """As far as the server's monitoring says; without it that nobody looked."""
    with closing(NatsJournal(url)) as journal:
        assert journal.durability.startswith(
            "kept on 1 server; whether each write is synced to the disk was not looked at"
        )
    with closing(NatsJournal(f"{url}?monitor={nats_server.monitor}")) as journal:
        assert ("kept on 1 server; each write is synced to the disk before it is answered", True) == (
            journal.durability,
            journal.durable,
        )
    with closing(NatsJournal(f"{url}?monitor=http://127.0.0.1:1")) as journal:
        assert "expected to be told by http://127.0.0.1:1/varz how writes are synced" in journal.durability
    other = NatsServer(tmp_path, sync="7s").start()
    try:
        with closing(NatsJournal(f"{other.url}?monitor={other.monitor}")) as journal:
            assert not journal.durable
            assert "expected `sync_interval: always`, got 7 s" in journal.durability
    finally:
        other.kill()
