"""The register of access servers: one behaviour in memory, in an SQLite file and on NATS."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from nearcast.errors import JournalError
from nearcast.journal import server_register
from nearcast.journal.locations import register_of
from nearcast.journal.seam import Journal
from nearcast.journal.server_register import (
    ServerRecord,
    ServerRegister,
    SqliteRegister,
    process_start,
    read_record,
    written_record,
)

NORTH = ServerRecord("north", "n1", "http://127.0.0.1:1")


@pytest.fixture
def register(journal: Journal) -> Iterator[ServerRegister]:
    """A register without records, of a journal of each kind."""
    with closing(register_of(journal)) as found:
        yield found


def test_a_record_is_put_where_the_one_before_is(register: ServerRegister) -> None:
    """Who knows the newest puts the next; who knows none, or an older one, is told that another was first."""
    again = replace(NORTH, number=1, sessions=7)
    assert [] == register.records()
    assert [True, False] == [register.put(NORTH, None), register.put(replace(NORTH, instance="n2"), None)]
    assert [True, False] == [register.put(again, NORTH), register.put(replace(NORTH, number=1), NORTH)]
    assert [again] == register.records()


def test_a_server_that_ends_takes_its_own_record_only(register: ServerRegister) -> None:
    """What another run of that name put stays."""
    south = ServerRecord("south", "s1", "http://127.0.0.1:2", draining=True, load=0.5)
    assert register.put(NORTH, None) and register.put(south, None)
    register.remove(replace(NORTH, instance="n0"))
    assert [NORTH, south] == register.records()
    register.remove(replace(NORTH, number=9))
    assert [south] == register.records()
    assert register.put(replace(NORTH, instance="n2"), None)


def test_there_is_room_for_so_many(register: ServerRegister, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused; who is there goes on, and ordinary domains are far below."""
    monkeypatch.setattr(server_register, "MOST_SERVERS", 2)
    others = [ServerRecord(name, name, "http://127.0.0.1:3") for name in ("one", "two", "three")]
    assert [True, True] == [register.put(one, None) for one in others[:2]]
    with pytest.raises(JournalError, match="expected at most 2 access servers"):
        register.put(others[2], None)
    assert register.put(replace(others[0], number=1), others[0])


def test_a_record_is_read_as_it_was_written() -> None:
    """What is none, as of a later version with other fields, is no error."""
    record = replace(NORTH, host="h", process=3, started="9", sessions=2, load=0.25, draining=True, number=4)
    assert record == read_record(written_record(record))
    assert [None, None, None] == [read_record(one) for one in (b"", b"[]", b'{"name": "north"}')]
    with pytest.raises(JournalError, match="at most 4,096 bytes"):
        written_record(replace(NORTH, url="http://" + 5_000 * "x"))


def test_a_process_of_this_machine_that_ended_is_known_to_be_dead() -> None:
    """Of one that runs, and of one of another machine, that is not known."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    record = replace(NORTH, host=socket.gethostname(), process=process.pid, started=process_start(process.pid))
    assert not record.known_dead
    process.kill()
    # Also before anybody has waited for it.
    while process_start(process.pid):
        pass
    assert record.known_dead and not replace(record, host="elsewhere").known_dead
    process.communicate()
    assert record.known_dead
    assert not replace(record, process=os.getpid(), started=process_start(os.getpid())).known_dead


def test_a_register_in_a_file_that_is_gone_says_so(tmp_path: Path) -> None:
    """It makes no file of its own."""
    with pytest.raises(JournalError, match="register of servers"):
        SqliteRegister(str(tmp_path / "none")).records()
    assert [] == list(tmp_path.iterdir())
