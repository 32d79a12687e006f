"""`nearcast replay` over the journal of a system: what it decided, and what it would have under other definitions."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
import yaml

from nearcast.cli.options import journal_path, state_path
from nearcast.cli.replay_comparison import shown
from nearcast.cli.system import define
from nearcast.errors import Mark
from nearcast.explain.decision_differences import DecisionDifferences
from nearcast.journal.encoded_rows import BLOCK_ROWS
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.cloudevents import read_event
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.model.changes import Change, DefinitionChange
from nearcast.model.columns import entered_events
from nearcast.pipeline.past_journal import PositionSpan
from nearcast.pipeline.snapshots import save
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from tests.cli.test_offline import nearcast
from tests.system import history as reports

CLIENTS = ["ann", "bob", "eve"]
START = datetime(2126, 1, 1, tzinfo=UTC)
"""Behind the definitions, which are accepted now."""
REPORTS = 120
SNAPSHOT = 90
"""The position of the snapshot that the system's pipeline wrote."""

CLOSE = {"id": "close", "a": "type = 'unit'", "b": "type = 'unit'", "when": "distance(a, b) < 60"}
TOLD = {"id": "told", "client": "ann", "filter": "type = 'nearcast.relation'"}


def defined() -> dict[str, Any]:
    """Two lasting subscriptions of each client, and a relation that one of them hears of."""
    found = reports.definitions(CLIENTS)
    return {**found, "relations": [CLOSE], "subscriptions": [*found["subscriptions"], TOLD]}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder, with the definitions beside: reports and changes, a second apart, decided as by a pipeline."""
    folder = tmp_path_factory.mktemp("system")
    (folder / "own.yaml").write_text(yaml.safe_dump(defined()))
    with closing(SqliteJournal(journal_path(folder))) as journal:
        define(journal, files.load([folder / "own.yaml"]))
        for number, document in enumerate(reports.documents(CLIENTS, REPORTS)):
            event = read_event(document, Mark("test"), accepted=START + timedelta(seconds=number))
            journal.append("events", entered_events([event], "main"))
        _decide(journal, state_path(folder) / "known")
    yield folder


def _decide(journal: SqliteJournal, snapshots: Path) -> None:
    known = StateFold()
    for table in journal.row_ranges("events", 0, journal.end("events"), SNAPSHOT):
        batches = [(derived_of(batch.events), decide(batch, batch.events)) for batch in known.fold(table, changes)]
        for log, tables in zip(("derived", "deliveries"), zip(*batches, strict=True), strict=True):
            journal.commit_range(log, pa.concat_tables(tables), known.position)
        if known.position == SNAPSHOT:
            save(known, snapshots)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def delivered(folder: Path, after: int = 0, through: int = 1 << 40) -> list[tuple[Any, ...]]:
    """What the journal says was delivered of some positions, by the events' ids."""
    with closing(SqliteJournal(journal_path(folder), read_only=True)) as journal:
        both = pa.concat_tables([journal.read(log, 0, 1 << 40) for log in ("events", "derived")]).to_pylist()
        found = journal.read("deliveries", after, min(through, 1 << 40) - after).to_pylist()
    ids = {(one["position"], one["part"]): one["id"] for one in both}
    names = ("client", "subscription", "level", "position")
    return [(ids[one["position"], one["part"]], *(one[name] for name in names)) for one in found]


def decided(text: str) -> list[tuple[Any, ...]]:
    names = ("event", "client", "subscription", "level", "position")
    return [tuple(one[name] for name in names) for one in rows(text)]


def test_replay_of_a_system_is_what_it_decided(system: Path, tmp_path: Path) -> None:
    """By position and client, derived events too; and nothing in its folder is changed."""
    before = {file: file.stat().st_mtime_ns for file in (system / "journal", *system.rglob("*.arrow"))}
    done = nearcast(system, "replay", "--data", str(system), "--derived", str(tmp_path / "derived.jsonl"))
    assert (0, delivered(system)) == (done.returncode, decided(done.stdout)), done.stderr
    with closing(SqliteJournal(journal_path(system))) as journal:
        payloads = journal.read("derived", 0, 1 << 40).column("payload").to_pylist()
    assert payloads == (tmp_path / "derived.jsonl").read_bytes().splitlines()
    assert len(payloads) > 20
    assert before == {file: file.stat().st_mtime_ns for file in before}


