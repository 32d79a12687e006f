"""How messages grow with the rate of reports, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from nearcast.experiments.curves import curves
from nearcast.experiments.fulcrum.count import STRATEGIES, Count
from nearcast.experiments.fulcrum.setting import Sweep, messages


def plot(sweep: Sweep, counts: Sequence[Count]) -> str:
    """An SVG document: messages of a week against the rate, a line for each strategy, means over the seeds."""
    rates = sorted({count.rate for count in counts})
    series = {}
    for name in STRATEGIES:
        found = {rate: [messages(one) for one in counts if (one.strategy, one.rate) == (name, rate)] for rate in rates}
        series[name] = [(rate, fmean(values)) for rate, values in found.items() if values and fmean(values) > 0]
    setting = sweep.campus(sweep.seeds[0])
    title = f"Messages in a week of {setting.users} people and {setting.relations} relations"
    note = f"near is within {sweep.metres:g} m; means over {len(sweep.seeds)} seeds"
    return curves(title, "times 1 to 6 reports a minute", "messages", series, note)
