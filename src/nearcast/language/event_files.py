"""Files of events: CloudEvents or GeoJSON features, one a line, or in one JSON document, as events and as tables.

One reader for all commands. Which form a file has is told by its first line; a file whose name says that it has one
value a line is read so in any case. Never more than one value is held.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import (
    BYTE_ORDER_MARK,
    KEPT_BYTES,
    MAX_BYTES,
    NAME_LENGTH,
    DeadLetter,
    read_event,
    whole_lines,
)
from nearcast.language.features import feature_document, is_feature, read_feature
from nearcast.language.input_files import name_of, opened, rejoined
from nearcast.language.json_items import JsonItem, json_items
from nearcast.language.json_text import loads
from nearcast.model.event import Event
from nearcast.model.subscription import Channel

MAX_FEATURE_BYTES = 16 * 1024 * 1024
"""Coastlines of whole countries are less."""

LINES = (".jsonl", ".ndjson", ".geojsonl", ".geojsons")
"""Endings of files that have one value a line; a `.gz` behind does not count."""

FEATURES = (".geojson", ".geojsonl", ".geojsons")
"""Endings of files that hold GeoJSON features and nothing else."""

SEPARATOR = b"\x1e"
"""Stands before each text of a JSON text sequence (RFC 7464; of GeoJSON RFC 8142), which may have several lines."""

_BLANK = b" \t\r\n\x1e" + BYTE_ORDER_MARK
_COLLECTION = re.compile(rb'\s*\[|\s*\{\s*$|.*"(?:features|FeatureCollection)"\s*[:,]', re.DOTALL)
"""How a document begins that is not one value a line."""

_EMPTY = Fault("CloudEvents or GeoJSON features, one a line or in a list", "an empty file")


@dataclass(frozen=True, slots=True)
class FileValue:
    """A JSON value of a file: what it holds, as it came, where, and its number among the values or lines."""

    document: Any
    content: bytes
    where: Mark
    ordinal: int


def read_values(path: Path) -> Iterator[FileValue | DeadLetter]:
    """The CloudEvents and features of a file, not yet looked into; what is no JSON comes as a dead letter.

    Raises `Fault` where the file cannot be read to its end.
    """
    with opened(path) as file:
        first = file.readline(KEPT_BYTES)
        while not first.strip(_BLANK) and len(first) < MAX_BYTES and (more := file.readline(KEPT_BYTES)):
            first += more
        if not first.strip(_BLANK):
            yield DeadLetter(replace(_EMPTY, where=Mark(name_of(path))), first[:KEPT_BYTES])
            return
        whole = rejoined(first, file)
        yield from _by_lines(whole, path) if _is_by_lines(path, first) else _by_items(whole, path, first)


def suffix_of(path: Path) -> str:
    """The ending of a file's name, without that of gzip."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def _is_by_lines(path: Path, first: bytes) -> bool:
    """Whether a file has one value a line, or one after each separator."""
    suffix = suffix_of(path)
    line = first.removeprefix(BYTE_ORDER_MARK)
    if suffix in LINES or line.lstrip()[:1] == SEPARATOR:
        return True
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return suffix not in (".json", ".geojson") and not _COLLECTION.match(line)
    return isinstance(document, dict) and not isinstance(document.get("features"), list)


def _by_lines(file: IO[bytes], path: Path) -> Iterator[FileValue | DeadLetter]:
    for number, line in _records(whole_lines(file, MAX_FEATURE_BYTES)):
        content = line.removeprefix(BYTE_ORDER_MARK).strip(_BLANK)
        where = Mark(name_of(path), number)
        if not content:
            continue
        if len(content) > MAX_FEATURE_BYTES:
            yield DeadLetter(_too_long(MAX_FEATURE_BYTES, where), content[:KEPT_BYTES])
            continue
        try:
            document = loads(content, where)
        except EventError as error:
            yield DeadLetter(_with_advice(error.fault, content), content[:KEPT_BYTES])
            continue
        if isinstance(document, dict) and isinstance(document.get("features"), list) and "specversion" not in document:
            for feature in document["features"]:
                yield FileValue(feature, orjson.dumps(feature), where, number)
        else:
            yield FileValue(document, content, where, number)


