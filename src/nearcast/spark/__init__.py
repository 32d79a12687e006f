"""nearcast in somebody's own Spark session: DataFrames in, DataFrames out, and nothing runs before an action.

`match` gives the pairs of rows and filters, `deliveries` what `nearcast replay` would give, `derived_events` what it
would derive, `dead_letters` the rows that are no events. The engine runs in Spark's Python workers, by `mapInArrow`;
`ship` sends it to those that lack it.
"""

from nearcast.pipeline.executors.shipping import ship
from nearcast.spark.archived_rows import archived_events
from nearcast.spark.dataframes import dead_letters, deliveries, derived_events, match

__all__ = ["archived_events", "dead_letters", "deliveries", "derived_events", "match", "ship"]
