"""Events that are derived from events: the seam of the stages between known and match, and the order of what they give.

    known → relate → infer → match → adapt

A stage folds the events of the world and says what follows from them, each derived event at the position of its cause.
It is decided as of there, in the same batch; so the outcome rests on the journal alone, not on where batches are cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import Fault
from nearcast.model.changes import Change
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place, cloud_event
from nearcast.model.sequence import MOST_PARTS
from nearcast.model.values import Value
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository

At = tuple[int, Change]
"""A change and the position of the event that makes it."""


@dataclass(frozen=True, slots=True)
class StageInput:
    """What a stage is given of a batch: changes and events, both ascending by position, and what is known around them.

    `times` are those of the control events that made the changes, by position. `events` is a table of EVENTS, those
    that earlier stages derived among them. `registry` is as of the end of the batch, `repository` as of its beginning.
    A stage adds the position of a change that it leaves out, and why, to `refusals`.
    """

    changes: Sequence[At]
    times: Mapping[int, datetime | None]
    events: pa.Table
    registry: Registry
    repository: Repository
    refusals: list[tuple[int, Fault]] = field(default_factory=list)


class DerivingStage(Protocol):
    """A stage that derives events. What it keeps from batch to batch can be pickled, and is part of a snapshot."""

    def derive(self, stage_input: StageInput) -> Iterable[Event]:
        """What follows from a stretch of the journal, each event with the position of its cause, in their order.

        It is taken to its end before the stage is asked for anything else.
        """
        ...

    def forget(self, entities: Collection[str]) -> None:
        """Drops what is kept of some entities; what ends by that is told with the next event."""
        ...


AT_ONCE = 2_000
"""Derived events that become columns together: as objects they take several times as much memory."""


def merge_derived(events: pa.Table, derived: Iterable[Event]) -> pa.Table:
    """The events with those derived from them, each behind its cause and what was derived from that before.

    Derived events get their parts here; of equal position they keep their order.
    """
    waiting = iter(derived)
    tables = [to_table(some) for some in iter(lambda: list(islice(waiting, AT_ONCE)), [])]
    if not tables:
        return events
    added = pa.concat_tables(tables)
    added = added.take(pc.sort_indices(added, [("position", "ascending")]))
    taken = events.filter(pc.greater(events.column("part"), 0)).column("position").to_numpy()
    parts = _parts(added.column("position").to_numpy(), taken)
    column = added.schema.get_field_index("part")
    added = added.set_column(column, added.schema.field(column), pa.array(parts, pa.int32()))
    together = pa.concat_tables([events, added])
    return together.take(pc.sort_indices(together, [("position", "ascending"), ("part", "ascending")]))


def derived_of(events: pa.Table) -> pa.Table:
    """Those rows of a table of EVENTS that are derived."""
    return events.filter(pc.greater(events.column("part"), 0))


def _parts(
    positions: np.ndarray[tuple[int], np.dtype[np.int64]], taken: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The parts of derived events at ascending positions, behind the ones that are taken at each, ascending too."""
    first = np.searchsorted(positions, positions, "left")
    already = np.searchsorted(taken, positions, "right") - np.searchsorted(taken, positions, "left")
    parts = np.arange(len(positions)) - first + already + 1
    # A sequence has room for so many; one event that causes more is a definition gone wrong, and is told as such.
    if len(parts) and int(parts.max()) > MOST_PARTS:
        raise OverflowError(f"expected at most {MOST_PARTS:,} events derived from one, got {int(parts.max()):,}")
    return parts


@dataclass(frozen=True, slots=True)
class Cause:
    """The event that something is derived as of: its place in the journal, its time, when it was accepted."""

    position: int
    time: datetime | None
    accepted: datetime | None

    @property
    def moment(self) -> datetime | None:
        """When it happened, as far as that is known; never after its acceptance."""
        if self.time is None or self.accepted is None:
            return self.time or self.accepted
        return min(self.time, self.accepted)


def derived_event(
    type_: str, source: str, id: str, subject: str, data: Any, cause: Cause, place: Place | None, part: int = 0
) -> Event:
    """The event of a type, about a subject, that a cause brings about; its attributes are those of its data."""
    time = cause.moment
    document = {**cloud_event(id, type_, source, subject, time), "data": data}
    attributes: list[tuple[str, Value]] = [("specversion", "1.0")]
    for name, value in data.items() if isinstance(data, dict) else (("data", data),):
        _add_attributes(f"data.{name}" if name in document and isinstance(data, dict) else name, value, attributes)
    return Event(
        id=id,
        type=type_,
        source=source,
        subject=subject,
        time=time,
        place=place,
        attributes=tuple(attributes),
        payload=orjson.dumps(document),
        accepted=cause.accepted,
        position=cause.position,
        part=part,
    )


def _add_attributes(name: str, value: Any, to: list[tuple[str, Value]]) -> None:
    """Adds the attributes that data makes, as at the door: nested names are dotted, lists repeat."""
    if isinstance(value, dict):
        for key, child in value.items():
            _add_attributes(f"{name}.{key}", child, to)
    elif isinstance(value, list):
        for child in value:
            _add_attributes(name, child, to)
    elif value is not None:
        to.append((name, value))
