"""A whole system in one process, under a time, a network and a medium that are simulated, from a seed.

What runs is the real code of the access server (with uvicorn), of the pipeline (without Spark), of the client library
and of the journal in memory. Processes are killed and paused, connections break, hosts are not reached, the journal is
slow, full, away, or does what it was asked and its answer is lost; clocks of hosts are wrong, and are set; power fails,
and what no disk has yet is gone; the journal lets go of what is old, which an archive copies before, and pipelines lose
their snapshots; rows within a log are lost for a while, over which nobody may read. Reports come late and again, by
clocks that are not to be trusted; servers decide some events at once; limits are so small that entities are forgotten,
and pairs do not begin; where webhooks are posted to nobody answers, or somebody else than asked for. Then all must be
as if nothing had been done: nothing accepted is lost but with the power, what is derived is what plain references read
from the events, each delivery is decided as one undisturbed process decides it, ends, and is received once and in its
order, and each webhook is accepted or is a dead letter. At any moment every queue balances, whenever the journal lets
go of something nobody needs that, and no process ends but of what was done to the journal.

    python -m tests.simulation --seeds 1000               # more of it
    python -m tests.simulation --first 17 --seeds 1 --story   # one again: exactly as it was, with what was done

The order of everything that happens is that of the seed: a seed that fails fails again, on any machine, as long as the
code is the same. `KEPT` in test_simulation.py are seeds that found something once.
"""
