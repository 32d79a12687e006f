"""What is read and checked when a DataFrame is made, before anything runs: pairs, deliveries, derived events, dead
letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from nearcast.api.definition_files import changes_of, definitions_of
from nearcast.api.filters import Filter, read_filters
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.nodes import listed
from nearcast.matching.matcher import FilterMatcher, location_conditions
from nearcast.matching.spatial.geometry_sharing import fixed_spatial
from nearcast.model.event import MAIN
from nearcast.model.filter import atoms
from nearcast.pipeline.executors.worker_function import worker_function
from nearcast.spark.attribute_columns import WHERE, Chosen, check_filters, chosen, column, missing, no_id, read_by
from nearcast.spark.workers import (
    DELIVERED,
    DERIVED,
    DeadLetterRows,
    Deliver,
    DeliverInOrder,
    DeriveInOrder,
    Job,
    Match,
    Reading,
)
from nearcast.state.previous_values import asked_of_previous
from nearcast.state.registry import Registry
from nearcast.state.timeline import Environment

MAX_FILTERS = 200_000
"""Filters that a DataFrame of them may have: they are read by the driver, and each worker has all."""

SHIPPED = "send it by nearcast.spark.ship(spark) before the DataFrame is made, or install it there"
"""What to do where a worker lacks nearcast."""

OnDeadLetters = Literal["raise", "drop"]
Order: TypeAlias = str | Column | Sequence[str | Column]


def match(
    events: DataFrame,
    filters: Mapping[str, str | Filter] | DataFrame,
    *,
    keep: Sequence[str] | None = None,
    cloudevents: str | None = None,
    dead_letters: OnDeadLetters = "raise",
) -> DataFrame:
    """The pairs of a row and a filter that selects it: the columns `keep` of the row, then `filter`, the filter's name.

    `filters` are CQL2 texts or `nearcast.Filter` objects by name, or a DataFrame with the columns `name` and `filter`:
    that is read at once, by a job of its own, and may have 200,000 rows. Without `keep` it is the column `id`.

    `events` has a column per attribute, or CloudEvents as JSON in the column that `cloudevents` names; then `keep` is
    the event's id if nothing else is asked for. Or it is what `archived_events` gives. It may be a stream. Nothing runs
    before an action, and columns that no filter asks for are not read.

    Raises `DefinitionError` with every fault of filters and columns. A row that is no event ends the job with an
    `EventError`, or is left out if `dead_letters` is "drop"; the function `dead_letters` shows them.
    """
    trees = read_filters(_pairs(filters) if isinstance(filters, DataFrame) else filters)
    if not trees:
        raise DefinitionError(Fault("one filter or more", "none"))
    # An error that shows a row shows what it is called.
    read = read_by(trees.values(), events.columns, ("id",) if keep is None or "id" in keep else ())
    own = chosen(events, keep, cloudevents, read, ("filter",))
    if cloudevents is None and not own.archived:
        check_filters(trees, events)
    index = FilterMatcher([(filter, (0,) * sum(1 for _ in atoms(filter))) for filter in trees.values()])
    if index.left_out:
        deep = [list(trees)[number] for number in index.left_out]
        raise DefinitionError([Fault("a filter that is not so deep", "deeper", Mark(f"filter {n}")) for n in deep])
    job = Match(_reading(own, dead_letters), tuple(trees), index, Environment(spatial=fixed_spatial(trees.values())))
    return _run(own.of(events), job, [*_kept(events, own), *([] if own.keep else [_text("id")]), _text("filter")])


def deliveries(
    events: DataFrame,
    definitions: Any,
    *,
    order: Order | None = None,
    keep: Sequence[str] = (),
    cloudevents: str | None = None,
    dead_letters: OnDeadLetters = "raise",
) -> DataFrame:
    """Who gets what, as `nearcast replay` says it: the columns event (its id), client, subscription, level, priority.

    `definitions`: the path of a YAML file, several of them, a dict of the same form, or `nearcast.Definitions`.
    `events`, `cloudevents` and `dead_letters` are as for `match`; the columns `keep` of a row come first, if any.

    Without `order` each row is decided alone, in any order and wherever it is. Definitions that need to know what was
    before (relations, situations, PREVIOUS and CHANGED, location terms about entities) and events that change
    definitions need `order`: the columns by which rows are sorted. Then one worker decides all of them in one pass;
    it holds 10,000 rows at once, and what `nearcast replay` holds: the newest event of each entity, and what relates.

    Raises `DefinitionError` for faults of definitions and columns, and for an order that is missing.
    """
    registry = _registry(definitions)
    waiting = _needing_order(registry)
    if order is None and waiting:
        advice = "say by order=[…] which columns order the rows, or run `nearcast replay`"
        came = f"{listed(waiting)} without an order"
        raise DefinitionError(Fault("an order of the rows, for what depends on those before", came, None, advice))
    channels = registry.settings.channels
    job: Job
    if order is None:
        filters = [one.filter for one in registry.subscriptions.values()]
        always = ("id", *(WHERE if channels else ()))
        own = chosen(events, keep, cloudevents, read_by(filters, events.columns, always), DELIVERED)
        frame, job = own.of(events), Deliver(_reading(own, dead_letters, channels), registry)
    else:
        own = chosen(events, keep, cloudevents, events.columns, DELIVERED)
        frame, job = _ordered(events, order, own), DeliverInOrder(_reading(own, dead_letters, channels), registry)
    _check_identified(events, cloudevents)
    return _run(frame, job, [*_kept(events, own), *map(_text, DELIVERED[:3]), *map(_number, DELIVERED[3:])])


def derived_events(
    events: DataFrame,
    definitions: Any,
    *,
    order: Order,
    keep: Sequence[str] = (),
    cloudevents: str | None = None,
    dead_letters: OnDeadLetters = "raise",
) -> DataFrame:
    """The events that relations, situations and actions derive, in their order: the columns event (the id, as
    `deliveries` has it), type, and content, the CloudEvent as JSON.

    All of them, also those that nobody subscribed to. Arguments, order and errors are those of `deliveries`; the
    columns `keep` are those of the row that caused the event.
    """
    registry = _registry(definitions)
    own = chosen(events, keep, cloudevents, events.columns, DERIVED)
    _check_identified(events, cloudevents)
    job = DeriveInOrder(_reading(own, dead_letters, registry.settings.channels), registry)
    return _run(_ordered(events, order, own), job, [*_kept(events, own), *map(_text, DERIVED)])


def dead_letters(
    events: DataFrame, *, keep: Sequence[str] | None = None, cloudevents: str | None = None, definitions: Any = None
) -> DataFrame:
    """The rows that are no events: the columns `keep`, without them `id` or the CloudEvent, then `reason`.

    With `definitions` also those that fit into none of their channels.
    """
    if keep is None and cloudevents is not None:
        keep = [cloudevents]
    own = chosen(events, keep, cloudevents, events.columns, ("reason",))
    channels = () if definitions is None else _registry(definitions).settings.channels
    reading = _reading(own, "drop", channels)
    return _run(own.of(events), DeadLetterRows(reading), [*_kept(events, own), _text("reason")])


def _pairs(filters: DataFrame) -> list[tuple[Any, Any]]:
    """The names and texts of a DataFrame of filters."""
    for name in ("name", "filter"):
        if name not in filters.columns:
            advice = "rename its columns by filters.select(….alias('name'), ….alias('filter'))"
            came = ", ".join(filters.columns)
            raise DefinitionError(Fault("a DataFrame of filters with the columns name and filter", came, None, advice))
    if filters.isStreaming:
        advice = "read it by spark.read; while the job runs, its filters stay as they are"
        raise DefinitionError(Fault("a DataFrame of filters that ends", "a stream", None, advice))
    found = filters.select("name", "filter").limit(MAX_FILTERS + 1).toArrow()
    if len(found) > MAX_FILTERS:
        raise DefinitionError(Fault(f"at most {MAX_FILTERS:,} filters", "more", None, "match them part by part"))
    return list(zip(found["name"].to_pylist(), found["filter"].to_pylist(), strict=True))


def _check_identified(events: DataFrame, cloudevents: str | None) -> None:
    """Raises `DefinitionError` where the outcome could not name an event."""
    if cloudevents is None and "id" not in events.columns:
        raise DefinitionError(no_id(events, "rename the column that identifies an event to id"))


def _registry(given: Any) -> Registry:
    """What definitions define, in whichever form they are given."""
    registry = Registry()
    for change in changes_of(definitions_of(given), MAIN):
        registry.apply(change)
    return registry


def _needing_order(registry: Registry) -> list[str]:
    """What of definitions depends on the events that came before."""
    waiting = [f"the relation {id}" for id in registry.relations]
    waiting += [f"the layer of zones {id}" for id in registry.zones]
    waiting += [f"the situation {id}" for id in registry.situations]
    for one in registry.subscriptions.values():
        if location_conditions(one.filter):
            waiting.append(f"the subscription {one.id}, which asks for other entities")
        if asked_of_previous(one.filter):
            waiting.append(f"the subscription {one.id}, which asks for the previous event")
    return waiting


def _ordered(events: DataFrame, order: Order, own: Chosen) -> DataFrame:
    """All rows in one partition, sorted; what is equal by `order` by its id, so that each run has the same outcome."""
    if events.isStreaming:
        advice = "leave order out, or run `nearcast up`, which decides events as they come"
        raise DefinitionError(Fault("rows that end, to be decided in an order", "a stream", None, advice))
    keys = [order] if isinstance(order, (str, Column)) else list(order or ())
    if not keys:
        raise DefinitionError(Fault("columns that order the rows", "none", None, 'as in order=["time"]'))
    for key in keys:
        if isinstance(key, str) and key not in events.columns:
            raise DefinitionError(missing(key, events))
    last = [name for name in ("source", "id") if name in own.event]
    # Sorted before columns are left out, for Spark's plan does without those that only sort.
    by = [column(key) if isinstance(key, str) else key for key in (*keys, *last)]
    return own.of(events.repartition(1).sortWithinPartitions(*by))


def _reading(own: Chosen, dead: str, channels: Sequence[Any] = ()) -> Reading:
    if dead not in ("raise", "drop"):
        raise DefinitionError(Fault("dead_letters='raise' or 'drop'", repr(dead)))
    return Reading(own.names, own.keep, own.event, own.cloudevents, dead == "drop", tuple(channels), own.archived)


def _kept(events: DataFrame, own: Chosen) -> list[T.StructField]:
    return [T.StructField(name, events.schema[name].dataType) for name in own.keep]


def _number(name: str) -> T.StructField:
    return T.StructField(name, T.IntegerType())


def _text(name: str) -> T.StructField:
    return T.StructField(name, T.StringType())


def _run(frame: DataFrame, job: Job, fields: list[T.StructField]) -> DataFrame:
    return frame.mapInArrow(worker_function(job, SHIPPED), T.StructType(fields))
