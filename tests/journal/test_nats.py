"""What holds for the journal on NATS in particular: its messages, its servers, and what happens in between."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from nearcast.errors import JournalError, SetupError
from nearcast.journal.encoded_rows import LENGTHS
from nearcast.journal.jetstream import log_chain, nats_journal, stream_checks
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.journal.jetstream.stream_api import JetStream, StreamMessage
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from tests.journal.rows import deliveries, events, ids, positions
from tests.nats_servers import NatsServer

WRITER = """
import sys
from nearcast.journal.jetstream.nats_journal import NatsJournal
from tests.journal.rows import events
journal, name = NatsJournal(sys.argv[1]), sys.argv[2]
for number in range(int(sys.argv[3])):
    answer = journal.append("events", events([f"{number}.{part}" for part in range(3)], name))
    print(*answer, flush=True)
"""


@pytest.fixture
def nats(url: str) -> Iterator[NatsJournal]:
    """One empty journal on NATS."""
    with closing(NatsJournal(url)) as journal:
        yield journal


def writer(url: str, name: str, calls: int) -> subprocess.Popen[str]:
    """A process that appends three events per call and prints the positions it was answered."""
    command = [sys.executable, "-c", WRITER, url, name, str(calls)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def large(number: int, size: int = 700_000) -> list[Event]:
    """Events that do not become smaller."""
    return [Event(str(one), "t", "s", payload=os.urandom(size)) for one in range(number)]


def test_another_object_sees_what_was_committed(nats: NatsJournal, url: str) -> None:
    """Two journals of one stream are one journal, and what one wrote the other holds no second time."""
    nats.append("events", events("ab"))
    with closing(NatsJournal(url)) as other:
        assert [2, 3] == other.append("events", events("bc"))
    assert ["a", "b", "c"] == ids(nats.read("events", 0, 9))
    assert [3, 4] == nats.append("events", events("cd"))


def test_processes_may_make_and_write_one_journal_together(url: str) -> None:
    """Two processes that start at once: every position is given once, none is left out."""
    processes = [writer(url, f"p{number}", 20) for number in range(2)]
    answers = [int(at) for process in processes for at in process.communicate()[0].split()]
    assert [0] * 2 == [process.returncode for process in processes]
    assert list(range(1, 121)) == sorted(answers)


@pytest.mark.faults
def test_a_killed_writer_loses_nothing_it_acknowledged(url: str) -> None:
    """Killed (−9) at any moment, what was answered is there, calls are kept whole, and positions have no gap."""
    process = writer(url, "p", 1_000_000)
    assert process.stdout is not None
    answered = [process.stdout.readline() for _ in range(17)]
    process.kill()
    answered += process.communicate()[0].splitlines()
    whole = [[int(at) for at in line.split()] for line in answered if len(line.split()) == 3]
    with closing(NatsJournal(url)) as journal:
        rows = journal.read("events", 0, 1_000_000)
        assert list(range(1, journal.end("events") + 1)) == positions(rows)
        assert journal.end("events") % 3 == 0
        assert journal.end("events") >= whole[-1][-1]
        assert [1] == journal.positions("0.0", "p")


@pytest.mark.faults
def test_a_killed_server_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    """Killed (−9) and started again at the same place; who had it open goes on."""
    server = NatsServer(tmp_path, more="").start()
    port = server.url.rpartition(":")[2]
    try:
        with closing(NatsJournal(f"{server.url}/domain")) as journal:
            journal.append("events", events(range(40)))
            server.kill()
            server.config.write_text(server.config.read_text().replace("port: -1", f"port: {port}", 1))
            server.start()
            assert [41, 1] == journal.append("events", events([40, 0]))
            assert [str(one) for one in range(41)] == ids(journal.read("events", 0, 100))
    finally:
        server.kill()


def test_events_larger_than_a_message_are_kept_whole(nats: NatsJournal, url: str) -> None:
    """Their blocks lie in several messages; read from any position, by any piece, also by who wrote none of them."""
    table = to_table(large(6))
    nats.append("events", events(["first"]))
    nats.append("events", table.slice(0, 4))
    nats.append("events", table.slice(4))
    nats.append("events", events(["last"]))
    expected = ["first", *map(str, range(6)), "last"]
    for after in range(8):
        with closing(NatsJournal(url)) as reader:
            assert expected[after:] == ids(reader.read("events", after, 100))
            assert expected[after : after + 1] == ids(reader.read("events", after, 1))
    rows = nats.read("events", 1, 6).drop_columns("position")
    assert table.drop_columns("position") == rows


def test_rows_that_need_several_blocks_are_one_call(nats: NatsJournal, url: str) -> None:
    """Rows and end change together, wherever blocks are cut, also inside a position."""
    with patch("nearcast.journal.encoded_rows.BLOCK_ROWS", 3):
        rows = deliveries([1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 5])
        nats.commit_range("deliveries", rows, 6)
        nats.commit_range("deliveries", deliveries([7, 9]), 9)
    nats.append("events", events(range(9)))
    with closing(NatsJournal(url)) as reader:
        assert rows == reader.read("deliveries", 0, 6)
        assert rows.slice(2, 6) == reader.read("deliveries", 1, 1)
        assert [3, 3, 5, 7, 9] == positions(reader.read("deliveries", 2, 100))
        assert 9 == reader.end("deliveries")


def test_a_call_that_was_cut_off_was_not_made(nats: NatsJournal, url: str) -> None:
    """Of its messages some are there: nobody reads them, and what is written next begins where they began."""
    nats.append("events", events("ab"))
    write, written = JetStream.write, []

    def dying(self: JetStream, subject: str, message: bytes, expected: int | None, headers: object = None) -> int:
        written.append(subject)
        if len(written) == 4:
            raise KeyboardInterrupt
        return write(self, subject, message, expected)

    with patch.object(JetStream, "write", dying), pytest.raises(KeyboardInterrupt):
        nats.append("events", to_table(large(6)))
    for journal in (nats, NatsJournal(url)):
        with closing(journal):
            assert (2, ["a", "b"]) == (journal.end("events"), ids(journal.read("events", 0, 9)))
    with closing(NatsJournal(url)) as journal:
        assert [3, 1] == journal.append("events", events("ca"))
        assert [4] == journal.append("events", events("d"))
    with closing(NatsJournal(url)) as journal:
        assert ["a", "b", "c", "d"] == ids(journal.read("events", 0, 9))
        assert ["d"] == ids(journal.read("events", 3, 9))


@pytest.mark.parametrize("log", ["events", "deliveries"])
def test_an_append_without_an_answer_is_made_once(nats: NatsJournal, log: str) -> None:
    """Whether it was written or not: it is looked up, and written again only where it is not there."""
    rows = events("ab") if log == "events" else deliveries([0, 0])
    write, calls = JetStream.write, []

    def mute(self: JetStream, subject: str, message: bytes, expected: int | None, headers: object = None) -> int:
        calls.append(subject)
        if len(calls) == 1:
            raise Unanswered("nothing was written")
        found = write(self, subject, message, expected)
        if len(calls) == 2:
            raise Unanswered("it was written")
        return found

    nats.append(log, rows)
    with patch.object(JetStream, "write", mute):
        assert [3, 4] == nats.append(log, events("cd") if log == "events" else rows)
    assert 2 == len(calls)
    assert [1, 2, 3, 4] == positions(nats.read(log, 0, 9))
    nats.append(log, events("e") if log == "events" else rows.slice(1))
    assert 5 == nats.end(log)


def test_what_is_kept_with_events_that_never_came_does_not_count(nats: NatsJournal, url: str) -> None:
    """Rows and what is kept change together: also where somebody dies between the two messages, and others go on."""
    early, late = Event("1", "t", "s", "x"), Event("2", "t", "s", "x")
    nats.append("events", events(""), {"x": early})
    write = JetStream.write

    def dying(self: JetStream, subject: str, message: bytes, expected: int | None, headers: object = None) -> int:
        if subject.endswith(".events"):
            raise KeyboardInterrupt
        return write(self, subject, message, expected)

    with patch.object(JetStream, "write", dying), pytest.raises(KeyboardInterrupt):
        nats.append("events", events("a"), {"x": late})
    with closing(NatsJournal(url)) as other:
        assert ([early], 0) == (other.kept(), other.end("events"))
        other.append("events", events(""), {"y": late})
        assert [early, late] == other.kept()
    assert [1] == nats.append("events", events("a"), {"x": None})
    assert [late] == nats.kept()


def test_changes_of_what_is_kept_are_put_together(nats: NatsJournal, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Nothing of it is lost, and few messages stay."""
    monkeypatch.setattr("nearcast.journal.tables.kept_table.KEPT_SLACK", 10)
    kept: dict[str, Event] = {}
    for number in range(60):
        event = Event(str(number), "t", "s", str(number % 7), payload=b"{}")
        gone = str((number + 3) % 7)
        kept[event.entity] = event
        kept.pop(gone, None)
        nats.append("events", events(""), {event.entity: event, gone: None})
    with closing(NatsJournal(url)) as other:
        assert kept == {event.entity: event for event in other.kept()}
    assert nats._stream.info()["state"]["messages"] < 20


