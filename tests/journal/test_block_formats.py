"""The content of blocks, also of formats before: the columns that came since are null."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.journal.encoded_rows import LENGTHS, LENGTHS_ROWS, decoded_rows, encoded_rows
from nearcast.model.columns import EVENTS, LOGS, OUTCOMES, to_table
from nearcast.model.event import Event, Place

TEXTS = st.one_of(st.none(), st.text(max_size=5))
VALUES = st.one_of(st.text(max_size=5), st.integers(-9, 9), st.floats(-9, 9), st.booleans())


def test_outcomes_that_were_written_before_it_was_said_who_was_first_are_read() -> None:
    """They say nothing of it; the others what they said."""
    rows = [{"position": 1, "client": "a", "event": 5, "part": 0, "outcome": "acknowledged", "early": True}]
    now = pa.Table.from_pylist(rows, OUTCOMES)
    before = now.drop_columns(["early"])
    size, block = encoded_rows(before)
    assert [{**row, "early": None} for row in before.to_pylist()] == decoded_rows(OUTCOMES, size, block).to_pylist()
    size, block = encoded_rows(now)
    assert now == decoded_rows(OUTCOMES, size, block)


def fleet(count: int) -> pa.Table:
    """Positions of ships."""
    return to_table(
        Event(
            f"{number:x}",
            "position",
            "feed",
            f"ship {number % 50}",
            place=Place("geographic", 8 + number % 97 / 1e3, 47 + number % 89 / 1e3),
            attributes=(("speed", number % 13), ("course", number * 7 % 360), ("name", f"the ship {number % 50}")),
        )
        for number in range(count)
    )


@given(
    st.lists(st.tuples(TEXTS, st.lists(st.tuples(st.text(max_size=4), VALUES), max_size=3)), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(LENGTHS_ROWS, LENGTHS_ROWS + 60),
)
def test_rows_with_lengths_are_read_as_they_were(
    kinds: list[tuple[str | None, list[tuple[str, object]]]], first: int, count: int
) -> None:
    """Whatever is null or empty, also where they are a part of a larger table."""
    events = [
        Event(str(number), "t", "s", subject, attributes=tuple(attributes))  # type: ignore[arg-type]
        for number, (subject, attributes) in enumerate(kinds * (count + 6))
    ]
    rows = to_table(events).slice(first, count)
    size, block = encoded_rows(rows, lengths=True)
    assert block.startswith(LENGTHS)
    assert rows.equals(decoded_rows(EVENTS, size, block))


@pytest.mark.parametrize("log", LOGS)
def test_rows_of_every_log_may_have_lengths(log: str) -> None:
    """Also where all of a column is null."""
    rows = pa.table([pa.nulls(LENGTHS_ROWS, one.type) for one in LOGS[log]], LOGS[log])
    size, block = encoded_rows(rows, lengths=True)
    assert rows.equals(decoded_rows(LOGS[log], size, block))


def test_lengths_are_for_blocks_of_many_rows() -> None:
    """There they take a third less of a fleet's positions; a block of few rows, and one without, any version reads."""
    few, many = fleet(LENGTHS_ROWS - 1), fleet(1_000)
    assert encoded_rows(few) == encoded_rows(few, lengths=True)
    plain, shorter = (encoded_rows(many, lengths) for lengths in (False, True))
    assert not plain[1].startswith(LENGTHS)
    assert len(shorter[1]) < 0.67 * len(plain[1])
    for size, block in (plain, shorter):
        assert many.equals(decoded_rows(EVENTS, size, block))


def test_a_block_with_lengths_that_lacks_the_last_columns_is_read() -> None:
    """As one without."""
    rows = fleet(LENGTHS_ROWS)
    size, block = encoded_rows(rows.drop_columns(["about"]), lengths=True)
    assert rows.set_column(len(EVENTS) - 1, EVENTS.field("about"), pa.nulls(len(rows), pa.string())).equals(
        decoded_rows(EVENTS, size, block)
    )
