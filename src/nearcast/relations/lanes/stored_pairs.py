"""The shards' pairs as Arrow tables that people and other tools can read: names, not numbers; times, not microseconds.

A table has the pairs of one shard in all scopes. How many shards there were does not matter to who reads them: pairs
are shared anew by their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.arrays import Integers
from nearcast.relations.lanes.scopes import Scope
from nearcast.relations.pairs import PairRelations
from nearcast.relations.shards import pair_rows
from nearcast.state.lateness import FOREVER, NEVER

_TIME = pa.timestamp("us", "UTC")

PAIRS = pa.schema(
    [
        ("node", pa.string()),
        ("relation", pa.string()),
        ("a", pa.string()),
        ("b", pa.string()),
        ("held", pa.bool_()),
        ("dwelt", pa.bool_()),
        ("since", _TIME),
        ("due", _TIME),
        ("clocks", pa.int16()),
    ]
)
"""A pair of a relation, local to a node or, without one, global: whether it holds and, if so, since when, by when it is
told to dwell, and whether it was; and by which clocks, as one number."""


def stored(pairings: Mapping[Scope, PairRelations]) -> list[pa.Table]:
    """The pairs of each shard; tables of `PAIRS`."""
    count = max((len(pairing.shards) for pairing in pairings.values()), default=0)
    return [
        pa.concat_tables([PAIRS.empty_table(), *(_table(scope, pairing, shard) for scope, pairing in pairings.items())])
        for shard in range(count)
    ]


def _table(scope: Scope, pairing: PairRelations, shard: int) -> pa.Table:
    pairs = pairing.shards[shard].pairs
    ids = pa.array([rule and rule.relation.id for rule in pairing.rules.all], pa.string())
    names = pa.array(pairing.known.names, pa.string())
    held = pairs["held"]
    columns = {
        "node": pa.nulls(pairs.length, pa.string()) if scope is None else pa.repeat(scope, pairs.length),
        "relation": ids.take(pa.array(pairs["rule"])),
        "a": names.take(pa.array(pairs["a"])),
        "b": names.take(pa.array(pairs["b"])),
        "held": pa.array(held),
        # What a pair was like that holds no longer says nothing.
        "dwelt": pa.array(pairs["dwell_sent"] & held),
        "since": pa.array(pairs["started_at"], _TIME, mask=~held | (pairs["started_at"] == NEVER)),
        "due": pa.array(pairs["due"], _TIME, mask=~held | (pairs["due"] == FOREVER)),
        "clocks": pa.array(pairs["clocks"]),
    }
    return pa.table(columns, PAIRS)


def restore(pairings: Mapping[Scope, PairRelations], tables: Sequence[pa.Table], shards: int) -> None:
    """Gives relations that have no pairs those of all shards' tables, in so many shards from now on.

    Raises ArrowInvalid if a table has not the columns of `PAIRS`, KeyError if a relation or an entity is not known.
    """
    for table in tables:
        if not table.schema.equals(PAIRS):
            raise pa.ArrowInvalid(f"expected the columns {PAIRS.names} of this version, got {table.schema.names}")
    together = pa.concat_tables([PAIRS.empty_table(), *tables])
    for scope, pairing in pairings.items():
        node = together.column("node")
        own = together.filter(pc.is_null(node) if scope is None else pc.equal(node, scope))
        rules = {id: rule.number for id, rule in pairing.rules.by_id.items()}
        rows = pair_rows()
        rows.append(
            len(own),
            rule=_numbers(own.column("relation"), rules),
            **{side: _numbers(own.column(side), pairing.known.numbers) for side in "ab"},
            held=own.column("held").to_numpy(),
            dwell_sent=own.column("dwelt").to_numpy(),
            started_at=_micros(own.column("since"), NEVER),
            due=_micros(own.column("due"), FOREVER),
            clocks=own.column("clocks").to_numpy(),
        )
        pairing.share(rows, shards)


def _numbers(column: pa.ChunkedArray, numbers: Mapping[str, int]) -> Integers:
    """The number of each text of a column."""
    coded = pc.dictionary_encode(column.combine_chunks())
    found = np.array([numbers[text] for text in coded.dictionary.to_pylist()], np.int64)
    return found[coded.indices.to_numpy()]


def _micros(column: pa.ChunkedArray, absent: int) -> Integers:
    found: Integers = pc.fill_null(pc.cast(column, pa.int64()), absent).to_numpy()
    return found
