"""The commands that need no running system: check, match, replay."""

from __future__ import annotations

import gzip
import io
import json
import logging
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest

from nearcast.cli.main import OneLine, main
from nearcast.cli.options import url_of
from nearcast.cli.output import DeadLetterLog
from nearcast.language.event_files import read_documents

DEFINITIONS = """\
awareness: {bandwidth: {maximum: 3750}}
channels: {ops: {coordinates: planar, types: [unit, chat]}}
clients:
  - {id: a, readings: {bandwidth: 3750}, position: {x: 0, y: 0}}
subscriptions:
  - {id: near, client: a, filter: "type = 'unit' AND distance(user('a'), this) <= 150", relevance: [1, 0.5]}
  - {id: talk, client: a, filter: "type = 'chat'", relevance: 0.3}
"""


BAD = """\
clients:
  - {id: a, rol: x}
subscriptions:
  - {id: s, client: b, filter: 'a ='}
"""


def event(id: str, type: str = "unit", **data: object) -> str:
    return json.dumps({"specversion": "1.0", "id": id, "type": type, "source": "s", "data": data})


EVENTS = "\n".join(
    [
        event("e1", x=100, y=100, size=3),
        event("move", "nearcast.client", client="a", position={"x": 1000, "y": 0}, readings={"bandwidth": 100}),
        event("e2", x=100, y=100, size=4),
        event("e3", "chat", text="hello"),
        "{broken",
        event("e4", "smoke"),
        event("e1", x=0, y=0),
    ]
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "d.yaml").write_text(DEFINITIONS)
    (tmp_path / "e.jsonl").write_text(EVENTS)
    return tmp_path


