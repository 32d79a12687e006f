"""Definitions of importers, as the language layer reads them from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcast.importers import ais, nsw_fires
from nearcast.language.definitions.files import DefinitionSet


@pytest.mark.data
def test_nsw_fires(loaded: Callable[[dict[str, Any]], DefinitionSet], data: Callable[[str], Path]) -> None:
    """The definitions of receivers near incidents load without a fault or a warning."""
    path = data("nsw_rfs_fires/changes_20191230_20200104.jsonl.gz")
    definitions = loaded(nsw_fires.receivers(path))
    assert (200, 200, ()) == (len(definitions.clients), len(definitions.subscriptions), definitions.warnings)
    assert nsw_fires.MATRIX == definitions.settings.matrix


@pytest.mark.data
def test_ais(loaded: Callable[[dict[str, Any]], DefinitionSet], data: Callable[[str], Path]) -> None:
    """The definitions of receivers at sea load without a fault or a warning."""
    definitions = loaded(ais.receivers(data("ais_us_20220103/AISdata.csv.gz"), count=100)[0])
    assert (100, 100, ()) == (len(definitions.clients), len(definitions.subscriptions), definitions.warnings)
