"""JSON texts: read as the fast parser reads them, but that a key comes once in an object."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nearcast.errors import EventError, Mark
from nearcast.language.json_text import loads

HERE = Mark("e.jsonl", 3)

texts = st.text(st.sampled_from('ab":\\ {},\n\té€'), max_size=4)


def within(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects and lists of these."""
    return st.lists(st.tuples(texts, inner), max_size=4).map(tuple) | st.lists(inner, max_size=3)


values = st.recursive(texts | st.integers(-5, 5) | st.none() | st.booleans() | st.floats(-1, 1), within, max_leaves=12)
"""JSON values; an object is a tuple of its pairs, in which a key may come twice."""


def written(value: Any, blank: str) -> str:
    """A value as JSON, with blanks wherever they may be."""
    if isinstance(value, tuple):
        inner = [f"{blank}{json.dumps(key)}{blank}:{blank}{written(one, blank)}{blank}" for key, one in value]
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(f"{blank}{written(one, blank)}{blank}" for one in value) + "]"
    return json.dumps(value)


def repeats(value: Any) -> bool:
    """Whether a key comes twice in an object."""
    if isinstance(value, tuple):
        keys = [key for key, _ in value]
        return len(keys) > len(set(keys)) or any(repeats(one) for _, one in value)
    return isinstance(value, list) and any(repeats(one) for one in value)


@given(values, st.sampled_from(["", " ", "\t", " \n"]))
@example((("a", 1), ("b", 2), ("a", 3)), "")
@example((('a":', 1), ('a":', 2)), "")
@example((("a\\\\", 1), ("a\\\\", 'x":')), " ")
@example((("a", '{"b": 1}'), ("a", '{"b": 1}')), "")
def test_a_key_that_comes_twice_is_a_fault_and_nothing_else_is(value: Any, blank: str) -> None:
    """However it is written, and whatever texts look like keys; all else is read as the fast parser reads it."""
    text = written(value, blank).encode()
    if repeats(value):
        with pytest.raises(EventError, match=r"expected each key once in an object, got (?s:.*) again"):
            loads(text, HERE)
    else:
        assert orjson.loads(text) == loads(text, HERE)


def test_the_key_is_named() -> None:
    """The one that comes again, wherever it is."""
    with pytest.raises(EventError) as caught:
        loads(b'{"a":[1,{"b":1,"c":2,"b":3}]}', HERE)
    assert ("b again", HERE) == (caught.value.fault.came, caught.value.fault.where)


@pytest.mark.parametrize("inner", [b'{"a":1,"a":2}', b"9999999999999999999"])
def test_depth_is_no_other_exception(inner: bytes) -> None:
    """What the careful parsers cannot follow is a fault too."""
    with pytest.raises(EventError):
        loads(b"[" * 1000 + inner + b"]" * 1000, HERE)
