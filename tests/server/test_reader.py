"""What the server reads of the journal, and in which order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from nearcast.errors import JournalError
from nearcast.journal.memory import Abort, MemoryJournal
from nearcast.language import control_events
from nearcast.model.changes import ClientChange
from nearcast.model.columns import DELIVERIES, to_table
from nearcast.model.event import Event
from nearcast.model.sequence import position_of, sequence, write_sequence
from nearcast.server.sessions.journal_tailer import JournalTailer, TailedRows
from nearcast.server.sessions.payloads import PayloadCache


def journal_of(count: int) -> MemoryJournal:
    """Events, of which every third is a control event, and a delivery of each of the others."""
    journal = MemoryJournal()
    journal.append("events", to_table(_events(count)))
    by_role = [{"role": "r", "task": None, "level": 2}]
    rows: list[dict[str, Any]] = [
        {"position": one, "part": 0, "client": "a", "subscription": "s", "level": 1, "by_role": by_role}
        for one in range(1, count + 1)
        if one % 3
    ]
    journal.commit_range("deliveries", pa.Table.from_pylist(rows, schema=DELIVERIES), count)
    return journal


def _events(count: int) -> Iterator[Event]:
    for one in range(1, count + 1):
        if one % 3:
            yield Event(id=str(one), type="t", source="s", subject=f"u{one}", payload=b"%d" % one)
        else:
            yield control_events.to_event(ClientChange("a", role=str(one)), str(one), "s")


def read(journal: MemoryJournal, cache: int = 1_000_000) -> list[TailedRows]:
    reader = JournalTailer(journal, PayloadCache(journal, cache), lambda news: None)
    found = []
    while news := reader.read():
        found.append(news)
    return found


def test_every_control_event_before_a_delivery_is_handed_over_before_it() -> None:
    """However the logs are cut."""
    control_through = 0
    for news in read(journal_of(5_000)):
        control_through = news.events_through
        assert all(position_of(one.sequence) <= control_through for one in news.decided)
    assert 5_000 == control_through


def test_deliveries_come_with_their_events_in_memory_or_not() -> None:
    """Payload and entity; levels by role, "" for what is not stated."""
    for cache in (1_000_000, 1):
        found = [one for news in read(journal_of(30), cache) for one in news.decided]
        assert [one for one in range(1, 31) if one % 3] == [position_of(one.sequence) for one in found]
        assert all(one.event and one.event.payload == b"%d" % position_of(one.sequence) for one in found)
        assert ("u1", {("r", ""): 2}) == (found[0].event and found[0].event.entity, found[0].by_role)


def test_derived_events_are_read_from_their_own_log() -> None:
    """At the position of their cause, each by its part, in memory or not."""
    journal = MemoryJournal()
    cause = Event("e", "t", "s", subject="u", payload=b"cause")
    journal.append("events", to_table([cause]))
    derived = [replace(cause, id=f"d{part}", position=1, part=part, payload=b"%d" % part) for part in (1, 2)]
    journal.commit_range("derived", to_table(derived), 1)
    rows = [{"position": 1, "part": part, "client": "a", "subscription": "s", "level": 1} for part in (0, 1, 2)]
    journal.commit_range("deliveries", pa.Table.from_pylist(rows, schema=DELIVERIES), 1)
    for cache in (1_000_000, 1):
        [news] = read(journal, cache)
        assert [b"cause", b"1", b"2"] == [one.event and one.event.payload for one in news.decided]
        assert [1, "1.1", "1.2"] == [write_sequence(one.sequence) for one in news.decided]


def test_of_one_event_any_number_of_deliveries_is_handed_over_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The position counts as read with the last of them."""
    monkeypatch.setattr("nearcast.server.sessions.journal_tailer.DELIVERIES", 10)
    journal = MemoryJournal()
    journal.append("events", to_table([Event("e", "t", "s", payload=b"e")]))
    rows = [{"position": 1, "part": 0, "client": f"c{one}", "subscription": "s", "level": 1} for one in range(25)]
    journal.commit_range("deliveries", pa.Table.from_pylist(rows, schema=DELIVERIES), 1)
    pieces = read(journal)
    assert [10, 10, 5] == [len(news.decided) for news in pieces]
    assert [0, 0, 1] == [news.deliveries_through for news in pieces]
    assert [f"c{one}" for one in range(25)] == [one.client for news in pieces for one in news.decided]


