"""Patterns of LIKE, matched in time that grows with text and pattern, whatever they are."""

from __future__ import annotations

import re
from functools import lru_cache

ANY, ONE = "%", "_"

Items = tuple[tuple[str, bool], ...]
"""A pattern: (character, whether it is a wildcard)."""


@lru_cache(maxsize=4096)
def items_of(pattern: str) -> Items:
    """A pattern's items: a backslash makes the next character plain; a `%` after a `%` adds nothing."""
    found: list[tuple[str, bool]] = []
    for part in re.findall(r"\\.|.", pattern, re.DOTALL):
        item = (part[-1], part in (ANY, ONE))
        if item != (ANY, True) or found[-1:] != [item]:
            found.append(item)
    return tuple(found)


@lru_cache(maxsize=4096)
def like(pattern: str) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression: `%` any text, `_` any one character, a backslash escapes the next.

    What stands between two `%` is taken where it is found first, and never looked for again (an atomic group): that is
    as good as any later place, and keeps the time to text times pattern, where `.*` would try all combinations.
    """
    pieces: list[str] = [""]
    for character, wild in items_of(pattern):
        if wild and character == ANY:
            pieces.append("")
        else:
            pieces[-1] += "." if wild else re.escape(character)
    # The last piece is tied to the end, so it alone is not taken where it is found first.
    first, *middle, last = pieces if len(pieces) > 1 else [*pieces, ""]
    found = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return re.compile(f"{first}{found}.*{last}" if len(pieces) > 1 else first, re.DOTALL)
