"""What the fault markers do to a journal in memory."""

from __future__ import annotations

import sqlite3

import pytest

from nearcast.errors import JournalError
from nearcast.journal.memory import Abort, End, Full, Gap, MemoryJournal, Pause
from tests.journal.rows import deliveries, events, ids, positions


def test_a_call_before_the_marker_is_not_aborted() -> None:
    """Only the call that reaches the position dies."""
    journal = MemoryJournal([Abort("events", at=3)])
    assert [1, 2] == journal.append("events", events("ab"))
    with pytest.raises(JournalError, match="before its append on 'events'"):
        journal.append("events", events("c"))


def test_an_aborted_append_keeps_nothing_and_works_when_repeated() -> None:
    """After the crash nothing of the call is there; the repetition goes through."""
    journal = MemoryJournal([Abort("events", at=1)])
    with pytest.raises(JournalError):
        journal.append("events", events("a"))
    assert (0, [1]) == (journal.end("events"), journal.append("events", events("a")))


def test_an_abort_may_keep_what_was_written() -> None:
    """All of the call is there, only the answer is lost; the repetition changes nothing."""
    journal = MemoryJournal([Abort("deliveries", at=2, kept=True)])
    with pytest.raises(JournalError, match="after its commit_range"):
        journal.commit_range("deliveries", deliveries([1, 2]), 2)
    journal.commit_range("deliveries", deliveries([1, 2]), 2)
    assert [1, 2] == positions(journal.read("deliveries", 0, 2))


def test_a_marker_may_mean_one_call_only() -> None:
    """An abort of reads lets writing be."""
    journal = MemoryJournal([Abort("events", at=1, call="read")])
    journal.append("events", events("a"))
    with pytest.raises(JournalError):
        journal.read("events", 0, 1)
    assert ["a"] == ids(journal.read("events", 0, 1))


def test_a_pause_only_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stalled call waits as long as the marker says, once, and then goes through."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    journal = MemoryJournal([Pause("events", at=1, seconds=5.0)])
    assert ([1], [2]) == (journal.append("events", events("a")), journal.append("events", events("b")))
    assert [5.0] == waits


def test_an_end_hides_what_follows() -> None:
    """Readers see the log end at the marker."""
    journal = MemoryJournal([End("events", at=2)])
    journal.append("events", events("abc"))
    assert (2, ["a", "b"]) == (journal.end("events"), ids(journal.read("events", 0, 9)))


def test_a_full_medium_takes_nothing_until_there_is_room() -> None:
    """So often as the marker says, told as SQLite tells it; what is read is there all the time."""
    journal = MemoryJournal([Full("events", at=2, times=2)])
    journal.append("events", events("a"))
    for _ in range(2):
        with pytest.raises(JournalError, match="no room") as raised:
            journal.append("events", events("b"))
        assert sqlite3.SQLITE_FULL == getattr(raised.value.__cause__, "sqlite_errorcode", None)
        assert ["a"] == ids(journal.read("events", 0, 9))
    assert [2] == journal.append("events", events("b"))


def test_a_gap_is_not_read_and_what_is_around_it_is() -> None:
    """A read that touches damaged rows says so, as often as it is tried."""
    journal = MemoryJournal()
    journal.append("events", events("abcde"))
    journal.disturb(Gap("events", first=2, last=3))
    for after, limit in ((0, 2), (1, 1), (2, 2), (0, 9)):
        with pytest.raises(JournalError, match="positions 2 to 3 of 'events'"):
            journal.read("events", after, limit)
    assert (["a"], ["d", "e"]) == (ids(journal.read("events", 0, 1)), ids(journal.read("events", 3, 9)))


def test_a_log_that_was_cut_ends_there_and_forgets_what_was_behind() -> None:
    """Positions are given again, and an event that was lost is a new one."""
    journal = MemoryJournal()
    journal.append("events", events("abc"))
    journal.cut("events", 1)
    assert (1, ["a"]) == (journal.end("events"), ids(journal.read("events", 0, 9)))
    assert [2, 3, 1] == journal.append("events", events("cda"))
