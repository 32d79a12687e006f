"""A journal copied into another of any kind: the same at the same positions, and decided again the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from nearcast.cli import journal as command
from nearcast.cli import replay
from nearcast.cli.system import define
from nearcast.errors import JournalError
from nearcast.journal.identity import identity_of
from nearcast.journal.journal_copy import copy_journal
from nearcast.journal.locations import Location, journal_at
from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import base_position
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions import files
from nearcast.model.changes import ClientChange
from nearcast.model.columns import LOGS, to_table
from nearcast.model.event import Event
from nearcast.pipeline.follower import Follower
from nearcast.stages import decide
from nearcast.stages.fold import StateFold
from tests.journal.rows import events
from tests.pipeline.test_retention import NOON, System

DEFINED = {"clients": [{"id": "a"}], "subscriptions": [{"id": "s", "client": "a", "filter": "type = 't' AND n > 3"}]}


@pytest.fixture
def lived(tmp_path: Path) -> Iterator[Journal]:
    """What a system left in a file: definitions, events that were decided, what an entry node keeps."""
    (tmp_path / "definitions.yaml").write_text(yaml.safe_dump(DEFINED))
    with closing(journal_at(tmp_path / "old")) as journal:
        define(journal, files.load([tmp_path / "definitions.yaml"]))
        rows = [
            Event(str(number), "t", "s", f"x{number % 4}", attributes=(("n", number % 9),)) for number in range(200)
        ]
        for start in range(0, 200, 30):
            journal.append("events", to_table(rows[start : start + 30]))
        end = journal.end("events")
        for _, found in decide.replay(StateFold(), [journal.read("events", 0, end)], changes):
            journal.commit_range("deliveries", found, end)
        journal.append("events", events(""), {"x9": Event("k", "t", "s", "x9")})
        yield journal


def same(one: Journal, other: Journal) -> bool:
    """Whether two journals have the same."""
    return one.kept() == other.kept() and all(
        one.end(log) == other.end(log) and one.read(log, 0, 1_000_000) == other.read(log, 0, 1_000_000) for log in LOGS
    )


def test_a_journal_goes_to_nats_and_back(lived: Journal, new_stream: Callable[[], str], tmp_path: Path) -> None:
    """By the command; what is there is decided as it was, and goes on behind it."""
    places: list[Location] = [tmp_path / "old", new_stream(), tmp_path / "folder"]
    for source, target in pairwise(places):
        told = CliRunner().invoke(command.command, ["copy", str(source), str(target)])
        assert (0, None) == (told.exit_code, told.exception), told.output
        assert "events: 202 rows, up to position 202" in told.output
    for place in (places[1], tmp_path / "folder" / "journal"):
        with closing(journal_at(place)) as copied:
            assert same(lived, copied)
        again = CliRunner().invoke(replay.command, ["--journal", str(place), "--compare", "--engine", "local"])
        assert (0, None) == (again.exit_code, again.exception), again.output
        with closing(journal_at(place)) as copied:
            assert [3, 203] == copied.append("events", to_table([Event("0", "t", "s"), Event("new", "t", "s")]))


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[System]:
    """A system in a file that has let go of its oldest events, deliveries and outcomes."""
    with closing(SqliteJournal(tmp_path / "journal")) as journal:
        system = System(journal, tmp_path / "known")
        journal.append("events", to_table([to_event(ClientChange("c", role="r"), "c", "definitions", NOON)]))
        for through in range(200, 1_000, 200):
            system.publish(200)
            system.settle(through)
            system.look()
        assert all(journal.trimmed(log) > 0 for log in ("events", "deliveries", "outcomes", "snapshots"))
        yield system


def test_what_is_kept_goes_to_nats_and_back_where_the_oldest_is_gone(
    forgetful: System, new_stream: Callable[[], str], tmp_path: Path
) -> None:
    """From the first kept position on, with the snapshot that stands for what went: a pipeline knows what it knew."""
    lived, url = forgetful.journal, new_stream()
    for source, target in pairwise([lived.location, url, tmp_path / "back"]):
        told = CliRunner().invoke(command.command, ["copy", str(source), str(target)])
        assert (0, None) == (told.exit_code, told.exception), told.output
    known = forgetful.follower.known
    for number, place in enumerate((url, tmp_path / "back" / "journal")):
        with closing(journal_at(place)) as copied:
            assert same(lived, copied)
            assert lived.trimmed("events") == copied.trimmed("events")
            assert (base_position(lived), identity_of(lived)) == (base_position(copied), identity_of(copied))
            again = Follower(copied, tmp_path / f"known {number}", copied.end("deliveries")).known
            assert (known.position, known.registry) == (again.position, again.registry)
            assert known.repository.newest().equals(again.repository.newest())
            end = copied.end("events")
            assert [end, end + 1] == copied.append(
                "events", to_table([Event(str(end - 1), "t", "s"), Event("new", "t", "s")])
            )


def test_a_copy_of_what_is_kept_goes_on_wherever_it_was_cut_off(
    forgetful: System, new_stream: Callable[[], str]
) -> None:
    """After each of its steps."""
    left = 3

    def dying(rows: int) -> None:
        nonlocal left
        left -= 1
        raise KeyboardInterrupt

    with closing(journal_at(new_stream())) as target:
        while left:
            with pytest.raises(KeyboardInterrupt):
                copy_journal(forgetful.journal, target, dying)
        copy_journal(forgetful.journal, target, lambda _: None)
        assert same(forgetful.journal, target)
        forgetful.publish(200)
        assert 200 == next(one.rows for one in copy_journal(forgetful.journal, target, lambda _: None))


def test_a_copy_that_ends_before_what_is_kept_is_refused(forgetful: System, new_stream: Callable[[], str]) -> None:
    """Between both there would be a gap."""
    with closing(journal_at(new_stream())) as target:
        target.append("events", events("a"))
        with pytest.raises(JournalError, match=r"or events up to position \d+, got those up to 1;"):
            copy_journal(forgetful.journal, target, lambda _: None)
        assert 1 == target.end("events")


def test_a_copy_that_was_cut_off_goes_on(lived: Journal, new_stream: Callable[[], str]) -> None:
    """Wherever it was; what is there already is not copied again."""
    url, seen = new_stream(), []

    def dying(rows: int) -> None:
        seen.append(rows)
        raise KeyboardInterrupt

    with closing(journal_at(url)) as target:
        with pytest.raises(KeyboardInterrupt):
            copy_journal(lived, target, dying)
        assert [0] == [one.rows for one in copy_journal(lived, target, lambda _: None) if one.log == "events"]
        assert same(lived, target)
        assert [0] * len(LOGS) == [one.rows for one in copy_journal(lived, target, lambda _: None)]


def test_a_target_that_has_something_else_is_refused(lived: Journal, new_stream: Callable[[], str]) -> None:
    """Other events, or more of them: nothing is written."""
    for rows in (events("a"), events(range(500))):
        with closing(journal_at(new_stream())) as target:
            target.append("events", rows)
            with pytest.raises(JournalError, match=r"expected nothing yet, or the beginning of .*name an empty one"):
                copy_journal(lived, target, lambda _: None)
            assert len(rows) == target.end("events")
