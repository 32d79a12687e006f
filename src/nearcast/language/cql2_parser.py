"""The package `cql2` as the parser of CQL2 text: it sees tokens as numbers, and its errors lead back to the tokens."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from itertools import accumulate
from typing import Any

import cql2

from nearcast.errors import Fault
from nearcast.language.cql2_shown import CONTINUED, OPERAND, Shown
from nearcast.language.marks import Locate
from nearcast.language.tokens import Token

_STACK = 256 * 1024 * 1024
"""Stack of the thread that parses long texts; 20,000 joined atoms need some 10 MiB. Untouched pages cost nothing."""

_LONG = 4_000
_STACK_LOCK = threading.Lock()


def parsed(tokens: list[Token], shown: Shown, locate: Locate) -> Any:
    """The parser's tree of the tokens as they are shown to it. Raises `Fault` with the place.

    What must not be shown is a fault only if the parser has none before it.
    """
    if shown.fault and not shown.texts:
        raise shown.fault
    # Blanks between all, or `0..0` would grow together once its parts are numbers of tokens.
    for_parser = " ".join(shown.texts)
    try:
        tree = _parsed(for_parser) if len(tokens) < _LONG else _parsed_on_large_stack(for_parser)
    except Exception as error:
        index = _index(str(error), shown.texts)
        if shown.fault and (index is None or index == len(shown.texts)):
            raise shown.fault from None
        if index is None:
            # Of what it parses, it cannot convert a geometry only, and does not tell which.
            start = tokens[shown.geometries[0]].start if shown.geometries else 0
            raise Fault("a geometry", "another", locate(start), str(error).strip().splitlines()[-1]) from None
        raise _fault(str(error), index, tokens, locate) from None
    if shown.fault:
        raise shown.fault
    return tree


def _parsed(text: str) -> Any:
    return cql2.parse_text(text).to_json()


def _parsed_on_large_stack(text: str) -> Any:
    """Parses where the parser's recursion over long chains has room."""
    outcome: list[Any] = []

    def work() -> None:
        """Parses, and keeps the outcome for the other thread."""
        try:
            outcome.append(_parsed(text))
        except Exception as error:
            outcome.append(error)

    # The size is the process's, so no two threads may set it at once.
    with _STACK_LOCK:
        before = threading.stack_size(_STACK)
        try:
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _index(message: str, shown: list[str]) -> int | None:
    """The index of the token that the parser stumbled over; None if its error tells no place."""
    # It tells places in its error's text alone, as ` --> 1:column`.
    place = re.search(r"--> 1:(\d+)", message)
    ends = list(accumulate(len(piece) + 1 for piece in shown))
    return bisect_left(ends, int(place[1]) + 1) if place else None


def _fault(message: str, index: int, tokens: list[Token], locate: Locate) -> Fault:
    """The parser's error in our words."""
    expected, advice = _expected(message), ""
    if tokens[index].is_word("IS") and tokens[index + 1].is_word("NOT") and expected == CONTINUED:
        # It goes back before an IS NOT that nothing ends.
        expected, index = "NULL", index + 2
    if tokens[index].kind == "end" and expected == CONTINUED and _unclosed(tokens):
        expected = "a comma or ) after a condition or value"
    if expected == OPERAND and tokens[index].text == "-" and index and tokens[index - 1].is_word("NOT"):
        advice = "write what NOT is about in parentheses"
    return Fault(expected, tokens[index].text, locate(tokens[index].start), advice)


def _unclosed(tokens: list[Token]) -> bool:
    kinds = [token.kind for token in tokens]
    return kinds.count("open") > kinds.count("close")


def _expected(message: str) -> str:
    expected = message.rpartition("expected ")[2].strip()
    if "Identifier" in expected or expected == "Expr":
        return OPERAND
    if expected == "NotFlag":
        return "NULL"
    if "And," in expected:
        return CONTINUED
    if "Power" in expected:
        return "BETWEEN low AND high"
    return "a number" if "DECIMAL" in expected or "COORD" in expected else expected or "a CQL2 filter"
