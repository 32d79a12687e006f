"""Documents as nodes that know their places: from YAML files, and from data that came as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.marks import Lines, Locate, starting_at

MAX_NESTING = 200

LONG = 100
"""Items of a list that is read faster."""

MAX_ALIASED = 20_000
"""How many values aliases may add: without them a text has fewer values than characters."""

Scalar = None | bool | int | float | str
_SCALARS = frozenset({type(None), bool, int, float, str})

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document: a scalar, a mapping or a list of nodes; where it stands, and how it is reached."""

    value: Scalar | dict[str, Node] | list[Node]
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


def from_data(data: Any, where: Mark) -> Node:
    """The nodes of plain data (dicts, lists, scalars), all at one place. Raises `DefinitionError`."""
    return _Plain(where).node(data, "", 0)


def from_yaml(text: str, file: str) -> Node:
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
        return Node({}, Mark(file, 1, 1))
    reading = _Yaml(text, file)
    node = reading.node(root, "", 0)
    if reading.faults:
        raise DefinitionError(reading.faults)
    return node


class _Plain:
    def __init__(self, where: Mark) -> None:
        self._where = where

    def node(self, data: Any, path: str, depth: int) -> Node:
        """The node of plain data."""
        _check_depth(depth, self._where)
        # First, and by exact type: most values are scalars, and a mapping is found out slowly.
        if type(data) in _SCALARS:
            return Node(data, self._where, path, None, self._locator(data, path) if type(data) is str else None)
        if isinstance(data, Mapping):
            return Node({str(k): self.node(v, _join(path, k), depth + 1) for k, v in data.items()}, self._where, path)
        if isinstance(data, (list, tuple)):
            if len(data) > LONG and _SCALARS.issuperset(map(type, data)):
                # Literals or ids, maybe a hundred thousand; no text of them is a filter that needs places within.
                return Node(
                    [Node(item, self._where, f"{path}[{index}]") for index, item in enumerate(data)], self._where, path
                )
            items = [self.node(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(data)]
            return Node(items, self._where, path)
        if data is not None and not isinstance(data, (bool, int, float, str)):
            raise DefinitionError(Fault("a JSON value", type(data).__name__, self._where))
        return Node(data, self._where, path)

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

    def node(self, raw: yaml.Node, path: str, depth: int) -> Node:
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
            return Node(items, where, path)
        assert isinstance(raw, yaml.ScalarNode), "YAML has three kinds of nodes"
        # A style means quotes or a block: what is quoted is text.
        value = raw.value if raw.style else _plain_scalar(raw.value)
        return Node(value, where, path, None, self._locator(raw) if isinstance(value, str) else None)

    def _mapping(self, raw: yaml.MappingNode, where: Mark, path: str, depth: int) -> Node:
        children: dict[str, Node] = {}
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
        return Node(children, where, path, keys)

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


def _plain_scalar(text: str) -> Scalar:
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