def nearcast(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the command does, in this process: a new one takes more than a second only to start."""
    said, complained = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(complained):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["nearcast", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    texts = [stream.buffer.getvalue().decode() for stream in (said, complained)]
    return subprocess.CompletedProcess(arguments, ended.value.code or 0, *texts)


def test_replay_writes_who_would_have_got_what_at_which_priority(files: Path) -> None:
    """As of each event's own position: the receiver moves away and its link gets bad on the way."""
    done = nearcast(files, "replay", "--definitions", "d.yaml", "--events", "e.jsonl")
    assert 0 == done.returncode, done.stderr
    expected = [
        {"event": "e1", "client": "a", "subscription": "near", "level": 1, "priority": 0, "position": 1},
        {"event": "e3", "client": "a", "subscription": "talk", "level": 0, "priority": 2, "position": 4},
    ]
    assert expected == [json.loads(line) for line in done.stdout.splitlines()]


def test_replay_tells_of_every_line_that_it_could_not_take(files: Path) -> None:
    """With file and line; the rest goes on. An event that comes again is left out."""
    said = nearcast(files, "replay", "--definitions", "d.yaml", "--events", "e.jsonl").stderr
    assert "dead letter: e.jsonl:5:2: expected JSON" in said
    assert "dead letter: e.jsonl:6: expected an event for a channel: ops" in said
    assert "left out because their source and id came before: 1" in said
    assert "4 events, 2 deliveries, 2 dead letters (local)" in said


@pytest.mark.parametrize(("count", "came"), [(0, "1 dead letter"), (1_154, "1,154 dead letters")])
def test_replay_of_nothing_that_can_be_taken_ends_with_1(files: Path, count: int, came: str) -> None:
    """And says so; so is an empty file. Of dead letters of one kind twenty are shown, and how many others there are."""
    (files / "bad.jsonl").write_text("{}\n" * count)
    done = nearcast(files, "replay", "--definitions", "d.yaml", "--events", "bad.jsonl")
    assert (1, "") == (done.returncode, done.stdout)
    assert f"error: expected events to decide, got {came}\n" in done.stderr
    assert max(1, min(20, count)) == done.stderr.count("dead letter: bad.jsonl:")
    assert count == 0 or 'dead letter: and 1,134 more: expected specversion "1.0"\n' in done.stderr


def test_check_shows_twenty_of_a_kind_and_counts_all(files: Path) -> None:
    """Those of another kind are not lost behind them."""
    (files / "e.jsonl").write_text("{}\n" * 1_154 + "{")
    done = nearcast(files, "check", "d.yaml", "--events", "e.jsonl")
    assert (1, "1,155 faults, 0 warnings\n") == (done.returncode, done.stdout)
    assert 20 == done.stderr.count("expected specversion") - 1
    assert 'error: and 1,134 more: expected specversion "1.0"\n' in done.stderr
    assert "expected JSON" in done.stderr
    told = nearcast(files, "check", "d.yaml", "--events", "e.jsonl", "--json").stdout.splitlines()
    assert {"kind": "error", "more": 1134, "expected": 'specversion "1.0"'} == json.loads(told[-1])


def test_replay_tells_why_a_long_history_was_not_decided_by_spark(files: Path) -> None:
    """Its events cost little, so Spark would not even have started; on one core it never pays."""
    head = '{"specversion": "1.0", "type": "chat", "source": "s", "id": "'
    (files / "long.jsonl").write_text("".join(f'{head}{number}"}}\n' for number in range(12_500)))
    command = ("replay", "--definitions", "d.yaml", "--events", "long.jsonl", "--out", "o.jsonl")
    said = nearcast(files, *command, "--master", "local[1]").stderr
    assert re.search(r"\(local: for 500 events about \d s in this process, 1\d s by Spark on 1 core\)", said), said
    assert "(local)" in nearcast(files, *command, "--engine", "local").stderr


def test_replay_writes_to_a_file(files: Path) -> None:
    """The same lines."""
    command = ("replay", "--definitions", "d.yaml", "--events", "e.jsonl")
    nearcast(files, *command, "--out", "o.jsonl")
    assert nearcast(files, *command).stdout == (files / "o.jsonl").read_text()


def test_match_prints_the_ids_of_matching_events(files: Path) -> None:
    """In their order; with --count their number; with --json the events as they came."""
    assert "e1\ne2\n" == nearcast(files, "match", "size BETWEEN 3 AND 4", "e.jsonl").stdout
    assert "2\n" == nearcast(files, "match", "size BETWEEN 3 AND 4", "e.jsonl", "--count").stdout
    assert EVENTS.splitlines()[3] + "\n" == nearcast(files, "match", "type = 'chat'", "e.jsonl", "--json").stdout


def test_match_takes_geojson_features(files: Path) -> None:
    """Properties by name, the geometry as geom, in degrees."""
    points = [{"type": "Point", "coordinates": [lon, 0]} for lon in (0, 0.001, 1)]
    features = [{"type": "Feature", "id": f"f{i}", "properties": {}, "geometry": one} for i, one in enumerate(points)]
    (files / "f.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    done = nearcast(files, "match", "S_DWITHIN(geom, POINT(0 0), 200)", "f.geojson")
    assert "f0\nf1\n" == done.stdout
    beyond = nearcast(files, "match", "S_DISJOINT(geom, POINT(90 180))", "f.geojson")
    assert (2, True) == (beyond.returncode, "longitude comes first" in beyond.stderr)


def test_what_is_published_is_read_as_by_every_command(tmp_path: Path) -> None:
    """Features become CloudEvents, events go as they came; what is neither is told and left out."""
    path = tmp_path / "f.json"
    point = {"type": "Point", "coordinates": [1, 2]}
    feature = {"type": "Feature", "id": 7, "properties": {"size": 3}, "geometry": point}
    values = [orjson.loads(event("a")), feature, {"type": "Feature", "geometry": 5}]
    path.write_bytes(gzip.compress(orjson.dumps(values)))
    letters = DeadLetterLog()
    first, second = (document for _, document in read_documents((path,), letters))
    assert (orjson.loads(event("a")), 1) == (first, letters.count)
    expected = {"specversion": "1.0", "id": "7", "type": "feature", "source": str(path)}
    assert expected | {"data": {"size": 3, "geom": point}} == second


@pytest.mark.parametrize("command", ["match", "check", "replay", "explain"])
def test_standard_input_is_read_by_every_command(command: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also gzipped, and what is cut off is told in one line."""
    arguments = {
        "match": ["match", "type = 'unit'", "-"],
        "check": ["check", "-"],
        "replay": ["replay", "--definitions", str(files / "d.yaml"), "--events", "-"],
        "explain": ["explain", "e1", "--definitions", str(files / "d.yaml"), "--events", "-"],
    }[command]
    packed = gzip.compress((event("e1") + "\n").encode())
    for content, code in ((packed, 0), (packed[:-4], 1 if command == "check" else 2)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        done = nearcast(files, *arguments)
        told = "error: standard input: expected a whole gzip file, got one that is cut off" in done.stderr
        assert (code, bool(code)) == (done.returncode, told)


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (0, ("match", "type = 'unit'", "e.jsonl")),
        (1, ("match", "type = 'nothing'", "e.jsonl")),
        (2, ("match", "type = = 'unit'", "e.jsonl")),
    ],
)
def test_a_process_of_the_command_does_the_same(code: int, arguments: tuple[str, ...], files: Path) -> None:
    """Started as a person starts it: the same exit code, output and complaints."""
    command = [sys.executable, "-m", "nearcast", *arguments]
    done = subprocess.run(command, cwd=files, capture_output=True, text=True, timeout=60)
    here = nearcast(files, *arguments)
    assert code == done.returncode
    assert (here.returncode, here.stdout, here.stderr) == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (0, ("match", "type = 'unit'", "e.jsonl")),
        (1, ("match", "type = 'nothing'", "e.jsonl")),
        (2, ("match", "type = = 'unit'", "e.jsonl")),
        (2, ("match", "distance(user('a'), this) <= 5", "e.jsonl")),
        (2, ("match", "type = 'unit'", "missing.jsonl")),
        (0, ("check", "d.yaml")),
        (1, ("check", "d.yaml", "e.jsonl")),
        (2, ("replay", "--definitions", "e.jsonl", "--events", "e.jsonl")),
        (2, ("unknown",)),
        (0, ("--help",)),
    ],
)
def test_exit_codes(code: int, arguments: tuple[str, ...], files: Path) -> None:
    """0 done, 1 asked and answered no, 2 could not be done; errors are told without a traceback."""
    done = nearcast(files, *arguments)
    assert code == done.returncode
    assert "Traceback" not in done.stderr


def test_check_prints_every_fault_with_its_place(files: Path) -> None:
    """For a person by default, as JSON lines for machines."""
    (files / "bad.yaml").write_text(BAD)
    said = nearcast(files, "check", "bad.yaml")
    lines = {int(line.split(":")[2]) for line in said.stderr.splitlines() if line.startswith("error: bad.yaml:")}
    assert (1, {2, 4}) == (said.returncode, lines)
    rows = [json.loads(line) for line in nearcast(files, "check", "bad.yaml", "--json").stdout.splitlines()]
    assert {2, 4} == {row["line"] for row in rows if (row["kind"], row["file"]) == ("error", "bad.yaml")}


def test_a_configuration_file_gives_options(files: Path) -> None:
    """By subcommand; what is unknown in it is a fault."""
    (files / "good.toml").write_text("[match]\ncount = true\n")
    (files / "bad.toml").write_text("[match]\ncuont = true\n")
    command = ("match", "type = 'unit'", "e.jsonl")
    assert "3\n" == nearcast(files, "--config", "good.toml", *command).stdout
    said = nearcast(files, "--config", "bad.toml", *command)
    assert (2, "error: bad.toml: expected options of `nearcast match` in [match], got cuont\n") == (
        said.returncode,
        said.stderr,
    )


@pytest.mark.parametrize("node, warned, told", [("main", 1, 0), ("north", 0, 1)])
def test_replay_is_of_one_entry_node(tmp_path: Path, node: str, warned: int, told: int) -> None:
    """A relation that is local to another sees nothing of it, and that is warned of."""
    relation = {"id": "r", "a": {"entity": "a"}, "b": {"entity": "b"}, "when": "distance(a, b) < 10"}
    defined = {"channels": {"c": {"coordinates": "planar"}}, "relations": [relation | {"scope": {"local": "north"}}]}
    head = {"specversion": "1.0", "type": "t", "source": "s", "data": {"x": 0, "y": 0}}
    (tmp_path / "d.yaml").write_text(json.dumps(defined))
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(head | {"id": one, "subject": one}) + "\n" for one in "ab"))
    files = ("--definitions", "d.yaml", "--events", "e.jsonl", "--derived", "derived")
    done = nearcast(tmp_path, "replay", *files, "--node", node)
    assert warned == done.stderr.count("expected the relation r local to main")
    assert told == len((tmp_path / "derived").read_text().splitlines())


@pytest.mark.parametrize(("lasting", "warned"), [("10 s", 1), (None, 0)])
def test_replay_warns_where_relations_wait_and_events_have_no_time(
    tmp_path: Path, lasting: str | None, warned: int
) -> None:
    """Such events let no time pass, so nothing dwells; control events need none."""
    sides = {"id": "long", "a": {"entity": "x"}, "b": {"entity": "y"}, "when": "distance(a, b) < 10"}
    waiting = {"detect": ["enter", "dwell"], "for": lasting} if lasting else {}
    (tmp_path / "d.yaml").write_text(json.dumps({"relations": [{**sides, **waiting}]}))
    (tmp_path / "e.jsonl").write_text("\n".join([event("1", x=1, y=1), event("2", "nearcast.client", client="c")]))
    said = nearcast(tmp_path, "replay", "--definitions", "d.yaml", "--events", "e.jsonl").stderr
    told = "expected events with a time, for the relations that wait for it to pass: long, got 1 event without"
    assert warned == said.count(told)


def test_a_log_line_is_one_line() -> None:
    """A name with line breaks in it writes no lines of its own, and tells the terminal nothing; tracebacks stay."""
    try:
        raise ValueError("why")
    except ValueError:
        record = logging.LogRecord(
            "n", logging.INFO, "f", 1, "taken client=%s", ("a\nERROR forged\x1b[2J",), sys.exc_info()
        )
    first, *rest = OneLine("%(levelname)s %(message)s").format(record).splitlines()
    assert r"INFO taken client=a\x0aERROR forged\x1b[2J" == first
    assert "ValueError: why" == rest[-1]


@pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
def test_an_address_is_a_url_whatever_its_kind(host: str) -> None:
    """The colons of IPv6 are not taken for a port."""
    assert (host, 8640) == (urlsplit(url_of(host, 8640)).hostname, urlsplit(url_of(host, 8640)).port)


def test_a_folder_that_cannot_be_written_is_told_in_a_line(tmp_path: Path) -> None:
    """Which file it was, and why: no traceback."""
    (tmp_path / "file").touch()
    done = nearcast(tmp_path, "up", "--data", "file/below")
    assert 2 == done.returncode
    assert "error: expected to use file/below, got Not a directory; look at its rights\n" == done.stderr
