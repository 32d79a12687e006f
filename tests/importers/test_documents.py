"""CloudEvents documents: built, merged, written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import Fault
from nearcast.importers import IMPORTERS
from nearcast.importers.event_documents import client_change, document, merged, moment, time_of, write

START = datetime(2020, 1, 1, tzinfo=UTC)
SECONDS = st.lists(st.integers(0, 100)).map(sorted)


def test_absent_data() -> None:
    """Data without a value are not in the event."""
    assert {"a": 0, "c": False} == document("t", "s", "1", "…", {"a": 0, "b": None, "c": False})["data"]


def test_client_change() -> None:
    """A change of a client is a control event about that client."""
    event = client_change("s", "1", moment(START), "crew 1", task="attack")
    assert ("nearcast.client", "crew 1") == (event["type"], event["subject"])
    assert {"client": "crew 1", "task": "attack"} == event["data"]


def test_moment_is_utc() -> None:
    """A moment is written in UTC, whatever its zone."""
    sydney = datetime(2020, 1, 1, 11, 0, tzinfo=timezone(timedelta(hours=11)))
    assert "2020-01-01T00:00:01.500Z" == moment(sydney, 1.5)


@given(st.lists(SECONDS, max_size=4))
def test_merged_ascends_and_keeps_all(streams: list[list[int]]) -> None:
    """Merging keeps every event, ascends in time, and at equal times goes by the order of the streams."""
    events = [
        [document("t", f"s{number}", str(index), moment(START, at), {}) for index, at in enumerate(stream)]
        for number, stream in enumerate(streams)
    ]
    together = list(merged(*events))
    keys = [(time_of(event), event["source"]) for event in together]
    assert sorted(keys) == keys
    assert sum(map(len, streams)) == len(together)


def test_write(tmp_path: Path) -> None:
    """An events file holds one document a line."""
    events = [document("t", "s", str(index), moment(START), {"text": "a\nb"}) for index in range(3)]
    assert 3 == write(tmp_path / "events.jsonl", events)
    assert events == [orjson.loads(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]


def test_an_existing_file_stays_until_there_is_another(tmp_path: Path) -> None:
    """Also if there is nothing to write, or what is written fails; nothing is left beside it."""
    path = tmp_path / "events.jsonl"
    path.write_text("before")

    def failing() -> Iterator[dict[str, Any]]:
        yield document("t", "s", "1", moment(START), {})
        raise OSError("no more")

    with pytest.raises(Fault, match=r"expected at least one event to write, got none; .*events.jsonl stays as it was"):
        write(path, [])
    with pytest.raises(OSError, match="no more"):
        write(path, failing())
    assert ("before", [path]) == (path.read_text(), list(tmp_path.iterdir()))
    (tmp_path / "link").symlink_to(path)
    assert 1 == write(tmp_path / "link", [document("t", "s", "1", moment(START), {})])
    assert (True, 1) == ((tmp_path / "link").is_symlink(), len(path.read_text().splitlines()))
    assert 1 == write(Path("/dev/null"), [{}])
    assert Path("/dev/null").is_char_device()


def test_names() -> None:
    """The command line finds importers under these names."""
    assert ["ais", "nsw-fires"] == sorted(IMPORTERS)
