"""LIKE: what patterns match, and in which time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.filters.like_patterns import like


def plainly(pattern: str, text: str) -> bool:
    """Whether a pattern matches, by trying everything."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(plainly(pattern[1:], text[start:]) for start in range(len(text) + 1))
    escaped = pattern[0] == "\\" and len(pattern) > 1
    first, rest = (pattern[1], pattern[2:]) if escaped else (pattern[0], pattern[1:])
    return bool(text) and ((first == "_" and not escaped) or first == text[0]) and plainly(rest, text[1:])


@settings(max_examples=500)
@given(st.text("ab%_\\\n", max_size=7), st.text("ab%_\\\n", max_size=7))
def test_a_pattern_matches_what_it_says(pattern: str, text: str) -> None:
    """`%` any text, `_` one character, a backslash escapes the next."""
    assert plainly(pattern, text) == (like(pattern).fullmatch(text) is not None)


def test_a_pattern_of_many_wildcards_ends() -> None:
    """Trying all combinations would take longer than the universe is old."""
    assert like("%a" * 50 + "%b").fullmatch("a" * 20_000) is None
    assert like("%a_a" * 50 + "%b").fullmatch("a" * 20_000 + "b") is not None
