"""Lengths as people write them: a number of metres."""

from __future__ import annotations

from nearcast.language.nodes import Node
from nearcast.language.reading import Reader

LARGEST = 1e12
"""Metres, a billion kilometres: nothing on Earth is so far apart, and some numbers are more than can be squared."""


def read_metres(node: Node, what: str, reader: Reader) -> float | None:
    """The metres that a node means, 0 or more; None after a fault."""
    metres = reader.number(node, f"{what}, in metres", low=0)
    if metres is not None and metres > LARGEST:
        reader.fault(f"{what}: a billion kilometres at most", node, "leave out how far, or give metres")
        return None
    return metres
