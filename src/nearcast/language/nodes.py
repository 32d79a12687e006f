"""Documents as nodes that know their places, and reading these into values, keeping every fault on the way."""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import yaml

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.marks import Lines, Locate, starting_at
from nearcast.model.limits import Limits
from nearcast.model.values import INTEGER_MAXIMUM

MAX_NESTING = 200

MAX_VALUES = 500_000
"""Values of a document that somebody sends: they take half a second to read, and no definition has as many."""

LONG = 100
"""Items of a list that is read faster."""

MAX_ALIASED = 20_000
"""How many values aliases may add: without them a text has fewer values than characters."""

ScalarValue = None | bool | int | float | str
_SCALARS = frozenset({type(None), bool, int, float, str})

_WORDS: dict[str, ScalarValue] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}


@dataclass(frozen=True, slots=True)
class DocumentNode:
    """A value of a document: a scalar, a mapping or a list of nodes; where it stands, and how it is reached."""

    value: ScalarValue | dict[str, DocumentNode] | list[DocumentNode]
    where: Mark
    path: str = ""
    keys: Mapping[str, Mark] | None = None
    locate: Locate | None = None

    def __str__(self) -> str:
        """The value in few words, for a fault."""
        if self.value is None:
            return "nothing"
        if isinstance(self.value, (dict, list)):
            return ("a mapping" if isinstance(self.value, dict) else "a list") if self.value else "an empty one"
        return repr(self.value)[:80]

    def key(self, name: str) -> Mark:
        """The place of a key of this mapping."""
        return (self.keys or {}).get(name, self.where)

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value


def from_data(data: Any, where: Mark, most: int = sys.maxsize) -> DocumentNode:
    """The nodes of plain data (dicts, lists, scalars), all at one place, at most so many.

    Raises `DefinitionError` for what JSON has not, and for what is too deep or too much.
    """
    return _Plain(where, most).node(data, "", 0)


def from_yaml(text: str, file: str) -> DocumentNode:
    """The root node of a YAML text. Plain scalars are those of YAML 1.2's core: only true and false are booleans.

    Raises `DefinitionError` for text that is not YAML, keys that come twice or are no text, and nesting or size
    beyond the limits.
    """
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Mark(file, mark.line + 1, mark.column + 1) if mark else Mark(file, 1, 1)
        came = f"{error.problem or error} {error.context or ''}".strip()
        raise DefinitionError(Fault("YAML", came, where)) from None
    except yaml.YAMLError as error:
        raise DefinitionError(Fault("YAML", " ".join(str(error).split()), Mark(file, 1, 1))) from None
    if root is None:
        return DocumentNode({}, Mark(file, 1, 1))
    reading = _Yaml(text, file)
    node = reading.node(root, "", 0)
    if reading.faults:
        raise DefinitionError(reading.faults)
    return node