def test_what_a_thread_writes_while_another_asks_is_no_loss(nats: NatsJournal, url: str) -> None:
    """Who was answered before it was written has an older end, and the newer one counts."""
    asked = JetStream.last

    def answered(stream: JetStream, subject: str) -> StreamMessage | None:
        found = asked(stream, subject)
        with patch.object(JetStream, "last", asked):
            nats.append("events", events(["third"]))
        return found

    nats.append("events", events(["first"]))
    with closing(NatsJournal(url)) as other:
        other.append("events", events(["second"]))
    with patch.object(JetStream, "last", answered):
        assert 3 == nats.end("events")
    assert ["first", "second", "third"] == ids(nats.read("events", 0, 10))


def test_the_table_of_ids_is_read_on_from_where_it_was(new_stream: Callable[[], str], tmp_path: Path) -> None:
    """Who opens the journal with it reads no event that is in it; of another journal it is begun anew."""
    url, file = new_stream(), tmp_path / "ids"
    with closing(NatsJournal(url, ids=file)) as journal:
        journal.append("events", events(range(100)))
    with closing(NatsJournal(url, ids=file)) as journal, patch.object(log_chain.LogChain, "blocks") as read:
        assert [7, 101] == journal.append("events", events([6, 100]))
        assert ([1], [101]) == (journal.positions("0"), journal.positions("100"))
        assert 0 == read.call_count
    with closing(NatsJournal(new_stream(), ids=file)) as journal:
        assert [1] == journal.append("events", events([6]))
    file.write_bytes(b"no table at all" * 1000)
    with closing(NatsJournal(url, ids=file)) as journal:
        assert [7] == journal.append("events", events([6]))


