"""Groups that come and go, and the index of those that are there: what changes costs what changed, not all there is.

The index is parts, each a few times as large as the one after it, as in a log-structured merge tree: new groups are a
small part of their own, joined with those before it that are not much larger; groups that went are masked. What is
large is made anew beside, in a thread, while the parts serve. An equal group is there once, and counted.

A group's tree is read once, when its first part is made. From then on it is numbers (see `matching.postfix`): parts are
put together of arrays, in code that holds Python's lock for moments only, so that no batch waits for the thread.
"""

from __future__ import annotations

import logging
from array import array
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.matching.atom_table import AtomTable, CompactHashIndex
from nearcast.matching.bitset import FilterGroup, MatchedPairs
from nearcast.matching.matcher import MANY, SAMPLED, FilterMatcher
from nearcast.matching.postfix import PostfixFilters, read, together
from nearcast.model.filter import Or
from nearcast.runtime.background import BackgroundTask
from nearcast.state.timeline import Environment, Timeline

log = logging.getLogger("nearcast.matcher")

Numbers = npt.NDArray[np.int32]

Keys = npt.NDArray[np.int32]

KEY, PART, PLACE = range(3)
"""What is known of each number: the key of the group that has it, and the part and the place in it where that is."""

MOST_KEYS = 2**31 - 1
"""Keys from 1 on; 0 is that of a number that is free."""

NOBODY: FilterGroup = (Or(()), ())
"""The group of a number that is free."""

GONE = -1
"""The number of a group that is not there any more."""

TOGETHER = 64
"""Groups that are always one part."""

STEP = 4
"""A part is joined with a new one that has at least one group for so many of its own."""

BESIDE = 2_000
"""The groups of the largest part that is made while a batch waits, if there is something to go on with."""

LARGE = 1_000
"""Events of a batch from which on small parts are for the engine, too."""

TOLD = 4
"""A vocabulary that was told of so many times as many groups as are there is left for a new one."""

PARTS = 6
"""Parts from which on all are made one: a batch is taken apart into codes for each."""


@dataclass(frozen=True, slots=True)
class PartitionedIndex:
    """An index of parts, each with the numbers of its groups. It does not change, and may be pickled."""

    parts: tuple[tuple[FilterMatcher, Numbers], ...]

    def prepare(self, table: pa.Table, around: Environment) -> None:
        """Does once what matching events like these needs, so that nobody to whom it is sent has to."""
        for index, _ in self.parts:
            index.prepare(table, around)

    def match(self, table: pa.Table, around: Environment) -> MatchedPairs:
        """The pairs of a table of EVENTS, ascending by position, with all groups, in no particular order."""
        found = [(index.match(table, around), numbers) for index, numbers in self.parts]
        if any(index.large for index, _ in self.parts):
            # What is compiled is there already, then.
            from nearcast.matching.kernels import numbered

            return numbered(found)
        few = [_numbered(*part) for part in found]
        return MatchedPairs(
            np.concatenate([np.array([], np.int32), *(pairs.lanes for pairs in few)]),
            np.concatenate([np.array([], np.int32), *(pairs.groups for pairs in few)]),
            np.concatenate([np.array([], np.int8), *(pairs.levels for pairs in few)]),
        )


def _numbered(pairs: MatchedPairs, numbers: Numbers) -> MatchedPairs:
    """The pairs of a part with the groups' numbers, without those that are gone."""
    groups = numbers[pairs.groups]
    kept = groups >= 0
    if kept.all():
        return MatchedPairs(pairs.lanes, groups, pairs.levels)
    return MatchedPairs(pairs.lanes[kept], groups[kept], pairs.levels[kept])


class _PresentGroup(NamedTuple):
    """Groups, their numbers, and all read."""

    groups: list[FilterGroup]
    numbers: Numbers
    flat: PostfixFilters


