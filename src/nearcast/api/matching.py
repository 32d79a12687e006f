"""`nearcast.match`: which events which filters select."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

import numpy as np
import pyarrow as pa

from nearcast.api.event_rows import EventLike
from nearcast.api.filters import Filters, read_filters
from nearcast.api.frames import OnDeadLetter
from nearcast.api.required import check_columns
from nearcast.api.streams import ArrowStream, Chunk, EventSource, like, listed
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.spatial.geometry_sharing import fixed_spatial, match_within_budget
from nearcast.model.filter import Filter, atoms
from nearcast.state.timeline import Environment

Frame = TypeVar("Frame", bound=ArrowStream)


@overload
def match(
    events: list[Any] | tuple[Any, ...], filters: Filters, *, on_dead_letter: OnDeadLetter | None = None
) -> list[dict[str, Any]]: ...
@overload
def match(events: Frame, filters: Filters, *, on_dead_letter: OnDeadLetter | None = None) -> Frame: ...
@overload
def match(
    events: Iterable[EventLike], filters: Filters, *, on_dead_letter: OnDeadLetter | None = None
) -> Iterator[dict[str, Any]]: ...
def match(events: Any, filters: Filters, *, on_dead_letter: OnDeadLetter | None = None) -> Any:
    """The pairs of an event and a filter that selects it: `event`, its id or, without ids, the number of its row from
    0, and `filter`, the filter's name; by event, then in the order of the filters.

    `events`: a frame (Arrow, pandas, Polars, or anything with `__arrow_c_stream__`) gives a frame of its kind, a list
    of dicts or lines a list of dicts, any other iterable an iterator of dicts, which reads 10,000 events at a time.
    `filters` are CQL2 texts or `Filter` objects by name.

    Raises `DefinitionError` with every fault of the filters, also where a frame lacks a column without which a filter
    can never hold; `Fault` for what is no frame, or a column that no event can have; `EventError` for the first event
    that cannot be taken, or comes twice, unless `on_dead_letter` is given: then it is called with each, and the rest
    goes on.
    """
    trees = read_filters(filters)
    given = EventSource(events, (), on_dead_letter)
    if given.schema is not None:
        check_columns(trees, given.schema)
    matcher = _Matcher(trees)
    if given.schema is None:
        return listed(events, (row for chunk in given.chunks() for row in matcher.rows(chunk)))
    schema = pa.schema([("event", given.label_type), ("filter", pa.string())])
    return like(events, (matcher.table(chunk, schema) for chunk in given.chunks()), schema)


class _Matcher:
    """Compiled filters."""

    def __init__(self, filters: Mapping[str, Filter]) -> None:
        self._names = list(filters)
        self._index = FilterMatcher([(filter, (0,) * sum(1 for _ in atoms(filter))) for filter in filters.values()])
        self._around = Environment(spatial=fixed_spatial(filters.values()))
        deep = [self._names[number] for number in self._index.left_out]
        if deep:
            raise DefinitionError([Fault("a filter that is not so deep", "deeper", Mark(f"filter {n}")) for n in deep])

    def pairs(self, chunk: Chunk) -> tuple[Any, Any]:
        """The numbers of events and of filters, by event, then filter."""
        found = match_within_budget(self._index.match, chunk.events, self._around)
        order = np.lexsort((found.groups, found.lanes))
        return found.lanes[order], found.groups[order]

    def rows(self, chunk: Chunk) -> Iterator[dict[str, Any]]:
        """The pairs as dicts."""
        lanes, groups = self.pairs(chunk)
        for label, group in zip(chunk.labels_at(lanes), groups.tolist(), strict=True):
            yield {"event": label, "filter": self._names[group]}

    def table(self, chunk: Chunk, schema: pa.Schema) -> pa.Table:
        """The pairs as a table."""
        lanes, groups = self.pairs(chunk)
        names = pa.array(self._names, pa.string()).take(pa.array(groups))
        return pa.table([chunk.labels_at(lanes), names], schema=schema)
