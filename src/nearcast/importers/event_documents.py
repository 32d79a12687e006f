"""CloudEvents 1.0 as JSON documents: how importers and scenarios build, merge and write them."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import orjson

from nearcast.errors import Fault

Document = dict[str, Any]
"""A CloudEvent in the JSON format, structured mode, with a JSON object as `data`."""

OnFault = Callable[[Fault], None]
"""What is done with the fault of a record that cannot be read; the record is left out."""

CLIENT_CHANGE = "nearcast.client"


def document(
    type: str, source: str, id: str, time: str, data: Mapping[str, Any], subject: str | None = None
) -> Document:
    """A CloudEvent; `time` is RFC 3339 in UTC. Data whose value is None are left out: a filter sees them as absent."""
    event: Document = {"specversion": "1.0", "id": id, "type": type, "source": source, "time": time}
    if subject is not None:
        event["subject"] = subject
    event["data"] = {name: value for name, value in data.items() if value is not None}
    return event


def client_change(source: str, id: str, time: str, client: str, **changes: Any) -> Document:
    """A `nearcast.client` event: from there on `client` has these readings, position, role or task."""
    return document(CLIENT_CHANGE, source, id, time, {"client": client, **changes}, subject=client)


def place(lon: float, lat: float) -> dict[str, float]:
    """Longitude and latitude in degrees, to about a decimetre: as much as any source here knows."""
    return {"lon": round(lon, 6), "lat": round(lat, 6)}


def moment(start: datetime, seconds: float = 0.0) -> str:
    """RFC 3339 in UTC, to the millisecond; texts of this form sort as the moments they name."""
    at = start.astimezone(UTC) + timedelta(seconds=seconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_of(event: Document) -> datetime:
    """The moment of an event."""
    return datetime.fromisoformat(event["time"])


def merged(*streams: Iterable[Document]) -> Iterator[Document]:
    """Streams that each ascend in time as one that does; at equal times the earlier argument comes first."""
    return heapq.merge(*streams, key=time_of)


def write(path: Path, events: Iterable[Document]) -> int:
    """Writes an events file, one document a line; returns how many. Raises `Fault` if there are none.

    What was there stays until all of them are written.
    """
    count = 0
    with replacing(path) as lines:
        for event in events:
            lines.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
            count += 1
        if not count:
            raise Fault("at least one event to write", "none", None, f"{path} stays as it was")
    return count


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write beside the one that is meant, whose place it takes once it is complete."""
    # A pipe, or a terminal, is nothing to replace.
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            yield file
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def refuse(fault: Fault) -> None:
    """Raises the fault: what an importer does with data that cannot be read, unless it is told otherwise."""
    raise fault
