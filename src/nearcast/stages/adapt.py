"""The fifth stage, adapt: from groups to clients. Each client gets an event once, by the most urgent subscription.

All of a client's subscriptions meet one matrix, and its rows never get less urgent as the level rises: the most urgent
is the one of the greatest level, and among equals the one that was added first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.delivery.subscription_index import ANY_ROLE, GroupAssignments
from nearcast.matching.bitset import MatchedPairs
from nearcast.model.arrays import Integers, placed, runs
from nearcast.model.columns import DELIVERIES, FEW, NO_DELIVERIES, OTHER, ROLE_LEVEL
from nearcast.stages.fold import FoldedBatch
from nearcast.state.timeline import Positions, Timeline


@dataclass(frozen=True, slots=True)
class _Rows:
    """Candidates side by side: event's lane and position, client, order of the subscription, role, level."""

    lane: Integers
    position: Integers
    client: Integers
    order: Integers
    role: Integers
    level: Integers

    def select(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> _Rows:
        """The rows at these indices, or where these flags are set."""
        return _Rows(*(getattr(self, name)[index] for name in _Rows.__slots__))

    def __len__(self) -> int:
        return len(self.position)


def adapt(batch: FoldedBatch, events: pa.Table, pairs: MatchedPairs, alternatives: bool = True) -> pa.Table:
    """The DELIVERIES of pairs with these events, in the order of the events, then by client.

    Without `alternatives` (levels under other roles, other subscriptions) null is in their place: history has no use
    for them.
    """
    if not len(pairs.lanes):
        return NO_DELIVERIES
    rows, names, ids = _heard(batch.assignments, events.column("position").to_numpy(), pairs)
    best, rest = _most_urgent(_present(batch.clients.roles, names, rows))
    levels = pa.nulls(len(best), DELIVERIES.field("by_role").type)
    if alternatives and len(best) and (rows.role != ANY_ROLE).any():
        levels = _levels_by_role(batch, rows, best, len(names))
    others = pa.nulls(len(best), DELIVERIES.field("others").type)
    if alternatives and len(rest):
        others = _others(rest, best, ids)
    return pa.table(
        [
            pa.array(best.position),
            _texts(names, best.client),
            _texts(ids, best.order),
            pa.array(best.level.astype(np.int8)),
            levels,
            others,
            pa.array(events.column("part").to_numpy()[best.lane]),
        ],
        schema=DELIVERIES,
    )


def _texts(texts: Sequence[str], which: Integers) -> pa.Array:
    """Some of these texts, by number, as a column."""
    if len(which) <= FEW:
        return pa.array([texts[number] for number in which.tolist()], pa.string())
    return pa.array(texts, pa.string()).take(pa.array(which))


def heard_by(
    batch: FoldedBatch, events: pa.Table, pairs: MatchedPairs, subscriptions: Collection[str]
) -> set[tuple[int, str]]:
    """The position and the client of each pair with these events that some of the subscriptions are heard by, under
    whichever role.
    """
    rows, names, ids = _heard(batch.assignments, events.column("position").to_numpy(), pairs)
    asked = np.array([id in subscriptions for id in ids], np.bool_)
    found = rows.select(asked[rows.order])
    return {(at, names[client]) for at, client in zip(found.position.tolist(), found.client.tolist(), strict=True)}


def _heard(
    assignments: GroupAssignments, positions: Positions, pairs: MatchedPairs
) -> tuple[_Rows, list[str], list[str]]:
    """Each pair with every client that hears its group at that position, under whichever role.

    The clients and the subscriptions of these rows follow, by number: clients by name, subscriptions by order.
    """
    first, count = assignments.starts[pairs.groups], assignments.counts[pairs.groups]
    pair = np.repeat(np.arange(len(count)), count)
    row = runs(first, count)
    lane = pairs.lanes[pair]
    position = positions[lane]
    here = (assignments.after[row] < position) & (position <= assignments.through[row])
    pair, row = pair[here], row[here]
    codes, client = placed(assignments.client[row])
    orders, order = placed(assignments.order[row])
    names = [assignments.clients[code] for code in codes.tolist()]
    by_name = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), np.int64)
    rank[by_name] = np.arange(len(names))
    rows = _Rows(
        lane[here],
        position[here],
        rank[client],
        order,
        assignments.role[row].astype(np.int64),
        pairs.levels[pair].astype(np.int64),
    )
    ids = [assignments.subscriptions[order] for order in orders.tolist()]
    return rows, [names[index] for index in by_name], ids


