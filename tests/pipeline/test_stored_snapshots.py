"""Snapshots in a journal's object store: another machine goes on from there, and damage costs reading only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nearcast.journal.jetstream import stream_objects
from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.journal.journal_copy import copy_journal
from nearcast.pipeline import follower, snapshots
from nearcast.pipeline.follower import Follower
from nearcast.pipeline.snapshots import newest_position
from nearcast.pipeline.stored_snapshots import StoredSnapshots, snapshots_in
from nearcast.stages.decide import decide
from tests.pipeline.histories import documents, with_roles, written


class CountingJournal(NatsJournal):
    """Counts the events that are read."""

    read_events = 0

    def read(self, log: str, after: int, limit: int) -> pa.Table:
        rows = super().read(log, after, limit)
        self.read_events += len(rows) * (log == "events")
        return rows


@pytest.fixture
def journal(new_stream: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsJournal]:
    """A journal on NATS in which clients and subscriptions change."""
    monkeypatch.setattr(stream_objects, "LAG_SECONDS", 0.2)
    with (
        closing(written(tmp_path, with_roles(), documents(160))) as file,
        closing(CountingJournal(new_stream())) as journal,
    ):
        copy_journal(file, journal, lambda count: None)
        yield journal


def stored(journal: NatsJournal) -> StoredSnapshots:
    """Where its snapshots are."""
    found = snapshots_in(journal)
    assert found
    return found


def on_a_machine(journal: NatsJournal, folder: Path, *positions: int) -> Follower:
    """What a pipeline on a machine knows that folded up to some positions, and wrote a snapshot at each."""
    found = Follower(journal, folder, positions[0])
    for position in positions:
        found.catch_up(position)
        found.known.position = position
        found.finish()
    return found


def decided(journal: NatsJournal, found: Follower) -> list[dict[str, Any]]:
    """What is decided from there on."""
    events = journal.read("events", found.known.position, 1_000)
    return [row for batch in found.fold_events(events, 1_000) for row in decide(batch, batch.events).to_pylist()]


def test_another_machine_goes_on_from_where_one_was(journal: CountingJournal, tmp_path: Path) -> None:
    """It reads what came since the snapshot, no more, and decides the same."""
    first = on_a_machine(journal, tmp_path / "one", 40, 90)
    journal.read_events = 0
    second = Follower(journal, tmp_path / "two", 100)
    assert (10, 100) == (journal.read_events, second.known.position)
    assert 90 == newest_position(tmp_path / "two")
    first.catch_up(100)
    assert decided(journal, first) == decided(journal, second)
    # What it has itself it does not fetch again.
    journal.read_events = 0
    assert 95 == Follower(journal, tmp_path / "two", 95).known.position
    assert 5 == journal.read_events


def test_the_newest_two_are_kept_and_files_that_stay_the_same_are_stored_once(
    journal: NatsJournal, tmp_path: Path
) -> None:
    """Definitions did not change between them."""
    on_a_machine(journal, tmp_path / "one", 40, 158, 159, 160)
    assert [159, 160] == stored(journal).positions()
    files = [name for name in journal.objects.names() if "/files/" in name]
    both = [path.name for at in (159, 160) for path in snapshots.named(tmp_path / "one", at).iterdir()]
    assert len(files) < len(both) - 2
    on_disk = {snapshots._checksum(file) for file in (tmp_path / "one").glob("*/*") if file.name != snapshots.MANIFEST}
    assert on_disk == {name.rpartition("/")[2] for name in files}


def test_a_damaged_snapshot_is_passed_over(journal: NatsJournal, tmp_path: Path) -> None:
    """The one before it is taken; where that is damaged too the journal is read, and another start does the same."""
    on_a_machine(journal, tmp_path / "one", 40)
    registry = snapshots._checksum(snapshots.named(tmp_path / "one", 40) / "repository.arrow")
    on_a_machine(journal, tmp_path / "one", 90)
    own = snapshots._checksum(snapshots.named(tmp_path / "one", 90) / "repository.arrow")
    assert registry != own
    break_file(journal, own)
    assert 100 == Follower(journal, tmp_path / "two", 100).known.position
    assert 40 == newest_position(tmp_path / "two")
    break_file(journal, registry)
    for folder in ("three", "three"):
        assert 100 == Follower(journal, tmp_path / folder, 100).known.position
        assert 0 == newest_position(tmp_path / folder)


def break_file(journal: NatsJournal, checksum: str) -> None:
    """Writes something else in the place of a stored file's content."""
    objects = journal.objects
    [name] = [name for name in objects.names() if name.endswith(checksum)]
    described = objects._described(name)
    assert described
    objects._stream.purge(objects._chunks(described["nuid"]))
    for _ in range(described["chunks"]):
        objects._stream.write(objects._chunks(described["nuid"]), b"something else", None)


def test_snapshots_of_another_format_are_passed_over_and_replaced(
    journal: NatsJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a version before this one left them, or one behind it."""
    monkeypatch.setattr(snapshots, "FORMAT", 1)
    on_a_machine(journal, tmp_path / "one", 40)
    monkeypatch.undo()
    on_a_machine(journal, tmp_path / "two", 50)
    assert [50] == stored(journal).positions()
    assert 50 == newest_position(tmp_path / "two")


def test_snapshots_beyond_what_is_decided_are_removed(journal: NatsJournal, tmp_path: Path) -> None:
    """The log is a copy from before them, and other events take those positions."""
    on_a_machine(journal, tmp_path / "one", 40, 90)
    assert 60 == Follower(journal, tmp_path / "two", 60).known.position
    assert ([40], 40) == (stored(journal).positions(), newest_position(tmp_path / "two"))


def test_those_of_another_journal_are_removed(journal: NatsJournal, tmp_path: Path) -> None:
    """Of a stream that had this name before."""
    other = StoredSnapshots(journal.objects, "another")
    on_a_machine(journal, tmp_path / "one", 40)
    other.store(snapshots.named(tmp_path / "one", 40))
    assert ([40], []) == (other.positions(), stored(journal).positions())
    on_a_machine(journal, tmp_path / "two", 50)
    assert ([], [50]) == (other.positions(), stored(journal).positions())


def test_a_store_that_does_not_work_stops_nothing(
    journal: NatsJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and the journal is read."""
    monkeypatch.setattr(follower, "SNAPSHOT_EVERY", 10)

    def refused(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(stream_objects.StreamObjects, "put", refused)
    on_a_machine(journal, tmp_path / "one", 40)
    assert "another machine reads more" in caplog.text
    monkeypatch.setattr(stream_objects.StreamObjects, "names", refused)
    assert 100 == Follower(journal, tmp_path / "two", 100).known.position
    assert "the journal is read instead" in caplog.text
