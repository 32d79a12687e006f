"""Files of events as tables of columns, in the order of their lines: history on its way into the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from nearcast.errors import Mark
from nearcast.language.cloudevents import DeadLetter, numbered
from nearcast.language.features import read_features
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.subscription import Channel

ROWS = 10_000
"""Events of one table: enough for columns to pay, few enough to show progress."""

FEATURES = (".geojson", ".json")
"""Endings of files of GeoJSON features; any other holds CloudEvents, one a line."""

OnDeadLetter = Callable[[DeadLetter], None]


Marks = dict[tuple[str, str], Mark]
"""Where control events stand in their files, by source and id: what one changes may turn out wrong when it acts."""


def read_tables(
    paths: Sequence[Path], channels: Sequence[Channel], on_dead: OnDeadLetter, marks: Marks | None = None
) -> Iterator[pa.Table]:
    """Tables of EVENTS of all files, not yet numbered; what cannot be taken goes to `on_dead`, and into `marks` where
    control events stand.
    """
    events: list[Event] = []
    for event in _taken(paths, channels, on_dead, {} if marks is None else marks):
        events.append(event)
        if len(events) == ROWS:
            yield to_table(events)
            events = []
    if events:
        yield to_table(events)


def _taken(paths: Iterable[Path], channels: Sequence[Channel], on_dead: OnDeadLetter, marks: Marks) -> Iterator[Event]:
    for path in paths:
        features = path.suffix.lower() in FEATURES
        for number, event in enumerate(read_features(path), 1) if features else numbered(path, channels):
            if isinstance(event, DeadLetter):
                on_dead(event)
                continue
            if event.control:
                # Of events with one source and id the first counts.
                marks.setdefault((event.source, event.id), Mark(str(path), number))
            yield event
