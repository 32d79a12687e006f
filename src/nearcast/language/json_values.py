"""What within plain data JSON cannot say, or events cannot hold: found before it is written, for a writer may pass over
it in silence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from nearcast.errors import EventError, Fault, Mark
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM

CUT_ADVICE = "the text was cut within a character: one such as an emoji has two halves"


def json_bytes(document: object, where: Mark) -> bytes:
    """A document as JSON. Raises `EventError` that names the value which cannot be written."""
    try:
        written = orjson.dumps(document)
    except TypeError as error:
        raise EventError(unwritable(document, where, error)) from None
    # It writes null where there is no finite number, so only then it is worth a look.
    if b"null" in written:
        for name, value in _values(document, ""):
            if isinstance(value, float) and (fault := _unfit(value, name, where)):
                raise EventError(fault)
    return written


def unwritable(document: object, where: Mark, error: Exception) -> Fault:
    """The fault of a document that a writer refuses with an error: about the value that is meant, if it is found."""
    try:
        faults = (_unfit(value, name, where) for name, value in _values(document, ""))
        found = next((fault for fault in faults if fault), None)
    # What is in itself.
    except RecursionError:
        found = None
    return found or Fault("a CloudEvent of JSON values", str(error), where)


def _values(value: object, name: str) -> Iterator[tuple[str, object]]:
    """The values within a document that are no objects and lists, and its keys, each with its dotted name."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield name, key if isinstance(key, str) else _NoKey(key)
            yield from _values(child, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from _values(child, name)
    else:
        yield name, value


class _NoKey:
    """A key that is no text."""

    def __init__(self, key: object) -> None:
        self.key = key


def _unfit(value: Any, path: str, where: Mark) -> Fault | None:
    """The fault of a value that is no object and no list; None if JSON and events can have it."""
    name = path.removeprefix("data.") or "data"
    match value:
        case float() if not math.isfinite(value):
            return Fault(f"a finite number as {name}", repr(value), where, "leave out what is not known")
        case int() if not INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM:
            return Fault(f"{name} within 64 bits", _short(value), where, "send it as a text or a double")
        case str() if not value.isascii() and _is_cut(value):
            return Fault(f"whole characters in the text {name}", ascii(value)[:80], where, CUT_ADVICE)
        case _NoKey():
            return Fault(f"texts as keys of {name}", repr(value.key)[:80], where)
        case None | bool() | int() | float() | str():
            return None
    return Fault(f"a JSON value as {name}", type(value).__name__, where)


def _short(value: int) -> str:
    # Python refuses to write integers of many digits.
    return str(value) if value.bit_length() < 1_000 else f"an integer of {value.bit_length():,} bits"


def _is_cut(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
