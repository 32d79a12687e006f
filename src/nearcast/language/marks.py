"""From an offset in a text to the line and column of the file the text stands in."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

from nearcast.errors import Fault, Mark

Locate = Callable[[int], Mark]
"""Gives the mark of an offset into a text."""


class PlacedFault(Fault):
    """A fault whose place is as exact as it gets: what reads many values at once need not read them one by one."""


class Lines:
    """Where the lines of a text begin: turns offsets into lines and columns, both counted from 1."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        self._starts.extend(found.end() for found in re.finditer("\n", text))

    def at(self, offset: int) -> tuple[int, int]:
        """The line and the column of an offset."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and column: the inverse of `at`."""
        return self._starts[min(line, len(self._starts)) - 1] + column - 1


def starting_at(text: str, where: Mark) -> Locate:
    """Marks within a text whose first character stands at `where`, and whose lines stand in the file as they are."""
    file, above, before = where.file, (where.line or 1) - 1, (where.column or 1) - 1 if where.line else 0
    lines: Lines | None = None

    def locate(offset: int) -> Mark:
        """The place of a character of the text."""
        nonlocal lines
        lines = lines or Lines(text)
        line, column = lines.at(offset)
        return Mark(file, above + line, before + column if line == 1 else column)

    # Most texts are of one line.
    return locate if "\n" in text else lambda offset: Mark(file, above + 1, before + offset + 1)
