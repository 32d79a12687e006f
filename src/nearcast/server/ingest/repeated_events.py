"""Events whose source and id the journal has already: the very same again, or others that took their name.

Source and id identify an event, so the second is not taken. A publisher that repeats itself finds its own event there;
one that finds another has two events of one name, or somebody else has used its name before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import orjson

from nearcast.errors import Fault, Mark
from nearcast.journal.seam import Journal

STRETCH = 1_000
"""Positions that are read together: who repeats itself mostly repeats neighbours."""


def other_events(journal: Journal, repeated: Sequence[tuple[int, bytes, int]]) -> list[tuple[int, Fault]]:
    """Of events by their indices, each with its content and the position that it was answered, the faults of those that
    are others.
    """
    found = []
    for _, group in groupby(sorted(repeated, key=lambda one: one[2]), lambda one: one[2] // STRETCH):
        listed = list(group)
        first, last = listed[0][2], listed[-1][2]
        rows = journal.read("events", first - 1, last - first + 1)
        stored = dict(zip(rows.column("position").to_pylist(), rows.column("payload").to_pylist(), strict=True))
        found += list(_others(listed, stored))
    return sorted(found, key=lambda one: one[0])


def _others(listed: Sequence[tuple[int, bytes, int]], stored: dict[int, bytes]) -> Iterator[tuple[int, Fault]]:
    for index, content, position in listed:
        if not _are_equal(content, stored.get(position)):
            came = f"another event with this source and id than the one at position {position:,}"
            advice = "give each event an id of its own; if this one is new, somebody used its source and id before"
            yield index, Fault("the event that has this source and id", came, Mark(f"event {index}"), advice)


def _are_equal(one: bytes, other: bytes | None) -> bool:
    """Whether two CloudEvents, as JSON, have the same content."""
    if one == other:
        return True
    try:
        # Spaces, and the order of names, are no content.
        return other is not None and _ordered(one) == _ordered(other)
    except ValueError:
        return False


def _ordered(document: bytes) -> bytes:
    # Written again: in Python 1, 1.0 and true are equal.
    return orjson.dumps(orjson.loads(document), option=orjson.OPT_SORT_KEYS)
