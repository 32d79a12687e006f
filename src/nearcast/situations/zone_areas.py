"""The zones of layers as places in which rules look: which of them readings are in.

A zone is a place by a name of its own, so that it is none of the ontology's. An entity is in a zone where its place is;
whom the layer's rule watches, and its margin, matter to what zones tell alone.
"""

from __future__ import annotations

from collections.abc import Iterable

BETWEEN = "\x1f"
"""Between a layer and the name of a zone."""

OUTSIDE = BETWEEN
"""A place in which nothing is: where a rule looks into zones and a centre is in none."""


def layer_prefix(layer: str) -> str:
    """How the places begin that the zones of a layer are."""
    return f"{layer}{BETWEEN}"


def zone_name(area: str) -> tuple[str, str]:
    """The layer and the zone that a place is."""
    layer, _, zone = area.partition(BETWEEN)
    return layer, zone


def zone_at(areas: Iterable[str], prefix: str) -> str:
    """The first zone of a layer among places, by name; `OUTSIDE` where there is none."""
    return min((one for one in areas if one.startswith(prefix)), default=OUTSIDE)
