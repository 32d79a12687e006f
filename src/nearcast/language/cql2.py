"""Filters as CQL2 text (OGC 21-065r2): the package `cql2` parses, this module gives its tree our meaning.

Evaluated: comparisons of an attribute with a literal (either side), [NOT] IN, [NOT] BETWEEN, [NOT] LIKE,
IS [NOT] NULL, AND, OR, NOT, numbers, texts (a quote within is doubled), TRUE, FALSE, TIMESTAMP('…'), a boolean
attribute alone, and the location terms distance, count and S_DWITHIN (SEMANTICS §4). What else CQL2 knows is a fault.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import cql2

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.cql2_conditions import Translation
from nearcast.language.cql2_text import write
from nearcast.language.marks import Lines, Locate, starting_at
from nearcast.language.tokens import Token, shown, tokenize
from nearcast.model.filter import Filter

__all__ = ["parse", "write"]

_STACK = 256 * 1024 * 1024
"""Stack of the thread that parses long texts; 20,000 joined atoms need some 10 MiB. Untouched pages cost nothing."""

_LONG = 4_000
_STACK_LOCK = threading.Lock()


def parse(text: str, where: Mark, locate: Locate | None = None) -> Filter:
    """The filter that a CQL2 text means; every atom knows where it was written.

    `where` is the place of the text's first character; `locate`, if given, finds the place of every other one, for a
    text that stands in its file with escapes or folded. Raises `DefinitionError` with one fault.
    """
    locate = locate or starting_at(text, where)
    try:
        tokens = tokenize(text, locate)
        if len(tokens) == 1:
            raise Fault("a CQL2 filter", "an empty text", locate(0), "for example: type = 'unit' AND size > 10")
        return Translation(tokens, locate).condition(_tree(tokens, text, locate))
    except Fault as fault:
        raise DefinitionError(fault) from None


def _tree(tokens: list[Token], text: str, locate: Locate) -> Any:
    for_parser, starts = shown(tokens, text)
    try:
        return _parsed(for_parser) if len(tokens) < _LONG else _parsed_on_large_stack(for_parser)
    except Exception as error:
        raise _fault(str(error), for_parser, starts, tokens, text, locate) from None


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


def _fault(message: str, for_parser: str, starts: list[int], tokens: list[Token], text: str, locate: Locate) -> Fault:
    """The parser's error in our words: its ` --> line:column` leads to the token it stumbled over."""
    # The parser tells places in its error's text alone.
    place = re.search(r"--> (\d+):(\d+)", message)
    if not place:
        return Fault("a CQL2 filter", f"{text[:60]!r}", locate(0), message.strip().splitlines()[-1])
    offset = Lines(for_parser).offset(int(place[1]), int(place[2]))
    index = next((index for index, start in enumerate(starts) if index and start >= offset), len(tokens))
    if index == len(tokens):
        return Fault(_expected(message), "the end of the filter", locate(len(text.rstrip())))
    return Fault(_expected(message), tokens[index].text, locate(tokens[index].start))


def _expected(message: str) -> str:
    if "BetweenOperand" in message:
        return "BETWEEN low AND high"
    if "Identifier" in message or "expected Expr" in message:
        return "a name, a literal, a function or ("
    if "NotFlag" in message:
        return "a comparison, AND, OR or the end of the condition"
    return message.rpartition("expected ")[2].strip() or "a CQL2 filter"
