"""Line charts as SVG text, without a library: both axes logarithmic, one line per series."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from nearcast.experiments.svg import document, polyline, text

WIDTH, HEIGHT = 520, 320
"""Of the drawing, in pixels; around it is room for title and labels."""

LEFT, ABOVE, RIGHT, BELOW = 70, 50, 150, 50
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#9c6b4e", "#97bbf5", "#a463f2")

Point = tuple[float, float]


def curves(title: str, x: str, y: str, series: Mapping[str, Sequence[Point]], note: str = "") -> str:
    """An SVG document: points (x, y), both above 0, of each series joined by a line; `x` and `y` name the axes."""
    every = [point for points in series.values() for point in points]
    across, up = (_Axis([point[axis] for point in every]) for axis in (0, 1))
    width, height = LEFT + WIDTH + RIGHT, ABOVE + HEIGHT + BELOW + 20
    parts = [
        text(12, 22, title, size=16),
        f'<g transform="translate({LEFT} {ABOVE})">',
        *_axes(across, up, x, y),
    ]
    for number, (name, points) in enumerate(series.items()):
        parts += _line(name, COLOURS[number % len(COLOURS)], points, across, up, number)
    return document(width, height, [*parts, "</g>", text(12, height - 12, note, fill="#555")])


class _Axis:
    """A logarithmic axis from a power of ten, halved or doubled if that is enough, to another."""

    def __init__(self, values: Sequence[float]) -> None:
        self.low, self.high = min(values, default=1.0), max(values, default=10.0)
        lowest, highest = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        ticks = [10.0**power * factor for power in range(lowest, highest + 1) for factor in (1, 2, 5)]
        first = max(tick for tick in ticks if tick <= self.low)
        last = min((tick for tick in ticks if tick >= self.high and tick > first), default=ticks[-1])
        self.ticks = [tick for tick in ticks if first <= tick <= last]

    def at(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        first, last = math.log(self.ticks[0]), math.log(self.ticks[-1])
        return (math.log(value) - first) / (last - first)


def _axes(across: _Axis, up: _Axis, x: str, y: str) -> Iterator[str]:
    for tick in across.ticks:
        at = across.at(tick) * WIDTH
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{HEIGHT}" stroke="#eee"/>'
        yield text(at, HEIGHT + 18, f"{tick:,g}", anchor="middle", fill="#555")
    for tick in up.ticks:
        at = (1 - up.at(tick)) * HEIGHT
        yield f'<line x1="0" x2="{WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
        yield text(-6, at + 4, f"{tick:,g}", anchor="end", fill="#555")
    yield text(WIDTH / 2, HEIGHT + 40, x, anchor="middle")
    yield text(-LEFT + 8, -10, y)


def _line(name: str, colour: str, points: Sequence[Point], across: _Axis, up: _Axis, number: int) -> Iterator[str]:
    places = [(across.at(x) * WIDTH, (1 - up.at(y)) * HEIGHT) for x, y in points]
    yield polyline(places, colour)
    for (x, y), (at, value) in zip(places, points, strict=True):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">'
        yield f"<title>{escape(f'{name}: {value:,.6g} at {at:g}')}</title></circle>"
    yield f'<rect x="{WIDTH + 14}" y="{number * 20}" width="12" height="12" fill="{colour}"/>'
    yield text(WIDTH + 31, number * 20 + 11, name)