def _gathered(
    parts: list[tuple[PostfixFilters, Numbers]],
    new: list[int],
    groups: list[FilterGroup],
    atom_table: AtomTable,
    patient: bool,
) -> _PresentGroup:
    """Of these parts the groups that are not gone, and new ones, of a list of all by number.

    What was not read yet is, and what was read in the terms of another vocabulary.
    """
    kept = [(flat, numbers, numbers >= 0) for flat, numbers in parts if flat.atom_table is atom_table]
    foreign = [numbers[numbers >= 0] for flat, numbers in parts if flat.atom_table is not atom_table]
    unread = np.concatenate([*foreign, np.array(new, np.int32)])
    fresh = read([groups[number] for number in unread.tolist()], atom_table, patient)
    flat = together([*((flat, there) for flat, _, there in kept), (fresh, np.ones(len(unread), np.bool_))])
    numbers = np.concatenate([*(numbers[there] for _, numbers, there in kept), unread])
    return _PresentGroup([groups[number] for number in numbers.tolist()], numbers, flat)


class _IndexPart:
    """An index, and what its groups are: flat, their keys and numbers, and how many are `alive` once it is entered."""

    def __init__(
        self, there: _PresentGroup, keys: Keys, sample: pa.Table, around: Environment, many: int = MANY
    ) -> None:
        self.flat = there.flat
        self.numbers = there.numbers
        self.keys = keys
        self.index = FilterMatcher(there.groups, many=many, flat=there.flat)
        self.index.prepare(sample, around)
        self.alive = 0
        self.serial = 0
        self._shown = False

    def show(self) -> tuple[FilterMatcher, Numbers]:
        """The index and the numbers as they are now."""
        self._shown = True
        return self.index, self.numbers

    def drop(self, place: int) -> None:
        """Takes a group its number. Who was shown the numbers keeps them as they were."""
        if self._shown:
            self.numbers, self._shown = self.numbers.copy(), False
        self.numbers[place] = GONE
        self.alive -= 1


