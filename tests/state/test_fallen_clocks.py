"""Senders whose clocks fell back are noticed, in bounded tables, however the batches are cut."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from unittest.mock import patch

import pytest
from httpx import Response
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from nearcast.cli import status
from nearcast.language.control_events import changes
from nearcast.model.event import Event
from nearcast.model.values import microseconds_of
from nearcast.pipeline.monitoring import FallenClockMonitor, PipelineMetrics
from nearcast.stages.fold import StateFold
from nearcast.state.fallen_clocks import OTHERS, FallenClock
from tests.stages.test_stages import as_table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROLLOVER = timedelta(weeks=1024)


def report(minutes: float, fallen: timedelta = timedelta(), source: str = "buoy", entity: str | None = None) -> Event:
    """A report of so many minutes after noon, by a clock that may have fallen."""
    accepted = NOON + timedelta(minutes=minutes)
    return Event(f"{source}-{entity}-{minutes}-{fallen}", "t", source, entity, accepted - fallen, accepted=accepted)


def fallen(events: Sequence[Event], cuts: Sequence[int] = ()) -> dict[str, FallenClock]:
    """What is noticed of events in batches that are cut at these places."""
    known, table = StateFold(), as_table(events)
    places = sorted({0, *(cut for cut in cuts if cut < len(events)), len(events)})
    for first, last in pairwise(places):
        for _ in known.fold(table.slice(first, last - first), changes):
            pass
    return known.fallen_clocks.by_source


def test_a_week_rollover_is_noticed_with_the_third_report() -> None:
    """With the newest moment and the one that came; a report that counts ends it."""
    right, wrong = [report(n) for n in range(2)], [report(n, ROLLOVER) for n in range(2, 6)]
    assert {} == fallen([*right, *wrong[:2]])
    newest, came = NOON + timedelta(minutes=1), NOON + timedelta(minutes=4) - ROLLOVER
    expected = FallenClock("buoy", microseconds_of(newest), microseconds_of(came), 5, 4)
    assert {"buoy": expected} == fallen([*right, *wrong])
    assert 4 == fallen([*right, *wrong, report(7), *wrong[:2]])["buoy"].reports


def test_what_is_less_late_or_alone_is_no_fallen_clock() -> None:
    """Nor is one that is behind from its first report on, or one that brings what it kept, oldest first."""
    behind = [report(n, timedelta(minutes=59)) for n in range(1, 6)]
    assert {} == fallen([report(0), *behind])
    single = [report(n, ROLLOVER if n % 3 else timedelta()) for n in range(12)]
    assert {} == fallen(single)
    assert {} == fallen([report(n, ROLLOVER) for n in range(6)])
    kept = [report(300 + n, timedelta(minutes=300)) for n in range(200)]
    assert {} == fallen([report(0), *kept])


falls = st.sampled_from([timedelta(), timedelta(minutes=59), timedelta(hours=1), ROLLOVER])
reports = st.builds(
    report, st.integers(0, 200), falls, st.sampled_from(["x", "y"]), st.sampled_from([None, "a", "b", "c"])
)


@given(st.lists(reports, max_size=30), st.lists(st.integers(1, 29), max_size=4))
def test_cuts_change_nothing(events: list[Event], cuts: list[int]) -> None:
    """And it is what a list of entities says, one report after the other."""
    newest, row = dict[str, datetime](), dict[str, int]()
    counted: Counter[str] = Counter()
    for event in events:
        name, own = event.entity, event.moment
        assert own is not None
        if own >= newest.get(name, own):
            newest[name], row[name] = own, 0
        elif newest[name] - own >= timedelta(hours=1):
            row[name] += 1
            counted[event.source] += max(0, row[name] - 2) and (3 if row[name] == 3 else 1)
    assert +counted == {source: one.reports for source, one in fallen(events, cuts).items()}
    assert fallen(events) == fallen(events, cuts)


def test_tables_are_bounded() -> None:
    """Of more entities those that began first are left out; more sources are counted together."""
    names = [str(n) for n in range(6)]
    story = [report(0, source=name) for name in names]
    story += [report(n, ROLLOVER, name) for name in names for n in (1, 2, 3, 4)]
    with patch("nearcast.state.fallen_clocks.SOURCES", 2):
        found = fallen(story)
    assert {"0": 4, "1": 4, OTHERS: 16} == {source: one.reports for source, one in found.items()}
    story = [report(n, ROLLOVER if n else timedelta(), name) for n in range(4) for name in names]
    with patch("nearcast.state.fallen_clocks.WATCHED", 5):
        assert {} == fallen(story)


def test_it_is_said_once_of_each_source_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """With both moments, and what to do."""
    metrics = PipelineMetrics()
    monitor = FallenClockMonitor(metrics)
    story = [report(0), *(report(n, ROLLOVER) for n in range(1, 8))]
    with caplog.at_level(logging.WARNING):
        for count in (3, 4, 6, 8):
            monitor.report(fallen(story[:count]))
    [line] = caplog.messages
    assert "source=buoy entity=buoy newest=2026-01-01T12:00:00Z came=2006-05-18T12:03:00Z position=4" in line
    assert "order: arrival" in line and "/entities/ID" in line
    count = metrics.registry.get_sample_value("nearcast_pipeline_fallen_clock_total", {"source": "buoy"})
    assert 7 == count
    with patch("httpx.get", lambda *_, **__: Response(200, text=_page(metrics))):
        found = status.pipeline_status("http://here")
    assert found is not None
    assert ["source buoy: its clock fell back, 7 reports moved nothing"] == list(status.limits_met(found))


def _page(metrics: PipelineMetrics) -> str:
    return generate_latest(metrics.registry).decode()
