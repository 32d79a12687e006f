"""Which reports must travel for a relation to be decided as if all did (semantics §7).

`seam` is what a strategy is and how to write one, `choice` finds it by name. `nearcast.testing.strategy_trials` tries
one on a trace of reports.
"""
