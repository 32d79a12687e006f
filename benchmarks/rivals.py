"""What the matcher is set beside: CLIPS with two kinds of rules, a generated Python function, and the first prototypes.

Each takes the trees of the workload and decides one event, a mapping of attributes, at a time; the prototypes take
batches of codes.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

Tree = list[Any]
Row = dict[str, Any]
Decide = Callable[[Row], int]


def generated(made: Sequence[Tree]) -> Decide:
    """One Python function of an `if` per filter."""
    lines = [f"    if {_python(tree)}: found({number})" for number, tree in enumerate(made)]
    sources = "def decide(e, found):\n" + "\n".join(lines)
    space: dict[str, Any] = {}
    exec(compile(sources, "generated", "exec"), space)

    def decide(row: Row) -> int:
        """How many filters hold."""
        found: list[int] = []
        space["decide"](row, found.append)
        return len(found)

    return decide


def _python(tree: Tree) -> str:
    match tree[0]:
        case "and" | "or":
            return "(" + f" {tree[0]} ".join(map(_python, tree[1:])) + ")"
        case "not":
            return f"(not {_python(tree[1])})"
        case "in" | "not in":
            return f"(e[{tree[1]!r}] {tree[0]} {set(tree[2])!r})"
    return f"(e[{tree[1]!r}] {'==' if tree[0] == '=' else tree[0]} {tree[2]!r})"


def clips_of(made: Sequence[Tree], plain: bool) -> Decide:
    """Rules of CLIPS (Rete), one per filter, over one template whose fact is the event.

    `plain`: the tree of a filter is the rule's, AND, OR and NOT as conditional elements over patterns, as one writes
    them. Otherwise what took least time: conjunctions as constraints of one pattern, the rest as one test.
    """
    import clips  # type: ignore[import-untyped]

    environment = clips.Environment()
    names = [f"{kind}{index}" for kind in "sn" for index in range(10)]
    environment.build(f"(deftemplate event {' '.join(f'(slot {name})' for name in names)})")
    hits: set[int] = set()
    environment.define_function(lambda number: hits.add(int(number)), name="found")
    for number, tree in enumerate(made):
        # A rule that begins with NOT needs a pattern before it, or it fires without an event.
        condition = f"(event) {_element(tree, count())}" if plain else _pattern(tree)
        environment.build(f"(defrule r{number} {condition} => (found {number}))")
    template = environment.find_template("event")

    def decide(row: Row) -> int:
        """Asserts, runs, and takes the fact back. A rule with OR may fire more than once and counts once."""
        fact = template.assert_fact(**{k: clips.Symbol(v) if isinstance(v, str) else v for k, v in row.items()})
        environment.run()
        fact.retract()
        different = len(hits)
        hits.clear()
        return different

    return decide


def _element(tree: Tree, variables: Iterator[int]) -> str:
    """A tree as a conditional element; each pattern has a variable of its own."""
    match tree[0]:
        case "and" | "or" | "not":
            return f"({tree[0]} {' '.join(_element(part, variables) for part in tree[1:])})"
        case "=":
            return f"(event ({tree[1]} {tree[2]}))"
        case "in":
            return f"(event ({tree[1]} {'|'.join(tree[2])}))"
        case "not in":
            return f"(event ({tree[1]} {'&'.join('~' + value for value in tree[2])}))"
    value = f"?x{next(variables)}"
    return f"(event ({tree[1]} {value}&:({tree[0]} {value} {tree[2]})))"


def _pattern(tree: Tree) -> str:
    parts = tree[1:] if tree[0] == "and" else [tree]
    slots: dict[str, list[str]] = {}
    tests = []
    for part in parts:
        if part[0] == "=":
            slots.setdefault(part[1], []).append(str(part[2]))
        elif part[0] in ("<", "<=", ">", ">="):
            slots.setdefault(part[1], []).append(f":({part[0]} ?{part[1]} {part[2]})")
        else:
            tests.append(_expression(part))
    used = sorted({name for part in tests for name in _names(part)} | set(slots))
    given = [f"({name} ?{name}{''.join('&' + each for each in slots.get(name, []))})" for name in used]
    return f"(event {' '.join(given)})" + "".join(f" (test {test})" for test in tests)


def _names(expression: str) -> list[str]:
    return [word.strip("()")[1:] for word in expression.split() if word.startswith("?")]


def _expression(tree: Tree) -> str:
    match tree[0]:
        case "and" | "or" | "not":
            return f"({tree[0]} {' '.join(map(_expression, tree[1:]))})"
        case "in" | "not in":
            among = "(or " + " ".join(f"(eq ?{tree[1]} {value})" for value in tree[2]) + " FALSE)"
            return among if tree[0] == "in" else f"(not {among})"
    return f"({'eq' if tree[0] == '=' else tree[0]} ?{tree[1]} {tree[2]})"


def prototype(made: Sequence[Tree], rows: Sequence[Row], size: int) -> Callable[[], int] | None:
    """The first prototype (hybrid3, pairs) on the same events in batches of a size, if its folder is there.

    What it is called with is done before: events are codes, as the matcher's are. Each call gives the number of pairs.
    """
    folder = Path(os.environ.get("NEARCAST_SHARED", "../shared")) / "design" / "prototypes"
    if not (folder / "hybrid3.py").exists():
        return None
    sys.path.insert(0, str(folder))
    try:
        common, hybrid3 = (importlib.import_module(name) for name in ("common", "hybrid3"))
    finally:
        sys.path.remove(str(folder))
    return _run_of(hybrid3, made, common.encode_events(rows), size)


def _run_of(hybrid3: Any, made: Sequence[Tree], codes: Any, size: int) -> Callable[[], int]:
    codes = codes.astype(np.uint16)
    shares = [np.bincount(own, minlength=hybrid3.DOM[number]) / codes.shape[1] for number, own in enumerate(codes)]
    engine = hybrid3.Hybrid3(made, shares, size)
    # It writes past arrays that are too small for its pairs: by itself they hold 1,100 an event, and a million filters
    # give several thousand.
    engine.resize(size, max(1100, len(made) // 100))
    return lambda: engine.run(codes, None, 1, False)
