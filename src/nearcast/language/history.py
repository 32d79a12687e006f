"""Files of events as tables of columns, in the order of their lines: history on its way into the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from nearcast.language.cloudevents import DeadLetter, read_lines
from nearcast.language.features import read_features
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.subscription import Channel

ROWS = 10_000
"""Events of one table: enough for columns to pay, few enough to show progress."""

FEATURES = (".geojson", ".json")
"""Endings of files of GeoJSON features; any other holds CloudEvents, one a line."""

OnDeadLetter = Callable[[DeadLetter], None]


def read_tables(paths: Sequence[Path], channels: Sequence[Channel], on_dead: OnDeadLetter) -> Iterator[pa.Table]:
    """Tables of EVENTS of all files, not yet numbered; what cannot be taken goes to `on_dead`."""
    events: list[Event] = []
    for event in _taken(paths, channels, on_dead):
        events.append(event)
        if len(events) == ROWS:
            yield to_table(events)
            events = []
    if events:
        yield to_table(events)


def _taken(paths: Iterable[Path], channels: Sequence[Channel], on_dead: OnDeadLetter) -> Iterator[Event]:
    for path in paths:
        found = read_features(path) if path.suffix.lower() in FEATURES else read_lines(path, channels)
        for event in found:
            if isinstance(event, DeadLetter):
                on_dead(event)
            else:
                yield event
