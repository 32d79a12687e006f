"""The total order of events: by position in the journal, and behind each event those that were derived from it.

A derived event (a relation that began, a situation that ended) is caused by the event at one position and decided as of
there; its *part* tells it from that event (part 0) and from the others that the event caused. Position and part
together are its sequence, one integer that orders as the pair does.
"""

from __future__ import annotations

import re
from typing import Any

BITS = 20
"""Of a sequence the lowest bits hold the part: one event may cause a million others."""

MOST_PARTS = (1 << BITS) - 1

MOST_POSITIONS = 1 << (63 - BITS)
"""Positions lie below: a sequence is an integer of 64 bits with its sign, as columns and the journal take them."""

_WRITTEN = re.compile(r"([1-9][0-9]{0,12})\.([1-9][0-9]{0,6})")


def sequence(position: int, part: int) -> int:
    """The sequence of the event at a position, part 0, or of one derived from it."""
    return position << BITS | part


def position_of(sequence: int) -> int:
    """The position of an event, or of the event that caused it."""
    return sequence >> BITS


def part_of(sequence: int) -> int:
    """0 for a published event; of a derived one its number among those of the same cause."""
    return sequence & MOST_PARTS


def write_sequence(sequence: int) -> int | str:
    """How clients are told it: the position, or "position.part" for a derived event."""
    part = part_of(sequence)
    return f"{position_of(sequence)}.{part}" if part else position_of(sequence)


def read_sequence(given: Any) -> int:
    """The sequence of what `write_sequence` gives. Raises `ValueError` for anything else."""
    if type(given) is int and 0 <= given < MOST_POSITIONS:
        return sequence(given, 0)
    found = _WRITTEN.fullmatch(given) if isinstance(given, str) else None
    if found is None or int(found[1]) >= MOST_POSITIONS or int(found[2]) > MOST_PARTS:
        raise ValueError(f"expected a position or a text such as '12.1', got {given!r}")
    return sequence(int(found[1]), int(found[2]))
