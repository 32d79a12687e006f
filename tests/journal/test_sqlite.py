"""What holds for the SQLite journal in particular: files, processes, crashes, blocks."""

from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from nearcast.errors import JournalError
from nearcast.journal import encoded_rows
from nearcast.journal import sqlite as sqlite_module
from nearcast.journal.sqlite import SqliteJournal
from nearcast.journal.tables import block_table as module
from nearcast.journal.tables.connections import connected
from nearcast.model.columns import EVENTS, LOGS, entered_events, to_table
from nearcast.model.event import Event
from nearcast.runtime.wakeups import WakeUps
from tests.journal.rows import deliveries, events, ids, letters, positions

WRITER = """
import sys
from nearcast.journal.held_back import stored
from nearcast.journal.sqlite import SqliteJournal
from nearcast.model.columns import EVENTS, LOGS, entered_events
from nearcast.model.event import Event
from tests.journal.rows import events
journal, name = SqliteJournal(sys.argv[1]), sys.argv[2]
for number in range(int(sys.argv[3])):
    answer = journal.append("events", events([f"{number}.{part}" for part in range(3)], name))
    print(*answer, flush=True)
"""


def writer(file: Path, name: str, calls: int) -> subprocess.Popen[str]:
    """A process that appends three events per call and prints the positions it was answered."""
    command = [sys.executable, "-c", WRITER, str(file), name, str(calls)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def test_another_object_sees_what_was_committed(sqlite: SqliteJournal, file: Path) -> None:
    """Two journals on one file are one journal."""
    sqlite.append("events", events("ab"))
    with closing(SqliteJournal(file)) as other:
        assert [2, 3] == other.append("events", events("bc"))
    assert ["a", "b", "c"] == ids(sqlite.read("events", 0, 9))


def test_a_closed_journal_is_there_when_opened_again(file: Path) -> None:
    """Rows, ends and known ids outlive the object."""
    for _ in range(2):
        with closing(SqliteJournal(file)) as journal:
            assert [1, 2] == journal.append("events", events("ab"))


def test_processes_may_make_and_write_one_journal_together(file: Path) -> None:
    """Four processes that start at once share one file: every position is given once, none is left out."""
    processes = [writer(file, f"p{number}", 20) for number in range(4)]
    answers = [int(at) for process in processes for at in process.communicate()[0].split()]
    assert [0] * 4 == [process.returncode for process in processes]
    assert list(range(1, 241)) == sorted(answers)


@pytest.mark.faults
@pytest.mark.parametrize("lines", [1, 17, 60])
def test_a_killed_writer_loses_nothing_it_acknowledged(file: Path, lines: int) -> None:
    """Killed (−9) at any moment, what was answered is there, calls are kept whole, and positions have no gap."""
    process = writer(file, "p", 1_000_000)
    assert process.stdout is not None
    answered = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    answered += process.communicate()[0].splitlines()
    whole = [[int(at) for at in line.split()] for line in answered if len(line.split()) == 3]
    with closing(SqliteJournal(file)) as journal:
        rows = journal.read("events", 0, 1_000_000)
        assert list(range(1, journal.end("events") + 1)) == positions(rows)
        assert journal.end("events") % 3 == 0
        assert journal.end("events") >= whole[-1][-1]
        assert journal.positions("0.0", "p") == [1]


def test_small_blocks_are_merged(sqlite: SqliteJournal, file: Path) -> None:
    """Rows written one by one end up in few blocks, and read as they were written."""
    for number in range(600):
        sqlite.append("events", events([number]))
    assert [str(number) for number in range(600)] == ids(sqlite.read("events", 0, 600))
    with closing(sqlite3.connect(file)) as connection:
        [[blocks]] = connection.execute("SELECT count(*) FROM blocks")
    assert blocks < 2 * module.MERGE + 600 / module.MERGE**2


def test_large_tables_are_cut_into_blocks(sqlite: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table beyond the limits of a block is read as it was written, also where a cut falls inside a position."""
    monkeypatch.setattr(encoded_rows, "BLOCK_ROWS", 3)
    monkeypatch.setattr(encoded_rows, "BLOCK_BYTES", 100)
    rows = deliveries([1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 5])
    sqlite.commit_range("deliveries", rows, 6)
    assert rows == sqlite.read("deliveries", 0, 6)
    assert rows.slice(2, 6) == sqlite.read("deliveries", 1, 1)


def test_a_file_of_something_else_is_refused(file: Path) -> None:
    """The error names the file and says what to do; the file is as it was."""
    file.write_bytes(b"no database at all" * 100)
    with pytest.raises(JournalError, match=r"some\.journal: file is not a database; the file is something else"):
        SqliteJournal(file)
    assert b"no database at all" * 100 == file.read_bytes()


def test_a_database_of_another_program_is_refused(file: Path) -> None:
    """Tables of others are left alone."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE own (x)")
    before = file.read_bytes()
    with pytest.raises(JournalError, match="another program's database"):
        SqliteJournal(file)
    assert before == file.read_bytes()


def test_a_newer_format_is_refused(sqlite: SqliteJournal, file: Path) -> None:
    """A journal that a newer version wrote is not touched."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError, match="expected format 6, got 99"):
        SqliteJournal(file)


@pytest.mark.parametrize(("format", "lacking"), [(2, 2), (3, 1)])
def test_a_journal_of_a_format_before_is_taken_over(
    file: Path, monkeypatch: pytest.MonkeyPatch, format: int, lacking: int
) -> None:
    """Its events are read as they were, none with what it lacks, also merged with others; nothing older opens it."""
    nameless = pa.schema(list(EVENTS)[: len(EVENTS) - lacking])
    with monkeypatch.context() as before, closing(SqliteJournal(file)) as journal:
        before.setitem(LOGS, "events", nameless)
        for number in range(3):
            journal.append("events", events([number]).select(nameless.names))
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for table, column in (("blocks", "previous"), ("blocks", "checksum"), ("ends", "newest"), ("ends", "checksum")):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute(f"PRAGMA user_version = {format}")
    with closing(SqliteJournal(file)) as journal:
        for number in range(3, 30):
            journal.append("events", entered_events([Event(str(number), "t", "s", about="s 1")], "north"))
        found = journal.read("events", 0, 100)
    assert [str(number) for number in range(30)] == ids(found)
    assert [None] * 3 + ["north"] * 27 == found.column("node").to_pylist()
    assert [None] * 3 + ["s 1"] * 27 == found.column("about").to_pylist()
    with closing(sqlite3.connect(file)) as connection:
        assert (6,) == connection.execute("PRAGMA user_version").fetchone()


def test_securing_a_journal_brings_its_newest_commits_to_the_disk(
    sqlite: SqliteJournal, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the log beside the file; where that is not there yet, nothing has to be done."""
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    sqlite.append("events", events("a"))
    sqlite.sync()
    assert [f"{file}-wal"] == synced
    sqlite.close()
    sqlite.sync()
    assert 1 == len(synced)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error says that the folder must exist."""
    with pytest.raises(JournalError, match=r"no/journal: unable to open database file; its folder must exist"):
        SqliteJournal(tmp_path / "no" / "journal")


def test_a_held_file_is_reported(sqlite: SqliteJournal, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When another process keeps the write lock, a writer gives up after a while and says so; readers go on."""
    monkeypatch.setattr("nearcast.journal.tables.connections.LOCK_SECONDS", 0.05)
    with closing(SqliteJournal(file)) as other, closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert 0 == other.end("events")
        other.close()
        with pytest.raises(JournalError, match="database is locked; another process holds it"):
            other.append("events", events("a"))


def test_a_full_disk_loses_only_the_call(sqlite: SqliteJournal) -> None:
    """A call that does not fit is not kept in part; what was there stays, and the journal goes on."""
    sqlite.append("events", events("a"))
    with sqlite._reading() as connection:
        [[pages]] = connection.execute("PRAGMA page_count")
        connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(JournalError, match="full; free space"):
        sqlite.append("events", events(range(10_000)))
    assert (["a"], []) == (ids(sqlite.read("events", 0, 9)), sqlite.positions("5"))
    with sqlite._reading() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    assert [2] == sqlite.append("events", events("b"))


def test_a_table_of_several_chunks_is_kept_whole(sqlite: SqliteJournal) -> None:
    """How a table is chunked makes no difference."""
    sqlite.append("events", pa.concat_tables([events("ab"), events("c"), events("")]))
    assert ["a", "b", "c"] == ids(sqlite.read("events", 0, 9))


def test_a_damaged_block_is_told_as_a_fault_of_the_journal(sqlite: SqliteJournal, file: Path) -> None:
    """With the file and what to do, as any other failure of the medium: whoever retries or reports knows how."""
    sqlite.append("events", events("ab"))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE blocks SET rows = x'00ff00ff'")
        connection.commit()
    with pytest.raises(JournalError, match=r"journal .*damaged; stop, and restore a copy"):
        sqlite.read("events", 0, 9)


def test_changes_of_what_is_kept_are_put_together(sqlite: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is lost, and few rows stay."""
    monkeypatch.setattr("nearcast.journal.tables.kept_table.KEPT_SLACK", 10)
    kept: dict[str, Event] = {}
    for number in range(100):
        event = Event(str(number), "t", "s", str(number % 7), payload=b"{}")
        gone = str((number + 3) % 7)
        kept[event.entity] = event
        kept.pop(gone, None)
        sqlite.append("events", events(""), {event.entity: event, gone: None})
    assert kept == {event.entity: event for event in sqlite.kept()}
    with sqlite._reading() as connection:
        [rows] = connection.execute("SELECT count(*) FROM kept_at_nodes").fetchone()
    assert rows < 15


def test_a_stretch_ends_where_it_would_be_too_large(sqlite: SqliteJournal) -> None:
    """Blocks are taken whole: the first in any case, others as long as they fit."""
    for call in range(5):
        rows = [Event(f"{call}.{one}", "t", "s", payload=os.urandom(50_000)) for one in range(4)]
        sqlite.append("events", to_table(rows))
    reached = [sqlite.end_within_bytes("events", 0, 100, size) for size in (1, 500_000, 10_000_000)]
    assert [4, 8, 20] == reached
    assert (3, 8) == (sqlite.end_within_bytes("events", 0, 3, 1), sqlite.end_within_bytes("events", 2, 100, 500_000))


@pytest.mark.parametrize("by", ["nothing", "a copy"])
def test_a_journal_whose_file_is_gone_takes_nothing(tmp_path: Path, by: str) -> None:
    """What would be written then nobody would find again; what is there is still read."""
    file = tmp_path / "journal"
    with closing(SqliteJournal(file)) as journal:
        journal.append("events", events(["1"], "s"))
        copy = file.read_bytes()
        file.unlink()
        if by == "a copy":
            file.write_bytes(copy)
        with pytest.raises(JournalError, match="put the journal back"):
            journal.append("events", events(["2"], "s"))
        assert 1 == journal.end("events")


def test_a_journal_that_is_only_read_is_read_while_others_write(sqlite: SqliteJournal, file: Path) -> None:
    """It sees what is written meanwhile, holds nobody up, writes nothing, and travels as what it is."""
    with closing(SqliteJournal(file, read_only=True)) as reader:
        sqlite.append("events", events("ab"))
        blocks = reader.blocks("events", 0, 2)
        assert ["a", "b"] == ids(next(iter(blocks)))
        # While those are read.
        sqlite.append("events", events("c"))
        blocks.close()
        assert ["a", "b", "c"] == ids(reader.read("events", 0, 9))
        with pytest.raises(JournalError, match="readonly"):
            reader.append("events", events("d"))
        with closing(pickle.loads(pickle.dumps(reader))) as travelled:
            assert (True, 3) == (travelled.read_only, travelled.end("events"))


def test_a_file_that_is_not_there_is_not_made_by_who_only_reads(file: Path) -> None:
    """Nor is a journal made of an empty one."""
    with pytest.raises(JournalError, match="expected a journal, got no file"):
        SqliteJournal(file, read_only=True)
    file.touch()
    with pytest.raises(JournalError, match="expected a journal, got an empty file"):
        SqliteJournal(file, read_only=True)
    assert b"" == file.read_bytes()


def test_a_journal_in_a_folder_where_nobody_may_write_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a medium that cannot be written; SQLite itself would want to make a file beside it."""
    with closing(SqliteJournal(file)) as journal:
        journal.append("events", events("ab"))
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    with closing(SqliteJournal(file, read_only=True)) as reader:
        assert ["a", "b"] == ids(reader.read("events", 0, 9))
    assert [file] == list(file.parent.iterdir())


def test_pages_of_what_went_are_written_to_again(sqlite: SqliteJournal, file: Path) -> None:
    """A journal that keeps so many events takes as many pages, however many have gone through it."""
    taken = []
    for number in range(60):
        sqlite.append("events", events(range(100 * number, 100 * number + 100)))
        sqlite.trim_through("events", 100 * number - 1_000)
        with closing(sqlite3.connect(file)) as connection:
            taken.append(connection.execute("PRAGMA page_count").fetchone()[0])
    assert max(taken) == max(taken[:40])


def test_a_file_gets_shorter(sqlite: SqliteJournal, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where much of it is free, step by step."""
    monkeypatch.setattr("nearcast.journal.sqlite.FREE_PAGES", 4)
    for _ in range(40):
        sqlite.append("dead letters", letters(100))
    with closing(sqlite3.connect(file)) as connection:
        before = connection.execute("PRAGMA page_count").fetchone()[0]
        sqlite.trim_through("dead letters", 3_900)
        after, free = (connection.execute(f"PRAGMA {one}").fetchone()[0] for one in ("page_count", "freelist_count"))
    assert after < before / 3
    assert free <= max(4, after // 5)


@pytest.mark.parametrize(
    ("second", "read"),
    [("FROM blocks", lambda journal: journal.end("events")), ("FROM ends", lambda journal: len(journal.kept()))],
)
def test_what_is_written_between_two_looks_is_no_damage(
    file: Path, second: str, read: Callable[[SqliteJournal], int]
) -> None:
    """An answer is of one moment: a first append before a second statement is seen by the next reading."""
    event = Event(id="k", type="t", source="s")
    with closing(SqliteJournal(file)) as journal, closing(SqliteJournal(file)) as other:
        writing: list[Callable[[], object]] = [lambda: other.append("events", events("a"), {event.entity: event})]

        def write_meanwhile(statement: str) -> None:
            while second in statement and writing:
                writing.pop()()

        journal._idle[-1].set_trace_callback(write_meanwhile)
        assert (0, []) == (read(journal), writing)
        assert 1 == read(journal)


@pytest.fixture
def asked(sqlite: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What journals other than that one, which is open, ask of their files."""
    found: list[str] = []

    def traced(path: str) -> sqlite3.Connection:
        connection = connected(path)
        connection.set_trace_callback(found.append)
        return connection

    monkeypatch.setattr(sqlite_module, "connected", traced)
    return found


def count(asked: Sequence[str], text: str) -> int:
    """How many of the statements have a text."""
    return sum(text in one for one in asked)


def test_while_nothing_is_written_who_waits_asks_the_file_for_nothing(file: Path, asked: list[str]) -> None:
    """Only as it begins to wait, and as it has waited for so long."""
    with closing(SqliteJournal(file)) as journal:
        asked.clear()
        assert not journal.wait({"events": 0, "deliveries": 0}, 0.3)
        assert (2, 2) == (count(asked, "FROM ends"), count(asked, "data_version"))


def test_a_commit_wakes_who_waits(sqlite: SqliteJournal, file: Path, asked: list[str]) -> None:
    """Who looks for the ends once more; and goes on waiting where something else was committed."""
    with closing(SqliteJournal(file)) as journal:
        waiting = threading.Thread(target=journal.wait, args=({"events": 0}, 60))
        asked.clear()
        waiting.start()
        for looks, (log, rows) in enumerate([("dead letters", letters(1)), ("events", events("a"))], 1):
            while count(asked, "FROM ends WHERE log = 'events'") < looks:
                time.sleep(0.001)
            before = count(asked, "data_version")
            sqlite.append(log, rows)
        waiting.join(20)
        assert not waiting.is_alive()
        assert 1 == count(asked, "data_version") - before


def test_who_waits_is_woken_though_nothing_was_written(file: Path) -> None:
    """Where somebody wants it to look."""
    with closing(SqliteJournal(file)) as other, closing(SqliteJournal(file)) as journal:
        assert not journal.wait({"events": 0}, 0.01)
        other.wake()
        assert journal.wait({"events": 0}, 60)
        assert not journal.end("events")


def test_commits_that_wake_nobody_are_looked_for(
    sqlite: SqliteJournal, file: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of another machine: after some of them, often."""
    monkeypatch.setattr(WakeUps, "wake", lambda *_: None)
    with closing(SqliteJournal(file)) as journal:
        for number in range(sqlite_module.UNHEARD):
            threading.Timer(0.05, sqlite.append, ["events", events([number])]).start()
            assert journal.wait({"events": number}, 0.3)
        asked.clear()
        assert not journal.wait({"events": 9}, 0.2)
        assert count(asked, "data_version") > 2


def test_where_nobody_can_be_woken_it_is_looked_often(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk without named pipes."""
    monkeypatch.setattr(WakeUps, "sleeper", lambda _: None)
    with closing(SqliteJournal(file)) as other, closing(SqliteJournal(file)) as journal:
        threading.Timer(0.05, other.append, ["events", events("a")]).start()
        assert journal.wait({"events": 0}, 60)
        assert not journal.wait({"events": 1}, 0.02)
