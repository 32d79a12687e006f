"""Whatever comes in, it is taken or told as a fault: never another exception."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from nearcast.errors import DefinitionError, EventError, Mark
from nearcast.language.cloudevents import read_event, read_line
from nearcast.language.control_events import changes
from nearcast.language.cql2 import parse
from nearcast.language.definitions.client_documents import client_document
from nearcast.language.definitions.files import load
from nearcast.language.definitions.subscription_documents import subscription_document
from nearcast.language.features import read_feature
from nearcast.language.thesis import read_roles, read_subscription
from nearcast.model.subscription import Settings

HERE = Mark("f", 1, 1)

_words = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            '"c"',
            "'x'",
            "''",
            "1",
            "-1",
            "2.5",
            "(",
            ")",
            ",",
            "=",
            "<>",
            "<=",
            "AND",
            "OR",
            "NOT",
            "IN",
            "BETWEEN",
            "LIKE",
            "IS",
            "NULL",
            "TRUE",
            "this",
            "geom",
            "+",
            "*",
            "div",
            "Z",
            "user",
            "distance",
            "count",
            "uform",
            "S_DWITHIN",
            "POINT",
            "BBOX",
            "TIMESTAMP",
            "DATE",
            "INTERVAL",
            "'2020-01-01T00:00:00Z'",
            "casei",
            "S_INTERSECTS",
            "T_DURING",
            "A_EQUALS",
            "PREVIOUS",
            "POLYGON",
            "EMPTY",
            "'..'",
            "^",
            "{",
        ]
    ),
    max_size=14,
)
words = st.builds(str.join, st.sampled_from([" ", " ", "", "\n"]), _words)

tags = st.lists(
    st.sampled_from(
        [
            "<SUBSCRIPTION>",
            "</SUBSCRIPTION>",
            "<LOGICAL_OPERATOR value='OR'>",
            "<LOGICAL_OPERATOR value='NOT'>",
            "</LOGICAL_OPERATOR>",
            "<ATOM name='a' operator='=' value='1'/>",
            "<ATOM name='distance' operator='=' value='1'>",
            "<PARAMETER name='user' properties='username=a'/>",
            "<PARAMETER name='uform' properties='a=1;b'/>",
            "</ATOM>",
            "<RELEVANCE value='1 0.5'>",
            "<RELEVANCE>",
            "</RELEVANCE>",
            "<ROLE name='a'>",
            "</ROLE>",
            "<TASK name='a'>",
            "</TASK>",
            "&amp;",
            "<!-- > -->",
        ]
    ),
    max_size=12,
).map("".join)

keys = st.sampled_from(
    [
        "id",
        "type",
        "source",
        "subject",
        "time",
        "data",
        "specversion",
        "x",
        "y",
        "lon",
        "lat",
        "geometry",
        "coordinates",
        "client",
        "clients",
        "filter",
        "any",
        "all",
        "not",
        "when",
        "relevance",
        "readings",
        "position",
        "role",
        "matrix",
        "levels",
        "awareness",
        "maximum",
        "intervals",
        "channels",
        "types",
        "roles",
        "space",
        "ttl",
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
things = scalars | st.sampled_from(["a", "", "1.0", "Point", "nearcast.client", "nearcast.settings", "a = 1", "x.xml"])
data = st.recursive(
    things, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


@limits(max_examples=300)
@given(words)
def test_any_words(text: str) -> None:
    """Any row of words is a filter or a fault with its line and column."""
    try:
        parse(text, HERE)
    except DefinitionError as error:
        assert all(fault.where and fault.where.line and fault.where.column for fault in error.faults)


@given(st.text())
def test_any_text(text: str) -> None:
    """Any text is a filter or a fault."""
    with contextlib.suppress(DefinitionError):
        parse(text, HERE)


@pytest.mark.parametrize("read", [read_subscription, read_roles])
@given(text=tags)
def test_any_tags(read: Any, text: str) -> None:
    """Any row of tags is read or told as faults."""
    with contextlib.suppress(DefinitionError):
        read(text, HERE)


@given(data, st.dictionaries(keys, data, max_size=5))
def test_any_document(value: Any, fields: dict[str, Any]) -> None:
    """Any JSON is a document or told as faults, whatever it was meant to be."""
    for read in (client_document, subscription_document):
        with contextlib.suppress(DefinitionError):
            read(value, HERE)
    with contextlib.suppress(EventError):
        read_feature(value, HERE, 1)
    whole = {"specversion": "1.0", "id": "e", "type": "t", "source": "s", **fields}
    with contextlib.suppress(EventError):
        changes(read_event(whole, HERE), Settings())


@given(st.binary() | data.filter(lambda value: value is not None).map(lambda value: json.dumps(value).encode()))
def test_any_line(line: bytes) -> None:
    """Any bytes are an event or a fault."""
    with contextlib.suppress(EventError):
        read_line(line, HERE)


@limits(max_examples=50)
@given(st.dictionaries(keys, data, max_size=5) | st.text())
def test_any_file(content: Any) -> None:
    """Any file is definitions or told as faults, all of them with its name or that of a file it refers to."""
    path = Path("any.yaml")
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearcast.language.definitions.files.read_text", lambda path, mark: text)
        try:
            load([path])
        except DefinitionError as error:
            assert all(fault.where and _named(fault.where.file, text) for fault in error.faults)


def _named(file: str, text: str) -> bool:
    """Whether a fault's file is the one that is read, or one that this refers to."""
    return file == "any.yaml" or file in text or json.dumps(file)[1:-1] in text
