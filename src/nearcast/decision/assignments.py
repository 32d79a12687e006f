"""Who hears by which group, as columns: a block of rows for each group, and what changes costs what changed.

A block has room to grow, and moves to the end when it is full, so adding a row takes a constant time on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.decision.integers import runs
from nearcast.decision.timeline import FOREVER

Integers = npt.NDArray[np.int64]
Short = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Assignments:
    """One row per (group, client, subscription): those of group g are `counts[g]` from `starts[g]` on.

    `role` is the number of the role and task under which the row holds, or `ANY_ROLE`; `order` is that of the
    subscription, ascending with its adding. Clients and subscriptions are numbers into `clients` and `subscriptions`,
    which may have more. A row holds for events with `after` < position ≤ `through`.
    """

    starts: Integers
    counts: Integers
    client: Short
    order: Short
    role: Short
    after: Integers
    through: Integers
    clients: list[str]
    subscriptions: list[str]


class Rows:
    """The rows of `Assignments` while they come and go."""

    def __init__(self) -> None:
        # By group: where its block begins, how many rows it has, and how many there is room for.
        self._blocks = np.zeros((3, 64), np.int64)
        self._used = 0
        self.client, self.order, self.role = (np.zeros(64, np.int32) for _ in range(3))
        self.after, self.through = np.zeros(64, np.int64), np.zeros(64, np.int64)
        self._shown = False

    def reach(self, group: int) -> None:
        """Makes room for a group, which need not have a row: its clients may all be unknown yet."""
        if group >= self._blocks.shape[1]:
            # What was shown stays as it is.
            self._blocks = _longer(self._blocks, 2 * group)

    def add(self, group: int, client: int, order: int, role: int, after: int) -> None:
        """Adds a row of a group that has room, which holds for the events after a position."""
        self._own()
        start, count, room = self._blocks[:, group].tolist()
        if count == room:
            start = self._move(group, start, count)
        at = start + count
        self.client[at], self.order[at], self.role[at] = client, order, role
        self.after[at], self.through[at] = after, FOREVER
        self._blocks[1, group] = count + 1

    def end_order(self, group: int, order: int, position: int) -> None:
        """Ends the rows of a subscription: the last event they hold for is at this position."""
        self._end(group, self.order, order, position)

    def end_client(self, group: int, client: int, position: int) -> None:
        """The same for the rows of a client."""
        self._end(group, self.client, client, position)

    def clear(self, groups: Sequence[int]) -> None:
        """Removes the rows of groups that have ended."""
        self._own()
        starts, counts, _ = self._blocks[:, groups]
        rows = runs(starts, counts)
        kept = self.through[rows] == FOREVER
        left = np.bincount(np.repeat(np.arange(len(groups)), counts)[kept], minlength=len(groups))
        to = runs(starts, left)
        for column in self._columns():
            column[to] = column[rows[kept]]
        self._blocks[1, groups] = left

    def renumber(self, clients: Short, orders: Short) -> None:
        """Gives clients and subscriptions other numbers: `clients[old]` and `orders[old]`."""
        self._own()
        self.client, self.order = clients[self.client], orders[self.order]

    def show(self, clients: list[str], subscriptions: list[str]) -> Assignments:
        """The rows as they are now; what comes later does not change what was shown."""
        self._shown = True
        columns = (self.client, self.order, self.role, self.after, self.through)
        return Assignments(self._blocks[0], self._blocks[1], *columns, clients, subscriptions)

    def _end(self, group: int, column: Short, value: int, position: int) -> None:
        self._own()
        block = self._block(group)
        through = self.through[block]
        through[(column[block] == value) & (through == FOREVER)] = position

    def _block(self, group: int) -> slice:
        start, count, _ = self._blocks[:, group].tolist()
        return slice(start, start + count)

    def _move(self, group: int, start: int, count: int) -> int:
        """Gives a full block twice the room, at the end."""
        room = max(1, 2 * count)
        begin = self._used
        self._used += room
        if self._used > len(self.client):
            self.client, self.order, self.role, self.after, self.through = (
                _longer(column, 2 * self._used) for column in self._columns()
            )
        for column in self._columns():
            column[begin : begin + count] = column[start : start + count]
        self._blocks[0, group], self._blocks[2, group] = begin, room
        return begin

    def _own(self) -> None:
        """Copies what was shown before it is changed: once for all changes until it is shown again."""
        if self._shown:
            self.client, self.order, self.role, self.after, self.through = (each.copy() for each in self._columns())
            self._blocks, self._shown = self._blocks.copy(), False

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self.client, self.order, self.role, self.after, self.through


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The same with room for so many, the new ones zero."""
    longer = np.zeros((*array.shape[:-1], size), array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer
