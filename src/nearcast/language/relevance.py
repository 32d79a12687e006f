"""Relevance values as people write them: numbers in [0, 1], or LOW, MEDIUM, HIGH where there are three levels."""

from __future__ import annotations

from nearcast.errors import Fault, Mark

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
