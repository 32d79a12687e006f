"""Plug-ins: what other installed packages offer under a name, found by the entry points of their distributions."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

__all__ = ["EntryPoint", "plug_ins"]


@cache
def plug_ins(group: str) -> dict[str, EntryPoint]:
    """The plug-ins of a group that are installed, by name."""
    return {point.name: point for point in entry_points(group=group)}
