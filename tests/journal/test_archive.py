"""An archive has what the journal had, once, whoever is killed; before the journal it is one history."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq
import pytest

from nearcast.errors import JournalError, SetupError
from nearcast.journal.archive import archive_writer
from nearcast.journal.archive.archive_files import LOGS, files_of, read_manifest
from nearcast.journal.archive.archive_writer import ArchiveWriter
from nearcast.journal.archive.archived_journal import ArchivedJournal
from nearcast.journal.identity import keep_identity
from nearcast.journal.locations import journal_at
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.reader_marks import reader_marks
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.model.columns import DELIVERIES, OUTCOMES, to_table
from nearcast.model.event import Event, Place
from tests.journal.rows import events, positions

EVENING = datetime(2026, 1, 1, 22, tzinfo=UTC)
COUNT = 120
"""Events of a history, four minutes apart: some hours of one day, and some of the next."""


def filled(journal: Journal, seed: int = 1) -> Journal:
    """Events of several channels, some derived ones, deliveries of both, and outcomes."""
    random_ = random.Random(seed)
    for number in range(COUNT):
        moment = EVENING + timedelta(minutes=4 * number)
        at, part = number + 1, random_.randint(0, 3)
        place = Place("geographic", 1.0, 2.0) if number % 2 else None
        channel = random_.choice([None, "a", "b/c d"])
        event = Event(f"e{number}", "t", "s", "x", None, place, (("n", number),), b"{}", channel, moment)
        journal.append("events", to_table([event]))
        derived = [Event(f"d{at}.{one}", "r", "s", channel=f"c{one}", position=at, part=one + 1) for one in range(part)]
        if derived:
            journal.commit_range("derived", to_table(derived), at)
        rows = [
            {"position": at, "part": one, "client": f"c{random_.randint(0, 9)}", "level": one}
            for one in range(part + 1)
            for _ in range(random_.randint(0, 2))
        ]
        journal.commit_range("deliveries", pa.Table.from_pylist(rows, DELIVERIES), at)
        ended = [
            {"position": 0, "event": at, "part": row["part"], "client": row["client"], "settled": moment}
            for row in rows
        ]
        journal.append("outcomes", pa.Table.from_pylist(ended, OUTCOMES))
    return journal


def whole(journal: Journal) -> dict[str, list[dict[str, object]]]:
    """All that an archive is of."""
    return {log: journal.read(log, 0, 1 << 40).to_pylist() for log in LOGS}


@pytest.fixture
def journal() -> Journal:
    """One that has something of everything."""
    return filled(MemoryJournal())


def test_an_archive_has_what_the_journal_has(journal: Journal, tmp_path: Path) -> None:
    """Every row at its position, in the same order; and it goes on behind what it has."""
    assert COUNT == ArchiveWriter(journal, tmp_path).write()
    assert whole(journal) == whole(ArchivedJournal(tmp_path))
    assert 0 == ArchiveWriter(journal, tmp_path).write()
    journal.append("events", events(["new"]))
    writer = ArchiveWriter(journal, tmp_path)
    # What is not decided is not copied.
    assert 0 == writer.write()
    journal.commit_range("deliveries", DELIVERIES.empty_table(), COUNT + 1)
    assert 1 == writer.write()
    assert whole(journal) == whole(ArchivedJournal(tmp_path))
    assert [COUNT + 1, []] == [ArchivedJournal(tmp_path).end("events"), ArchivedJournal(tmp_path).positions("none")]


def test_others_read_it_by_day_and_channel(journal: Journal, tmp_path: Path) -> None:
    """As a data set with the folders of Hive."""
    ArchiveWriter(journal, tmp_path).write()
    found = dataset.dataset(tmp_path / "events", format="parquet", partitioning="hive").to_table()
    own = journal.read("events", 0, COUNT)
    assert sorted(positions(own)) == sorted(positions(found))
    days = {row["position"]: (row["day"], row["channel"]) for row in found.to_pylist()}
    for row in own.to_pylist():
        assert (f"{row['accepted']:%Y-%m-%d}", row["channel"]) == days[row["position"]]
    assert {"day=2026-01-01", "day=2026-01-02"} == {path.name for path in (tmp_path / "outcomes").iterdir()}


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_leaves_nothing_twice(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Wherever it dies: the next one removes what does not count, and goes on."""
    monkeypatch.setattr(archive_writer, "POSITIONS", 17)
    random_, steps = random.Random(seed), count()

    def dying(kept: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object, **named: object) -> None:
            if next(steps) and random_.random() < 0.01:
                raise KeyboardInterrupt
            kept(*arguments, **named)
            if random_.random() < 0.01:
                raise KeyboardInterrupt

        return call

    for name in ("write_manifest", "put_mark", "sync_folder"):
        monkeypatch.setattr(archive_writer, name, dying(getattr(archive_writer, name)))
    monkeypatch.setattr(pq, "write_table", dying(pq.write_table))
    deaths = 0
    while (manifest := read_manifest(tmp_path)) is None or manifest.outcomes < journal.end("outcomes"):
        try:
            ArchiveWriter(journal, tmp_path).write()
        except KeyboardInterrupt:
            deaths += 1
        for mark in reader_marks(journal):
            found = read_manifest(tmp_path)
            assert mark.positions["events"] <= (found.events if found else 0)
    assert deaths
    assert whole(journal) == whole(ArchivedJournal(tmp_path))


