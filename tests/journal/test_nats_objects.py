"""Objects beside a journal on NATS: whole or not there, and readable by NATS's own client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing

import nats
import pytest

from nearcast.errors import JournalError
from nearcast.journal.jetstream import stream_objects
from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.journal.jetstream.stream_objects import DamagedObject, StreamObjects


@pytest.fixture
def objects(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StreamObjects]:
    """The empty store of a new journal, with small chunks."""
    monkeypatch.setattr(stream_objects, "CHUNK", 1_000)
    monkeypatch.setattr(stream_objects, "LAG_SECONDS", 0.2)
    with closing(NatsJournal(url)) as journal:
        yield journal.objects


def content(objects: StreamObjects, name: str) -> bytes:
    """What an object has."""
    return b"".join(objects.get(name))


def test_an_object_comes_back_as_it_was(objects: StreamObjects) -> None:
    """However it was cut, also an empty one; by names of any kind, in their order."""
    assert [] == objects.names()
    large = os.urandom(3_500)
    objects.put("b/large", [large[:1_700], large[1_700:]])
    objects.put("a empty", [])
    assert (["a empty", "b/large"], large, b"") == (
        objects.names(),
        content(objects, "b/large"),
        content(objects, "a empty"),
    )


def test_an_object_is_replaced_and_removed_with_its_chunks(objects: StreamObjects) -> None:
    """Nothing of it stays in the stream."""
    objects.put("one", [bytes(5_000)])
    objects.put("one", [b"new"])
    assert (b"new", 2) == (content(objects, "one"), objects._stream.info()["state"]["messages"])
    objects.remove(["one", "never there"])
    assert ([], 0) == (objects.names(), objects._stream.info()["state"]["messages"])
    with pytest.raises(DamagedObject, match="object 'one': it is not there"):
        content(objects, "one")


def test_what_is_not_whole_is_told(objects: StreamObjects) -> None:
    """A chunk that is gone, or is another one."""
    objects.put("cut", [bytes(3_000)])
    objects.put("changed", [bytes(1_000)])
    places = {one["name"]: one["nuid"] for one in map(objects._described, objects.names()) if one}
    objects._stream.purge(objects._chunks(places["cut"]), 3)
    with pytest.raises(DamagedObject, match="object 'cut': 2 of its 3 chunks are missing"):
        content(objects, "cut")
    objects._stream.purge(objects._chunks(places["changed"]))
    objects._stream.write(objects._chunks(places["changed"]), b"other", None)
    with pytest.raises(DamagedObject, match="object 'changed': it is not as it was written"):
        content(objects, "changed")


def test_chunks_of_an_object_that_was_never_finished_are_removed(objects: StreamObjects) -> None:
    """And those of others are not."""
    objects.put("one", [b"whole"])
    objects._stream.write(objects._chunks("unfinished"), b"part", None)
    objects.remove_unfinished()
    assert (b"whole", 2) == (content(objects, "one"), objects._stream.info()["state"]["messages"])


def test_who_only_reads_writes_none(objects: StreamObjects, url: str) -> None:
    """As of the journal itself."""
    objects.put("one", [b"1"])
    with closing(NatsJournal(url, read_only=True)) as journal:
        assert b"1" == content(journal.objects, "one")
        with pytest.raises(JournalError, match="expected to read it only"):
            journal.objects.put("two", [b"2"])


def test_nats_own_client_reads_and_writes_the_same_objects(objects: StreamObjects) -> None:
    """So its tools show them, and take copies."""
    objects.put("ours", [os.urandom(2_500)])

    async def beside() -> bytes | None:
        client = await nats.connect(objects._stream.address.servers[0])
        store = await client.jetstream().object_store(objects.bucket)
        await store.put("theirs", bytes(300_000))
        found = await store.get("ours")
        await client.close()
        return found.data

    assert asyncio.run(beside()) == content(objects, "ours")
    assert (["ours", "theirs"], bytes(300_000)) == (objects.names(), content(objects, "theirs"))
