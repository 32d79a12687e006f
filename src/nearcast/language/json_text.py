"""JSON texts as values, where what the fast parser would pass over in silence is a fault."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.json_values import CUT_ADVICE
from nearcast.language.marks import Lines
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM

BEYOND = "numbers reach to 1.8e308 and integers from -2^63 to 2^63 - 1; send it as a text"

_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG_INTEGER = b"0" * 19
_BLANKS = b" \t\n\r"


def loads(text: bytes, where: Mark) -> Any:
    """What a JSON text holds. Raises `EventError` with line and column, also for integers beyond 64 bits and for a key
    that comes twice in an object.
    """
    document = _loads(text, where)
    _look_again(text, document, where)
    return document


def loads_items(text: bytes, where: Mark) -> tuple[Any, list[bytes] | None]:
    """What a JSON text holds, and the JSON of each item if it is an array, else None. Raises as `loads` does."""
    document = _loads(text, where)
    if not isinstance(document, list):
        _look_again(text, document, where)
        return document, None
    try:
        items = [*map(orjson.dumps, document)]
    except TypeError:
        raise EventError(too_deep(where)) from None
    # What is written again as it came, byte by byte, has no key that came twice.
    _look_again(text, document, where, once=b"[%b]" % b",".join(items) == text)
    return document, items


def _loads(text: bytes, where: Mark) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise EventError(_no_json(text, error, where)) from None


def _look_again(text: bytes, document: Any, where: Mark, once: bool = False) -> None:
    """Raises `EventError` for what the fast parser passes over; `once`: surely no key comes twice."""
    try:
        # It reads an integer beyond 64 bits as a double: long digits are rare, so looking twice is cheap. A regular
        # expression takes six times as long to find them.
        if _LONG_INTEGER in text.translate(_DIGITS_AS_ZEROS):
            _refuse_long_integers(text, where)
        # And of a key that comes twice it takes the last value. To count keys costs a tenth of reading an event, a
        # parser that looks at each half of it.
        if not once and _may_repeat(text, document) and (key := repeated_key(marked(text))) is not None:
            raise EventError(repeated_fault(key, where))
    except RecursionError:
        # The fast parser goes deeper than Python does.
        raise EventError(too_deep(where)) from None


def too_deep(where: Mark) -> Fault:
    """What is said of JSON that is deeper than a reader or a writer goes."""
    return Fault("JSON that is not so deep", "deeper JSON", where)


def _no_json(text: bytes, error: orjson.JSONDecodeError, where: Mark) -> Fault:
    line = error.lineno if where.line is None else where.line + error.lineno - 1
    reason, place = error.msg.partition(": line ")[0], Mark(where.file, line, error.colno)
    if "UTF-8" in reason and (fault := _no_utf8(text, where)):
        return fault
    if "surrogate" in reason:
        return Fault("whole characters in a text", "half of a pair of surrogates", place, CUT_ADVICE)
    if "infinity" in reason:
        return Fault("JSON", reason, place, BEYOND)
    rest = error.doc[error.pos : error.pos + 20] if isinstance(error.doc, str) else ""
    return Fault("JSON", reason, place, next((advice for word, advice in _SLIPS if rest.startswith(word)), ""))


def _no_utf8(text: bytes, where: Mark) -> Fault | None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        before = text[: error.start]
        line = before.count(b"\n") + (1 if where.line is None else where.line)
        column = len(before[before.rfind(b"\n") + 1 :].decode()) + 1
        came = f"the byte 0x{text[error.start]:02x}, which is none there"
        return Fault("JSON in UTF-8", came, Mark(where.file, line, column), "write it in UTF-8")
    return None


_SLIPS = (
    ("NaN", "JSON has no NaN: leave out what is not known"),
    ("Infinity", "JSON has no infinity: leave out what is not known"),
    ("-Infinity", "JSON has no infinity: leave out what is not known"),
    ("'", "texts and names of JSON stand in double quotes"),
    ("None", "JSON says null"),
    ("True", "JSON says true, in lower case"),
    ("False", "JSON says false, in lower case"),
    ("undefined", "JSON says null, or leaves it out"),
    ("//", "JSON has no comments"),
    ("#", "JSON has no comments"),
    ("}", "after a comma another name must come"),
    ("]", "after a comma another value must come"),
)
"""What stands where JSON ends, and what to do about it."""


def _may_repeat(text: bytes, document: Any) -> bool:
    """Whether a key may come twice in an object: surely not where no more keys are written than were read."""
    # Blanks go first, so that a key is what stands before `":`; within texts that adds such places, and takes none.
    bare, keys = text.translate(None, _BLANKS), _keys_of(document)
    written = bare.count(b'":')
    # A quote within a text has a backslash before it; one that has two ends the text.
    return written != keys and (b'\\\\":' in bare or written - bare.count(b'\\":') != keys)


def _keys_of(value: Any) -> int:
    """How many keys there are within a value."""
    count = 0
    if type(value) is dict:
        count, value = len(value), value.values()
    elif type(value) is list:
        # Coordinates are many lists, which would take a call each: they are looked at level by level.
        while (kinds := set(map(type, value))) == {list}:
            value = [*chain.from_iterable(value)]
        if kinds.isdisjoint({dict, list}):
            return 0
    else:
        return 0
    for child in value:
        # The types themselves: this is asked of every value of every event.
        kind = type(child)
        if kind is dict or kind is list:
            count += _keys_of(child)
    return count


@dataclass(frozen=True, slots=True)
class RepeatedKey:
    """Stands for an object in which a key comes twice."""

    key: str


def marked(text: bytes) -> Any:
    """What a JSON text holds, with `RepeatedKey` for each object that is one. Raises ValueError and RecursionError."""
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | RepeatedKey:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    # `add` gives None, so a key is noted where it was not there.
    return RepeatedKey(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]


def repeated_key(value: Any) -> str | None:
    """A key that comes twice in an object within a value that `marked` gave; None if there is none."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, RepeatedKey):
            return one.key
        waiting.extend(one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
    return None


def repeated_fault(key: str, where: Mark) -> Fault:
    """What is said of such a key."""
    return Fault("each key once in an object", f"{key[:60]} again", where, "only one of its values could count")


def _refuse_long_integers(text: bytes, where: Mark) -> None:
    """An integer beyond 64 bits would silently come as a double."""
    written = text.decode()

    def integer(digits: str) -> int:
        """An integer, if 64 bits hold it."""
        # Python refuses to read some thousand digits, and takes long over many.
        value = int(digits) if len(digits) < 40 else INTEGER_MAXIMUM + 1
        if not INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM:
            line, column = Lines(written).at(max(0, written.find(digits)))
            place = Mark(where.file, line if where.line is None else where.line + line - 1, column)
            raise EventError(Fault("an integer within 64 bits", digits[:60], place, "send it as a text"))
        return value

    json.loads(text, parse_int=integer)
