"""`nearcast publish` as a process, to a real server: at a pace, and ended by Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nearcast.cli import publish
from nearcast.client import Publisher
from nearcast.client.event_schedule import EventSchedule
from tests.server.conftest import Running, running, unit, until

NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)


def told(id: str, seconds: float | None) -> str:
    """An event so many seconds after noon, or of no time."""
    time = {} if seconds is None else {"time": (NOON + timedelta(seconds=seconds)).isoformat()}
    return json.dumps({**unit(id), **time})


async def started(server: Running, *words: str | Path, stdin: int | None = None) -> Process:
    command = [sys.executable, "-m", "nearcast", "publish", "--url", server.url, *map(str, words)]
    return await asyncio.create_subprocess_exec(*command, stdin=stdin, stdout=PIPE, stderr=PIPE)


async def ended(process: Process) -> tuple[int | None, str, list[str]]:
    """The exit code, and what was said."""
    async with asyncio.timeout(180):
        said, complained = await process.communicate()
    return process.returncode, said.decode(), complained.decode().splitlines()


def stored(server: Running) -> list[dict[str, Any]]:
    return server.journal.read("events", 0, 1_000).to_pylist()


def test_a_file_is_published_at_its_own_pace_in_its_own_order(tmp_path: Path) -> None:
    """What is earlier than an event before it is told and goes at once; with --now times are those of publishing."""
    lines = [
        told("e0", 0),
        told("e1", 7200),
        "{",
        told("e2", 3600),
        told("e3", None),
        told("e4", 10_800),
        told("e0", 0),
    ]
    (tmp_path / "e.jsonl").write_text("\n".join(lines))

    async def test() -> None:
        async with running() as server:
            before = datetime.now(UTC)
            process = await started(server, tmp_path / "e.jsonl", "--speed", "36000", "--now", "--json")
            code, said, complained = await ended(process)
            rows = stored(server)
        assert (1, {"published": 5, "known": 1, "refused": 1}) == (code, json.loads(said)), complained
        assert ["e0", "e1", "e2", "e3", "e4"] == [row["id"] for row in rows]
        times = [row["time"] for row in rows]
        assert before <= times[0] <= rows[0]["accepted"]
        behind = [None if time is None else (time - times[0]).total_seconds() for time in times]
        assert [0.0, 0.2, 0.1, None, 0.3] == behind
        # As published, so accepted: not before.
        assert all(row["time"] is None or row["time"] <= row["accepted"] for row in rows)
        assert f"warning: {tmp_path / 'e.jsonl'}:4: expected events in the order of time, got 2020-01-01T13:00:00" in (
            "\n".join(complained)
        )
        assert "warning: 2 events not in the order of time, published at once" in complained

    asyncio.run(test())


def test_ctrl_c_tells_how_far_it_came_and_the_same_again_goes_on(tmp_path: Path) -> None:
    """Also while standard input is waited for; what was answered is counted, and is not taken twice."""
    (tmp_path / "e.jsonl").write_text("\n".join(told(f"e{number}", 3600 * number) for number in range(3)))

    async def test() -> None:
        async with running() as server:
            process = await started(server, tmp_path / "e.jsonl", "--speed", "1")
            await until(lambda: server.journal.end("events") == 1)
            process.send_signal(signal.SIGINT)
            code, _, complained = await ended(process)
            assert 1 == code
            assert [
                "note: 1 event published, 0 refused",
                f"note: ended behind {tmp_path / 'e.jsonl'}:1; the same again goes on: what the journal has is not"
                " taken twice",
            ] == complained[-2:]
            code, _, complained = await ended(await started(server, tmp_path / "e.jsonl"))
            assert (0, ["note: 2 events published, 1 known already, 0 refused"]) == (code, complained)
            process = await started(server, "-", stdin=PIPE)
            assert process.stdin is not None
            process.stdin.write("".join(f"{told(f'p{number}', 0)}\n" for number in range(501)).encode())
            await process.stdin.drain()
            # So many go at once; now it waits for more to come through the pipe, or will.
            await until(lambda: server.journal.end("events") >= 503)
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                assert 1 == await process.wait()
            process.stdin.close()
            await process.communicate()

    asyncio.run(test())


def test_at_a_pace_it_says_now_and_then_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the place in the file; not where all goes at once."""
    monkeypatch.setattr(publish, "LONG", 0.0)
    (tmp_path / "e.jsonl").write_text("\n".join(told(f"e{number}", number) for number in range(2)))

    async def test() -> None:
        async with running() as server:
            for schedule in (EventSchedule(rate=1e6), EventSchedule()):
                run = publish._PublishRun(schedule, None, False)
                await run.publish((tmp_path / "e.jsonl",), [server.url], None)
                assert (2, False) == (run.taken + run.known, run.stopped)

    asyncio.run(test())
    said = capsys.readouterr().err.splitlines()
    assert f"note: 2 events published, 0 refused, up to {tmp_path / 'e.jsonl'}:2" in said
    assert not any("known" in line for line in said)


def test_a_server_that_goes_away_leaves_a_right_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was published before is told, then what is wrong."""
    (tmp_path / "e.jsonl").write_text("\n".join([told("e0", 0), told("e1", 1)]))
    monkeypatch.setattr(publish, "require_server", lambda _: None)
    monkeypatch.setattr(publish, "Publisher", partial(Publisher, patience=0.0))
    found = CliRunner().invoke(publish.command, [str(tmp_path / "e.jsonl"), "--url", "http://127.0.0.1:1"])
    assert "note: 0 events published, 0 refused; of what was sent last it is not known" in found.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--speed", "2", "--rate", "2"], "give --speed or --rate"),
        (["--now"], "--now is for --speed"),
        (["--speed", "0"], "expected a number above 0, got '0'"),
        (["--rate", "nan"], "expected a number above 0, got 'nan'"),
        (["--rate", "inf"], "expected a number above 0"),
    ],
)
def test_a_pace_that_is_none_is_told(words: list[str], expected: str) -> None:
    """Before anything is sent."""
    found = CliRunner().invoke(publish.command, words)
    assert (2, True) == (found.exit_code, expected in found.stderr)
