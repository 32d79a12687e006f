"""What every journal does, run on each of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcast.errors import JournalError
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.model.columns import LOGS, to_table
from nearcast.model.event import Event, Place
from tests.journal.rows import deliveries, events, ids, letters, positions

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

MAKER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)

batches = st.lists(st.lists(st.integers(0, 30), max_size=40), max_size=25)
"""Ids of events, by call."""

texts = st.text(st.characters(codec="utf-8"), max_size=3)
moments = st.datetimes(timezones=st.just(UTC))
values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.just(NOON.isoformat()),
    moments,
    texts,
)
places = st.builds(Place, st.just("planar"), st.floats(-9, 9), st.floats(-9, 9), st.none() | st.floats(-9, 9))
kept_events = st.builds(
    Event,
    texts, texts, texts, st.none() | texts, st.none() | moments, st.none() | places,
    st.lists(st.tuples(texts, values), max_size=3).map(tuple),
    texts.map(str.encode), st.none() | texts, st.none() | moments,
    node=st.none() | texts,
)  # fmt: skip
"""Events of every kind."""

fates = st.lists(st.integers(1, 60), max_size=80).map(sorted)
"""Positions of deliveries."""

cuts = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted), max_size=20)
"""Ranges (after, through] that are covered, in any order and overlapping."""


@pytest.mark.parametrize("log", LOGS)
def test_a_new_log_is_empty(journal: Journal, log: str) -> None:
    """A new log ends at 0 and reads as an empty table of its schema."""
    assert (0, LOGS[log].empty_table()) == (journal.end(log), journal.read(log, 0, 10))


def test_append_numbers_rows_from_one(journal: Journal) -> None:
    """Rows get the next positions, and are read back with them."""
    assert [1, 2] == journal.append("events", events("ab"))
    assert [3] == journal.append("events", events("c"))
    assert (["a", "b", "c"], [1, 2, 3]) == (ids(journal.read("events", 0, 9)), positions(journal.read("events", 0, 9)))


def test_rows_come_back_as_they_were(journal: Journal) -> None:
    """Every column but the position is kept as it was."""
    rows = events("abc")
    journal.append("events", rows)
    assert rows.drop_columns("position") == journal.read("events", 0, 3).drop_columns("position")


def test_nothing_appended_changes_nothing(journal: Journal) -> None:
    """No rows, no positions."""
    assert ([], 0) == (journal.append("events", events("")), journal.end("events"))


def test_logs_are_apart(journal: Journal) -> None:
    """What is in one log is not in another."""
    journal.append("events", events("ab"))
    assert (0, [1]) == (journal.end("deliveries"), journal.append("deliveries", deliveries([0])))


def test_a_repeated_event_has_the_position_it_had(journal: Journal) -> None:
    """The same id of the same source is appended once, also within one call; of another source it is another event."""
    journal.append("events", events("ab"))
    assert [2, 3, 3, 1] == journal.append("events", events("bcca"))
    assert [4] == journal.append("events", events("a", source="other"))


def test_only_events_are_taken_once(journal: Journal) -> None:
    """In every other log equal rows are different rows."""
    journal.append("deliveries", deliveries([0]))
    assert [2] == journal.append("deliveries", deliveries([0]))


def test_each_node_keeps_its_own(journal: Journal) -> None:
    """What one keeps, or lets go, is nothing to the others."""
    here, there = Event("1", "t", "s", "x"), Event("2", "t", "s", "x")
    journal.append("events", events(""), {"x": here}, "north")
    journal.append("events", events(""), {"x": there}, "south")
    assert ([here], [there], []) == (journal.kept("north"), journal.kept("south"), journal.kept())
    journal.append("events", events(""), {"x": None}, "south")
    assert ([here], []) == (journal.kept("north"), journal.kept("south"))


def test_the_only_node_is_alone(journal: Journal) -> None:
    """Others are refused until it joins as one of several; beside others nobody becomes the only one."""
    assert set() == journal.join("north", True)
    assert set() == journal.join("north", True)
    with pytest.raises(JournalError, match="expected no access server but north"):
        journal.join("south", False)
    assert set() == journal.join("north", False)
    assert {"north"} == journal.join("south", True)
    assert {"south"} == journal.join("north", True)
    assert {"north"} == journal.join("south", False)


def test_what_is_kept_changes_with_what_is_appended(journal: Journal) -> None:
    """Of each entity the last word counts, and nothing of it enters the log."""
    early, late = (Event(id, "t", "s", "x", accepted=NOON, payload=b"{}") for id in "ab")
    other = Event("c", "t", "s", "y", accepted=NOON - timedelta(seconds=1))
    assert [] == journal.kept()
    assert [1] == journal.append("events", events("1"), {"x": early})
    assert [] == journal.append("events", events(""), {"x": late, "y": other, "z": None})
    assert ([other, late], ["1"]) == (journal.kept(), ids(journal.read("events", 0, 9)))
    assert [2] == journal.append("events", events("2"), {"x": None})
    assert [other] == journal.kept()
    assert (1, 0, []) == (journal.release(), journal.release(), journal.kept())
    assert ["1", "2", "c"] == ids(journal.read("events", 0, 9))


@MAKER
@given(st.lists(kept_events, max_size=5))
def test_an_event_is_kept_as_it_was(fresh: Callable[[], Journal], found: list[Event]) -> None:
    """Every field, and every kind of value."""
    journal = fresh()
    kept = {event.entity: event for event in found}
    journal.append("events", events(""), kept)
    assert kept == {event.entity: event for event in journal.kept()}


def test_positions_of_an_id(journal: Journal) -> None:
    """Events are found by id, and by id and source."""
    journal.append("events", events("ab"))
    journal.append("events", events("a", source="other"))
    assert [1, 3] == journal.positions("a")
    assert ([3], [], []) == (journal.positions("a", "other"), journal.positions("a", "no"), journal.positions("z"))


@MAKER
@given(batches)
def test_positions_have_no_gap(fresh: Callable[[], Journal], calls: list[list[int]]) -> None:
    """However events repeat, the log holds the first of each, in order, at positions 1, 2, 3, …"""
    journal = fresh()
    answers = [at for call in calls for at in journal.append("events", events(call))]
    distinct = list(dict.fromkeys(str(id) for call in calls for id in call))
    assert distinct == ids(journal.read("events", 0, 1000))
    assert list(range(1, len(distinct) + 1)) == positions(journal.read("events", 0, 1000))
    assert [1 + distinct.index(str(id)) for call in calls for id in call] == answers


@MAKER
@given(fates, cuts)
def test_any_cuts_cover_alike(fresh: Callable[[], Journal], fates: list[int], cuts: list[list[int]]) -> None:
    """Whatever ranges are covered, again or overlapping, the log equals that of one cover of them all."""
    whole, pieces, end = fresh(), fresh(), 0
    for after, through in cuts:
        start = min(after, end)  # a range that begins after the end would leave a gap
        pieces.commit_range("deliveries", deliveries_in(fates, start, through), through)
        end = max(end, through)
    whole.commit_range("deliveries", deliveries_in(fates, 0, end), end)
    assert (end, end) == (whole.end("deliveries"), pieces.end("deliveries"))
    assert whole.read("deliveries", 0, 100) == pieces.read("deliveries", 0, 100)


def deliveries_in(fates: list[int], after: int, through: int) -> pa.Table:
    """The deliveries of a range, each with the same client wherever the range is cut."""
    return deliveries(fates).filter(pa.array([after < at <= through for at in fates], pa.bool_()))


@MAKER
@given(batches, st.lists(st.integers(0, 40)).map(sorted))
def test_ranges_join_to_the_whole(fresh: Callable[[], Journal], calls: list[list[int]], cuts: list[int]) -> None:
    """Reading a log range by range gives the same rows as reading it at once."""
    journal = fresh()
    for call in calls:
        journal.append("events", events(call))
    parts = [journal.read("events", after, through - after) for after, through in pairwise([0, *cuts, 100])]
    assert ids(journal.read("events", 0, 100)) == [id for part in parts for id in ids(part)]


def test_an_empty_range_moves_the_end(journal: Journal) -> None:
    """Covering a range in which nothing is delivered is remembered too."""
    journal.commit_range("deliveries", deliveries([]), 7)
    assert (7, []) == (journal.end("deliveries"), positions(journal.read("deliveries", 0, 9)))


def test_an_end_never_goes_back(journal: Journal) -> None:
    """Covering less than was covered changes nothing."""
    journal.commit_range("deliveries", deliveries([2, 2, 5]), 7)
    journal.commit_range("deliveries", deliveries([3]), 4)
    assert (7, [2, 2, 5]) == (journal.end("deliveries"), positions(journal.read("deliveries", 0, 9)))


@pytest.mark.parametrize("given", [[3, 2], [0, 1], [4, 9]])
def test_a_cover_out_of_order_or_range_is_refused(journal: Journal, given: list[int]) -> None:
    """Positions must ascend and lie within the range; else nothing is written."""
    with pytest.raises(JournalError, match="ascend within 1 to 8"):
        journal.commit_range("deliveries", deliveries(given), 8)
    assert 0 == journal.end("deliveries")


def test_a_cover_without_positions_is_refused(journal: Journal) -> None:
    """A row that covers a range has a position."""
    with pytest.raises(JournalError, match="a position in every row"):
        journal.commit_range("deliveries", deliveries([None]), 8)


def test_rows_of_another_log_are_refused(journal: Journal) -> None:
    """The error names the log and the columns that came."""
    with pytest.raises(JournalError, match="log 'events', got the columns position int64, client string"):
        journal.append("events", deliveries([1]))


def test_an_event_without_id_is_refused(journal: Journal) -> None:
    """Without id and source an event could not be told from another."""
    rows = events("a")
    with pytest.raises(JournalError, match="an id and a source"):
        journal.append("events", rows.set_column(1, "id", [[None]]).cast(rows.schema))


def test_an_unknown_log_is_refused(journal: Journal) -> None:
    """The error names the logs there are."""
    for call in (lambda: journal.end("x"), lambda: journal.read("x", 0, 1), lambda: journal.append("x", events("a"))):
        with pytest.raises(JournalError, match=r"one of the logs events, derived, .*, snapshots, sessions, got 'x'"):
            call()


def test_who_waits_is_told_of_news(journal: Journal) -> None:
    """Of any of the logs that it waits for, also of what came before; and of nothing where nothing came."""
    assert not journal.end("events")
    journal.wait({"events": 0}, 0.05)
    journal.append("events", events("ab"))
    assert journal.wait({"events": 1}, 30)
    assert journal.wait({"deliveries": 0, "events": 0}, 30)
    found: list[bool] = []

    def wait() -> None:
        while journal.end("deliveries") == 0:
            found.append(journal.wait({"events": 2, "deliveries": 0}, 30))

    waiting = threading.Thread(target=wait)
    waiting.start()
    journal.commit_range("deliveries", deliveries([]), 1)
    waiting.join(20)
    assert not waiting.is_alive()


def test_follow_sees_each_row_once(journal: Journal) -> None:
    """A follower beside two writers gets every event exactly once, in order, whatever the limit."""
    writers = [threading.Thread(target=write, args=(journal, source, 60)) for source in ("left", "right")]
    for writer in writers:
        writer.start()
    seen: list[int] = []
    # Also where a writer failed.
    until = time.monotonic() + 180.0
    for rows in journal.follow("events", 0, 7, stopped=lambda: seen[-1:] == [120] or time.monotonic() > until):
        seen.extend(positions(rows))
    for writer in writers:
        writer.join()
    assert list(range(1, 121)) == seen


def write(journal: Journal, source: str, number: int) -> None:
    """Appends events one by one."""
    for id in range(number):
        journal.append("events", events([id], source))


def test_follow_goes_past_ranges_without_rows(journal: Journal) -> None:
    """Where nothing was delivered, a follower goes on to where something was."""
    journal.commit_range("deliveries", deliveries([]), 500)
    journal.commit_range("deliveries", deliveries([501]), 510)
    assert [501] == positions(next(journal.follow("deliveries", 0, 10, stopped=lambda: False)))


def test_stretches_hold_what_there_is_once_and_not_too_much_at_once(fresh: Callable[[], Journal]) -> None:
    """However large events are; one that is larger than a stretch may be comes alone, and behind the end is nothing."""
    journal = fresh()
    for one in range(20):
        journal.append("events", to_table([Event(str(one), "t", "s", payload=os.urandom(50_000))]))
    end_within_bytes = journal.end_within_bytes("events", 3, 10, 1)
    assert end_within_bytes > 3
    assert (20, 20) == (journal.end_within_bytes("events", 0, 100), journal.end_within_bytes("events", 20, 100))
    for through in 20, 30:
        found = list(journal.row_ranges("events", 2, through, 7))
        assert list(range(3, 21)) == [one for table in found for one in positions(table)]
        assert max(map(len, found)) <= 7


def test_a_probe_leaves_nothing(journal: Journal) -> None:
    """It says that there is room, and is in no log."""
    journal.append("events", to_table([Event(id="1", type="t", source="s")]))
    journal.probe()
    assert [2] == journal.append("events", to_table([Event(id="2", type="t", source="s")]))
    assert ["1", "2"] == journal.read("events", 0, 10).column("id").to_pylist()


def test_the_rows_of_one_position_come_in_pieces(journal: Journal) -> None:
    """Of one event there may be any number of others: they are read as they were written, block by block."""
    rows = to_table([Event(str(part), "t", "s", position=1, part=part) for part in range(1, 301)])
    with patch("nearcast.journal.encoded_rows.BLOCK_ROWS", 100):
        journal.commit_range("derived", rows, 1)
    pieces = [piece.column("part").to_pylist() for piece in journal.blocks("derived", 0, 1)]
    assert list(range(1, 301)) == [part for piece in pieces for part in piece]
    assert [] == [piece for piece in journal.blocks("derived", 1, 5) if len(piece)]
    assert isinstance(journal, MemoryJournal) or 100 >= max(map(len, pieces))


def test_a_log_is_trimmed_to_its_newest_rows(journal: Journal) -> None:
    """They keep their positions, as do those that follow; by rows or by bytes, and by the blocks of each call."""
    for number in range(0, 60, 20):
        journal.append("events", events(range(number, number + 20)))
    assert (0, 0) == (journal.trim("events", 60, 1 << 30), journal.trimmed("events"))
    assert (20, 20) == (journal.trim("events", 40, 1 << 30), journal.trimmed("events"))
    assert (60, [*range(21, 61)]) == (journal.end("events"), positions(journal.read("events", 0, 100)))
    assert journal.trim("events", 40, 1) >= 20
    left = positions(journal.read("events", 0, 100))
    assert [*range(60 - len(left) + 1, 61)] == left
    assert left
    assert [61] == journal.append("events", events([99]))
    journal.trim("events", 0, 0)
    assert 61 == journal.end("events")
    assert [62] == journal.append("events", events([100]))
    assert [62] == positions(journal.read("events", 61, 100))


def test_the_oldest_rows_go_up_to_a_position(journal: Journal) -> None:
    """None that are later go, and never the newest; the others keep their positions, and so do those that follow."""
    for number in range(0, 60, 20):
        journal.append("events", events(range(number, number + 20)))
    assert 0 == journal.trim_through("events", 0)
    gone = journal.trim_through("events", 45)
    assert gone in (40, 45)
    assert [*range(gone + 1, 61)] == positions(journal.read("events", 0, 100))
    assert gone == journal.trim_through("events", 30)
    assert journal.trim_through("events", 60) < 60
    assert 60 == positions(journal.read("events", 0, 100))[-1]
    assert [61] == journal.append("events", events([99]))
    assert 61 == journal.end("events")


def test_rows_of_several_to_a_position_go_too(journal: Journal) -> None:
    """Deliveries bring their positions; a log that was covered without rows has none to let go of."""
    for through in (10, 20, 30):
        journal.commit_range("deliveries", deliveries([through - 5, through - 5, through - 1]), through)
    gone = journal.trim_through("deliveries", 20)
    assert 9 <= gone <= 24
    assert [25, 25, 29] == positions(journal.read("deliveries", gone, 100))[-3:]
    assert 30 == journal.end("deliveries")
    assert 0 == journal.trim_through("outcomes", 100)


def test_an_event_that_went_is_new_when_it_comes_again(journal: Journal) -> None:
    """Of what is kept a repetition is known; of what went nothing is, not even where it was."""
    journal.append("events", events(range(20)))
    journal.append("events", events(range(20, 40)))
    journal.trim_through("events", 20)
    assert ([], [21]) == (journal.positions("3"), journal.positions("20"))
    assert [41, 21] == journal.append("events", events([3, 20]))
    journal.append("events", events(range(50, 60)))
    journal.trim("events", 10, 1 << 30)
    assert [] == journal.positions("21")


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 200)), max_size=12))
@MAKER
def test_what_is_kept_is_an_end_of_what_came(fresh: Callable[[], Journal], calls: list[tuple[int, int]]) -> None:
    """However rows come and go: those behind the position that it says are all there, and no other."""
    journal, count, furthest = fresh(), 0, 0
    for rows, through in calls:
        furthest = max(furthest, through)
        journal.append("events", events(range(count, count + rows)))
        count += rows
        gone = journal.trim_through("events", through)
        assert gone <= furthest
        assert [*range(gone + 1, count + 1)] == positions(journal.read("events", 0, count))
        assert gone == journal.trimmed("events")
    assert [] == [at for one in range(count) for at in journal.positions(str(one)) if at <= journal.trimmed("events")]


def test_what_a_log_takes_is_told(journal: Journal) -> None:
    """Each log's bytes, which go down when rows go."""
    assert [*LOGS] == [*journal.stored_bytes()]
    for _ in range(20):
        journal.append("dead letters", letters(50))
    before = journal.stored_bytes()["dead letters"]
    assert before > 0
    journal.trim_through("dead letters", 900)
    assert journal.stored_bytes()["dead letters"] < before


def test_a_note_stands_until_another_does(journal: Journal) -> None:
    """By its name; and it is there no more once it is removed."""
    notes = journal.notes
    assert ({}, None) == (notes.all(), notes.read("one"))
    notes.write("one", "1")
    notes.write("two", "é")
    notes.write("one", "3")
    assert ({"one": "3", "two": "é"}, "3") == (notes.all(), notes.read("one"))
    notes.remove("two")
    notes.remove("none")
    assert {"one": "3"} == journal.notes.all()
