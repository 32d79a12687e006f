"""`nearcast.Definitions`: clients, subscriptions, relations and situations, from files or dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from nearcast.errors import DefinitionError, Fault
from nearcast.language.definitions import files
from nearcast.model.changes import Change

Source = str | PathLike[str] | Mapping[str, Any]


class Definitions:
    """Definitions that were read and checked; `read` gives them.

    `clients`, `subscriptions`, `relations`, `situations` and `actions` are the ids of what is defined, in its order;
    `warnings` what can be taken but hardly is meant.
    """

    def __init__(self, found: files.DefinitionSet) -> None:
        self._found = found
        self.warnings: tuple[Fault, ...] = found.warnings
        self.clients = tuple(one.id for one in found.clients)
        self.subscriptions = tuple(one.id for one in found.subscriptions)
        self.relations = tuple(one.id for one in found.relations)
        self.situations = tuple(one.id for one in found.situations)
        self.actions = tuple(one.id for one in found.actions)

    @classmethod
    def read(cls, *sources: Source) -> Definitions:
        """The definitions of YAML files, by their paths, or of dicts of the same form; several are read together.

        What a file names is found beside it, what a dict names in the working folder. Raises `DefinitionError` with
        every fault of all of them: in a file with line and column, in a dict with the way to the value.
        """
        return cls(files.load([_source(one) for one in sources]))

    def __repr__(self) -> str:
        counts = ((name, len(getattr(self, name))) for name in ("clients", "subscriptions", "relations", "situations"))
        return f"<Definitions: {', '.join(f'{count} {name}' for name, count in counts if count) or 'nothing'}>"


def _source(given: object) -> Path | Mapping[str, Any]:
    if isinstance(given, (str, PathLike)):
        return Path(given)
    if not isinstance(given, Mapping):
        advice = "a text is the path of a file"
        raise DefinitionError(Fault("a path or a dict of definitions", type(given).__name__, None, advice))
    return given


def definitions_of(given: Any) -> Definitions:
    """Definitions in whichever form they are given: read already, or what `Definitions.read` takes, one or several."""
    if isinstance(given, Definitions):
        return given
    return Definitions.read(*(given if isinstance(given, (list, tuple)) else [given]))


def changes_of(found: Definitions, node: str) -> list[Change]:
    """The changes that bring definitions about at an entry node."""
    return found._found.changes(node)


DefinitionsLike = Definitions | Source | Sequence[Source]
"""Definitions, or what they can be read from."""
