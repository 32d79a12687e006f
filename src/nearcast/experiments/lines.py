"""Line charts as SVG text, without a library: lines with marks and whiskers over a numeric axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from nearcast.experiments.svg import document, polyline, text

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, ABOVE, BELOW = 74, 16, 50, 44
TICKS = 5
LEGEND_ROW, LEGEND_STEP = 18, 150


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a line, how far its whisker reaches to either side, and what is told where a mouse rests on it."""

    x: float
    y: float
    spread: float = 0.0
    what: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line's points, colour, and whether it is dashed."""

    dots: Sequence[Dot]
    colour: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """What the axes are of; `highest`: where y ends, None for what the data needs; x in its own scale, or by powers."""

    x: str
    y: str
    highest: float | None = None
    powers: bool = False


def chart(title: str, axes: Axes, lines: Mapping[str, Line]) -> str:
    """An SVG document. A dot whose y is no number, a mean of nothing, is left out."""
    scale = _Scale(axes, [dot for line in lines.values() for dot in line.dots])
    known = {name: replace(line, dots=list(filter(_known, line.dots))) for name, line in lines.items()}
    shown = {name: line for name, line in known.items() if line.dots}
    rows = math.ceil(len(shown) / (WIDTH // LEGEND_STEP))
    wide, high = LEFT + WIDTH + RIGHT, ABOVE + HEIGHT + BELOW + rows * LEGEND_ROW
    parts = [
        text(12, 22, title, size=15),
        f'<g transform="translate({LEFT} {ABOVE})">',
        *_axes(axes, scale),
        *(mark for line in shown.values() for mark in _line(line, scale)),
        *_legend(shown),
        "</g>",
    ]
    return document(wide, high, parts)


def _known(dot: Dot) -> bool:
    return math.isfinite(dot.y)


class _Scale:
    """From data to pixels."""

    def __init__(self, axes: Axes, dots: Sequence[Dot]) -> None:
        self._powers = axes.powers
        self.xs = sorted({dot.x for dot in dots})
        self._low, self._high = (self._along(x) for x in (self.xs[0], self.xs[-1]))
        self.top = axes.highest or _rounded_up(max((dot.y + dot.spread for dot in filter(_known, dots)), default=1.0))

    def _along(self, x: float) -> float:
        return math.log10(x) if self._powers else x

    def x(self, x: float) -> float:
        width = self._high - self._low
        return WIDTH * (0.5 if width == 0 else 0.03 + 0.94 * (self._along(x) - self._low) / width)

    def y(self, y: float) -> float:
        return HEIGHT * (1 - min(max(y / self.top, 0.0), 1.0))


def _axes(axes: Axes, scale: _Scale) -> Iterator[str]:
    for tick in range(TICKS + 1):
        value = scale.top * tick / TICKS
        y = scale.y(value)
        yield f'<line x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield text(-6, y + 4, f"{value:,g}", anchor="end", fill="#555")
    last = -math.inf
    for x in scale.xs:
        at = scale.x(x)
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{HEIGHT}" y2="{HEIGHT + 4}" stroke="#555"/>'
        # Labels that would run into each other are left out.
        if at - last >= 30:
            yield text(at, HEIGHT + 17, f"{x:,g}", anchor="middle", fill="#555")
            last = at
    yield text(WIDTH / 2, HEIGHT + 34, axes.x, anchor="middle")
    yield text(-LEFT + 12, -8, axes.y, size=11)


def _line(line: Line, scale: _Scale) -> Iterator[str]:
    places = [(scale.x(dot.x), scale.y(dot.y)) for dot in line.dots]
    yield polyline(places, line.colour, ' stroke-dasharray="5 4"' if line.dashed else "")
    for dot, (x, y) in zip(line.dots, places, strict=True):
        if dot.spread:
            low, high = scale.y(dot.y - dot.spread), scale.y(dot.y + dot.spread)
            yield f'<path d="M{x - 3:.1f} {low:.1f}h6m-3 0V{high:.1f}m-3 0h6" stroke="{line.colour}" fill="none"/>'
        title = f"<title>{escape(dot.what)}</title>"
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{line.colour}">{title}</circle>'


def _legend(lines: Mapping[str, Line]) -> Iterator[str]:
    columns = WIDTH // LEGEND_STEP
    for number, (name, line) in enumerate(lines.items()):
        x, y = number % columns * LEGEND_STEP, HEIGHT + BELOW + 6 + number // columns * LEGEND_ROW
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        yield f'<line x1="{x}" x2="{x + 20}" y1="{y}" y2="{y}" stroke="{line.colour}" stroke-width="2"{dash}/>'
        yield text(x + 25, y + 4, name, size=11)


def _rounded_up(value: float) -> float:
    """The next round number: 1, 1.5, 2, 3, 4, 5, 6, 8 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(power * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 20) if value <= power * factor)