class IncrementalIndex:
    """The groups that are there. A group has a number from when it is first taken until it is let go as often."""

    def __init__(self) -> None:
        self._numbers = CompactHashIndex()
        self._groups: list[FilterGroup] = []
        self._uses = array("i")
        self._free: list[int] = []
        self._new: dict[int, None] = {}
        # By number: see `KEY`.
        self._where = np.zeros((3, TOGETHER), np.int32)
        self._keys = 0
        self._atom_table = AtomTable()
        self._parts: list[_IndexPart] = []
        self._serials = 0
        self._remaking: BackgroundTask[_IndexPart] | None = None
        self._floor = 0

    def __len__(self) -> int:
        """How many groups are there."""
        return len(self._numbers)

    def acquire(self, group: FilterGroup) -> int:
        """The number of a group, from now on used once more."""
        hashed = hash(group)
        number = self._numbers.find(hashed, lambda number: self._groups[number] == group)
        if number >= 0:
            self._uses[number] += 1
            return number
        if self._free:
            number = self._free.pop()
            self._groups[number], self._uses[number] = group, 1
        else:
            number = len(self._uses)
            self._groups.append(group)
            self._uses.append(1)
            if number == self._where.shape[1]:
                self._where = np.concatenate([self._where, np.zeros((3, TOGETHER + number // 8), np.int32)], axis=1)
        # A number is used again, a key not before all have been: by it a group is known while an index is being made.
        self._keys = self._keys % MOST_KEYS + 1
        self._where[KEY, number] = self._keys
        self._numbers.insert(number, hashed)
        self._new[number] = None
        return number

    def release(self, number: int) -> bool:
        """Uses a group once less; whether it is gone by that."""
        self._uses[number] -= 1
        if self._uses[number]:
            return False
        self._numbers.remove(number)
        self._groups[number] = NOBODY
        self._free.append(number)
        self._where[KEY, number] = 0
        if number in self._new:
            del self._new[number]
        else:
            serial = self._where[PART, number]
            next(part for part in self._parts if part.serial == serial).drop(int(self._where[PLACE, number]))
        return True

    def index(self, events: pa.Table, around: Environment | None = None) -> PartitionedIndex:
        """The index of what is there now, for events like these with such surroundings."""
        sample, around = events.slice(0, SAMPLED), around or Environment()
        self._finish()
        self._join(sample, around)
        if self._remaking is None and self._worn(len(sample)):
            self._begin(sample, around)
        return PartitionedIndex(tuple(part.show() for part in self._parts if part.alive))

    def wait_until_made(self) -> None:
        """Waits for what is being made beside."""
        if self._remaking:
            self._remaking.wait()
            self._finish()

    def _join(self, sample: pa.Table, around: Environment) -> None:
        """Makes a part of what is new, together with the last parts while these are small beside it."""
        if not self._new:
            return
        size, joined = len(self._new), []
        while len(self._parts) > self._floor:
            last = self._parts[-1].alive
            large = len(self) > TOGETHER and last > STEP * size
            if large or size + last > max(BESIDE, size):
                break
            joined.append(self._parts.pop())
            size += last
        there = self._gather(joined)
        # A millisecond to make, but of a large batch each event then costs a tenth of what rows of bits take.
        many = 1 if len(sample) >= LARGE and len(self) >= MANY else MANY
        self._enter(_IndexPart(there, self._where[KEY, there.numbers], sample, around, many))
        self._new.clear()

    def _gather(self, parts: list[_IndexPart]) -> _PresentGroup:
        """The groups of these parts, and what is new: nothing reads that again."""
        own = [(part.flat, part.numbers) for part in parts]
        return _gathered(own, list(self._new), self._groups, self._atom_table, False)

    def _enter(self, part: _IndexPart) -> None:
        """Adds a part whose groups may have gone since it was begun."""
        there = self._where[KEY, part.numbers] == part.keys
        numbers = part.numbers[there]
        part.numbers = np.where(there, part.numbers, GONE)
        part.alive = len(numbers)
        part.serial = self._serials = self._serials + 1
        self._where[PART, numbers], self._where[PLACE, numbers] = part.serial, np.flatnonzero(there)
        part.keys = part.keys[:0].copy()
        self._parts.append(part)

    def _worn(self, events: int) -> bool:
        """Whether an index made of all at once would be better than the parts by more than it costs."""
        if len(self) < MANY or not self._parts:
            return False
        rest = sum(part.alive for part in self._parts[1:])
        gone = sum(len(part.numbers) - part.alive for part in self._parts)
        worn = rest + gone > max(MANY, len(self) // 8)
        return worn or len(self._parts) > PARTS or self._parts[0].index.planned_without_sample(events)

    def _begin(self, sample: pa.Table, around: Environment) -> None:
        """Begins with the index of all that is there, beside."""
        # What was shown does not change any more, and neither do copies.
        parts = [(part.flat, part.show()[1]) for part in self._parts]
        groups, keys = list(self._groups), self._where[KEY].copy()
        old = self._atom_table.told > TOLD * len(self) + BESIDE
        atom_table = AtomTable() if old else self._atom_table
        # The next batch may add to the same track while this one's is read beside.
        as_it_is = Environment(
            Timeline(around.users.base, dict(around.users.changes)), around.entities, around.previous, around.limits
        )

        def make() -> _IndexPart:
            there = _gathered(parts, [], groups, atom_table, True)
            return _IndexPart(there, keys[there.numbers], sample, as_it_is)

        self._floor = len(self._parts)
        self._remaking = BackgroundTask("nearcast-matcher", make)
        log.info("rebuilding the index in the background filters=%d parts=%d", len(self), len(self._parts))

    def _finish(self) -> None:
        """Takes what was made beside in the place of the parts that it was made of."""
        if self._remaking is None or self._remaking.running:
            return
        since, self._parts = self._parts[self._floor :], []
        made, self._remaking, self._floor = self._remaking.made, None, 0
        if made is None:
            # What failed has said so; all is one new part, made while the batch waits.
            self._new = dict.fromkeys(number for number, uses in enumerate(self._uses) if uses)
            return
        self._enter(made)
        self._atom_table = made.flat.atom_table
        self._parts += since