def _records(lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers; behind a separator those up to the next one are one."""
    record: list[bytes] = []
    began = size = 0
    for number, line in enumerate(lines, 1):
        separated = line.removeprefix(BYTE_ORDER_MARK)[:1] == SEPARATOR
        if record and not separated:
            size += len(line)
            if size <= MAX_FEATURE_BYTES + 1:
                record.append(line)
            continue
        if record:
            yield began, b"".join(record)
        record, began, size = ([line], number, len(line)) if separated else ([], 0, 0)
        if not separated:
            yield number, line
    if record:
        yield began, b"".join(record)


def _too_long(limit: int, where: Mark) -> Fault:
    return Fault(f"an event of at most {limit:,} bytes", "more", where)


def _with_advice(fault: Fault, content: bytes) -> Fault:
    """What is said of a line that is no JSON: some ends of lines tell what was meant."""
    if fault.advice or content[-1:] not in b",{[":
        return fault
    advice = "one value a line, without commas between" if content[-1:] == b"," else "each value stands in one line"
    return replace(fault, advice=advice)


def _by_items(file: IO[bytes], path: Path, first: bytes) -> Iterator[FileValue | DeadLetter]:
    ordinal = 0
    for ordinal, item in enumerate(json_items(file, MAX_FEATURE_BYTES), 1):
        yield _of_item(item, ordinal, path)
    if not ordinal and b'"features"' not in first:
        yield DeadLetter(replace(_EMPTY, came="an empty list", where=Mark(name_of(path))), first[:KEPT_BYTES])


def _of_item(item: JsonItem, ordinal: int, path: Path) -> FileValue | DeadLetter:
    where = Mark(name_of(path), item.line, item.column)
    if item.too_long:
        return DeadLetter(_too_long(MAX_FEATURE_BYTES, where), item.content[:KEPT_BYTES])
    if item.unfinished:
        fault = Fault("a JSON document to its end", "the end of the file", where, "it was cut off: fetch it again")
        return DeadLetter(fault, item.content[:KEPT_BYTES])
    try:
        return FileValue(loads(item.content, Mark(name_of(path), item.line)), item.content, where, ordinal)
    except EventError as error:
        return DeadLetter(_moved(error.fault, item), item.content[:KEPT_BYTES])


def _moved(fault: Fault, item: JsonItem) -> Fault:
    """A fault within a value, in the first line of it, by the column of the file."""
    where = fault.where
    if where is None or where.line != item.line or where.column is None:
        return fault
    return replace(fault, where=replace(where, column=where.column + item.column - 1))


def read_file(
    path: Path, channels: Sequence[Channel] = (), accepted: datetime | None = None, name_length: int = NAME_LENGTH
) -> Iterator[tuple[Mark, Event | DeadLetter]]:
    """The events of a file, each with its place; what cannot be taken comes as a dead letter. See `read_values`, and
    `read_event` for the rest.
    """
    features = suffix_of(path) in FEATURES
    for value in read_values(path):
        if isinstance(value, DeadLetter):
            yield value.fault.where or Mark(name_of(path)), value
            continue
        try:
            yield value.where, event_of(value, channels, accepted, features, name_length)
        except EventError as error:
            yield value.where, DeadLetter(error.fault, value.content[:KEPT_BYTES])


def event_of(
    value: FileValue,
    channels: Sequence[Channel],
    accepted: datetime | None,
    feature: bool,
    name_length: int = NAME_LENGTH,
) -> Event:
    """The event of a value of a file; `feature`: it can be nothing else. Raises `EventError`."""
    if feature or is_feature(value.document):
        return read_feature(value.document, value.where, value.ordinal, channels, name_length)
    if len(value.content) > MAX_BYTES:
        raise EventError(_too_long(MAX_BYTES, value.where))
    # Written on several lines, it is one where events are written one a line.
    content = orjson.dumps(value.document) if b"\n" in value.content else value.content
    return read_event(value.document, value.where, channels, accepted, content, name_length)


if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 10_000
"""Events of one table: enough for columns to pay, few enough to show progress."""

OnDeadLetter = Callable[[DeadLetter], None]


Marks = dict[tuple[str, str], Mark]
"""Where control events stand in their files, by source and id: what one changes may turn out wrong when it acts."""


def read_tables(
    paths: Sequence[Path],
    channels: Sequence[Channel],
    on_dead: OnDeadLetter,
    marks: Marks | None = None,
    name_length: int = NAME_LENGTH,
) -> Iterator[pa.Table]:
    """Tables of EVENTS of all files, not yet numbered; what cannot be taken goes to `on_dead`, and into `marks` where
    control events stand.
    """
    return as_tables(read_events(paths, channels, on_dead, marks, name_length))


def as_tables(events: Iterable[Event]) -> Iterator[pa.Table]:
    """Events as tables of at most `ROWS`."""
    # Columns take longer to load than a small file to read.
    from nearcast.model.columns import to_table

    waiting = iter(events)
    while some := list(islice(waiting, ROWS)):
        yield to_table(some)


def read_events(
    paths: Iterable[Path],
    channels: Sequence[Channel],
    on_dead: OnDeadLetter,
    marks: Marks | None = None,
    name_length: int = NAME_LENGTH,
) -> Iterator[Event]:
    """The events of all files, one by one; see `read_tables`."""
    marks = {} if marks is None else marks
    for path in paths:
        for where, event in read_file(path, channels, None, name_length):
            if isinstance(event, DeadLetter):
                on_dead(event)
                continue
            if event.control:
                # Of events with one source and id the first counts.
                marks.setdefault((event.source, event.id), replace(where, column=None))
            yield event


def read_documents(paths: Iterable[Path], on_dead: OnDeadLetter) -> Iterator[tuple[Mark, Any]]:
    """What is to be published of files, each with its place: CloudEvents as they came, not yet looked into; features as
    CloudEvents.
    """
    for path in paths:
        features = suffix_of(path) in FEATURES
        for value in read_values(path):
            if isinstance(value, DeadLetter):
                on_dead(value)
            elif not features and not is_feature(value.document):
                yield value.where, value.document
            else:
                try:
                    yield value.where, feature_document(value.document, value.where, value.ordinal)
                except EventError as error:
                    on_dead(DeadLetter(error.fault, value.content[:KEPT_BYTES]))
