"""The values of a JSON text one by one: what comes out is what a parser of the whole text gives."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.language import json_items
from nearcast.language.json_items import JsonItem

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('ab"\\\\[]{},é\n')
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


def items(text: bytes, limit: int = 1 << 20, chunk: int = 1 << 20) -> list[JsonItem]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_items, "CHUNK", chunk)
        return list(json_items.json_items(io.BytesIO(text), limit))


@given(st.lists(VALUES, max_size=4), VALUES, st.sampled_from([None, 1]), st.sampled_from([1, 3, 50]))
def test_they_are_those_of_a_parser(values: list[Any], other: Any, indent: int | None, chunk: int) -> None:
    """Of an array, of a collection of features wherever these stand in it, and of texts behind one another; each with
    the place where it begins, however the file is read.
    """
    collection = {"type": "FeatureCollection", "before": other, "features": values, "behind": other}
    behind_one_another = "\n\x1e".join(json.dumps({"a": value}, indent=indent) for value in values)
    for text, expected in (
        (json.dumps(values, indent=indent), values),
        (json.dumps(collection, indent=indent), values),
        (behind_one_another, [{"a": value} for value in values]),
    ):
        found = items(text.encode(), chunk=chunk)
        assert expected == [json.loads(item.content) for item in found]
        lines = text.encode().split(b"\n")
        for item in found:
            assert item.content[:1] == lines[item.line - 1][item.column - 1 : item.column]


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ([], b"[]"),
        ([], b' {"features" : [ ] } '),
        ([b"1", b""], b"[1,]"),
        ([b"1", b"", b"2"], b"[1,,2]"),
        ([b"hello"], b"hello"),
        ([b'{"a":"]"}', b"tail"], b'[{"a":"]"}] tail'),
        ([b'{"a":1}', b'{"b":2}'], b'\xef\xbb\xbf\x1e{"a":1},\n\x1e{"b":2}'),
    ],
)
def test_what_is_no_json_as_a_whole(expected: list[bytes], text: bytes) -> None:
    """Nothing between commas is a value without content; separators and byte order marks are none."""
    assert expected == [item.content for item in items(text)]


@pytest.mark.parametrize("text", [b'[1,{"a":', b'{"a":"', b'{"features":[1,2', b'{"features":[1]', b'[1,"a\\'])
def test_a_text_that_is_cut_off_is_told(text: bytes) -> None:
    """By its last value alone."""
    *before, last = items(text)
    assert last.unfinished
    assert not any(item.unfinished for item in before)


def test_memory_stays_bounded() -> None:
    """Of a value that is too long only the beginning is kept, and the next one comes; a string is gone through."""

    class Endless(io.RawIOBase):
        """A long string in an array, made while it is read."""

        pieces = iter([b'[{"a":"', *[b"x" * 10_000] * 1_000, b'"},7]'])
        largest = 0

        def read(self, size: int = -1) -> bytes:
            return next(self.pieces, b"")

    first, second = json_items.json_items(Endless(), 20_000)  # type: ignore[arg-type]
    assert (True, 20_000, b"7", 10_000_011) == (first.too_long, len(first.content), second.content, second.column)
