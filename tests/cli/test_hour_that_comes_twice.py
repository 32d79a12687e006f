"""The hour that comes twice, in a file: replayed, published at once and at its pace it tells the same, in any zone."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from nearcast.language.control_events import changes
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from tests.cli.test_offline import nearcast
from tests.server.conftest import running

MET = {
    "id": "met",
    "a": "subject = 'u'",
    "b": "subject = 'v'",
    "when": "distance(a, b) < 5",
    "for": "45 s",
    "detect": ["enter", "dwell", "exit"],
}
DEFINITIONS = {"channels": {"plane": {"coordinates": "planar"}}, "relations": [MET]}

# On 25 October 2026 clocks in Berlin go back from 3:00 to 2:00 at 1:00 UTC.
REPORTS = [
    ("u", 0.0, "2026-10-25T02:59:30.25+02:00"),
    ("v", 1.0, "2026-10-25T02:59:30.750+02:00"),
    ("w", 900.0, "2026-10-25T02:00:10.5+01:00"),
    ("u", 0.5, "2026-10-25T02:00:20.123456789+01:00"),
    ("u", 500.0, "2026-10-25T02:30:00.1+01:00"),
    ("v", 500.5, "2026-10-24T22:31:00-03:00"),
    ("w", 900.0, "2026-10-25T03:10:00.0000001+01:00"),
    ("v", 0.0, "2026-10-25T02:10:00.25Z"),
]
TOLD = [
    ("enter", "2026-10-25T00:59:30.75Z"),
    ("dwell", "2026-10-25T01:00:15.75Z"),
    ("exit", "2026-10-25T01:30:00.10Z"),
    ("enter", "2026-10-25T01:31:00Z"),
    ("dwell", "2026-10-25T01:31:45Z"),
    ("exit", "2026-10-25T02:10:00.25Z"),
]
"""What is told of them, and of when."""


def documents() -> list[dict[str, Any]]:
    return [
        {
            "specversion": "1.0", "id": str(number), "type": "t", "source": "s", "subject": who, "time": time,
            "data": {"x": x, "y": 0.0},
        }
        for number, (who, x, time) in enumerate(REPORTS)
    ]  # fmt: skip


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the file, for processes in a zone."""
    monkeypatch.setenv("TZ", request.param)
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, documents())))
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(DEFINITIONS))
    return tmp_path


def seen(derived: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["data"]["detect"], one["time"].replace("0000Z", "Z")) for one in derived]


def test_replay_tells_of_an_hour_that_comes_twice(folder: Path) -> None:
    """By moments, however their zones and fractions are written."""
    done = nearcast(
        folder, "replay", "--engine", "local", "--definitions", "d.yaml", "--events", "e.jsonl", "--derived", "r"
    )
    assert 0 == done.returncode, done.stderr
    assert TOLD == seen([json.loads(line) for line in (folder / "r").read_text().splitlines()])


@pytest.mark.parametrize("pace", [(), ("--speed", "36000")])
def test_what_is_published_tells_the_same_of_an_hour_that_comes_twice(folder: Path, pace: tuple[str, ...]) -> None:
    """At once, and at its own pace: between the two half past twos passes an hour."""

    async def published() -> pa.Table:
        async with running() as server:
            for path, document in (("/settings", {"channels": DEFINITIONS["channels"]}), ("/relations/met", MET)):
                (await server.http.put(path, json=document)).raise_for_status()
            command = [sys.executable, "-m", "nearcast", "publish", "--url", server.url, *pace, "e.jsonl"]
            process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=PIPE, stderr=PIPE)
            async with asyncio.timeout(180):
                _, complained = await process.communicate()
            assert 0 == process.returncode, complained.decode()
            return server.journal.read("events", 0, 1_000)

    events, known = asyncio.run(published()), StateFold()
    told = [
        json.loads(payload)
        for batch in known.fold(events, changes)
        for payload in derived_of(batch.events).column("payload").to_pylist()
    ]
    assert TOLD == seen(told)
