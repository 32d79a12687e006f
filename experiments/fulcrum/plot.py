"""How messages grow with the rate of reports, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from experiments.fulcrum.count import STRATEGIES, Count
from experiments.fulcrum.setting import Sweep, messages
from experiments.plots import MARKERS, Axes, Dot, Line, line_chart
from nearcast.cli.output import pluralize

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#a463f2")


def plot(sweep: Sweep, counts: Sequence[Count]) -> str:
    """An SVG document: messages of a week against the rate, a line for each strategy, means over the seeds."""
    lines = {
        name: Line(_dots(counts, name), colour, marker)
        for name, colour, marker in zip(STRATEGIES, COLOURS, MARKERS, strict=True)
    }
    setting = sweep.campus(sweep.seeds[0])
    title = f"Messages in a week of {setting.users} people and {setting.relations} relations"
    note = f"near is within {sweep.metres:g} m; means over {pluralize(len(sweep.seeds), 'seed')}"
    axes = Axes("times 1 to 6 reports a minute", "messages", x_scale="log", y_scale="log")
    return line_chart(title, axes, lines, note)


def _dots(counts: Sequence[Count], strategy: str) -> list[Dot]:
    """The means by rate; where nothing was sent there is no place on a logarithmic axis."""
    found = []
    for rate in sorted({count.rate for count in counts}):
        values = [messages(one) for one in counts if (one.strategy, one.rate) == (strategy, rate)]
        mean = fmean(values) if values else 0.0
        if mean > 0:
            found.append(Dot(rate, mean, what=f"{strategy}: {mean:,.6g} at {rate:g}"))
    return found
