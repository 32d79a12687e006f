"""Bar charts as SVG text, without a library: groups of bars in small panels, each with its own scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from nearcast.experiments.svg import document, text

WIDTH, HEIGHT = 300, 190
"""Of one panel's drawing, in pixels; around it is room for title and labels."""

LEFT, RIGHT, ABOVE, BELOW = 56, 12, 34, 30
TICKS = 4


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; `spread` is drawn as a whisker to either side, `what` is told where a mouse rests on it."""

    height: float
    spread: float = 0.0
    what: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """Groups of bars under a title: `groups` is (label, one bar per series); `ranges` are brackets (low, high) by
    label.
    """

    title: str
    groups: Sequence[tuple[str, Sequence[Bar]]]
    highest: float | None = None
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)


def chart(title: str, series: dict[str, str], panels: Sequence[Panel], columns: int = 3, note: str = "") -> str:
    """An SVG document: the panels in rows under a title and a legend, a note beneath. `series`: colours by name."""
    wide, high = WIDTH + LEFT + RIGHT, HEIGHT + ABOVE + BELOW
    rows = math.ceil(len(panels) / columns)
    width, height = columns * wide, 60 + rows * high + 30
    parts = [
        text(12, 22, title, size=16),
        *_legend(series),
    ]
    for number, panel in enumerate(panels):
        x, y = number % columns * wide + LEFT, 60 + number // columns * high + ABOVE
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel, [*series.values()]), "</g>"]
    return document(width, height, [*parts, text(12, height - 12, note, fill="#555")])


def _legend(series: dict[str, str]) -> Iterator[str]:
    x = 12
    for name, colour in series.items():
        yield f'<rect x="{x}" y="36" width="12" height="12" fill="{colour}"/>'
        yield text(x + 17, 47, name)
        x += 34 + 7 * len(name)


def _panel(panel: Panel, colours: Sequence[str]) -> Iterator[str]:
    top = panel.highest or _rounded_up(max(bar.height + bar.spread for _, bars in panel.groups for bar in bars))
    yield text(0, -12, panel.title, size=13)
    for tick in range(TICKS + 1):
        y = HEIGHT * (1 - tick / TICKS)
        yield f'<line x1="0" x2="{WIDTH}" y1="{y:g}" y2="{y:g}" stroke="#ddd"/>'
        yield text(-6, y + 4, f"{top * tick / TICKS:,g}", anchor="end", fill="#555")
    step = WIDTH / len(panel.groups)
    for number, (label, bars) in enumerate(panel.groups):
        yield text((number + 0.5) * step, HEIGHT + 18, label, anchor="middle")
        yield from _group(bars, colours, number * step + step * 0.08, step * 0.84, top)
        if label in panel.ranges:
            yield from _range(panel.ranges[label], number * step + step * 0.94, top)


def _group(bars: Sequence[Bar], colours: Sequence[str], left: float, width: float, top: float) -> Iterator[str]:
    each = width / len(bars)
    for number, (bar, colour) in enumerate(zip(bars, colours, strict=True)):
        x, high = left + number * each, HEIGHT * bar.height / top
        place = f'x="{x:.1f}" y="{HEIGHT - high:.1f}" width="{each * 0.85:.1f}" height="{high:.1f}"'
        yield f'<rect {place} fill="{colour}">'
        yield f"<title>{escape(bar.what)}</title></rect>"
        if bar.spread:
            middle, reach = x + each * 0.425, HEIGHT * bar.spread / top
            low, above = min(HEIGHT - high + reach, HEIGHT), max(HEIGHT - high - reach, 0)
            yield f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{low:.1f}" y2="{above:.1f}" stroke="black"/>'


def _range(bounds: tuple[float, float], x: float, top: float) -> Iterator[str]:
    low, high = (HEIGHT * (1 - bound / top) for bound in bounds)
    yield f'<path d="M{x - 4:.1f} {low:.1f}h8m-4 0V{high:.1f}m-4 0h8" stroke="black" stroke-width="2" fill="none"/>'


def _rounded_up(value: float) -> float:
    """The next round number: 1, 2, 4, 5 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(power * factor for factor in (1, 2, 4, 5, 10, 20) if value <= power * factor)