def test_archive_and_journal_are_one_history(tmp_path: Path) -> None:
    """However much the journal has let go of, whatever is read of both."""
    with closing(SqliteJournal(tmp_path / "journal")) as journal:
        before = whole(filled(journal))
        ArchiveWriter(journal, tmp_path / "archive").write()
        keep_identity(journal)
        for through in (0, 40, 90, COUNT):
            for log in LOGS:
                journal.trim_through(log, through)
            both = ArchivedJournal(tmp_path / "archive", journal)
            assert before == whole(both)
            for log in LOGS:
                parts = both.row_ranges(log, 0, both.end(log), 13)
                assert before[log] == [row for part in parts for row in part.to_pylist()]
            assert [7] == both.positions("e6") == both.positions("e6", "s")
            assert [] == both.positions("e6", "other")
            assert 0 == both.trimmed("events") == both.trimmed("deliveries")
        with closing(journal_at(both.location)) as elsewhere:
            assert before == whole(elsewhere)


def test_what_is_missing_between_both_is_told(tmp_path: Path) -> None:
    """Instead of a history with a hole; and an archive is of one journal."""
    with closing(SqliteJournal(tmp_path / "journal")) as journal, closing(SqliteJournal(tmp_path / "other")) as other:
        filled(journal)
        ArchiveWriter(journal, tmp_path / "archive").write()
        for number in range(40):
            journal.append("events", events([f"more{number}"]))
        keep_identity(journal)
        journal.trim_through("events", COUNT + 35)
        assert journal.trimmed("events") > COUNT
        with pytest.raises(JournalError, match="up to where the journal begins"):
            ArchivedJournal(tmp_path / "archive", journal)
        with pytest.raises(SetupError, match="archive: true"):
            ArchiveWriter(journal, tmp_path / "archive")
        other.append("events", events([1]))
        with pytest.raises(SetupError, match="an archive of another one"):
            ArchiveWriter(other, tmp_path / "archive")
        with pytest.raises(SetupError, match="which has none"):
            ArchivedJournal(tmp_path / "nothing")


def test_files_are_bounded(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many positions are in memory together, and in one file."""
    monkeypatch.setattr(archive_writer, "POSITIONS", 10)
    ArchiveWriter(journal, tmp_path).write()
    assert all(file.last - file.first < 10 for file in files_of(tmp_path, "events"))
    assert whole(journal) == whole(ArchivedJournal(tmp_path))


def test_an_archive_is_not_written_to_as_a_journal(journal: Journal, tmp_path: Path) -> None:
    """It is read only."""
    ArchiveWriter(journal, tmp_path).write()
    both = ArchivedJournal(tmp_path, journal)
    for call in (lambda: both.append("events", events([1])), lambda: both.trim_through("events", 1), both.probe):
        with pytest.raises(JournalError, match="read it only"):
            call()
