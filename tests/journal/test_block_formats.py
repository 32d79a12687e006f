"""Blocks of formats before: the columns that came since are null."""

from __future__ import annotations

import pyarrow as pa

from nearcast.journal.encoded_rows import decoded_rows, encoded_rows
from nearcast.model.columns import OUTCOMES


def test_outcomes_that_were_written_before_it_was_said_who_was_first_are_read() -> None:
    """They say nothing of it; the others what they said."""
    rows = [{"position": 1, "client": "a", "event": 5, "part": 0, "outcome": "acknowledged", "early": True}]
    now = pa.Table.from_pylist(rows, OUTCOMES)
    before = now.drop_columns(["early"])
    size, block = encoded_rows(before)
    assert [{**row, "early": None} for row in before.to_pylist()] == decoded_rows(OUTCOMES, size, block).to_pylist()
    size, block = encoded_rows(now)
    assert now == decoded_rows(OUTCOMES, size, block)
