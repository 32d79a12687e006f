"""nearcast delivers every event to whom it concerns, at the priority the receiver's situation calls for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearcast.api.definition_files import Definitions
    from nearcast.api.filters import Filter
    from nearcast.api.history import replay
    from nearcast.api.journals import open_journal
    from nearcast.api.matching import match
    from nearcast.language.cloudevents import DeadLetter

__all__ = ["DeadLetter", "Definitions", "Filter", "__version__", "match", "open_journal", "replay"]

__version__ = "0.1.0"

_HOMES = {
    "DeadLetter": "nearcast.language.cloudevents",
    "Definitions": "nearcast.api.definition_files",
    "Filter": "nearcast.api.filters",
    "match": "nearcast.api.matching",
    "open_journal": "nearcast.api.journals",
    "replay": "nearcast.api.history",
}
"""Where each name is: imported when it is first asked for, so that the command and clients start without the rest."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nearcast' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
