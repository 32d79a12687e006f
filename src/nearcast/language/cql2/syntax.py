"""CQL2 as it is written, before it has a meaning: the tree into which both text and JSON are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from nearcast.errors import Fault, Mark
from nearcast.language.cql2.filter_limits import MAX_HEIGHT
from nearcast.language.cql2.literals import text_literal
from nearcast.language.marks import Locate
from nearcast.model.expression import ARITHMETIC, COMPARISONS

SyntaxKind = Literal["call", "list", "property", "text", "number", "boolean", "null", "geometry", "values", "atom"]

JOINTS = frozenset({"AND", "OR", "NOT"})
PREDICATES = frozenset({*COMPARISONS, "IN", "BETWEEN", "LIKE", "IS NULL"})
CONDITIONS = JOINTS | PREDICATES

_NAMED = {"list": "a list", "geometry": "a geometry", "values": "a list of literals", "atom": "a condition"}


@dataclass(slots=True, eq=False)
class Syntax:
    """A node: a call of an operator or function (`value` is its name in capitals), a list, or a leaf with its value.

    A geometry's value is its GeoJSON; that of `values` is a tuple, the literals of a list behind IN; that of `atom` is
    an atom, a condition on one attribute. Of these two, which are read at once, the literals have no places.
    `start` is where the node begins, which `locate` turns into a place; `written` is a leaf or a call's name as it
    came. `grouped`: it stands in parentheses of its own. `height` is that of the tree below, 1 for a leaf.
    """

    kind: SyntaxKind
    value: Any
    start: int
    locate: Locate
    written: str = ""
    parts: tuple[Syntax, ...] = ()
    height: int = 1
    grouped: bool = False

    @property
    def where(self) -> Mark:
        """The place where the node begins."""
        return self.locate(self.start)

    @property
    def came(self) -> str:
        """The node as a fault names it."""
        if self.kind == "property":
            return f"the attribute {self.written}"
        if self.kind == "list" and not self.parts:
            return "an empty list"
        if self.kind != "call":
            return _NAMED.get(self.kind, self.written[:80])
        if self.calls(*ARITHMETIC):
            return f"the arithmetic sign {self.written}" if self.written else "a negative value"
        if self.calls(*JOINTS):
            return self.written
        return f"{'a condition with' if self.value in PREDICATES else 'the function'} {self.written}"

    def calls(self, *names: str) -> bool:
        """Whether the node is a call of one of these."""
        return self.kind == "call" and self.value in names

    def spread(self) -> tuple[Syntax, ...]:
        """The parts, literals that were read at once each by itself; all of these are where the first is."""
        if not self.parts or self.parts[-1].kind != "values":
            return self.parts
        *before, last = self.parts
        assert isinstance(last.value, tuple), "values are a tuple"
        found = (Syntax(_kind(one), one, last.start, last.locate, _literal(one)) for one in last.value)
        return (*before, *found)


def call_of(name: str, parts: tuple[Syntax, ...], start: int, locate: Locate, written: str) -> Syntax:
    """The call of an operator or function. Raises `Fault` for one that is deeper than any may be."""
    height = 1 + max([part.height for part in parts], default=0)
    if height > MAX_HEIGHT and name not in JOINTS:
        if name in ARITHMETIC:
            raise Fault(f"an expression at most {MAX_HEIGHT} deep", "a deeper one", locate(start))
        if height > 2 * MAX_HEIGHT:
            raise Fault(f"a filter at most {2 * MAX_HEIGHT} deep", "a deeper one", locate(start))
    return Syntax("call", name, start, locate, written, parts, height)


def _kind(literal: int | float | str) -> SyntaxKind:
    return "text" if isinstance(literal, str) else "number"


def _literal(value: int | float | str) -> str:
    return text_literal(value) if isinstance(value, str) else repr(value)
