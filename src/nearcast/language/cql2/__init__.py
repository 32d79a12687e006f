"""Filters in CQL2 (OGC 21-065r2), text and JSON, all conformance classes: what is read becomes our filters and atoms.

Beyond the standard there are the location terms distance, count, user and uform (semantics §4), S_DWITHIN, and CHANGED
and PREVIOUS of an attribute. Text and JSON are read into one syntax, which is checked and given its meaning: an
unknown function, a wrong number of arguments or types that clash are faults with line and column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.cql2.conditions import Conditions
from nearcast.language.cql2.filter_limits import ALONE, TextLimits
from nearcast.language.cql2.json_encoding import read_json, read_node, read_whole, write_json
from nearcast.language.cql2.parser import read_text
from nearcast.language.cql2.printer import write
from nearcast.language.cql2.syntax import Syntax
from nearcast.language.cql2.tokens import tokenize
from nearcast.language.marks import Locate, PlacedFault, starting_at
from nearcast.language.nodes import DocumentNode
from nearcast.model.filter import Filter

__all__ = ["names_alone", "parse", "parse_node", "quoted_values", "write", "write_json"]


def parse(
    text: str, where: Mark, locate: Locate | None = None, over_time: bool = False, limits: TextLimits = ALONE
) -> Filter:
    """The filter that a CQL2 text means, or CQL2 JSON, which begins with a brace; atoms know where they were written.

    `where` is the place of the text's first character; `locate`, if given, finds the place of every other one, for a
    text that stands in its file with escapes or folded. `over_time`: there are aggregates, as in rules. A text
    beyond the `limits` is refused before it is read. Raises `DefinitionError` with one fault.
    """
    locate = locate or starting_at(text, where)
    if _is_json(text):
        return _meant(lambda at_once: read_json(text, where, locate, at_once, limits), over_time)
    return _meant(lambda at_once: read_text(text, locate, at_once, limits), over_time)


def parse_node(node: DocumentNode, over_time: bool = False, limits: TextLimits = ALONE) -> Filter:
    """The filter that CQL2 JSON within a document means. Raises `DefinitionError` with one fault."""
    return _meant(lambda at_once: read_whole(node, at_once, limits), over_time)


def _meant(read: Callable[[bool], Syntax], over_time: bool) -> Filter:
    """The filter that is meant by what `read` reads, literals at once or one by one."""
    try:
        return Conditions(over_time=over_time).condition(read(True))
    except PlacedFault as fault:
        raise DefinitionError(fault) from None
    except Fault:
        pass
    # Only one by one every literal has a place, and a fault that names it.
    try:
        return Conditions(over_time=over_time).condition(read(False))
    except Fault as fault:
        raise DefinitionError(fault) from None


def names_alone(node: DocumentNode) -> Iterator[Syntax]:
    """The names in a filter, text or JSON, that stand where a condition is expected, as in `a AND size > 10` the `a`.

    Raises `Fault` for what `parse` refuses as no CQL2.
    """
    if not isinstance(node.value, str):
        waiting = [read_node(node, at_once=True)]
    elif _is_json(node.value):
        waiting = [read_json(node.value, node.where, node.locate or (lambda offset: node.where), at_once=True)]
    else:
        waiting = [read_text(node.value, node.locate or (lambda offset: node.where), at_once=True)]
    while waiting:
        one = waiting.pop()
        if one.kind == "property":
            yield one
        elif one.calls("AND", "OR", "NOT"):
            waiting.extend(one.parts)


def quoted_values(node: DocumentNode) -> Iterator[Fault]:
    """A warning for each name in double quotes that a filter's text compares with: many mean a text by it."""
    if not isinstance(node.value, str) or _is_json(node.value):
        return
    locate = node.locate or (lambda offset: node.where)
    try:
        kinds, texts, starts = tokenize(node.value, locate, at_once=True)
    except Fault:
        return
    for before, kind, text, start in zip(kinds, kinds[1:], texts[1:], starts[1:], strict=False):
        if before == "compare" and kind == "quoted":
            advice = f"double quotes are for names of attributes; the text is '{text[1:-1]}'"
            yield Fault("a value to compare with", f"the attribute {text}"[:80], locate(start), advice)


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] == "{"
