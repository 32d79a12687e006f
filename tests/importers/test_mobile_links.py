"""Links that follow measured traces."""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import Fault
from nearcast.importers.event_documents import time_of
from nearcast.importers.mobile_links import LinkTrace, readings, trace, traces

START = datetime(2020, 1, 1, tzinfo=UTC)
TUNNEL = trace(
    "tunnel",
    [
        {"duration_ms": 1000, "bandwidth_kbps": 800},
        {"duration_ms": 60_000, "bandwidth_kbps": 300},
        {"duration_ms": 2000, "bandwidth_kbps": 2000},
    ],
)


@pytest.mark.parametrize(("at", "kbits"), [(0, 800), (0.999, 800), (1, 300), (5.9, 300), (6, 0), (60, 0), (61.5, 2000)])
def test_long_samples_go_dead(at: float, kbits: float) -> None:
    """A sample is believed for five seconds; for the rest of it the link is dead."""
    assert kbits == TUNNEL.bandwidth(at)


@given(st.integers(0, 62_999), st.integers(0, 50))
def test_cycles(at_ms: int, rounds: int) -> None:
    """After its end a trace begins anew."""
    inside = LinkTrace("whole seconds", (1.0, 4.0, 8.0), (1.0, 2.0, 3.0))
    at = at_ms % 8
    assert inside.bandwidth(at) == inside.bandwidth(at + rounds * 8)


def test_readings_only_on_a_change_of_class() -> None:
    """A client tells its bandwidth at first, then whenever it crosses a bound; times ascend."""
    told = list(readings([TUNNEL], ["a"], START, 600, every=1.0, bounds=(0, 500)))
    classes = [
        (event["data"]["readings"]["bandwidth"] > 500, event["data"]["readings"]["bandwidth"] > 0) for event in told
    ]
    assert all(before != after for before, after in itertools.pairwise(classes))
    assert sorted(map(time_of, told)) == [time_of(event) for event in told]
    assert len({event["id"] for event in told}) == len(told) > 20


@pytest.mark.data
def test_real_traces(data: Callable[[str], Path]) -> None:
    """The logs are the 86 with 93,104 samples in 31.2 hours that their description counts."""
    links = traces(data("hsdpa_norway_3g/3Glogs.tar.gz"))
    assert 86 == len(links)
    assert 93_104 == sum(len(link.ends) for link in links)
    assert 31.2 == round(sum(link.seconds for link in links) / 3600, 1)
    assert sorted(link.name for link in links) == [link.name for link in links]


@pytest.mark.parametrize(
    ("told", "files"),
    [
        ("expected a tar of JSON logs, got none with files that end in .json", {"a.txt": b""}),
        ("a.json: expected a log of {duration_ms, bandwidth_kbps}, got 'duration_ms'", {"a.json": b"[{}]"}),
        ("a.json: expected a log of {duration_ms, bandwidth_kbps}, got no samples that last", {"a.json": b"[]"}),
        ("a.json: expected a log of {duration_ms, bandwidth_kbps}, got unexpected", {"a.json": b"x"}),
    ],
)
def test_what_is_no_log_is_told(told: str, files: dict[str, bytes], tmp_path: Path) -> None:
    """With the file within the archive."""
    path = tmp_path / "links.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    with pytest.raises(Fault) as caught:
        traces(path)
    assert told in str(caught.value)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(Fault, match="expected a tar of JSON logs"):
        traces(path)
