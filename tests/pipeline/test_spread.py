"""What is spread out leaves nothing behind, in this process or on disk."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from nearcast.decision.known import Batch, Known
from nearcast.language.control import changes
from nearcast.pipeline.match import decided
from nearcast.pipeline.source import BLOCKS
from tests.pipeline.histories import documents, with_roles, written


class Nobody:
    """Executors that decide nothing."""

    def mapInArrow(self, function: Any, schema: Any) -> Nobody:
        return self

    def toArrow(self) -> pa.Table:
        return BLOCKS.empty_table()


def batch_of(folder: Path) -> Batch:
    with closing(written(folder, with_roles(), documents(40))) as journal:
        return next(iter(Known().advance(journal.read("events", 0, 1_000), changes)))


def test_a_batch_that_was_spread_leaves_no_file_open_and_none_on_disk(tmp_path: Path) -> None:
    """Else a pipeline that catches up for long runs out of descriptors."""
    batch = batch_of(tmp_path)
    folder = tmp_path / "batches"
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        decided(batch, Nobody, "unused", folder, spread=0)  # type: ignore[arg-type]
    assert before == len(os.listdir("/dev/fd"))
    assert [] == list(folder.iterdir())
