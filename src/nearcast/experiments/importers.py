"""What the command line can bring in by name: importers of data sets, and scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from nearcast.experiments import ais, nsw_fires
from nearcast.experiments.bushfire import Scenario
from nearcast.experiments.documents import Document

IMPORTERS: dict[str, Callable[[Path], Iterator[Document]]] = {"nsw-fires": nsw_fires.events, "ais": ais.events}
"""Name → a function from the data's file to its events."""

SCENARIOS: dict[str, Callable[..., Scenario]] = {"bushfire": Scenario}
"""Name → a scenario of (seed, seconds, rate, …) with `definitions()`, `steps()` and `documents()`."""