def test_where_readers_were_is_looked_up_by_nobody_again(nats: NatsJournal) -> None:
    """Who reads on asks for what follows only; who begins in the middle looks for it once."""
    for number in range(64):
        nats.append("events", events([number]))
    with patch.object(JetStream, "newest_near", side_effect=JetStream.newest_near, autospec=True) as looked:
        assert list(range(1, 65)) == [at for rows in nats.row_ranges("events", 0, 64, 5) for at in positions(rows)]
        assert [40] == positions(nats.read("events", 39, 1))
        assert 20 > looked.call_count


def test_a_journal_that_is_only_read_writes_nothing(nats: NatsJournal, new_stream: Callable[[], str]) -> None:
    """It travels as what it is, and is made by nobody who only reads."""
    nats.append("events", events("ab"))
    with closing(NatsJournal(nats.url, read_only=True)) as own:
        carried = pickle.dumps(own)
    with closing(pickle.loads(carried)) as reader:
        assert (True, ["a", "b"]) == (reader.read_only, ids(reader.read("events", 0, 9)))
        for write in (lambda: reader.append("events", events("c")), lambda: reader.join("north", False)):
            with pytest.raises(JournalError, match="to read it only"):
                write()
    with pytest.raises(JournalError, match="stream not found"):
        NatsJournal(new_stream(), read_only=True)


def test_a_stream_of_the_format_before_goes_on_in_that(
    new_stream: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the version that made it can read all of it; a new stream has shorter blocks, and a newer one is refused."""
    begun, marks = {"1": new_stream(), "2": new_stream(), "3": new_stream()}, {}
    for format, url in begun.items():
        with monkeypatch.context() as making:
            making.setattr(nats_journal, "FORMAT", format)
            making.setattr(stream_checks, "FORMAT", format)
            NatsJournal(url).close()
    for format in "12":
        with closing(NatsJournal(begun[format])) as journal:
            journal.append("events", events(range(500)))
            assert [*map(str, range(500))] == ids(journal.read("events", 0, 500))
            marks[format] = {content[:1] for _, content in journal._chains["events"].blocks(0, 500)}
    assert {"1": {b"\x28"}, "2": {LENGTHS}} == marks
    with pytest.raises(JournalError, match="expected format 2, got 3; use the version of nearcast that wrote it"):
        NatsJournal(begun["3"])


def test_a_stream_of_another_program_is_refused(nats_server: NatsServer) -> None:
    """It is left as it was."""
    with closing(NatsJournal(f"{nats_server.url}/own")) as journal:
        JetStream(journal.address, journal._stream.connection, "theirs").make(["theirs.>"])
    with pytest.raises(JournalError, match="got another program's stream"):
        NatsJournal(f"{nats_server.url}/theirs")


def test_nobody_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the server and says what to look at."""
    monkeypatch.setattr("nearcast.journal.jetstream.nats_connection.CONNECT_SECONDS", 0.3)
    with pytest.raises(JournalError, match=r"expected a NATS server at nats://127\.0\.0\.1:1/nearcast, got .*running"):
        NatsJournal("nats://me:secret@127.0.0.1:1")


def test_a_server_that_is_gone_is_waited_for_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as others take to choose a leader, then as a fault of the journal."""
    server = NatsServer(tmp_path).start()
    with closing(NatsJournal(server.url)) as journal:
        journal.append("events", events("a"))
        server.kill()
        for name in ("stream_api", "log_chain"):
            monkeypatch.setattr(f"nearcast.journal.jetstream.{name}.PATIENCE", 0.2)
        monkeypatch.setattr("nearcast.journal.jetstream.nats_connection.ANSWER_SECONDS", 0.2)
        for call in (lambda: journal.end("events"), lambda: journal.append("events", events("b"))):
            with pytest.raises(JournalError, match="nobody answered within"):
                call()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(SetupError, match=r"install nearcast\[nats\]"):
        NatsJournal("nats://127.0.0.1:1")
