"""The rules: pure and deterministic, columnar where hot. No clock, disk, socket or Spark."""
