"""Quantities as people write them: durations, lengths, relevances."""

from __future__ import annotations

import re

from nearcast.errors import Fault, Mark
from nearcast.language.nodes import DocumentNode, DocumentReader

UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

LONGEST = 36_525 * UNITS["d"]
"""Seconds of a hundred years: longer ones mean nothing, and some are more than a clock can count."""

_WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")


def read_duration(node: DocumentNode, what: str, reader: DocumentReader) -> float | None:
    """The seconds that a node means, 0 or more; None after a fault."""
    if not isinstance(node.value, str):
        return bounded(reader.number(node, f"{what}, in seconds or as in 10 s", low=0), node, what, reader)
    found = _WRITTEN.fullmatch(node.value)
    if found and found[2] in UNITS:
        return bounded(float(found[1]) * UNITS[found[2]], node, what, reader)
    reader.fault(f"{what}: a number and one of {', '.join(UNITS)}, as in 10 s", node)
    return None


def duration_text(seconds: float) -> str:
    """A duration in the greatest unit of which it is a whole number, else in seconds: `read_duration` inverts it."""
    for unit, size in reversed(UNITS.items()):
        if size >= 1 and seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def bounded(seconds: float | None, node: DocumentNode, what: str, reader: DocumentReader) -> float | None:
    """The same seconds; None after a fault if they are too many."""
    if seconds is not None and seconds > LONGEST:
        reader.fault(f"{what}: a hundred years at most", node, "36525 d are so long")
        return None
    return seconds


_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)\s*%\s*")


def read_share(node: DocumentNode, what: str, reader: DocumentReader) -> tuple[float, bool] | None:
    """A number, 0 or more, and whether it is in percent, below 100 then; None after a fault."""
    if not isinstance(node.value, str):
        value = reader.number(node, f"{what}, a number or as in 5 %", low=0)
        return None if value is None else (float(value), False)
    found = _PERCENT.fullmatch(node.value)
    if found and float(found[1]) < 100:
        return float(found[1]), float(found[1]) > 0
    reader.fault(f"{what}: a number, or one below 100 and %, as in 5 %", node)
    return None


LARGEST = 1e12
"""Metres, a billion kilometres: nothing on Earth is so far apart, and some numbers are more than can be squared."""


def read_metres(node: DocumentNode, what: str, reader: DocumentReader) -> float | None:
    """The metres that a node means, 0 or more; None after a fault."""
    metres = reader.number(node, f"{what}, in metres", low=0)
    if metres is not None and metres > LARGEST:
        reader.fault(f"{what}: a billion kilometres at most", node, "leave out how far, or give metres")
        return None
    return metres


NAMES = {"LOW": 1 / 3, "MEDIUM": 2 / 3, "HIGH": 1.0, "L": 1 / 3, "M": 2 / 3, "H": 1.0}


def relevance_of(written: object, where: Mark, levels: int, atom: str = "") -> float:
    """The relevance that a number or a name stands for. Raises `Fault`, naming the atom it belongs to."""
    suffix = f" for {atom}" if atom else ""
    if isinstance(written, str) and written.upper() in NAMES:
        if levels != 3:
            raise Fault(f"a relevance in [0, 1]{suffix}", written, where, "LOW, MEDIUM, HIGH are for three levels")
        return NAMES[written.upper()]
    try:
        value = None if isinstance(written, bool) or not isinstance(written, (str, int, float)) else float(written)
    except (ValueError, OverflowError):
        value = None
    # The comparison is false for NaN too.
    if value is None or not 0 <= value <= 1:
        raise Fault(f"a relevance in [0, 1]{suffix}", f"{written}", where)
    return value
