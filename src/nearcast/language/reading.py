"""Reading nodes into plain values, keeping every fault on the way instead of stopping at the first."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.nodes import Node
from nearcast.model.values import INTEGER_MAXIMUM

_NO_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffd]")
"""Control characters, ends of lines, and what stands for bytes that are no text."""

_BEGUN = re.compile(r"\s*\d+(\.\d+)?")


class Reader:
    """Collects faults; each method gives the value of a node, or None after noting why it has none."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def fault(self, expected: str, node: Node, advice: str = "", came: str | None = None) -> None:
        """Notes a fault of a node; its path tells a reader of JSON, who has no lines, where to look."""
        path = f"{node.path}: " if node.path and node.where.line is None else ""
        self.faults.append(Fault(f"{path}{expected}", str(node) if came is None else came, node.where, advice))

    def take(self, error: Fault | DefinitionError) -> None:
        """Notes faults that were raised."""
        self.faults.extend(error.faults if isinstance(error, DefinitionError) else [error])

    def stop(self) -> None:
        """Raises `DefinitionError` if there was any fault."""
        if self.faults:
            raise DefinitionError(self.faults)

    def fields(self, node: Node, required: Iterable[str], optional: Iterable[str], what: str) -> dict[str, Node]:
        """The fields of a mapping, without those that are null; faults for missing and for unknown ones."""
        if not isinstance(node.value, dict):
            self.fault(f"{what}: a mapping", node)
            return {}
        required, known = tuple(required), (*required, *optional)
        for name in node.value:
            if name not in known:
                advice = closest(name, known) or f"known are {', '.join(known)}"
                self.faults.append(Fault(f"a field of {what}", name[:80], node.key(name), advice))
        for name in required:
            if name not in node.value or node.value[name].value is None:
                self.fault(f"{name} in {what}", node, came="none")
        return {name: child for name, child in node.value.items() if child.value is not None and name in known}

    def named(self, node: Node, what: str) -> Iterator[tuple[str, Node]]:
        """The (name, node) pairs of a mapping whose keys are free."""
        if isinstance(node.value, dict):
            yield from node.value.items()
        else:
            self.fault(f"{what}: a mapping", node)

    def items(self, node: Node, what: str) -> list[Node]:
        """The nodes of a list."""
        if isinstance(node.value, list):
            return node.value
        self.fault(f"{what}: a list", node)
        return []

    def text(self, node: Node, what: str) -> str | None:
        """A text that is not empty."""
        if isinstance(node.value, str) and node.value:
            return node.value
        advice = "put it in quotes" if isinstance(node.value, (int, float)) else ""
        self.fault(f"{what}: a text", node, advice)
        return None

    def name(self, node: Node, what: str) -> str | None:
        """A text that can name something: not blank, on one line, without control characters."""
        name = self.text(node, what)
        if name is None or (not name.isspace() and not _NO_NAME.search(name)):
            return name
        advice = "any script will do, spaces and slashes too"
        if name.isspace():
            self.fault(f"{what}: more than blanks", node, advice)
        elif "\ufffd" in name:
            self.fault(f"{what}: text in UTF-8", node, advice, came="bytes that are none")
        else:
            self.fault(f"{what}: text without control characters", node, advice, came=ascii(name)[:80])
        return None

    def number(self, node: Node, what: str, low: float = -math.inf, above: float = -math.inf) -> float | None:
        """A finite number, at least `low` and greater than `above`."""
        value = node.value
        if _is_finite(value) and value >= low and value > above:
            return value
        bound = f", {low:g} or more" if low > -math.inf else f" above {above:g}" if above > -math.inf else ""
        unit = "metres" if "in metres" in what else "seconds" if "in seconds" in what else ""
        begun = _BEGUN.match(value) if isinstance(value, str) else None
        advice = f"it is a number{f' of {unit}' if unit else ''}, as in {begun[0].strip()}" if begun else ""
        self.fault(f"{what}: a finite number{bound}", node, advice)
        return None

    def integer(self, node: Node, what: str, low: int, high: int) -> int | None:
        """An integer in a range."""
        value = node.value
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.fault(f"{what}: an integer from {low} to {high}", node)
        return None

    def flag(self, node: Node, what: str) -> bool:
        """A boolean."""
        if not isinstance(node.value, bool):
            self.fault(f"{what}: true or false", node)
        return node.value is True


def _is_finite(value: object) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INTEGER_MAXIMUM


def closest(name: str, known: Iterable[str]) -> str:
    """The advice "did you mean …", empty if nothing known is like the name."""
    matches = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {matches[0]}?" if matches else ""


def listed(names: Sequence[str], most: int = 10) -> str:
    """Names for an advice, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def at(file: str) -> Mark:
    """The beginning of a file."""
    return Mark(file, 1, 1)
