"""The elements of a JSON array, found without parsing it: of any JSON those that the parser finds."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.language.json_elements import element_bounds, parts

ANY_TEXT = st.text(st.sampled_from('"\\[]{},: \na€'), max_size=8)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(ANY_JSON, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_elements_are_those_of_the_parser(elements: list[object], ascii: bool, indent: int | None) -> None:
    """Whatever brackets, quotes and backslashes stand in texts, and whatever blanks between them."""
    text = f" {json.dumps(elements, ensure_ascii=ascii, indent=indent)}\n".encode()
    bounds = element_bounds(text)
    assert bounds is not None
    assert elements == [orjson.loads(text[begin:end]) for begin, end in bounds.tolist()]


@given(st.binary(max_size=12) | st.text(st.sampled_from('"\\[]{},1 '), max_size=12).map(str.encode))
def test_what_is_json_as_an_array_is_seen_as_one(text: bytes) -> None:
    """And what is no JSON is either no array, or has an element that is none."""
    array = b"[%b]" % text
    bounds = element_bounds(array)
    elements = None if bounds is None else [_parsed(array[begin:end]) for begin, end in bounds.tolist()]
    if (found := _parsed(array)) is None:
        assert elements is None or None in elements
    else:
        assert [(one,) for one in found[0]] == elements


def _parsed(text: bytes) -> tuple[Any] | None:
    """What a text is, if it is JSON."""
    try:
        return (orjson.loads(text),)
    except orjson.JSONDecodeError:
        return None


def test_parts_have_each_element_once() -> None:
    """Together about as many bytes as are asked for; one that has more is alone."""
    sizes = [10, 10, 10, 500, 10, 10, 95, 10]
    text = json.dumps(["n" * size for size in sizes]).encode()
    bounds = element_bounds(text)
    assert bounds is not None
    found = parts(bounds, 100)
    assert [*range(len(sizes))] == [number for first, last in found for number in range(first, last)]
    assert [] == parts(bounds[:0], 100)


@pytest.mark.parametrize("text", [b"", b"[", b"]", b"{}", b"[1", b"1]", b'["]', b"[[]", b"[]]", b'[""", 1]', b"[} {]"])
def test_what_is_no_array_has_no_elements(text: bytes) -> None:
    """Brackets and quotes match in every array."""
    assert element_bounds(text) is None