def _present(roles: Timeline[str, int], names: list[str], rows: _Rows) -> _Rows:
    """The rows that hold under the role and task that their client has at their position."""
    present = rows.role == ANY_ROLE
    if present.all():
        return rows
    other = np.flatnonzero(~present)
    present[other] = rows.role[other] == as_of(roles, names, rows.client[other], rows.position[other])
    return rows.select(present)


def as_of(track: Timeline[str, int], names: list[str], key: Integers, position: Integers) -> Integers:
    """The values of a track for many (number of the key in `names`, position) at once; −1 where there is none."""
    # Only the keys that are asked for are looked at: everybody may have moved, and few be concerned.
    asked, own = np.unique(key, return_inverse=True)
    there = [names[code] for code in asked.tolist()]
    values = np.array([track.base.get(name, -1) for name in there], np.int64)[own]
    changes = [(number, *change) for number, name in enumerate(there) for change in track.changes.get(name, ())]
    if not changes:
        return values
    number, at, value = np.array(changes, np.int64).T
    # One key instead of two: both ascend by owner, then position.
    first = min(int(at.min()), int(position.min()))
    width = max(int(at.max()), int(position.max())) - first + 1
    last = np.searchsorted(number * width + at - first, own * width + position - first) - 1
    changed = (last >= 0) & (number[last] == own)
    values[changed] = value[last[changed]]
    return values


def _most_urgent(rows: _Rows) -> tuple[_Rows, _Rows]:
    """Of each (lane, client) the row of the greatest level, among equals that of the first order; and the others.

    Both by lane, then client; the others then by falling level.
    """
    if not len(rows):
        return rows, rows
    # One key instead of two, and where nobody hears an event twice, as is common, nothing else to sort by.
    key = rows.lane * (int(rows.client.max()) + 1) + rows.client
    sorting = np.argsort(key)
    key = key[sorting]
    again = np.append(False, key[1:] == key[:-1])
    if not again.any():
        return rows.select(sorting), rows.select(sorting[:0])
    sorting = np.lexsort((rows.order, -rows.level, rows.client, rows.lane))
    return rows.select(sorting[~again]), rows.select(sorting[again])


def _others(rest: _Rows, best: _Rows, subscriptions: Sequence[str]) -> pa.Array:
    """For each row of `best` the client's other subscriptions that selected the event, each with its level.

    A subscription with several groups under one role counts once, with the greatest level.
    """
    width = int(best.client.max()) + 1
    mine = np.searchsorted(best.lane * width + best.client, rest.lane * width + rest.client)
    own = np.stack([mine, rest.order], axis=1)
    _, once = np.unique(own, axis=0, return_index=True)
    once = np.sort(once[rest.order[once] != best.order[mine[once]]])
    entries = pa.StructArray.from_arrays(
        [_texts(subscriptions, rest.order[once]), pa.array(rest.level[once].astype(np.int8))],
        fields=list(OTHER),
    )
    return _lists("others", entries, mine[once], np.bincount(mine[once], minlength=len(best)) > 0)


def _levels_by_role(batch: FoldedBatch, rows: _Rows, best: _Rows, width: int) -> pa.Array:
    """For each row of `best` the greatest level under every role and task with vectors, and under any other ("", "").

    Null where no role matters.
    """
    roles = [*batch.settings.roles.vectors, ("", "")]
    keys = best.lane * width + best.client
    which = np.searchsorted(keys, rows.lane * width + rows.client)
    which = np.minimum(which, len(keys) - 1)
    mine = keys[which] == rows.lane * width + rows.client
    table = np.full((len(best), len(roles)), -1, np.int64)
    for number in range(len(roles)):
        chosen = mine & ((rows.role == ANY_ROLE) | (rows.role == number))
        np.maximum.at(table[:, number], which[chosen], rows.level[chosen])
    matters = np.zeros(len(best), np.bool_)
    matters[which[mine & (rows.role != ANY_ROLE)]] = True
    row, column = np.nonzero((table >= 0) & matters[:, None])
    entries = pa.StructArray.from_arrays(
        [
            pa.array([role for role, _ in roles], pa.string()).take(pa.array(column)),
            pa.array([task for _, task in roles], pa.string()).take(pa.array(column)),
            pa.array(table[row, column].astype(np.int8)),
        ],
        fields=list(ROLE_LEVEL),
    )
    return _lists("by_role", entries, row, matters)


def _lists(field: str, entries: pa.StructArray, row: Integers, there: npt.NDArray[np.bool_]) -> pa.Array:
    """A list column of DELIVERIES: the entries of each row, rows ascending; null where a row has no list."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(there)))]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), entries, mask=pa.array(~there))
    return lists.cast(DELIVERIES.field(field).type)
