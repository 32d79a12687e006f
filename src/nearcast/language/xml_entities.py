"""Entities of XML texts: abbreviations of IRIs, as editors of ontologies write them, and nothing that grows or fetches.

A document type may declare an entity whose text has neither markup nor a reference to another one. So each reference
stands for what is declared, and all of them together for no more than `MOST_CHARACTERS`.
"""

from __future__ import annotations

from contextlib import suppress
from xml.parsers import expat

from nearcast.errors import Fault, Mark

LONGEST = 1_000
"""Characters of what an entity stands for."""

MOST_CHARACTERS = 16 << 20
"""Characters that all references of a text stand for together."""

_EXPECTED = "XML whose entities are short texts"
_ADVICE = "write out what the entity stands for"


def check_entities(text: str, where: Mark) -> None:
    """Refuses what references to entities could make of a text. Raises `Fault`; a text that is no XML passes.

    Refused are entities outside of the text, within one another, or with markup, and a document type that is elsewhere.
    """
    declared: dict[str, str] = {}
    parser = expat.ParserCreate()

    def refuse(came: str) -> Fault:
        return Fault(_EXPECTED, came, Mark(where.file, parser.CurrentLineNumber), _ADVICE)

    def declare(name: str, parameter: bool, value: str | None, *outside: str | None) -> None:
        if parameter or value is None or any(outside):
            raise refuse(f"the entity {name[:80]}, which stands elsewhere")
        if "&" in value or "<" in value or len(value) > LONGEST:
            raise refuse(f"the entity {name[:80]}, which is long or refers to others")
        declared.setdefault(name, value)

    def begin(name: str, system: str | None, public: str | None, internal: bool) -> None:
        if system or public:
            raise refuse("a document type that is elsewhere")

    def end(*_: object) -> None:
        """The first element: all declarations are read, and none was used yet."""
        raise _Declared

    parser.EntityDeclHandler = declare
    parser.StartDoctypeDeclHandler = begin
    parser.StartElementHandler = end
    # What is no XML is told by whoever reads it.
    with suppress(_Declared, expat.ExpatError):
        parser.Parse(text, True)
    size = sum(text.count(f"&{name};") * len(value) for name, value in declared.items())
    if size > MOST_CHARACTERS:
        raise Fault(f"XML whose entities stand for at most {MOST_CHARACTERS:,} characters", f"{size:,}", where, _ADVICE)


class _Declared(Exception):
    """All declarations of a text are read."""
