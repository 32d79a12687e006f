"""Scenarios on simulated and real data: the demo's bushfire afternoon and importers of public data sets."""
