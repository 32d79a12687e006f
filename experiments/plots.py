"""Pictures as SVG text: lines with whiskers, and bars in panels. The same data give the same text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from io import StringIO
from typing import Any, Literal

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

STYLE: Any = {
    # Names within the picture would else be random, and texts outlines that nobody can search.
    "svg.hashsalt": "nearcast",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.titlesize": 11,
    "figure.titlesize": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "errorbar.capsize": 3,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 4,
}
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
MARKERS = "osD^vp"
WHOLE = "{x:,g}"
"""Labels of axes without an exponent."""

Scale = Literal["linear", "log"]


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a line, how far its whisker reaches to either side, and what is told where a mouse rests on it."""

    x: float
    y: float
    spread: float = 0.0
    what: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line's points by x ascending, its colour and marker, and whether it is dashed."""

    dots: Sequence[Dot]
    colour: str
    marker: str = "o"
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """What the axes are of, and their scales; `highest`: where y ends, None for what the data need."""

    x: str
    y: str
    highest: float | None = None
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; `spread` is drawn as a whisker to either side, `what` is told where a mouse rests on it."""

    height: float
    spread: float = 0.0
    what: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """Groups of bars under a title, each a label and a bar per series; `ranges` are brackets (low, high) by label."""

    title: str
    groups: Sequence[tuple[str, Sequence[Bar]]]
    highest: float | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class _Picture:
    """A figure, and what is told of its marks."""

    def __init__(self, title: str, width: float, height: float) -> None:
        self.figure = Figure((width, height), layout="constrained")
        self.figure.suptitle(title, x=0.01, ha="left")
        self._told: list[str] = []

    def tell(self, mark: Any, what: str) -> None:
        """Says what is told where a mouse rests on a mark, an artist of the figure."""
        mark.set_gid(f"mark {len(self._told)}")
        self._told.append(what)

    def svg(self, marks: Sequence[Any], names: Sequence[str], columns: int, note: str) -> str:
        """The picture with a legend and a note beneath it."""
        legend = self.figure.legend(marks, names, loc="outside lower center", ncols=columns, title=note or None)
        legend.get_title().set(fontsize=9, color="#555555")
        written = StringIO()
        self.figure.savefig(written, format="svg", metadata=NO_METADATA)
        text = written.getvalue()
        # No names of groups: a page holds several pictures, and each name may be there once.
        return re.sub(r'<g id="(?:mark (\d+)|[^"]*)">', self._group, text[text.index("<svg") :])

    def _group(self, group: re.Match[str]) -> str:
        return f"<g><title>{escape(self._told[int(group[1])])}</title>" if group[1] else "<g>"


def line_chart(title: str, axes: Axes, lines: Mapping[str, Line], note: str = "") -> str:
    """An SVG document: a line for each name, with marks and whiskers. A dot whose y is NaN, a mean of nothing, is left
    out, and a line without dots too.
    """
    known = {name: [dot for dot in line.dots if math.isfinite(dot.y)] for name, line in lines.items()}
    shown = {name: dots for name, dots in known.items() if dots}
    with matplotlib.rc_context(STYLE):
        columns = max(1, min(4, 84 // (max(map(len, shown), default=0) + 8)))
        picture = _Picture(title, 7.2, 4.6 + 0.2 * math.ceil(len(shown) / columns))
        plot = picture.figure.subplots()
        drawn = [
            _draw(picture, plot, lines[name], dots, 0.84 ** (number % 6))
            for number, (name, dots) in enumerate(shown.items())
        ]
        _scale(plot, axes, sorted({dot.x for line in lines.values() for dot in line.dots}))
        return picture.svg(drawn, list(shown), columns, note)


def _draw(picture: _Picture, plot: Any, line: Line, dots: Sequence[Dot], size: float) -> Any:
    # Of equal lines the one drawn first shows around the next.
    mark = {"marker": line.marker, "color": line.colour, "markersize": 11 * size, "markeredgecolor": "white"}
    way = {"linewidth": 4 * size, "linestyle": "--" if line.dashed else "-"}
    (drawn,) = plot.plot([dot.x for dot in dots], [dot.y for dot in dots], **mark, **way)
    for dot in dots:
        (told,) = plot.plot(dot.x, dot.y, **mark, linestyle="")
        picture.tell(told, dot.what)
        if dot.spread > 0:
            plot.errorbar(dot.x, dot.y, dot.spread, color=line.colour, linewidth=1, zorder=1.5)
    return drawn


def _scale(plot: Any, axes: Axes, xs: Sequence[float]) -> None:
    plot.set(xlabel=axes.x, ylabel=axes.y, xscale=axes.x_scale, yscale=axes.y_scale)
    plot.set_xticks(xs)
    if axes.y_scale == "linear":
        _from_zero(plot, axes.highest)
    else:
        plot.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (plot.xaxis, plot.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(WHOLE)


def bar_chart(title: str, series: Mapping[str, str], panels: Sequence[Panel], columns: int = 3, note: str = "") -> str:
    """An SVG document: the panels in rows under a legend, each with its own scale. `series`: colours by name."""
    rows = math.ceil(len(panels) / columns)
    with matplotlib.rc_context(STYLE):
        picture = _Picture(title, 4.2 * columns, 1.0 + 2.8 * rows)
        grid = picture.figure.subplots(rows, columns, squeeze=False)
        for plot, panel in zip(grid.flat, panels, strict=False):
            _panel(picture, plot, panel, list(series.values()))
        for plot in grid.flat[len(panels) :]:
            plot.set_axis_off()
        handles = [Patch(color=colour) for colour in series.values()]
        return picture.svg(handles, list(series), len(series), note)


def _panel(picture: _Picture, plot: Any, panel: Panel, colours: Sequence[str]) -> None:
    plot.set_title(panel.title, loc="left")
    plot.grid(axis="x", visible=False)
    for number, (label, bars) in enumerate(panel.groups):
        width = 0.8 / len(bars)
        for place, (bar, colour) in enumerate(zip(bars, colours, strict=True)):
            x = number - 0.4 + (place + 0.5) * width
            (mark,) = plot.bar(x, bar.height, 0.85 * width, color=colour)
            picture.tell(mark, bar.what)
            if bar.spread > 0:
                plot.errorbar(x, bar.height, bar.spread, color="black", linewidth=1, capsize=1.5)
        if label in panel.ranges:
            low, high = panel.ranges[label]
            plot.errorbar(number + 0.45, (low + high) / 2, (high - low) / 2, color="black", linewidth=2, capsize=4)
    plot.set_xticks(range(len(panel.groups)), [label for label, _ in panel.groups])
    _from_zero(plot, panel.highest)
    plot.yaxis.set_major_formatter(WHOLE)


def _from_zero(plot: Any, highest: float | None) -> None:
    # A mark at the very top is whole.
    plot.set_ylim(0, highest and 1.03 * highest)
