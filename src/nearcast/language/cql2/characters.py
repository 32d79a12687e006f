"""What to do about characters with which nothing in a filter begins."""

from __future__ import annotations

_CHARACTERS = {
    **dict.fromkeys("‘’‚‛´", "a text stands in straight quotes: 'a'"),
    **dict.fromkeys("“”„«»", "a text stands in straight single quotes: 'a'"),
    "`": 'a text stands in single quotes, a name with other characters in double ones: "alert-level"',
    **dict.fromkeys("[]", "a list stands in parentheses, ('a', 'b'); a part of an object has a dotted name, a.b"),
    **dict.fromkeys("{}", "a geometry is written as POINT(11.5 48.1); CQL2 JSON is JSON from its beginning"),
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT, or <> for not equal",
    "~": "LIKE compares with a pattern: name LIKE 'north%'",
    ";": "a filter is one condition, and a geometry has no SRID: it is in degrees",
    "#": "CQL2 has no comments",
    "≥": "write >=",
    "≤": "write <=",
    "≠": "write <>",
    "$": "a number has no unit",
    "€": "a number has no unit",
    "?": "there are no parameters and branches",
    "@": 'a name with other characters stands in double quotes: "a@b"',
    "\\": "a backslash stands within a text only",
}


def on_character(character: str) -> str:
    """What to do about a character that begins nothing."""
    return _CHARACTERS.get(character, "a name with other characters stands in double quotes, a text in single ones")
