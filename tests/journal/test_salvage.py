"""What is whole of a damaged journal is copied, at its positions, and what is lost is told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nearcast.errors import JournalError
from nearcast.journal import whole_blocks as salvaging
from nearcast.journal.sqlite import SqliteJournal
from nearcast.journal.tables import block_table as module
from nearcast.journal.whole_blocks import DENSE, LostPositions, SalvageReport, salvage
from nearcast.model.columns import LOGS, OUTCOMES
from nearcast.model.event import Event
from tests.journal.rows import deliveries, events, ids, positions
from tests.journal.test_damage import flips

COUNT = 40
"""Events of the journal under test."""


@pytest.fixture
def written(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal with many blocks of several logs, some merged, and kept events; in small pages."""
    monkeypatch.setattr(module, "MERGE", 4)
    monkeypatch.setattr(salvaging, "MOST_FAILED", 200)
    with closing(SqliteJournal(file)) as journal:
        for number in range(COUNT):
            kept = {f"k{number}": Event(f"k{number}", "t", "s", f"k{number}", payload=b"{}")} if number % 9 == 0 else {}
            journal.append("events", events([number]), kept)
        for at in range(2, COUNT, 5):
            journal.commit_range("deliveries", deliveries([at, at]), at + 1)
            journal.append("outcomes", pa.Table.from_pylist([{"position": 0, "event": at, "part": 0}], OUTCOMES))
        journal.commit_range("deliveries", deliveries([]), COUNT)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    return file


def rows_of(file: Path) -> dict[str, list[dict[str, Any]]]:
    with closing(SqliteJournal(file)) as journal:
        return {log: journal.read(log, 0, 1_000).to_pylist() for log in LOGS}


def lost(report: SalvageReport, log: str) -> tuple[LostPositions, ...]:
    return next(one.lost for one in report.logs if one.log == log)


def changed(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(statement)


def test_a_whole_journal_is_copied_as_it_is(written: Path, tmp_path: Path) -> None:
    """Every row at its position, the ends, the keys, what is kept, and the names of nodes; and it goes on."""
    with closing(SqliteJournal(written)) as journal:
        journal.join("north", alone=False)
    report = salvage(written, tmp_path / "new")
    assert report.whole and report.kept == 5
    assert rows_of(written) == rows_of(tmp_path / "new")
    with closing(SqliteJournal(tmp_path / "new")) as new, closing(SqliteJournal(written)) as old:
        assert [old.end(log) for log in LOGS] == [new.end(log) for log in LOGS]
        assert old.kept() == new.kept()
        assert {"north"} == new.join("main", alone=False)
        assert [COUNT + 1] == new.append("events", events(["next"]))
        assert [7] == new.append("events", events([6]))


def test_a_damaged_block_is_left_out_and_its_positions_are_told(written: Path, tmp_path: Path) -> None:
    """What follows keeps its own; what is lost is taken when it is published again."""
    with closing(sqlite3.connect(written)) as connection:
        [(first, last)] = connection.execute(
            "SELECT first, last FROM blocks WHERE log = 'events' AND last < 30 ORDER BY last DESC LIMIT 1"
        )
    changed(written, f"UPDATE blocks SET rows = zeroblob(length(rows)) WHERE log = 'events' AND last = {last}")
    report = salvage(written, tmp_path / "new")
    assert (LostPositions(first, last),) == lost(report, "events")
    assert not report.whole
    with closing(SqliteJournal(tmp_path / "new")) as new:
        rest = [at for at in range(1, COUNT + 1) if not first <= at <= last]
        assert rest == positions(new.read("events", 0, COUNT))
        assert [str(at - 1) for at in rest] == ids(new.read("events", 0, COUNT))
        assert [COUNT + 1] == new.append("events", events([first - 1]))
        assert [last + 1] == new.append("events", events([last]))


def test_lost_events_at_the_end_leave_their_positions_to_nobody(written: Path, tmp_path: Path) -> None:
    """What was decided of them stands there: the next event comes behind."""
    changed(written, "DELETE FROM blocks WHERE log = 'events' AND last > 35")
    changed(written, "DELETE FROM ends WHERE log = 'events'")
    report = salvage(written, tmp_path / "new")
    [found] = lost(report, "events")
    assert found.last is None
    with closing(SqliteJournal(tmp_path / "new")) as new:
        assert COUNT == new.end("events") == new.end("deliveries")
        assert [COUNT + 1] == new.append("events", events(["next"]))


def test_what_an_entry_node_keeps_is_copied_as_far_as_it_is_whole(written: Path, tmp_path: Path) -> None:
    """One change that is damaged loses its own entities."""
    changed(written, "UPDATE kept_at_nodes SET changes = zeroblob(9) WHERE number = 2")
    report = salvage(written, tmp_path / "new")
    assert (4, True) == (report.kept, report.kept_lost)
    with closing(SqliteJournal(tmp_path / "new")) as new:
        assert {"k0", "k18", "k27", "k36"} == {event.entity for event in new.kept()}


def test_the_new_journal_is_not_there_yet(written: Path, tmp_path: Path) -> None:
    """Nothing is written over; and what is no journal is not read."""
    with pytest.raises(JournalError, match="expected none yet, got one"):
        salvage(written, written)
    (tmp_path / "text").write_text("no journal" * 100)
    with pytest.raises(JournalError, match="nothing of it can be read"):
        salvage(tmp_path / "text", tmp_path / "new")


def has_tables(file: Path) -> bool:
    """Whether SQLite finds out which tables there are; without these nothing is found."""
    with closing(sqlite3.connect(file)) as connection:
        try:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master ORDER BY name")}
        except (sqlite3.Error, UnicodeDecodeError):
            return False
        return {"blocks", "ends", "keys"} <= tables


@pytest.mark.parametrize("step", [499, pytest.param(13, marks=pytest.mark.long)])
def test_wherever_a_bit_is_flipped_the_rest_is_copied(written: Path, tmp_path: Path, step: int) -> None:
    """Nothing is copied that was not written, what is missing of the numbered logs is told, and the copy goes on."""
    whole, original = rows_of(written), written.read_bytes()
    new, partly = tmp_path / "new", 0
    for place, flipped in flips(len(original), step):
        damaged = bytearray(original)
        damaged[place] ^= flipped
        written.write_bytes(damaged)
        try:
            report = salvage(written, new)
        except JournalError:
            assert not has_tables(written), place
            new.unlink(missing_ok=True)
            continue
        found = rows_of(new)
        for log in LOGS:
            assert [] == [row for row in found[log] if row not in whole[log]], (place, log)
            missing = {row["position"] for row in whole[log]} - {row["position"] for row in found[log]}
            told = lost(report, log)
            if log in DENSE:
                assert all(any(one.first <= at <= (one.last or COUNT) for one in told) for at in missing), (place, log)
            left_out = next(one.left_out for one in report.logs if one.log == log)
            assert left_out == len(whole[log]) - len(found[log]) or told, (place, log)
        partly += not report.whole
        with closing(SqliteJournal(new)) as journal:
            assert [COUNT + 1] == journal.append("events", events(["next"])), place
        new.unlink()
        for left in (*tmp_path.glob("new-*"), *tmp_path.glob("some.journal-*")):
            left.unlink()
    assert partly > len(original) // step // 5
