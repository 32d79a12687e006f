"""The deciding half, on Spark: the journal as a source, five stages, state, sinks, replay. Only here is pyspark."""
