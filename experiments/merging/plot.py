"""The outcome of the merging experiment as one picture."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.merging.run import PUBLISHED, Setting, Summary
from experiments.plots import Bar, Panel, bar_chart

TITLES = {
    "filters": "filters forwarded",
    "raw": "bytes",
    "gzip_filter": "bytes, each filter compressed",
    "gzip_stream": "bytes, compressed as one stream",
    "precision": "precision (bracket: the paper, imperfect)",
    "seconds": "seconds to fill the table",
}


def plot(setting: Setting, summaries: Sequence[Summary]) -> str:
    """An SVG document: one panel per measure, groups by number of attributes, whiskers of one standard deviation."""
    names = list(dict.fromkeys(summary.variant for summary in summaries))
    panels = [_panel(name, title, summaries) for name, title in TITLES.items()]
    title = f"{setting.subscriptions} subscriptions to {setting.schemas} schemas, covered and merged"
    note = f"means of {setting.replications} replications, operators: {setting.operators}; kept: at that precision"
    return bar_chart(title, _colours(names), panels, note=note)


COLOURS = {"unmerged": "#8c8c8c", "covered": "#4e79a7", "perfect": "#59a14f", "imperfect": "#b3202c"}
SHADES = ("#fbd48a", "#f7b35a", "#ee8f2f", "#d76c12", "#b34f05")
"""Of the precisions that are kept, paler for more."""


def _colours(names: Sequence[str]) -> dict[str, str]:
    kept = [name for name in names if name not in COLOURS]
    shades = {name: SHADES[min(number, len(SHADES) - 1)] for number, name in enumerate(kept)}
    return {name: COLOURS.get(name) or shades[name] for name in names}


def _panel(name: str, title: str, summaries: Sequence[Summary]) -> Panel:
    groups: dict[int, list[Bar]] = {}
    for one in summaries:
        mean, spread = one.mean[name], one.deviation[name]
        what = f"{one.variant}, {one.attributes} attributes: {mean:,.4g} ± {spread:,.2g}"
        groups.setdefault(one.attributes, []).append(Bar(mean, spread, what))
    labelled = [(_label(attributes), bars) for attributes, bars in groups.items()]
    if name != "precision":
        return Panel(title, labelled)
    return Panel(title, labelled, 1.0, {_label(number): PUBLISHED[number] for number in groups if number in PUBLISHED})


def _label(attributes: int) -> str:
    return f"{attributes} attributes"
