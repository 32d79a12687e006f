"""The registry in a snapshot: what was defined since the one before, beside what that one has."""

from __future__ import annotations

from pathlib import Path

import pyarrow.feather as feather
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.language.definitions.registry_rows import WrittenRegistry, registry_rows
from nearcast.model.changes import Change, ClientChange
from nearcast.state.registry import Registry
from tests.language.strategies import changes


@given(st.lists(st.lists(changes, max_size=6), min_size=1, max_size=4))
def test_rows_of_a_file_and_of_what_changed_are_those_of_all(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[Change]]
) -> None:
    """In the same order, through any number of files; where nothing changed they are those of the file."""
    file = tmp_path_factory.mktemp("registered") / "registry.arrow"
    registry, before = Registry(), None
    for step in steps:
        for change in step:
            registry.apply(change)
        found = registry_rows(registry, before)
        assert found.equals(registry_rows(registry))
        assert before is None or not before.has(registry) or found.equals(feather.read_table(str(file)))
        feather.write_feather(found, str(file), "lz4")
        before = WrittenRegistry(file, registry.copy())
        assert before.has(registry)


def test_a_file_of_other_rows_is_not_gone_on_from(tmp_path: Path) -> None:
    """All is written then."""
    registry = Registry()
    registry.apply(ClientChange("ann"))
    feather.write_feather(registry_rows(registry), str(tmp_path / "registry.arrow"), "lz4")
    before = WrittenRegistry(tmp_path / "registry.arrow", Registry())
    assert registry_rows(registry).equals(registry_rows(registry, before))
