"""Brokers in a tree, and what it costs to bring a message from one to others: hops, by kind of message.

As the paper counts: a hop is a message processed at a broker and put out, to the next broker or to a client there. So a
message over k links to a client there is k + 1 hops; one that ends at a broker, k. Over a link that several receivers
share a message goes once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Overlay:
    """A tree of brokers: the parent of each by name; the root is whose parent is nobody's child."""

    parents: Mapping[str, str]

    @cached_property
    def depths(self) -> dict[str, int]:
        """Links from each broker to the root."""
        names = {*self.parents, *self.parents.values()}
        return {name: len(self._upwards(name)) - 1 for name in names}

    def links(self, source: str, targets: Iterable[str]) -> int:
        """How many links a message crosses from a broker to others."""
        crossed: set[str] = set()
        for target in targets:
            common = self.common(source, target)
            for end in (source, target):
                way = self._upwards(end)
                # A link is known by its lower end.
                crossed.update(way[: way.index(common)])
        return len(crossed)

    def common(self, one: str, other: str) -> str:
        """The first broker that is on the way of both to the root."""
        theirs = set(self._upwards(other))
        return next(name for name in self._upwards(one) if name in theirs)

    def _upwards(self, name: str) -> list[str]:
        way = [name]
        while way[-1] in self.parents:
            way.append(self.parents[way[-1]])
        return way


def crossbar(edges: int = 4) -> Overlay:
    """Edges around one centre: the paper's figure 6."""
    return Overlay({f"edge {number}": "centre" for number in range(edges)})
