"""The hour that comes twice: moments are moments, in whatever zone they are written, and wherever a process runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

import nearcast

BERLIN = ZoneInfo("Europe/Berlin")
MET = {
    "channels": {"plane": {"coordinates": "planar"}},
    "relations": [
        {
            "id": "met",
            "a": "subject = 'u'",
            "b": "subject = 'v'",
            "when": "distance(a, b) < 5",
            "for": "45 min",
            "detect": ["enter", "dwell", "exit"],
        }
    ],
}
# On 25 October 2026 clocks in Berlin go back from 3:00 to 2:00 at 1:00 UTC.
FIRST = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
HOURS = [(0, "u", 0), (0, "v", 1), (1, "w", 900), (2, "u", 500)]
"""Hours after the first half past two, who, and where."""


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/St_Johns"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of this process."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


def _told(times: list[Any]) -> list[tuple[str, str]]:
    """What is told of events of these times, and of when."""
    rows = zip(times, HOURS, strict=True)
    columns = [{"id": str(n), "type": "t", "source": "s", "subject": who, "time": at, "x": x, "y": 0} for n, (at, (_, who, x)) in enumerate(rows)]  # fmt: skip # noqa: E501
    told: list[dict[str, Any]] = []
    nearcast.replay(pd.DataFrame(columns), nearcast.Definitions.read(MET), on_derived=told.append)
    return [(one["data"]["detect"], one["time"]) for one in told]


@pytest.mark.usefixtures("_zone")
def test_half_past_two_comes_twice() -> None:
    """Local times with their offsets, times with a zone, and those of UTC are the same: 45 minutes are no hour more."""
    moments = [FIRST + timedelta(hours=hours) for hours, _, _ in HOURS]
    local = [one.astimezone(BERLIN) for one in moments]
    assert (local[0].time(), local[0].fold, local[2].fold) == (local[2].time(), 0, 1)
    expected = [
        ("enter", "2026-10-25T00:30:00Z"),
        ("dwell", "2026-10-25T01:15:00Z"),
        ("exit", "2026-10-25T02:30:00Z"),
    ]
    assert expected == _told([one.isoformat() for one in local])
    assert expected == _told([pd.Timestamp(one) for one in local])
    assert expected == _told([one.replace(tzinfo=None) for one in moments]), "without a zone it is UTC"
