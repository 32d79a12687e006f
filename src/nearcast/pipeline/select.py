"""One filter over events, on Spark: what `nearcast match --engine spark` runs."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.decision.match.index import Index
from nearcast.model.columns import EVENTS
from nearcast.model.filter import Filter
from nearcast.pipeline.session import session


def select(filter: Filter, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows of tables of EVENTS that a filter selects, in their order."""
    spark = session()
    index = Index((), [filter])

    def selected(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that are selected of each part."""
        for part in parts:
            table = pa.Table.from_batches([part]).cast(EVENTS)
            yield from table.filter(pa.array(index.selected(table)[0])).to_batches()

    for table in tables:
        yield spark.createDataFrame(table).mapInArrow(selected, from_arrow_schema(EVENTS)).toArrow().cast(EVENTS)