@pytest.mark.parametrize(("first", "last"), [(1, 1), (40, 60), (SNAPSHOT + 1, None), (SNAPSHOT + 15, 110), (None, 50)])
@pytest.mark.parametrize("snapshots", [True, False])
def test_a_range_is_decided_as_within_the_whole(
    first: int | None, last: int | None, snapshots: bool, system: Path
) -> None:
    """What was before it counts as ever, read from a snapshot where there is one in time, else from the journal."""
    where = ("--data", str(system)) if snapshots else ("--journal", str(journal_path(system)))
    bounds = [part for name, at in (("--from", first), ("--to", last)) if at for part in (name, str(at))]
    done = nearcast(system, "replay", *where, *bounds)
    assert delivered(system, (first or 1) - 1, last or 1 << 40) == decided(done.stdout), done.stderr


def test_a_range_may_be_of_times(system: Path) -> None:
    """Those of acceptance, both ends included."""
    with closing(SqliteJournal(journal_path(system), read_only=True)) as journal:
        first = journal.positions("h30")[0]
    bounds = ("--from", "2126-01-01T00:00:30Z", "--to", "2126-01-01T01:00:59.500+01:00")
    done = nearcast(system, "replay", "--data", str(system), *bounds)
    assert delivered(system, first - 1, first + 29) == decided(done.stdout), done.stderr
    assert "note: 30 events, " in done.stderr


def test_a_range_of_a_file_goes_by_its_times(tmp_path: Path) -> None:
    """Nobody accepted its events; those of no time are within where they stand."""
    times = (None, "00", "01", None, "03", "02", "04", None)
    texts = [{} if one is None else {"time": f"2126-01-01T00:00:{one}Z"} for one in times]
    head = {"specversion": "1.0", "type": "unit", "source": "s"}
    lines = [json.dumps({**head, "id": f"e{number}", **text}) for number, text in enumerate(texts)]
    (tmp_path / "e.jsonl").write_text("\n".join(lines))
    subscription = {"id": "all", "client": "a", "filter": "type = 'unit'"}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({"clients": [{"id": "a"}], "subscriptions": [subscription]}))
    bounds = ("--from", "2126-01-01T00:00:01Z", "--to", "2126-01-01T00:00:02Z")
    done = nearcast(tmp_path, "replay", "--definitions", "d.yaml", "--events", "e.jsonl", *bounds)
    assert ["e2", "e3", "e4", "e5"] == [one["event"] for one in rows(done.stdout)], done.stderr