class _Plain:
    def __init__(self, where: Mark, most: int) -> None:
        self._where, self._most = where, most
        self._count = 0

    def node(self, data: Any, path: str, depth: int) -> DocumentNode:
        """The node of plain data."""
        _check_depth(depth, self._where)
        # First, and by exact type: most values are scalars, and a mapping is found out slowly.
        if type(data) in _SCALARS:
            return DocumentNode(data, self._where, path, None, self._locator(data, path) if type(data) is str else None)
        if isinstance(data, (Mapping, list, tuple)):
            self._count += len(data)
            if self._count > self._most:
                raise DefinitionError(Fault(f"at most {self._most:,} values in a document", "more", self._where))
        if isinstance(data, Mapping):
            return DocumentNode(
                {str(k): self.node(v, _join(path, k), depth + 1) for k, v in data.items()}, self._where, path
            )
        if isinstance(data, (list, tuple)):
            if len(data) > LONG and _SCALARS.issuperset(map(type, data)):
                # Literals or ids, maybe a hundred thousand; no text of them is a filter that needs places within.
                return DocumentNode(
                    [DocumentNode(item, self._where, f"{path}[{index}]") for index, item in enumerate(data)],
                    self._where,
                    path,
                )
            items = [self.node(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(data)]
            return DocumentNode(items, self._where, path)
        if data is not None and not isinstance(data, (bool, int, float, str)):
            raise DefinitionError(Fault("a JSON value", type(data).__name__, self._where))
        return DocumentNode(data, self._where, path)

    def _locator(self, text: str, path: str) -> Locate | None:
        """Finds the characters of a text by itself, which is named by its path; of a file's line no more is known."""
        if self._where.line is not None or not path:
            return None
        within = path if self._where.file == "request" else f"{self._where.file}, {path}"
        return starting_at(text, Mark(within, 1, 1))


class _Yaml:
    def __init__(self, text: str, file: str) -> None:
        self.faults: list[Fault] = []
        self._text = text
        self._file = file
        self._lines = Lines(text)
        self._count = 0

    def node(self, raw: yaml.Node, path: str, depth: int) -> DocumentNode:
        """The node of a composed one."""
        self._count += 1
        where = self._mark(raw.start_mark)
        _check_depth(depth, where)
        # Aliases share nodes: a small text may stand for an endless document.
        if self._count > len(self._text) + MAX_ALIASED:
            raise DefinitionError(Fault(f"aliases that add at most {MAX_ALIASED:,} values", "more", where))
        if isinstance(raw, yaml.MappingNode):
            return self._mapping(raw, where, path, depth)
        if isinstance(raw, yaml.SequenceNode):
            items = [self.node(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(raw.value)]
            return DocumentNode(items, where, path)
        assert isinstance(raw, yaml.ScalarNode), "YAML has three kinds of nodes"
        # A style means quotes or a block: what is quoted is text.
        value = raw.value if raw.style else _plain_scalar(raw.value)
        return DocumentNode(value, where, path, None, self._locator(raw) if isinstance(value, str) else None)

    def _mapping(self, raw: yaml.MappingNode, where: Mark, path: str, depth: int) -> DocumentNode:
        children: dict[str, DocumentNode] = {}
        keys: dict[str, Mark] = {}
        for key, value in raw.value:
            mark = self._mark(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                self.faults.append(Fault("a text as key", "a mapping or list", mark))
                continue
            name = str(key.value)
            if name in children:
                self.faults.append(
                    Fault("each key once", f"{name} again", mark, f"it is already in line {keys[name].line}")
                )
            keys[name] = mark
            children[name] = self.node(value, _join(path, name), depth + 1)
        return DocumentNode(children, where, path, keys)

    def _mark(self, mark: Any) -> Mark:
        return Mark(self._file, mark.line + 1, mark.column + 1)

    def _locator(self, raw: yaml.ScalarNode) -> Locate:
        """Finds the characters of a text in the file: they stand there in the same order, with escapes, folds and
        indentation between them.
        """
        offsets: list[int] = []

        def locate(offset: int) -> Mark:
            """The place of a character of the value."""
            if not offsets:
                offsets.extend(self._offsets(raw))
            line, column = self._lines.at(offsets[min(offset, len(offsets) - 1)])
            return Mark(self._file, line, column)

        return locate

    def _offsets(self, raw: yaml.ScalarNode) -> list[int]:
        start = self._lines.offset(raw.start_mark.line + 1, raw.start_mark.column + 1)
        end = self._lines.offset(raw.end_mark.line + 1, raw.end_mark.column + 1)
        if raw.style in ("'", '"'):
            start += 1
        elif raw.style in ("|", ">"):
            start = self._text.find("\n", start) + 1
        return _aligned(raw.value, self._text[:end], start)


def _aligned(value: str, source: str, start: int) -> list[int]:
    """For each character of `value`, and its end, its offset in the source."""
    if source.startswith(value, start):
        return list(range(start, start + len(value) + 1))
    offsets: list[int] = []
    at = start
    for character in value:
        found = at
        while found < len(source) and not (
            source[found] == character or (character.isspace() and source[found].isspace())
        ):
            found += 1
        # An escape such as \u00e9 is not to be found: stay where it must be.
        at = found if found < len(source) else at
        offsets.append(min(at, len(source)))
        at = min(at + 1, len(source))
    return [*offsets, at]


def _check_depth(depth: int, where: Mark) -> None:
    if depth > MAX_NESTING:
        raise DefinitionError(Fault(f"a document at most {MAX_NESTING} deep", "deeper nesting", where))


def _plain_scalar(text: str) -> ScalarValue:
    if text in _WORDS:
        return _WORDS[text]
    # Python refuses to read longer integers; as text they are a fault wherever a number is expected.
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) < 4000 else text
    if _FLOAT.fullmatch(text):
        return float(text)
    return _SPECIAL.get(text.lower(), text)


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


_NO_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffd]")
"""Control characters, ends of lines, and what stands for bytes that are no text."""

_BEGUN = re.compile(r"\s*\d+(\.\d+)?")


class DocumentReader:
    """Collects faults; each method gives the value of a node, or None after noting why it has none.

    `limits` are those that names have to keep.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.faults: list[Fault] = []
        self.limits = limits or Limits()

    def fault(self, expected: str, node: DocumentNode, advice: str = "", came: str | None = None) -> None:
        """Notes a fault of a node; its path tells a reader of JSON, who has no lines, where to look."""
        path = f"{node.path}: " if node.path and node.where.line is None else ""
        self.faults.append(Fault(f"{path}{expected}", str(node) if came is None else came, node.where, advice))

    def note_raised(self, error: Fault | DefinitionError) -> None:
        """Notes faults that were raised."""
        self.faults.extend(error.faults if isinstance(error, DefinitionError) else [error])

    def refuse(self) -> None:
        """Raises `DefinitionError` if there was any fault."""
        if self.faults:
            raise DefinitionError(self.faults)

    def fields(
        self, node: DocumentNode, required: Iterable[str], optional: Iterable[str], what: str
    ) -> dict[str, DocumentNode]:
        """The fields of a mapping, without those that are null; faults for missing and for unknown ones."""
        if not isinstance(node.value, dict):
            self.fault(f"{what}: a mapping", node)
            return {}
        required, known = tuple(required), (*required, *optional)
        for name in node.value:
            if name not in known:
                advice = closest(name, known) or f"known are {', '.join(known)}"
                self.faults.append(Fault(f"a field of {what}", name[:80], node.key(name), advice))
        for name in required:
            if name not in node.value or node.value[name].value is None:
                self.fault(f"{name} in {what}", node, came="none")
        return {name: child for name, child in node.value.items() if child.value is not None and name in known}

    def named(self, node: DocumentNode, what: str) -> Iterator[tuple[str, DocumentNode]]:
        """The (name, node) pairs of a mapping whose keys are free."""
        if not isinstance(node.value, dict):
            self.fault(f"{what}: a mapping", node)
            return
        for name, child in node.value.items():
            if self.is_short(name, node, f"a name of {what}"):
                yield name, child

    def items(self, node: DocumentNode, what: str) -> list[DocumentNode]:
        """The nodes of a list."""
        if isinstance(node.value, list):
            return node.value
        self.fault(f"{what}: a list", node)
        return []

    def text(self, node: DocumentNode, what: str) -> str | None:
        """A text that is not empty."""
        if isinstance(node.value, str) and node.value:
            return node.value
        advice = "put it in quotes" if isinstance(node.value, (int, float)) else ""
        self.fault(f"{what}: a text", node, advice)
        return None

    def name(self, node: DocumentNode, what: str) -> str | None:
        """A text that can name something: not blank, on one line, without control characters."""
        name = self.text(node, what)
        if name is None or not self.is_short(name, node, what):
            return None
        if not name.isspace() and not _NO_NAME.search(name):
            return name
        advice = "any script will do, spaces and slashes too"
        if name.isspace():
            self.fault(f"{what}: more than blanks", node, advice)
        elif "\ufffd" in name:
            self.fault(f"{what}: text in UTF-8", node, advice, came="bytes that are none")
        else:
            self.fault(f"{what}: text without control characters", node, advice, came=ascii(name)[:80])
        return None

    def is_short(self, name: str, node: DocumentNode, what: str) -> bool:
        """Whether a name is no longer than names may be; a fault, which has its beginning only, where it is not."""
        longest = self.limits.name_length
        if len(name) > longest:
            self.fault(f"{what}: at most {longest:,} characters", node, came=f"{len(name):,}, {name[:40]!r}…")
        return len(name) <= longest

    def number(self, node: DocumentNode, what: str, low: float = -math.inf, above: float = -math.inf) -> float | None:
        """A finite number, at least `low` and greater than `above`."""
        value = node.value
        if _is_finite(value) and value >= low and value > above:
            return value
        bound = f", {low:g} or more" if low > -math.inf else f" above {above:g}" if above > -math.inf else ""
        unit = "metres" if "in metres" in what else "seconds" if "in seconds" in what else ""
        begun = _BEGUN.match(value) if isinstance(value, str) else None
        advice = f"it is a number{f' of {unit}' if unit else ''}, as in {begun[0].strip()}" if begun else ""
        self.fault(f"{what}: a finite number{bound}", node, advice)
        return None

    def integer(self, node: DocumentNode, what: str, low: int, high: int) -> int | None:
        """An integer in a range."""
        value = node.value
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.fault(f"{what}: an integer from {low} to {high}", node)
        return None

    def flag(self, node: DocumentNode, what: str) -> bool:
        """A boolean."""
        if not isinstance(node.value, bool):
            self.fault(f"{what}: true or false", node)
        return node.value is True


def _is_finite(value: object) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INTEGER_MAXIMUM


def closest(name: str, known: Iterable[str]) -> str:
    """The advice "did you mean …", empty if nothing known is like the name."""
    matches = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {matches[0]}?" if matches else ""


def listed(names: Sequence[str], most: int = 10) -> str:
    """Names for an advice, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def at(file: str) -> Mark:
    """The beginning of a file."""
    return Mark(file, 1, 1)
