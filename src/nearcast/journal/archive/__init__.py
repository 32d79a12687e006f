"""What happened, as Parquet files: written beside a journal, read before it."""
