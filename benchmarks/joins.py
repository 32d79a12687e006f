"""The same job without nearcast: filters joined with events in Spark SQL, in the ways a user would write it.

Each takes events with a column per attribute, and gives (position, number of the filter).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.workload import INTEGERS, RANGE, TEXTS
from nearcast.model.filter import And, Atom, Operator

Way = Callable[[SparkSession, DataFrame, list[And]], DataFrame]


def nested_loop(spark: SparkSession, events: DataFrame, filters: list[And]) -> DataFrame:
    """Filters as broadcast rows of bounds; every event meets every filter."""
    rows = F.broadcast(_rows(spark, filters)).alias("filter")
    condition = reduce(Column.__and__, [*map(_text_kept, TEXTS), *map(_integer_kept, INTEGERS)])
    return events.alias("event").join(rows, condition).select("position", "number")


def hash_join(spark: SparkSession, events: DataFrame, filters: list[And]) -> DataFrame:
    """Events exploded to a row per text, joined with each filter's first equality; the rest is tested afterwards.

    Works only because every filter here has an equality.
    """
    rows = F.broadcast(_rows(spark, filters)).alias("filter")
    pairs = F.array(*(F.concat(F.lit(f"{name} "), F.col(name)) for name in TEXTS))
    exploded = events.withColumn("key", F.explode(pairs)).alias("event")
    condition = reduce(
        Column.__and__,
        [F.col("event.key") == F.col("filter.key"), *map(_text_kept, TEXTS), *map(_integer_kept, INTEGERS)],
    )
    return exploded.join(rows, condition).select("position", "number")


def expressions(spark: SparkSession, events: DataFrame, filters: list[And]) -> DataFrame:
    """One generated predicate per filter, all in one projection."""
    numbers = ", ".join(f"IF({_predicate(filter)}, {number}, NULL)" for number, filter in enumerate(filters))
    found = F.expr(f"explode(array_compact(array({numbers})))").alias("number")
    return events.select("position", found)


WAYS: dict[str, Way] = {"nested loop": nested_loop, "expressions": expressions, "hash join": hash_join}


def _rows(spark: SparkSession, filters: list[And]) -> DataFrame:
    """A row per filter: its texts, null where any will do, and inclusive bounds of its integers."""
    fields = [*(f"{name} string" for name in TEXTS), *(f"{name}_low long, {name}_high long" for name in INTEGERS)]
    schema = f"number int, key string, {', '.join(fields)}"
    return spark.createDataFrame([_row(number, filter) for number, filter in enumerate(filters)], schema)


def _row(number: int, filter: And) -> tuple[int | str | None, ...]:
    texts: dict[str, str | None] = dict.fromkeys(TEXTS)
    bounds = dict.fromkeys(INTEGERS, (0, RANGE))
    key = ""
    for name, operator, value in map(_parts, filter.children):
        if operator is Operator.EQ:
            texts[name], key = str(value), key or f"{name} {value}"
        else:
            bounds[name] = _bounds(operator, int(value))
    return number, key, *texts.values(), *(bound for pair in bounds.values() for bound in pair)


def _bounds(operator: Operator, value: int) -> tuple[int, int]:
    match operator:
        case Operator.LT:
            return 0, value - 1
        case Operator.LE:
            return 0, value
        case Operator.GT:
            return value + 1, RANGE
    return value, RANGE


def _text_kept(name: str) -> Column:
    wanted = F.col(f"filter.{name}")
    return wanted.isNull() | (F.col(f"event.{name}") == wanted)


def _integer_kept(name: str) -> Column:
    return F.col(f"event.{name}").between(F.col(f"filter.{name}_low"), F.col(f"filter.{name}_high"))


def _predicate(filter: And) -> str:
    return " AND ".join(f"{name} {operator} {value!r}" for name, operator, value in map(_parts, filter.children))


def _parts(atom: object) -> tuple[str, Operator, int | str]:
    assert isinstance(atom, Atom)
    assert isinstance(atom.name, str)
    assert isinstance(atom.value, (int, str))
    return atom.name, atom.operator, atom.value
