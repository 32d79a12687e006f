"""Patterns of LIKE, matched in time that grows with text and pattern, whatever they are."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=4096)
def like(pattern: str) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression: `%` any text, `_` any one character, a backslash escapes the next.

    What stands between two `%` is taken where it is found first, and never looked for again (an atomic group): that is
    as good as any later place, and keeps the time to text times pattern, where `.*` would try all combinations.
    """
    pieces: list[str] = [""]
    for part in re.findall(r"\\.|.", pattern, re.DOTALL):
        if part == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if part == "_" else re.escape(part[-1])
    # The last piece is tied to the end, so it alone is not taken where it is found first.
    first, *middle, last = pieces if len(pieces) > 1 else [*pieces, ""]
    found = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return re.compile(f"{first}{found}.*{last}" if len(pieces) > 1 else first, re.DOTALL)