def test_a_snapshot_saves_what_came_before(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing before it is read."""
    read: list[int] = []
    ranges = SqliteJournal.row_ranges

    def noted(self: SqliteJournal, log: str, after: int, through: int, limit: int) -> Iterator[pa.Table]:
        read.append(after)
        return ranges(self, log, after, through, limit)

    monkeypatch.setattr(SqliteJournal, "row_ranges", noted)
    nearcast(system, "replay", "--data", str(system), "--from", str(SNAPSHOT + 5))
    assert SNAPSHOT == min(read)
    nearcast(system, "replay", "--data", str(system), "--from", str(SNAPSHOT + 5), "--definitions", "own.yaml")
    assert 0 == min(read)


def test_a_snapshot_that_cannot_be_read_costs_reading_and_stays(system: Path, tmp_path: Path) -> None:
    """It is the pipeline's to remove: who only reads goes on with the journal."""
    shutil.copytree(system, tmp_path / "copy")
    [snapshot] = (state_path(tmp_path / "copy") / "known").iterdir()
    (snapshot / "repository.arrow").write_bytes(b"")
    done = nearcast(tmp_path, "replay", "--data", "copy", "--from", str(SNAPSHOT + 5))
    assert delivered(system, SNAPSHOT + 4) == decided(done.stdout), done.stderr
    assert (snapshot / "manifest.json").exists()


def test_the_same_definitions_beside_it_decide_the_same(system: Path) -> None:
    """But for subscriptions that came and went, which the file does not have: clients move and change as they did."""
    done = nearcast(system, "replay", "--data", str(system), "--definitions", "own.yaml")
    lasting = [one for one in delivered(system) if not one[2].startswith("passing")]
    found = decided(done.stdout)
    # Where a passing subscription was the most urgent, a lasting one takes its place.
    assert set(lasting) <= set(found)
    assert {(one[0], one[1]) for one in found} <= {(one[0], one[1]) for one in delivered(system)}


def test_other_definitions_decide_the_same_events_otherwise(system: Path) -> None:
    """The journal's subscriptions, relations and settings do not count; what its clients said of themselves does."""
    other = {"clients": [{"id": "ann"}], "subscriptions": [{"id": "here", "client": "ann", "filter": NEAR}]}
    (system / "other.yaml").write_text(yaml.safe_dump(other))
    done = nearcast(system, "replay", "--data", str(system), "--definitions", "other.yaml")
    # As `near ann`, which is one of the journal's own.
    near = nearcast(system, "replay", "--data", str(system), "--definitions", str(_only(system, "near ann")))
    assert [one[:2] for one in decided(near.stdout)] == [one[:2] for one in decided(done.stdout)]
    assert {"here"} == {one[2] for one in decided(done.stdout)}, done.stderr


NEAR = "type = 'unit' AND distance(user('ann'), this) <= 250"


def _only(folder: Path, subscription: str) -> Path:
    found = reports.definitions(CLIENTS)
    kept = [one for one in found["subscriptions"] if one["id"] == subscription]
    (folder / "only.yaml").write_text(yaml.safe_dump({**found, "subscriptions": kept}))
    return folder / "only.yaml"


def test_every_change_is_either_of_definitions_or_kept() -> None:
    """A new one has to be one or the other: others take the place of what people define, and of that only."""
    kept = {one.__name__ for one in get_args(Change)} - {one.__name__ for one in get_args(DefinitionChange)}
    assert {"ClientChange", "ClientRemoval", "ClockTick"} == kept


def test_roles_that_other_definitions_do_not_know_are_no_fault(tmp_path: Path) -> None:
    """A client's change is taken as it was then; a role without vectors only weighs nothing."""
    own = {
        "clients": [{"id": "ann", "role": "guard", "task": "watch", "position": {"x": 0, "y": 0}}],
        "subscriptions": [{"id": "s", "client": "ann", "filter": "type = 'unit'"}],
        "roles": {"guard": {"watch": {"s": [1]}}},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    with closing(SqliteJournal(journal_path(tmp_path))) as journal:
        define(journal, files.load([tmp_path / "own.yaml"]))
        data = {"client": "ann", "task": "watch", "position": {"x": 7, "y": 7}}
        moved = {"specversion": "1.0", "id": "m", "type": "nearcast.client", "source": "s", "data": data}
        unit = {"specversion": "1.0", "id": "u", "type": "unit", "source": "s", "data": {"x": 7, "y": 8}}
        events = [read_event(one, Mark("test"), accepted=START) for one in (moved, unit)]
        journal.append("events", entered_events(events, "main"))
    near = {"id": "n", "client": "ann", "filter": "type = 'unit' AND distance(user('ann'), this) < 2"}
    roles = {"cook": {"": {"n": [1, 1]}}}
    (tmp_path / "other.yaml").write_text(
        yaml.safe_dump({"clients": [{"id": "ann"}], "subscriptions": [near], "roles": roles})
    )
    done = nearcast(tmp_path, "replay", "--data", ".", "--definitions", "other.yaml")
    assert "0 dead letters" in done.stderr


def test_compare_tells_how_it_differs(system: Path) -> None:
    """Nothing under the system's own definitions; under others counts by client, and the first differences."""
    same = nearcast(system, "replay", "--data", str(system), "--compare", "--json")
    [found] = rows(same.stdout)
    assert 0 == same.returncode
    assert len(delivered(system)) == sum(one["delivered"] for one in found["clients"])
    assert [] == found["examples"]
    assert {0} == {one[kind] for one in found["clients"] for kind in ("no_longer", "new", "otherwise")}
    other = nearcast(
        system, "replay", "--data", str(system), "--definitions", str(_only(system, "kinds of bob")), "--compare"
    )
    assert 1 == other.returncode
    lines = other.stdout.splitlines()
    assert ["client", "delivered", "would", "be", "no", "longer", "new", "otherwise"] == lines[0].split()
    counts = {name: [int(one) for one in rest] for name, *rest in (line.split() for line in lines[1:4])}
    for client, (before, after, gone, new, otherwise) in counts.items():
        assert (before - gone, 0) == (after - new, after and new)
        assert client == "bob" or (0, 0) == (after, otherwise)
    assert lines[4].startswith("derived events: then ")
    assert any(line.startswith("no longer: ann, ") for line in lines[5:])


def test_of_many_clients_those_with_the_most_differences_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """And how many more there are."""
    differences = DecisionDifferences()
    for number in range(22):
        differences.clients[f"c{number:02}"]["new"] = number
    shown(differences, PositionSpan(0, 1), as_json=False)
    said = capsys.readouterr().out.splitlines()
    assert ["c21", "c02"] == [said[1].split()[0], said[20].split()[0]]
    assert "and 2 more clients" == said[21]


def test_an_event_that_is_derived_in_another_order_is_the_same(system: Path) -> None:
    """With a relation more before it, its number among those of its cause is another."""
    more = defined()
    more["relations"] = [{**CLOSE, "id": "also", "detect": ["enter"]}, CLOSE]
    (system / "more.yaml").write_text(yaml.safe_dump(more))
    done = nearcast(system, "replay", "--data", str(system), "--definitions", "more.yaml", "--compare", "--json")
    [found] = rows(done.stdout)
    [ann] = [one for one in found["clients"] if one["client"] == "ann"]
    assert 0 == found["derived"]["no_longer"] < found["derived"]["new"]
    assert found["derived"]["new"] == ann["new"]


def test_a_journal_without_its_beginning_says_from_where_it_can_be_decided(system: Path, tmp_path: Path) -> None:
    """Behind the newest snapshot; under other definitions it cannot."""
    copy = _copied(system, tmp_path)
    # Rows go by whole blocks.
    with closing(SqliteJournal(journal_path(copy))) as journal:
        gone = journal.trim("events", 60, 1 << 40)
    assert 0 < gone <= SNAPSHOT < BLOCK_ROWS
    said = nearcast(copy, "replay", "--data", str(copy)).stderr
    assert "error: expected all events before position 1, got a journal that keeps them " in said
    assert f" from position {gone + 1} on, accepted 2" in said
    assert f"give --archive DIR, where it was archived; or begin with --from {SNAPSHOT + 1}, as" in said
    done = nearcast(copy, "replay", "--data", str(copy), "--from", str(SNAPSHOT + 1))
    assert delivered(system, SNAPSHOT) == decided(done.stdout)
    other = ("--definitions", str(system / "own.yaml"), "--from", str(SNAPSHOT + 1))
    said = nearcast(copy, "replay", "--data", str(copy), *other).stderr
    assert "give --archive DIR, where it was archived\n" in said


def _copied(system: Path, folder: Path) -> Path:
    """The folder, its journal's blocks written one by one as many calls do."""
    (folder / "state").mkdir()
    (folder / "state" / "known").symlink_to(state_path(system) / "known")
    with closing(SqliteJournal(journal_path(folder))) as copy, closing(SqliteJournal(journal_path(system))) as own:
        for after in range(0, own.end("events"), 20):
            copy.append("events", own.read("events", after, 20))
        for log in ("derived", "deliveries"):
            copy.commit_range(log, own.read(log, 0, 1 << 40), own.end(log))
    return folder


def test_what_is_no_history_of_a_system_is_told_in_a_line(system: Path, tmp_path: Path) -> None:
    """A folder that is none, one without a journal, another program's file, a format before, a damaged block."""

    def said(data: Path) -> str:
        done = nearcast(tmp_path, "replay", "--data", str(data))
        assert (2, "") == (done.returncode, done.stdout)
        [line] = done.stderr.splitlines()
        return line

    assert said(tmp_path / "no").endswith(
        "no folder; it is what --data of `nearcast up` names, nearcast-data unless it says otherwise"
    )
    assert "which has no file journal" in said(tmp_path)
    assert [] == list(tmp_path.iterdir())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "journal").write_text("notes")
    assert "not a database; the file is something else" in said(tmp_path / "other")
    copy = tmp_path / "copy"
    copy.mkdir()
    _copied(system, copy)
    with closing(sqlite3.connect(journal_path(copy))) as file, file:
        file.execute("UPDATE blocks SET rows = x'00' WHERE log = 'events' AND first <= 50 AND last >= 50")
    assert "malformed block" in said(copy)
    with closing(sqlite3.connect(journal_path(copy))) as file:
        file.execute("PRAGMA user_version = 3")
    assert "expected format 6, got 3, which a version before wrote; start the system once with this one" in said(copy)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give one history"),
        (("--data", ".", "--journal", "journal"), "give one system, with --data or --journal; got 2"),
        (("--journal", "no"), "no, no file and no folder"),
        (("--events", "-"), "--events needs --definitions"),
        (("--events", "-", "--definitions", "own.yaml", "--compare"), "--compare is for --data"),
        (("--data", ".", "--from", "yesterday"), "expected a position from 1 on, or a time as in"),
        (("--data", ".", "--from", "1000"), "expected a range with some of the"),
        (("--data", ".", "--from", "2130-01-01T00:00:00Z"), "from 2130-01-01T00:00:00+00:00 to the end"),
        (("--data", ".", "--to", "2010-01-01T00:00:00Z"), "from the beginning to 2010-01-01T00:00:00+00:00"),
    ],
)
def test_what_cannot_be_asked_for_is_told(words: tuple[str, ...], told: str, system: Path) -> None:
    """With what would be right."""
    done = nearcast(system, "replay", *words)
    assert (2, True) == (done.returncode, told in " ".join(done.stderr.split())), done.stderr
