"""XML elements with their places, read safely, and mended where the thesis' printed listings are not well-formed.

Mended are closing tags of one kind only, inside its group (`LOGICAL_OPERATOR` in a `SUBSCRIPTION`):

1. Groups that are still open at the end of the root are closed there (listing 6-1 lacks one closing tag).
2. A closing tag with nothing to close is dropped. Where there is such a surplus and a second group follows the first at
   the top, the closing tags just before the second group came too early and are taken to stand behind it (listing
   7-6: its last group belongs into the AND before it, as the nine-valued vector and the scene of §7.3.3 show).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

import defusedxml.sax
from defusedxml.common import DefusedXmlException

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.marks import Lines, Locate, starting_at
from nearcast.language.tokens import MAX_DEPTH

_TAG = re.compile(
    r"<!--.*?-->|<(?P<close>/?)(?P<name>[A-Za-z_][\w.-]*)(?:[^<>\"']|\"[^\"]*\"|'[^']*')*?(?P<empty>/?)>", re.DOTALL
)


@dataclass(slots=True)
class Element:
    """An element: its tag, attributes and children, its place, and where its attributes' values begin."""

    tag: str
    attributes: Mapping[str, str]
    where: Mark
    children: list[Element] = field(default_factory=list)
    values_at: Mapping[str, int] = field(default_factory=dict)
    locate: Locate | None = None

    def value_mark(self, attribute: str, offset: int = 0) -> Mark:
        """The place of a character of an attribute's value; the element's own if that is not to be told."""
        if self.locate is None or attribute not in self.values_at:
            return self.where
        return self.locate(self.values_at[attribute] + offset)


def read_elements(text: str, where: Mark, group: str | None = None) -> Element:
    """The root element of an XML text; `group` is the tag whose closing tags are mended.

    Raises `DefinitionError` for text that is not XML, and for document types and entities, which may do harm.
    """
    mended = _mend(text, group) if group else text
    handler = _Handler(mended, starting_at(text, where))
    try:
        defusedxml.sax.parse(StringIO(mended), handler, forbid_dtd=True)
    except SAXParseException as error:
        mark = handler.mark(error.getLineNumber() or 1, error.getColumnNumber() or 0)
        raise DefinitionError(Fault("well-formed XML", error.getMessage(), mark)) from None
    except DefusedXmlException as error:
        raise DefinitionError(Fault("XML without document type and entities", type(error).__name__, where)) from None
    except Fault as fault:
        raise DefinitionError(fault) from None
    assert handler.root is not None, "a parser that ended without an error has met a root"
    return handler.root


class _Handler(ContentHandler):
    _locator: Locator

    def __init__(self, text: str, locate: Locate) -> None:
        super().__init__()
        self.root: Element | None = None
        self._text = text
        self._lines = Lines(text)
        self._locate_offset = locate
        self._open: list[Element] = []

    def mark(self, line: int, column: int) -> Mark:
        """The place of the parser's line and (zero-based) column."""
        return self._locate_offset(min(self._lines.offset(line, column + 1), len(self._text)))

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        """Opens an element within the one that is open."""
        line, column = self._locator.getLineNumber() or 1, self._locator.getColumnNumber() or 0
        start = self._lines.offset(line, column + 1)
        where = self.mark(line, column)
        # Deeper files are refused while they are read: no tree of them is built.
        if len(self._open) >= MAX_DEPTH:
            raise Fault(f"elements at most {MAX_DEPTH} deep", f"a depth of {MAX_DEPTH + 1} or more", where)
        element = Element(name, dict(attrs.items()), where, [], self._values(start), self._locate_offset)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def endElement(self, name: str) -> None:
        """Closes the element that is open."""
        self._open.pop()

    def characters(self, content: str) -> None:
        """Refuses text between elements: these files have none."""
        if content.strip():
            where = self.mark(self._locator.getLineNumber() or 1, self._locator.getColumnNumber() or 0)
            raise Fault("elements only", f"the text {content.strip()[:40]!r}", where)

    def _values(self, start: int) -> dict[str, int]:
        tag = _TAG.match(self._text, start)
        inside = tag[0] if tag else ""
        return {pair[1]: start + pair.end() for pair in re.finditer(r"([\w.-]+)\s*=\s*[\"']", inside)}


def _mend(text: str, group: str) -> str:
    """The text with its group's closing tags mended; what is dropped becomes blanks, so that places stay."""
    tags = [match for match in _TAG.finditer(text) if match["name"]]
    balance = sum((-1 if tag["close"] else not tag["empty"]) for tag in tags if tag["name"] == group)
    if balance == 0:
        return text
    drop = _too_early(tags, group) if balance < 0 else set()
    depth = 0
    for index, tag in enumerate(tags):
        if tag["name"] != group or tag["empty"] or index in drop:
            continue
        if not tag["close"]:
            depth += 1
        elif depth:
            depth -= 1
        else:
            drop.add(index)
    return _rewritten(text, tags, drop, f"</{group}>" * depth)


def _too_early(tags: list[re.Match[str]], group: str) -> set[int]:
    """The run of closing tags just before a second group at the top."""
    depth, groups = 0, 0
    for index, tag in enumerate(tags):
        if tag["name"] != group or tag["empty"]:
            continue
        if tag["close"]:
            depth -= 1
            continue
        if depth == 0 and groups:
            run = index
            while tags[run - 1]["close"] and tags[run - 1]["name"] == group:
                run -= 1
            return set(range(run, index))
        depth, groups = depth + 1, groups + (depth == 0)
    return set()


def _rewritten(text: str, tags: list[re.Match[str]], drop: set[int], addition: str) -> str:
    pieces: list[str] = []
    done = 0
    for index in sorted(drop):
        start, end = tags[index].span()
        # Blanks of the same length keep every later place.
        pieces += (text[done:start], re.sub(r"[^\n]", " ", text[start:end]))
        done = end
    last = tags[-1].start() if tags[-1]["close"] else len(text)
    return "".join(pieces) + text[done:last] + addition + text[last:]
