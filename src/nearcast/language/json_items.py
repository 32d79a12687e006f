"""The values of a JSON text one by one, with bounded memory: items of its array, features of its collection, or values
that follow one another.

Only strings and brackets are looked at here: whether a value is JSON is found out by who reads it, so that one that is
none spoils no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

CHUNK = 1 << 20
"""Bytes that are read at once."""

_KEY_BYTES = 256
"""So much of what was gone through stays, for the key before an array."""

_STRING_PART = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_OUTER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?P<sign>[\[\]{},])|"', re.DOTALL)
# Within an item what has no brackets in its brackets is one token with all around it, and brackets beside each other
# are one: most of a geometry is such, and whoever sends nothing but brackets must not cost more.
_INNER = re.compile(
    rb"""(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|\[[^\[\]{}"]*+\]|\{[^\[\]{}"]*+\}|[^\[\]{}"]++)++|(?P<brackets>[\[{]++|[\]}]++)|\"""",
    re.DOTALL,
)
_FEATURES = re.compile(rb'"features"\s*:\s*\Z')
_NOTHING = b'""'
"""Stands for what says nothing here: strings, and what lies between brackets."""

_BETWEEN = b" \t\r\n\x1e\xef\xbb\xbf"
"""Blanks, separators of records (RFC 8142), and byte order marks."""


@dataclass(frozen=True, slots=True)
class JsonItem:
    """One value as it came, and where it begins, counted from 1; of one that is too long only the beginning.

    `unfinished`: the text ends within it, or before the array or object that it is in.
    """

    content: bytes
    line: int
    column: int
    too_long: bool = False
    unfinished: bool = False


def json_items(file: IO[bytes], limit: int) -> Iterator[JsonItem]:
    """The values of a text: of an array its items, of an object with a list `features` those, else the text's own.

    Holds at most about `limit` bytes of a value, and a piece of the file. Between commas there may be nothing: that is
    an item without content.
    """
    text = _Text(file, limit)
    depth, array, among_features, has_features, comma = 0, False, False, False, False
    while token := text.token(inside=depth - (2 if among_features else 1)):
        base = 2 if among_features else 1 if array else 0
        if token == b",":
            if depth == base:
                yield from text.ended(always=base > 0)
                comma = True
        elif token[:1] in b"[{":
            if depth == 0:
                yield from text.ended()
                array = token == b"["
                text.begin(behind=array)
                comma = False
            elif depth == 1 and not array and token == b"[" and text.is_after(_FEATURES):
                among_features = has_features = True
                text.begin(behind=True)
                comma = False
            depth += len(token)
        elif token[:1] in b"]}" and depth:
            depth -= len(token)
            if base and depth == base - 1:
                yield from text.ended(always=comma)
                array = among_features = False
                text.begin(behind=True)
            elif depth == 0 and not has_features:
                yield from text.ended(behind=True)
            if depth == 0:
                text.begin(behind=True)
                has_features = False
            # What stands behind the features is of no interest.
            text.kept = not (has_features and not among_features)
    if depth:
        yield text.last()
    else:
        text.begin_at_end()
        yield from text.ended()


class _Text:
    """The text as far as it was read, and where in it the value begins that is gone through."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self.kept = True
        self._file, self._limit = file, limit
        self._buffer = b""
        self._start = self._at = self._token_start = 0
        # How many bytes and lines there were before the buffer, and where the last line began.
        self._gone, self._lines, self._line_start = 0, 1, 0
        self._counted = 0
        self._head: tuple[bytes, int, int] | None = None

    def token(self, inside: int) -> bytes:
        """The next bracket, comma, or string; empty at the end of the text.

        `inside`: how many brackets are open within an item. There several are one token, and commas are none.
        """
        pattern = _INNER if inside > 0 else _OUTER
        while True:
            found = pattern.search(self._buffer, self._at)
            if not found:
                self._at = len(self._buffer)
                if not self._more():
                    return b""
                continue
            self._token_start, self._at = found.span()
            token = found[0]
            if token == b'"':
                if not self._through_string():
                    return b""
                return _NOTHING
            if token[:1] in b"]}" and len(token) > inside > 0:
                # What is behind the item's own last bracket is no more inside.
                token = token[:inside]
                self._at = self._token_start + inside
            return token if found.lastgroup else _NOTHING

    def _through_string(self) -> bool:
        """Goes to the end of a string that goes on behind what was read; False where the text ends before it."""
        while True:
            found = _STRING_PART.match(self._buffer, self._at)
            self._at = found.end() if found else self._at
            if self._buffer[self._at : self._at + 1] == b'"':
                self._at += 1
                return True
            if not self._more():
                self._at = len(self._buffer)
                return False

    def is_after(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether the token stands behind what a pattern finds."""
        before = self._buffer[max(0, self._token_start - _KEY_BYTES) : self._token_start]
        return pattern.search(before) is not None

    def begin(self, behind: bool) -> None:
        """A value begins with the token, or behind it."""
        self._start = self._at if behind else self._token_start
        self._head = None

    def begin_at_end(self) -> None:
        """What is left of the text is a value, if it is more than blanks."""
        self._token_start = self._at = len(self._buffer)

    def ended(self, always: bool = False, behind: bool = False) -> Iterator[JsonItem]:
        """The value that ends before the token, or behind it; without content only if `always`."""
        item = self._item(self._at if behind else self._token_start)
        self._start = self._at
        if always or item.content or item.too_long:
            yield item

    def last(self) -> JsonItem:
        """The value within which the text ends."""
        item = self._item(len(self._buffer))
        return JsonItem(item.content, item.line, item.column, item.too_long, unfinished=True)

    def _item(self, end: int) -> JsonItem:
        if self._head:
            content, line, column = self._head
            self._head = None
            return JsonItem(content, line, column, too_long=True)
        came = self._buffer[self._start : end]
        content = came.lstrip(_BETWEEN)
        line, column = self._place(self._start + len(came) - len(content))
        content = content.rstrip(_BETWEEN)
        too_long = len(content) > self._limit
        return JsonItem(content[: self._limit] if too_long else content, line, column, too_long)

    def _more(self) -> bool:
        """Reads on, and lets go of what is no more needed; False at the end of the text."""
        piece = self._file.read(CHUNK)
        if not piece:
            return False
        if not self.kept:
            self._start = self._at
        elif self._at - self._start > self._limit + _KEY_BYTES:
            if not self._head:
                item = self._item(self._start + self._limit + _KEY_BYTES)
                self._head = item.content[: self._limit], item.line, item.column
            self._start = self._at
        begin = max(0, min(self._start, self._at - _KEY_BYTES))
        if begin:
            self._place(max(begin, self._counted))
            begin = min(begin, self._counted)
        self._buffer = self._buffer[begin:] + piece
        self._start, self._at, self._counted = self._start - begin, self._at - begin, self._counted - begin
        self._gone += begin
        return True

    def _place(self, index: int) -> tuple[int, int]:
        """The line and column of a byte of the buffer that is not before the last one asked for."""
        self._lines += self._buffer.count(b"\n", self._counted, index)
        newline = self._buffer.rfind(b"\n", self._counted, index)
        if newline >= 0:
            self._line_start = self._gone + newline + 1
        self._counted = max(self._counted, index)
        return self._lines, self._gone + index - self._line_start + 1
