"""Pieces of pictures as SVG text, without a library."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def document(width: float, height: float, parts: Iterable[str]) -> str:
    """A picture of so many pixels with these parts, on white."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>\n"])


def text(x: float, y: float, said: str, size: int = 12, anchor: str = "start", fill: str = "black") -> str:
    """A text whose beginning, middle or end, as `anchor` says, stands at a place."""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"'
    return f"<text {place}>{escape(said)}</text>"


def polyline(places: Iterable[tuple[float, float]], colour: str, more: str = "") -> str:
    """A line through some places; `more` are further attributes."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{more}/>'
