"""Public data sets as CloudEvents, and receivers for them: pure functions of a file read in place, and a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nearcast.importers import ais, nsw_fires
from nearcast.importers.event_documents import Document

IMPORTERS: dict[str, Callable[..., Iterator[Document]]] = {"nsw-fires": nsw_fires.events, "ais": ais.events}
"""Name → a function from the data's file, and what is done with faults, to its events."""
