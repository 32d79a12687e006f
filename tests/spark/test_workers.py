"""What a Python worker does with record batches is what the plain evaluator says of their rows; no Spark is needed."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nearcast.api.event_rows import event_of
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.filter import Atom, Filter, Operator, atoms
from nearcast.pipeline.executors.worker_function import loaded
from nearcast.spark.workers import Match, Reading
from tests.random_filters import trees

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

COLUMNS = {
    "id": pa.string(),
    "type": pa.string(),
    "size": pa.int64(),
    "weight": pa.float64(),
    "price": pa.decimal128(12, 2),
    "flag": pa.bool_(),
    "tag": pa.string(),
    "seen": pa.timestamp("us", "UTC"),
    "unit": pa.struct([("size", pa.int32()), ("names", pa.list_(pa.string()))]),
    "a.b": pa.int16(),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "size": st.sampled_from([-1, 0, 2, 2**53 + 1]),
    "weight": st.sampled_from([-0.5, 0.0, 2.0, float("nan"), float(2**53)]),
    "price": st.sampled_from([Decimal("1.50"), Decimal("2.00")]),
    "flag": st.booleans(),
    "tag": st.sampled_from(["a", "ab", "é", "2026-01-01T12:00:00Z"]),
    "seen": st.sampled_from([NOON, NOON + timedelta(hours=1)]),
    "unit.size": st.sampled_from([0, 1, 2]),
    "unit.names": st.lists(st.sampled_from(["a", "b"]), max_size=2),
    "a.b": st.sampled_from([0, 1]),
}
LITERALS = st.sampled_from([0, 1, 2, 1.5, 2**53, "a", "b", "é", True, False, NOON])


def _nullable(name: str) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), VALUES[name])


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    """A row of a table with these columns."""
    flat = {name: draw(_nullable(name)) for name in ("size", "weight", "price", "flag", "tag", "seen", "a.b")}
    unit = {"size": draw(_nullable("unit.size")), "names": draw(_nullable("unit.names"))}
    return {**flat, "type": draw(st.sampled_from(["a", "b"])), "unit": draw(st.sampled_from([unit, None]))}


@st.composite
def comparisons(draw: st.DrawFn) -> Atom:
    """A condition about one of the columns, or about one that is not there."""
    name = draw(st.sampled_from([*VALUES, "type", "id", "nothing"]))
    operator = draw(st.sampled_from(["=", "<>", "<", ">=", "IN", "IS NULL"]))
    if operator == "IS NULL":
        return Atom(name, Operator(operator), None)
    value = tuple(draw(st.lists(LITERALS, min_size=1, max_size=3))) if operator == "IN" else draw(LITERALS)
    return Atom(name, Operator(operator), value)


def matching(filters: Sequence[Filter], keep: tuple[str, ...] = ("id",)) -> Match:
    """The job of matching these filters, by their numbers, as a worker gets it."""
    index = FilterMatcher([(filter, (0,) * sum(1 for _ in atoms(filter))) for filter in filters])
    reading = Reading(tuple(COLUMNS), keep, tuple(COLUMNS), None, False)
    job = loaded(pickle.dumps(Match(reading, tuple(map(str, range(len(filters)))), index)))
    assert isinstance(job, Match)
    return job


@given(st.lists(rows(), min_size=1, max_size=6), st.lists(trees(comparisons()), min_size=1, max_size=5))
def test_pairs_are_those_of_the_plain_evaluator(found: list[dict[str, Any]], filters: list[Filter]) -> None:
    """Of every row and every filter, nested and dotted columns, nulls, decimals and moments among them."""
    table = pa.Table.from_pylist(
        [{**row, "id": str(number)} for number, row in enumerate(found)], pa.schema(list(COLUMNS.items()))
    )
    expected = {
        (row["id"], str(number))
        for row in table.to_pylist()
        for number, filter in enumerate(filters)
        if truth(filter, event_of(row, 0), NO_CONTEXT) is True
    }
    pairs = [pair for batch in matching(filters).run(table.to_batches()) for pair in batch.to_pylist()]
    assert expected == {(pair["id"], pair["filter"]) for pair in pairs}
    assert len(expected) == len(pairs)


def test_what_goes_back_comes_in_pieces() -> None:
    """However many pairs a batch has, a record batch is of 65,536 rows at most."""
    table = pa.table({"id": [str(number) for number in range(2_000)]})
    everything = FilterMatcher([(Atom("id", Operator.NE, str(number)), (0,)) for number in range(100)])
    job = Match(Reading(("id",), ("id",), ("id",), None, False), tuple(map(str, range(100))), everything)
    sizes = [len(batch) for batch in job.run(table.to_batches())]
    assert 2_000 * 100 - 100 == sum(sizes)
    assert 65_536 == max(sizes)