@contextmanager
def limited(payloads: PayloadCache) -> Iterator[None]:
    yield
    assert payloads._bytes <= payloads.limit or len(payloads._kept) == 1


def test_the_memory_for_payloads_is_bounded() -> None:
    """The oldest go first."""
    journal = journal_of(300)
    payloads = PayloadCache(journal, 10_000)
    with limited(payloads):
        payloads.keep(journal.read("events", 0, 300))
    assert payloads.kept(sequence(300, 0)) and not payloads.kept(sequence(1, 0))
    some = [sequence(position, 0) for position in (299, 1, 150)]
    assert set(some) == payloads.load(some).keys()
    assert not payloads.load([sequence(1_000, 0)])


def test_of_many_events_each_is_made_when_it_is_delivered() -> None:
    """Without another look into the journal, and once; the others stay as they were read, within the same bound."""
    journal = MemoryJournal()
    payloads = PayloadCache(journal, 100_000)
    events = [Event(str(one), "t", "s", subject=f"u{one}", payload=b"%d" % one, position=one) for one in range(1, 301)]
    table = to_table(events)
    journal.append("events", table)
    journal._faults.append(Abort("events", 1, "read"))
    for start in range(0, 300, 100):
        payloads.keep(table.slice(start, 100))
        payloads.keep(table.slice(start, 100))
    wanted = sequence(150, 0)
    assert payloads.kept(wanted) is None
    found = payloads.load([sequence(3, 0), wanted, sequence(300, 0)])
    assert [b"3", b"150", b"300"] == [one.payload for one in found.values()]
    assert found[wanted] is payloads.kept(wanted) is payloads.load([wanted])[wanted]
    assert 3 + 3 == len(payloads._kept)
    with limited(payloads):
        for number in range(3, 300):
            payloads.keep(table.set_column(0, "position", pa.array(range(number * 300, number * 300 + 300))))
    assert payloads.kept(wanted) is None
    assert len(payloads._tables) == len(payloads._kept) > 1
    with pytest.raises(JournalError):
        payloads.load([wanted])


def test_what_was_read_of_one_log_is_not_lost_when_the_other_cannot_be_read() -> None:
    """The journal fails once, after the events were read: the control events among them come with the next try."""
    journal = journal_of(6)
    reader = JournalTailer(journal, PayloadCache(journal, 1_000_000), lambda news: None)
    journal._faults.append(Abort("deliveries", 1, "read"))
    with pytest.raises(JournalError):
        reader.read()
    news = reader.read()
    assert news
    assert [3, 6] == [event.position for event in news.controls]
    assert [1, 2, 4, 5] == [position_of(one.sequence) for one in news.decided]


def test_deliveries_whose_events_cannot_be_read_just_now_come_later() -> None:
    """Their payloads were not in memory, and the journal failed once."""
    journal = journal_of(6)
    reader = JournalTailer(journal, PayloadCache(journal, 0), lambda news: None)
    reader.events = 6
    journal._faults.append(Abort("events", 1, "read"))
    with pytest.raises(JournalError):
        reader.read()
    news = reader.read()
    assert news and [1, 2, 4, 5] == [position_of(one.sequence) for one in news.decided]


def test_a_reader_goes_on_after_any_error_and_says_that_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that died would leave a server that looks healthy and delivers nothing."""
    monkeypatch.setattr("nearcast.server.sessions.journal_tailer.RETRY_SECONDS", 0.01)
    journal = journal_of(6)
    failing: list[bool] = []
    taken = threading.Event()

    def take(news: TailedRows) -> None:
        failing.append(reader.failing)
        reader.stop()
        taken.set()

    reader = JournalTailer(journal, PayloadCache(journal, 1_000_000), take)
    answers = iter([ValueError("an error that nobody foresaw")])
    read = reader.read

    def faulty() -> TailedRows | None:
        for error in answers:
            failing.append(reader.failing)
            raise error
        failing.append(reader.failing)
        return read()

    monkeypatch.setattr(reader, "read", faulty)
    reader.start(0, 0)
    assert taken.wait(5)
    assert [False, True, False] == failing
