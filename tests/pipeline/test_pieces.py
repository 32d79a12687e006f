"""However much is defined at once, no event waits for more than some of it."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.columns import EVENTS
from nearcast.pipeline.query import chunk_batch

CONTROL, OTHER = "nearcast.subscription", "report"


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 5), st.integers(0, 9))
def test_pieces_are_the_batch_with_few_definitions_each(defined: list[bool], changes: int, after: int) -> None:
    """Each ends behind its last definition; the last one where the batch does."""
    types = [CONTROL if one else OTHER for one in defined]
    positions = list(range(after + 1, after + 1 + len(types)))
    given = {"position": pa.array(positions, pa.int64()), "type": pa.array(types, pa.string())}
    table = pa.table([given.get(field.name, pa.nulls(len(types), field.type)) for field in EVENTS], schema=EVENTS)
    found = list(chunk_batch(table, after + len(types), changes))
    assert types == [type for piece, _ in found for type in piece.column("type").to_pylist()]
    counts = [piece.column("type").to_pylist().count(CONTROL) for piece, _ in found]
    assert max(counts) <= changes and len(found) == max(1, -(-sum(defined) // changes))
    ends = [after + sum(len(piece) for piece, _ in found[: number + 1]) for number in range(len(found))]
    assert ends == [through for _, through in found]
    assert all(piece.column("type")[-1].as_py() == CONTROL for piece, _ in found[:-1])


def test_large_definitions_are_pieces_of_their_own() -> None:
    """However few they are: each is read and planned for long, and neither what came before it nor what came between
    them need wait.
    """
    for sizes, reports, expected in (
        ([10, 900, 10, 10, 10, 1_200, 10], [], [1, 2, 5, 6, 7]),
        ([10, 10, 10, 900, 10], [0, 1, 4], [3, 5]),
        ([900, 10, 900, 900, 10], [1, 4], [1, 2, 3, 5]),
        ([900], [], [1]),
    ):
        types = [OTHER if row in reports else CONTROL for row in range(len(sizes))]
        given = {
            "position": pa.array(range(1, len(sizes) + 1), pa.int64()),
            "type": pa.array(types, pa.string()),
            "payload": pa.array([b"-" * size for size in sizes], pa.binary()),
        }
        table = pa.table([given.get(field.name, pa.nulls(len(sizes), field.type)) for field in EVENTS], schema=EVENTS)
        pieces = list(chunk_batch(table, len(sizes), 100, 900))
        assert expected == [through for _, through in pieces]
        assert table == pa.concat_tables([piece for piece, _ in pieces])


def test_long_definitions_are_pieces_of_their_own_before_short_ones_of_as_many_bytes() -> None:
    """Two hundred areas in sixteen kilobytes take as long as hundreds of short filters."""
    areas = " OR ".join(f"S_OVERLAPS(geom, POLYGON(({low} 0, {low} 9, 9 {low}, {low} 0)))" for low in range(200))
    for text, expected in ((areas, 5), ("type = 'closure' AND minutes >= 10", 1)):
        payloads = [text.encode()] * 5
        given = {
            "position": pa.array(range(1, 6), pa.int64()),
            "type": pa.array([CONTROL] * 5, pa.string()),
            "payload": pa.array(payloads, pa.binary()),
        }
        table = pa.table([given.get(field.name, pa.nulls(5, field.type)) for field in EVENTS], schema=EVENTS)
        assert expected == len(list(chunk_batch(table, 5)))
