"""Datagrams: every message comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Fault
from nearcast.model.event import Place
from nearcast.model.filter import Atom, Operator
from nearcast.model.foraging import REQUESTED, Message, MessageId, Request, Response
from nearcast.model.values import Value
from nearcast.node.wire import MOST_BYTES, decode, encode

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Value] = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | NUMBERS
    | NAMES
    | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(
        lambda moment: moment.replace(fold=0)
    )
)
PLACES = st.builds(Place, st.just("planar"), NUMBERS, NUMBERS, st.none() | NUMBERS) | st.builds(
    Place, st.just("geographic"), st.floats(-180, 180), st.floats(-90, 90), st.none() | NUMBERS
)
IDS = st.builds(MessageId, NAMES, st.integers(-(2**63), 2**64 - 1))
ATOMS = st.builds(Atom, NAMES, st.sampled_from(REQUESTED), VALUES)
MESSAGES: st.SearchStrategy[Message] = st.builds(
    Request, IDS, PLACES, NUMBERS, NUMBERS, NUMBERS, st.lists(ATOMS, min_size=1, max_size=8).map(tuple)
) | st.builds(
    Response,
    IDS,
    NAMES,
    PLACES,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=8).map(tuple),
    st.none() | st.floats(0, allow_infinity=False),
    st.booleans(),
)

REQUEST = Request(MessageId("n1", 1), Place("planar", 0.0, 0.0), 100.0, 5.0, 10.0, (Atom("Humidity", Operator.LT, 10),))


@settings(deadline=None)
@given(MESSAGES, NAMES)
def test_a_message_comes_back_as_it_was(message: Message, via: str) -> None:
    """With the node that sent it this time; kinds of values too."""
    decoded, sender = decode(encode(message, via))
    assert (message, via) == (decoded, sender)
    assert repr(message) == repr(decoded)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_a_fault(data: bytes) -> None:
    """Nothing else, whatever comes."""
    with pytest.raises(Fault):
        decode(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    MESSAGES,
    st.sampled_from(
        ["via", "id", "place", "within", "time", "valid", "want", "have", "provider", "nearcast", "age", "retracted"]
    ),
    JSON,
)
def test_anything_in_one_field_makes_a_message_or_a_fault(message: Message, field: str, value: object) -> None:
    """And what is taken can be passed on."""
    data = orjson.loads(encode(message, "n1"))
    data[field] = value
    try:
        found, via = decode(orjson.dumps(data))
    except Fault:
        return
    assert (found, via) == decode(encode(found, via))


@settings(deadline=None)
@given(st.data())
def test_a_cut_or_changed_datagram_is_a_message_or_a_fault(data: st.DataObject) -> None:
    """As a bad link may make of it."""
    whole = bytearray(encode(data.draw(MESSAGES), "n1"))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(whole[: data.draw(st.integers(at, len(whole)))]))
    except Fault:
        return


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"nearcast": 2}, "a message of version 1"),
        ({"via": ""}, "via: a text of 1 to 200 characters"),
        ({"id": ["n1"]}, "an id: origin and number"),
        ({"id": ["n1", True]}, "an id: origin and number"),
        ({"place": {"lon": 500, "lat": 0}}, "a longitude from -180 to 180 degrees"),
        ({"place": {"x": 1}}, "a place: x and y, or lon and lat"),
        ({"within": "far"}, "within: a finite number"),
        ({"valid": True}, "valid: a finite number"),
        ({"want": []}, "want: a list of 1 to 64"),
        ({"want": [["Humidity", "<", 10]] * 65}, "want: a list of 1 to 64"),
        ({"want": [["Humidity", "LIKE", "x"]]}, "a condition: class, one of < <= = >= >, value"),
        ({"want": [["Humidity", "<", None]]}, "a value: a number, a text, true, false or a time"),
        ({"want": [["Humidity", "<", "x" * 201]]}, "a value: a number, a text, true, false or a time"),
    ],
)
def test_a_fault_says_what_was_expected(change: dict[str, object], expected: str) -> None:
    """Where it came from is the transport's to say."""
    with pytest.raises(Fault) as raised:
        decode(orjson.dumps(orjson.loads(encode(REQUEST, "n1")) | change))
    assert expected == raised.value.expected


RESPONSE = Response(
    MessageId("n2", 7), "n2", Place("planar", 0.0, 0.0), 100.0, 5.0, 10.0, (("Humidity", 5),), 2.5, True
)


def test_a_node_from_before_ages_is_heard_and_hears() -> None:
    """What it says has no age; what it does not know it leaves alone, and the rest stands where it stood."""
    whole = orjson.loads(encode(RESPONSE, "n2"))
    before = {name: value for name, value in whole.items() if name not in ("age", "retracted")}
    assert ["nearcast", "via", "id", "place", "within", "time", "valid", "provider", "have"] == list(before)
    found, _ = decode(orjson.dumps(before))
    assert replace(RESPONSE, age=None, retracted=False) == found
    assert before == orjson.loads(encode(found, "n2"))


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"age": -1}, "age: seconds, 0 or more"),
        ({"age": "old"}, "age: a finite number"),
        ({"retracted": 1}, "retracted: true or false"),
    ],
)
def test_an_age_that_is_none_is_a_fault(change: dict[str, object], expected: str) -> None:
    """As any other field."""
    with pytest.raises(Fault) as raised:
        decode(orjson.dumps(orjson.loads(encode(RESPONSE, "n2")) | change))
    assert expected == raised.value.expected


def test_an_oversized_datagram_is_not_even_read() -> None:
    """Nor is one written."""
    with pytest.raises(Fault, match="a datagram of at most 8,192 bytes"):
        decode(b"[" * (MOST_BYTES + 1))
    conditions = tuple(Atom(f"{number}" * 50, Operator.EQ, "x" * 150) for number in range(60))
    with pytest.raises(Fault, match="a message of at most 8,192 bytes"):
        encode(Request(MessageId("n1", 1), REQUEST.place, 1.0, 1.0, 1.0, conditions), "n1")


def test_more_than_a_hearer_takes_is_not_said() -> None:
    """It would be dropped as malformed by every one."""
    many = tuple((f"c{number}", number) for number in range(65))
    with pytest.raises(Fault, match="a message of at most 64 conditions or values"):
        encode(replace(RESPONSE, values=many), "n2")
    assert many[:64] == decode(encode(replace(RESPONSE, values=many[:64]), "n2"))[0].values  # type: ignore[union-attr]


def test_brackets_in_brackets_are_a_fault() -> None:
    """As deep as a datagram can hold them."""
    with pytest.raises(Fault, match="a datagram in JSON"):
        decode(b"[" * MOST_BYTES)
