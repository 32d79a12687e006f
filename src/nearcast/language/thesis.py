"""The thesis' XML files: SUBSCRIPTION and RELEVANCE as they are printed, with the places of their elements.

Printed listings 6-1 and 7-6 are not well-formed; `elements` says what is mended. XML has only text, so a value that is
a JSON number is that number, `true` and `false` are booleans, everything else is text. An empty operator is `=`, as
the paper prints it. NOT is the thesis' plain negation.

Mended are closing tags of one kind only, inside its group (`LOGICAL_OPERATOR` in a `SUBSCRIPTION`):

1. Groups that are still open at the end of the root are closed there (listing 6-1 lacks one closing tag).
2. A closing tag with nothing to close is dropped. Where there is such a surplus and a second group follows the first at
   the top, the closing tags just before the second group came too early and are taken to stand behind it (listing
   7-6: its last group belongs into the AND before it, as the nine-valued vector and the scene of §7.3.3 show).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.cql2.filter_limits import MAX_DEPTH, too_large
from nearcast.language.marks import Lines, Locate, starting_at
from nearcast.language.quantities import relevance_of
from nearcast.language.trees import all_of, any_of
from nearcast.model.filter import (
    Atom,
    Count,
    Distance,
    Entities,
    Filter,
    Located,
    Operator,
    PlainNot,
    This,
    User,
)
from nearcast.model.limits import Limits
from nearcast.model.subscription import ANY_SUBSCRIPTION, Roles
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM, Value, narrowed

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
    import defusedxml.sax
    from defusedxml.common import DefusedXmlException

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


OPERATORS = {
    "": Operator.EQ,
    "=": Operator.EQ,
    "==": Operator.EQ,
    "!=": Operator.NE,
    "<>": Operator.NE,
    "<": Operator.LT,
    "<=": Operator.LE,
    ">": Operator.GT,
    ">=": Operator.GE,
    "like": Operator.LIKE,
}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_CONDITION = re.compile(r"\s*([^=<>!\s][^=<>!]*?)\s*(<=|>=|<>|!=|=|<|>)\s*(.*?)\s*", re.DOTALL)


def read_subscription(text: str, where: Mark, limits: Limits | None = None) -> Filter:
    """The filter of a SUBSCRIPTION file; a single ATOM or LOGICAL_OPERATOR as root is one too. It keeps to the limits,
    which are the defaults where none are given.

    Raises `DefinitionError` with every fault.
    """
    root = read_elements(text, where, group="LOGICAL_OPERATOR")
    reading = _Reading()
    parts = [root]
    if root.tag == "SUBSCRIPTION":
        reading.attributes(root, (), ("filename", "name"))
        parts = root.children
    if len(parts) != 1:
        fault = Fault(
            "one LOGICAL_OPERATOR or ATOM in SUBSCRIPTION", str(len(parts)), root.where, "join them with OR or AND"
        )
        raise DefinitionError(fault)
    node = reading.node(parts[0])
    if reading.faults or node is None:
        raise DefinitionError(reading.faults)
    beyond = too_large(node, limits or Limits())
    if beyond:
        raise DefinitionError(Fault(*beyond, root.where))
    return node


def read_roles(text: str, where: Mark, levels: int = 3) -> Roles:
    """The relevance vectors of a RELEVANCE file, under `ANY_SUBSCRIPTION`: the file names no subscription.

    Raises `DefinitionError` with every fault.
    """
    root = read_elements(text, where)
    reading = _Reading()
    vectors: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {}
    defaults: list[tuple[str, str]] = []
    if not reading.is_tag(root, ("RELEVANCE",)):
        raise DefinitionError(reading.faults)
    for role, task, element in reading.tasks(root):
        if (role, task) in vectors:
            reading.faults.append(Fault("each role and task once", f"{role}, {task} again", element.where))
        vectors[role, task] = {ANY_SUBSCRIPTION: reading.vector(element, levels)}
        if reading.choice(element, "default", {"yes": True, "no": False}, False):
            defaults.append((role, task))
            if len(defaults) > 1:
                mark = element.value_mark("default")
                reading.faults.append(Fault("one default", f"a second one, {role}, {task}", mark))
    if reading.faults:
        raise DefinitionError(reading.faults)
    return Roles(vectors, defaults[0] if defaults else None)


class _Reading:
    """Turns elements into words of the model and keeps every fault on the way."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def node(self, element: Element) -> Filter | None:
        """The filter of a LOGICAL_OPERATOR or ATOM; None after a fault."""
        if not self.is_tag(element, ("LOGICAL_OPERATOR", "ATOM")):
            return None
        return self._atom(element) if element.tag == "ATOM" else self._group(element)

    def _group(self, element: Element) -> Filter | None:
        self.attributes(element, ("value",))
        word = element.attributes.get("value", "").upper()
        if "value" in element.attributes and word not in ("AND", "OR", "NOT"):
            self._fault("AND, OR or NOT", element.attributes["value"], element.value_mark("value"))
        children = [self.node(child) for child in element.children]
        if not children or (word == "NOT" and len(children) != 1):
            expected = "one LOGICAL_OPERATOR or ATOM within NOT" if word == "NOT" else "an ATOM within LOGICAL_OPERATOR"
            self._fault(expected, str(len(children)), element.where)
            return None
        whole = [child for child in children if child is not None]
        if len(whole) < len(children):
            return None
        if word == "NOT":
            return PlainNot(whole[0])
        return all_of(whole) if word == "AND" else any_of(whole)

    def _atom(self, element: Element) -> Filter | None:
        self.attributes(element, ("name", "operator", "value"))
        name, written = element.attributes.get("name", ""), element.attributes.get("operator", "")
        operator = OPERATORS.get(written.strip().lower())
        if operator is None:
            self._fault(f"one of {' '.join(filter(None, OPERATORS))}", written, element.value_mark("operator"))
        if not name and "name" in element.attributes:
            self._fault("the name of an attribute", '""', element.value_mark("name"))
        try:
            value = value_of(element.attributes.get("value", ""), element.value_mark("value"))
            subject = self._subject(element, name, value)
        except Fault as fault:
            self.faults.append(fault)
            return None
        if operator is None or not name or subject is None:
            return None
        # A pattern is a text, also where it looks like a number.
        if operator is Operator.LIKE:
            value = element.attributes.get("value", "")
        return Atom(subject, operator, value, element.where)

    def _subject(self, element: Element, name: str, value: Value) -> str | Distance | Count | None:
        if name not in ("distance", "count"):
            for child in element.children:
                self._fault("no PARAMETER but for distance and count", child.tag, child.where)
            return name
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self._fault(f"a number to compare the {name} with", repr(value), element.value_mark("value"))
        before = len(self.faults)
        within = [metres for child in element.children if (metres := self._metres(child)) is not None]
        located = [place for child in element.children if (place := self._located(child)) is not None]
        if len(self.faults) > before:
            return None
        # Parameters come in any order; only their kinds and number tell what is meant.
        if name == "distance" and len(located) == 2 and not within:
            return Distance(*located)
        if name == "count" and (len(located), len(within)) in ((1, 0), (2, 1)):
            return Count(located[0], located[1], within[0]) if within else Count(located[0])
        expected = {
            "distance": "two PARAMETERs, each user, uform or this",
            "count": "one PARAMETER to count, or two and one named distance",
        }
        came = ", ".join(child.attributes.get("name", child.tag) for child in element.children) or "none"
        self._fault(expected[name], came, element.where)
        return None

    def _metres(self, element: Element) -> float | None:
        if element.attributes.get("name") != "distance":
            return None
        value = self._property(element, "value")
        try:
            number = value_of(value, element.value_mark("properties")) if value is not None else None
        except Fault as fault:
            self.faults.append(fault)
            return None
        if isinstance(number, bool) or not isinstance(number, (int, float)) or number < 0:
            self._fault("properties='value=METRES', 0 or more", repr(value), element.value_mark("properties"))
            return None
        return number

    def _located(self, element: Element) -> Located | None:
        if not self.is_tag(element, ("PARAMETER",)):
            return None
        self.attributes(element, ("name",), ("properties",))
        name = element.attributes.get("name")
        if name == "this":
            return This()
        if name == "user":
            user = self._property(element, "username")
            if not user:
                self._fault(
                    "properties='username=CLIENT'", repr(element.attributes.get("properties", "")), element.where
                )
            return User(user) if user else None
        if name == "uform":
            return self._entities(element)
        if name not in ("distance", None):
            self._fault("user, uform, this or distance", name or '""', element.value_mark("name"))
        return None

    def _entities(self, element: Element) -> Located | None:
        """`properties` holds conditions such as `affiliation=H;size>5`, separated by semicolons or commas."""
        written = element.attributes.get("properties", "")
        conditions: list[Filter] = []
        for match in re.finditer(r"[^;,]+", written):
            where = element.value_mark("properties", match.start())
            condition = _CONDITION.fullmatch(match[0])
            if not condition:
                self._fault("conditions such as affiliation=H", match[0].strip(), where)
                return None
            try:
                conditions.append(Atom(condition[1], OPERATORS[condition[2]], value_of(condition[3], where), where))
            except Fault as fault:
                self.faults.append(fault)
        return Entities(all_of(conditions) if conditions else None)

    def _property(self, element: Element, name: str) -> str | None:
        match = re.fullmatch(rf"\s*{name}\s*=\s*(.*?)\s*", element.attributes.get("properties", ""))
        return match[1] if match else None

    def tasks(self, root: Element) -> list[tuple[str, str, Element]]:
        """The (role, task, RELEVANCE element) triples of a RELEVANCE file."""
        found = []
        for role in root.children:
            if not self.is_tag(role, ("ROLE",)) or not self.attributes(role, ("name",)):
                continue
            for task in role.children:
                if not self.is_tag(task, ("TASK",)) or not self.attributes(task, ("name",)):
                    continue
                if len(task.children) != 1:
                    self._fault("one RELEVANCE in a TASK", str(len(task.children)), task.where)
                    continue
                if self.is_tag(task.children[0], ("RELEVANCE",)):
                    self.attributes(task.children[0], ("value",), ("default",))
                    found.append((role.attributes["name"], task.attributes["name"], task.children[0]))
        return found

    def vector(self, element: Element, levels: int) -> tuple[float, ...]:
        """The relevance vector of an element: numbers separated by blanks."""
        vector: list[float] = []
        for number, match in enumerate(re.finditer(r"[^\s,]+", element.attributes.get("value", "")), 1):
            try:
                mark = element.value_mark("value", match.start())
                vector.append(relevance_of(match[0], mark, levels, f"atom {number}"))
            except Fault as fault:
                self.faults.append(fault)
        return tuple(vector)

    def choice(self, element: Element, name: str, words: dict[str, bool], otherwise: bool) -> bool:
        """The meaning of an attribute that takes one of a few words."""
        written = element.attributes.get(name)
        if written is not None and written not in words:
            self._fault(" or ".join(words), written or '""', element.value_mark(name))
        return words.get(written or "", otherwise)

    def is_tag(self, element: Element, tags: tuple[str, ...]) -> bool:
        """Whether an element has one of the tags; a fault if not."""
        if element.tag not in tags:
            self._fault(" or ".join(tags), element.tag, element.where)
        return element.tag in tags

    def attributes(self, element: Element, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> bool:
        """Whether the required attributes are there; faults for those that are not, and for unknown ones."""
        missing = [name for name in required if name not in element.attributes]
        for name in missing:
            self._fault(f"the attribute {name} in {element.tag}", "none", element.where)
        for name in element.attributes:
            if name not in required + optional:
                self._fault(f"the attributes {', '.join(required + optional)}", name, element.value_mark(name))
        return not missing

    def _fault(self, expected: str, came: str, where: Mark, advice: str = "") -> None:
        self.faults.append(Fault(expected, came, where, advice))


def value_of(text: str, where: Mark) -> Value:
    """The value that a text stands for: a number, a boolean, else the text. Raises `Fault` beyond 64 bits."""
    if text in ("true", "false"):
        return text == "true"
    if not _NUMBER.fullmatch(text):
        return text
    value = int(text) if text.lstrip("-").isdigit() else float(text)
    exact = isinstance(value, int) and INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM
    if not (exact or (isinstance(value, float) and math.isfinite(value))):
        raise Fault("a number within 64 bits", text, where)
    return narrowed(value)
