"""An archive's events as a DataFrame: rows as `nearcast archive` wrote them, which the other functions take as events.

They need not be read from JSON again, and are what `nearcast replay --archive` decides: with the moment of acceptance,
the channel and the entry node under which each entered.
"""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.errors import Fault, SetupError
from nearcast.journal.archive.archive_files import MANIFEST, files_of, read_manifest
from nearcast.model.columns import EVENTS

DAY = "day"
"""The column beside those of events: on which day they were accepted, in UTC, as in 2026-01-31."""


def archived_events(
    spark: SparkSession, folder: str | PathLike[str], *, first: int | None = None, last: int | None = None
) -> DataFrame:
    """The events of an archive, also those that changed definitions, as rows of any order.

    `folder` is a path that driver and workers have. `first` and `last` are positions, both included. Columns are those
    of the journal's events, `payload` being the CloudEvent as JSON, and `day`; a condition on `day` or `channel` leaves
    out whole files. What the archive gets later is not in it. Raises `SetupError` where there is no archive.
    """
    place = Path(fspath(folder)).absolute()
    manifest = read_manifest(place)
    if manifest is None:
        raise SetupError(str(Fault("the folder of an archive", f"{place}, which has no {MANIFEST}")))
    low, high = first or 1, manifest.events if last is None else min(last, manifest.events)
    # Files beyond what the manifest says are of a writer that was killed, or is at work.
    found = [one for one in files_of(place, "events") if one.last <= manifest.events]
    paths = [f"file://{one.path}" for one in sorted(found) if one.last >= low and one.first <= high]
    schema = T.StructType([*from_arrow_schema(EVENTS).fields, T.StructField(DAY, T.StringType())])
    if not paths:
        return spark.createDataFrame([], schema)
    read = spark.read.schema(schema).option("basePath", f"file://{place / 'events'}").parquet(*paths)
    return read.select(*schema.names).where(F.col("position").between(low, high))


def is_archive(events: DataFrame) -> bool:
    """Whether rows are those of an archive: nothing else has all columns of the journal's events."""
    return set(EVENTS.names) <= set(events.columns)
