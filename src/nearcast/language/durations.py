"""Durations as people write them: a number of seconds, or a number and a unit, `10 s`, `5 min`."""

from __future__ import annotations

import re

from nearcast.language.nodes import Node
from nearcast.language.reading import Reader

UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

LONGEST = 36_525 * UNITS["d"]
"""Seconds of a hundred years: longer ones mean nothing, and some are more than a clock can count."""

_WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")


def read_duration(node: Node, what: str, reader: Reader) -> float | None:
    """The seconds that a node means, 0 or more; None after a fault."""
    if not isinstance(node.value, str):
        return bounded(reader.number(node, f"{what}, in seconds or as in 10 s", low=0), node, what, reader)
    found = _WRITTEN.fullmatch(node.value)
    if found and found[2] in UNITS:
        return bounded(float(found[1]) * UNITS[found[2]], node, what, reader)
    reader.fault(f"{what}: a number and one of {', '.join(UNITS)}, as in 10 s", node)
    return None


def bounded(seconds: float | None, node: Node, what: str, reader: Reader) -> float | None:
    """The same seconds; None after a fault if they are too many."""
    if seconds is not None and seconds > LONGEST:
        reader.fault(f"{what}: a hundred years at most", node, "36525 d are so long")
        return None
    return seconds
