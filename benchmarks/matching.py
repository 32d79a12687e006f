"""The matcher beside other engines, on one core: `python -m benchmarks.matching [--filters 10000] [--batch 16384] …`.

W1 are conjunctions, W2 trees of AND and OR, W3 trees with NOT and sets, over twenty attributes. Figures are events per
CPU-second of this process' only thread, events being in each engine's own form already, and the ratio to CLIPS (Rete,
by clipspy) in the same run. What the engine finds is checked against a plain reading of the filters.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.machine import machine
from nearcast.decision.match import Group
from nearcast.decision.match_engine import Engine
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, atoms

Tree = list[Any]
Row = dict[str, Any]
FLAVOURS = {"W1": "gen_w1", "W2": "gen_w2", "W3": "gen_w3"}
EVENTS = 49_152
CHECKED = 30
"""Events whose pairs are checked."""
SLOW = 40
"""Events that the engines of one event at a time are given."""


def main() -> None:
    """Prints a line per workload and engine."""
    options = _options()
    work = _workload()
    if work is None:
        sys.exit("skipped: matching_workload.py is not there; NEARCAST_SHARED names the folder that has tools/ with it")
    print(machine())
    rows = _rows(work)
    for flavour in options.work:
        made = getattr(work, FLAVOURS[flavour])(options.filters, work.SEED + 1 + list(FLAVOURS).index(flavour))
        _compare(flavour, made, rows, work, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", type=int, default=10_000)
    parser.add_argument("--batch", type=int, nargs="*", default=[64, 1024, 16_384])
    parser.add_argument("--work", nargs="*", default=list(FLAVOURS), choices=list(FLAVOURS))
    parser.add_argument("--no-clips", action="store_true", help="without CLIPS, which takes long to build")
    return parser.parse_args()


def _workload() -> ModuleType | None:
    """The module that defines the filters and events, if it is there."""
    path = Path(os.environ.get("NEARCAST_SHARED", "../shared")) / "tools" / "matching_workload.py"
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location("matching_workload", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _rows(work: ModuleType) -> list[Row]:
    columns = work.gen_events(EVENTS, work.SEED + 7)
    lists = [[f"v{x}" for x in columns[a]] if a[0] == "s" else columns[a].tolist() for a in work.ATTRS]
    return [dict(zip(work.ATTRS, values, strict=True)) for values in zip(*lists, strict=True)]


def _compare(
    flavour: str, made: Sequence[Tree], rows: list[Row], work: ModuleType, options: argparse.Namespace
) -> None:
    rates = {}
    warm = Engine([_group(tree) for tree in made[:300]])
    warm.pairs(warm.encode(to_table([_event(0, rows[0])])))
    if not options.no_clips:
        decide = _clips(made)
        assert all(decide(row) == sum(work.naive(tree, row) for tree in made) for row in rows[:3]), "CLIPS differs"
        rates["CLIPS"] = _rate_of_each(decide, rows)
    rates["generated Python"] = _rate_of_each(_generated(made), rows)
    began = time.process_time()
    engine = Engine([_group(tree) for tree in made])
    reading = time.process_time() - began
    table = to_table([_event(number, row) for number, row in enumerate(rows)])
    batch = engine.encode(table)
    started = time.process_time()
    engine.prepare(batch)
    planning = time.process_time() - started
    _check(engine, table, made, rows, work)
    print(f"{flavour} {len(made):,} filters, {engine.layout.bytes / len(made):.0f} bytes each")
    print(f"  read in {reading:.2f} CPU-s, planned in {planning:.2f}")
    for size in options.batch:
        parts = [engine.encode(table.slice(first, size)) for first in range(0, EVENTS if size > 1000 else 4096, size)]
        rates[f"nearcast, pairs, batch {size:,}"] = _rate(engine, parts)
    rates["nearcast, from Arrow to pairs"] = _rate_with_encoding(engine, table)
    for name, rate in rates.items():
        ratio = f"{rate / rates['CLIPS']:,.0f} × CLIPS" if "CLIPS" in rates else ""
        print(f"  {name:32} {rate:>12,.0f} events/s   {ratio}")


def _group(tree: Tree) -> Group:
    filter = _filter(tree)
    return filter, (0,) * sum(1 for _ in atoms(filter))


def _filter(tree: Tree) -> Filter:
    match tree[0]:
        case "and":
            return And(tuple(map(_filter, tree[1:])))
        case "or":
            return Or(tuple(map(_filter, tree[1:])))
        case "not":
            return Not(_filter(tree[1]))
        case "in":
            return Atom(tree[1], Operator.IN, tuple(tree[2]))
        case "not in":
            return Not(Atom(tree[1], Operator.IN, tuple(tree[2])))
    return Atom(tree[1], Operator(tree[0]), tree[2])


def _event(number: int, row: Row) -> Event:
    return Event(id=str(number), type="reading", source="workload", attributes=tuple(row.items()), position=number + 1)


def _check(engine: Engine, table: Any, made: Sequence[Tree], rows: list[Row], work: ModuleType) -> None:
    """Fails if the pairs of the first events are not those of a plain reading."""
    lanes, groups, _ = engine.pairs(engine.encode(table.slice(0, CHECKED)))
    expected = {(lane, n) for lane, row in enumerate(rows[:CHECKED]) for n, e in enumerate(made) if work.naive(e, row)}
    found = list(zip(lanes.tolist(), groups.tolist(), strict=True))
    assert len(found) == len(expected) and set(found) == expected, "pairs differ from the plain reading"


def _rate(engine: Engine, parts: Sequence[Any]) -> float:
    """The median of five runs, in events per CPU-second."""
    spent = []
    for _ in range(5):
        began = time.thread_time()
        for part in parts:
            engine.pairs(part)
        spent.append(time.thread_time() - began)
    return sum(part.lanes for part in parts) / statistics.median(spent)


def _rate_with_encoding(engine: Engine, table: Any) -> float:
    began = time.thread_time()
    for first in range(0, EVENTS, 16_384):
        engine.pairs(engine.encode(table.slice(first, 16_384)))
    return EVENTS / (time.thread_time() - began)


def _rate_of_each(decide: Callable[[Row], object], rows: list[Row]) -> float:
    began = time.thread_time()
    for row in rows[:SLOW]:
        decide(row)
    return SLOW / (time.thread_time() - began)


def _generated(made: Sequence[Tree]) -> Callable[[Row], object]:
    """One Python function of an `if` per filter."""
    lines = [f"    if {_python(tree)}: found({number})" for number, tree in enumerate(made)]
    sources = "def decide(e, found):\n" + "\n".join(lines)
    space: dict[str, Any] = {}
    exec(compile(sources, "generated", "exec"), space)
    return lambda row: space["decide"](row, [].append)


def _python(tree: Tree) -> str:
    match tree[0]:
        case "and" | "or":
            return "(" + f" {tree[0]} ".join(map(_python, tree[1:])) + ")"
        case "not":
            return f"(not {_python(tree[1])})"
        case "in" | "not in":
            return f"(e[{tree[1]!r}] {tree[0]} {set(tree[2])!r})"
    return f"(e[{tree[1]!r}] {'==' if tree[0] == '=' else tree[0]} {tree[2]!r})"


def _clips(made: Sequence[Tree]) -> Callable[[Row], object]:
    """A rule per filter over one template: conjunctions as constraints of its slots, trees as tests."""
    import clips  # type: ignore[import-not-found]

    environment = clips.Environment()
    names = [f"{kind}{index}" for kind in "sn" for index in range(10)]
    environment.build(f"(deftemplate event {' '.join(f'(slot {name})' for name in names)})")
    hits: list[int] = []
    environment.define_function(lambda number: hits.append(int(number)), name="found")
    for number, tree in enumerate(made):
        environment.build(f"(defrule r{number} {_pattern(tree)} => (found {number}))")
    template = environment.find_template("event")

    def decide(row: Row) -> int:
        """Asserts, runs, and takes the fact back."""
        fact = template.assert_fact(**{k: clips.Symbol(v) if isinstance(v, str) else v for k, v in row.items()})
        environment.run()
        fact.retract()
        count = len(hits)
        hits.clear()
        return count

    return decide


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


if __name__ == "__main__":
    main()
