"""Files of indexes: written once, mapped by others, gone with the index."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from nearcast.matching.incremental import PartitionedIndex
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.filter import Atom, Operator
from nearcast.pipeline import mmap_pickle
from nearcast.pipeline.mmap_pickle import IndexShelf, loads, read, write
from nearcast.runtime import jit_warmup
from nearcast.state.timeline import Environment


def test_a_value_comes_back(tmp_path: Path) -> None:
    """Arrays of any size and form among other things; what is done to them is not done to the file."""
    value = {"a": np.arange(1000), "b": [np.zeros((3, 5), np.uint16), "text"], "c": np.zeros(0), "d": np.arange(9)[::2]}
    write(value, tmp_path / "file")
    for _ in range(2):
        found = read(tmp_path / "file")
        assert [0, 999] == [found["a"][0], found["a"][-1]]
        assert [(3, 5), "text"] == [found["b"][0].shape, found["b"][1]]
        assert 0 == len(found["c"])
        assert [0, 2, 4, 6, 8] == found["d"].tolist()
        found["a"][0] = 7
    assert ["file"] == [path.name for path in tmp_path.iterdir()]


def test_an_index_is_written_once_and_goes_with_its_file(tmp_path: Path) -> None:
    """Batch after batch has the same file, and who maps it matches the same."""
    jit_warmup.wait_for_warmup()
    mmap_pickle._mapped.cache_clear()
    table = to_table([Event(id="1", type="t", source="s", attributes=(("v", 5),), position=1)])
    index = FilterMatcher([(Atom("v", Operator.LT, n), (0,)) for n in range(300)])
    batch = PartitionedIndex(((index, np.arange(300, dtype=np.int32)),))
    batch.prepare(table, Environment())
    shelf = IndexShelf(tmp_path)
    sent = [shelf.dumps(batch, position) for position in (1, 2)]
    assert sent[0] == sent[1]
    assert 1 == len(list(tmp_path.iterdir()))
    expected = batch.match(table, Environment())
    found = loads(sent[0]).match(table, Environment())
    assert sorted(expected.groups.tolist()) == sorted(found.groups.tolist()) == list(range(6, 300))
    del index, batch
    gc.collect()
    assert [] == list(tmp_path.iterdir())


def test_a_small_index_has_no_file(tmp_path: Path) -> None:
    """Rows of bits travel with their batch."""
    batch = PartitionedIndex(((FilterMatcher([(Atom("v", Operator.LT, 3), (0,))]), np.arange(1, dtype=np.int32)),))
    assert isinstance(loads(IndexShelf(tmp_path).dumps(batch, 1)), PartitionedIndex)
    assert [] == list(tmp_path.iterdir())


def test_a_file_that_is_half_written_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is renamed when it is whole."""
    monkeypatch.setattr(mmap_pickle.os, "replace", lambda *_: None)
    write([1], tmp_path / "file")
    assert not (tmp_path / "file").exists()
