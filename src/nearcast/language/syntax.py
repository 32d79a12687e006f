"""CQL2 as it is written, before it has a meaning: the tree into which both text and JSON are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from nearcast.errors import Fault, Mark

Kind = Literal["call", "list", "property", "text", "number", "boolean", "null", "geometry", "values"]


MAX_HEIGHT = 50
"""Depth of an arithmetic expression; each operator of a chain makes it one deeper."""


@dataclass(frozen=True, slots=True)
class Syntax:
    """A node: a call of an operator or function (`value` is its name in capitals), a list, or a leaf with its value.

    A geometry's value is its GeoJSON; that of `values` is a tuple, the literals of a list behind IN.
    `grouped`: it stands in parentheses of its own. `came` is how a fault names it.
    `height` is that of the tree below, 1 for a leaf.
    """

    kind: Kind
    value: str | int | float | bool | Mapping[str, Any] | tuple[int | float | str, ...] | None
    where: Mark
    came: str
    parts: tuple[Syntax, ...] = ()
    grouped: bool = False
    height: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        below = max(part.height for part in self.parts) if self.parts else 0
        object.__setattr__(self, "height", 1 + below)

    def calls(self, *names: str) -> bool:
        """Whether the node is a call of one of these."""
        return self.kind == "call" and self.value in names

    def spread(self) -> Syntax:
        """The node with literals that were read at once each by itself; all of these are where the first is."""
        if not self.parts or self.parts[-1].kind != "values":
            return self
        *before, last = self.parts
        assert isinstance(last.value, tuple), "values are a tuple"
        found = (Syntax(_kind(one), one, last.where, repr(one)) for one in last.value)
        return replace(self, parts=(*before, *found))


def _kind(literal: int | float | str) -> Kind:
    return "text" if isinstance(literal, str) else "number"


def too_deep(where: Mark) -> Fault:
    """The fault of an expression that is deeper than any may be."""
    return Fault(f"an expression at most {MAX_HEIGHT} deep", "a deeper one", where)
