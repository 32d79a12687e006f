"""The outcome of the merging experiment as one picture."""

from __future__ import annotations

from collections.abc import Sequence

from nearcast.experiments.bars import Bar, Panel, chart
from nearcast.experiments.merging import PUBLISHED, Setting, Summary

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
    variants = list(dict.fromkeys(summary.variant for summary in summaries))
    panels = [_panel(name, title, summaries) for name, title in TITLES.items()]
    title = f"{setting.subscriptions} subscriptions to {setting.schemas} schemas, covered and merged"
    note = f"{setting.replications} replications, operators: {setting.operators}, kept: precision {setting.precision:g}"
    return chart(title, variants, panels, note=note)


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
