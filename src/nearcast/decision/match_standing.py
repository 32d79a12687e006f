"""Groups that come and go, and the index of those that are there: what changes costs what changed, not all there is.

The index is parts, each a few times as large as the one after it, as in a log-structured merge tree: new groups are a
small part of their own, joined with those before it that are not much larger; groups that went are masked. What is
large is made anew beside, in a thread, while the parts serve. An equal group is there once, and counted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from threading import Thread

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.decision.match import MANY, SAMPLED, Group, Index, Pairs
from nearcast.decision.timeline import Surrounding, Track

log = logging.getLogger("nearcast.matcher")

Numbers = npt.NDArray[np.int32]

GONE = -1
"""The number of a group that is not there any more."""

TOGETHER = 64
"""Groups that are always one part."""

STEP = 4
"""A part is joined with a new one that has at least one group for so many of its own."""

BESIDE = 2_000
"""The groups of the largest part that is made while a batch waits, if there is something to go on with."""

PARTS = 6
"""Parts from which on all are made one: a batch is taken apart into codes for each."""


@dataclass(frozen=True, slots=True)
class Together:
    """An index of parts, each with the numbers of its groups. It does not change, and may be pickled."""

    parts: tuple[tuple[Index, Numbers], ...]

    def prepare(self, table: pa.Table, around: Surrounding) -> None:
        """Does once what matching events like these needs, so that nobody to whom it is sent has to."""
        for index, _ in self.parts:
            index.prepare(table, around)

    def match(self, table: pa.Table, around: Surrounding) -> Pairs:
        """The pairs of a table of EVENTS, ascending by position, with all groups, in no particular order."""
        found = [_numbered(index.match(table, around), numbers) for index, numbers in self.parts]
        if len(found) == 1:
            return found[0]
        if not found:
            return Pairs(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int8))
        return Pairs(
            np.concatenate([pairs.lanes for pairs in found]),
            np.concatenate([pairs.groups for pairs in found]),
            np.concatenate([pairs.levels for pairs in found]),
        )


def _numbered(pairs: Pairs, numbers: Numbers) -> Pairs:
    """The pairs of a part with the groups' numbers, without those that are gone."""
    groups = numbers[pairs.groups]
    kept = groups >= 0
    if kept.all():
        return Pairs(pairs.lanes, groups, pairs.levels)
    return Pairs(pairs.lanes[kept], groups[kept], pairs.levels[kept])


class _Part:
    """An index, and what its groups are: `members` their keys, `numbers` their numbers, `alive` how many are there."""

    def __init__(self, members: list[int], groups: list[Group], sample: pa.Table, around: Surrounding) -> None:
        self.members = members
        self.index = Index(groups)
        self.index.prepare(sample, around)
        self.numbers = np.full(len(members), GONE, np.int32)
        self.alive = 0
        self._shown = False

    def show(self) -> tuple[Index, Numbers]:
        """The index and the numbers as they are now."""
        self._shown = True
        return self.index, self.numbers

    def drop(self, place: int) -> None:
        """Takes a group its number. Who was shown the numbers keeps them as they were."""
        if self._shown:
            self.numbers, self._shown = self.numbers.copy(), False
        self.numbers[place] = GONE
        self.alive -= 1


class Standing:
    """The groups that are there. A group has a number from when it is first taken until it is let go as often."""

    def __init__(self) -> None:
        self._number: dict[Group, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []
        self._key: list[int] = []
        self._keys = 0
        self._there: dict[int, tuple[Group, int]] = {}
        self._place: dict[int, tuple[_Part, int]] = {}
        self._new: dict[int, None] = {}
        self._parts: list[_Part] = []
        self._thread: Thread | None = None
        self._made: _Part | None = None
        self._floor = 0

    def __len__(self) -> int:
        """How many groups are there."""
        return len(self._there)

    def take(self, group: Group) -> int:
        """The number of a group, from now on used once more."""
        number = self._number.get(group)
        if number is not None:
            self._uses[number] += 1
            return number
        if self._free:
            number = self._free.pop()
        else:
            number = len(self._uses)
            self._uses.append(0)
            self._key.append(0)
        # A number is used again, a key never: by it a group is known while an index with it is being made.
        key = self._keys = self._keys + 1
        self._number[group], self._uses[number], self._key[number] = number, 1, key
        self._there[key] = group, number
        self._new[key] = None
        return number

    def let_go(self, number: int) -> bool:
        """Uses a group once less; whether it is gone by that."""
        self._uses[number] -= 1
        if self._uses[number]:
            return False
        key = self._key[number]
        del self._number[self._there.pop(key)[0]]
        self._free.append(number)
        if key in self._new:
            del self._new[key]
        else:
            part, place = self._place.pop(key)
            part.drop(place)
        return True

    def index(self, events: pa.Table, around: Surrounding | None = None) -> Together:
        """The index of what is there now, for events like these with such surroundings."""
        sample, around = events.slice(0, SAMPLED), around or Surrounding()
        self._finish()
        self._join(sample, around)
        if self._thread is None and self._worn(len(sample)):
            self._begin(sample, around)
        return Together(tuple(part.show() for part in self._parts if part.alive))

    def settle(self) -> None:
        """Waits for what is being made beside."""
        if self._thread:
            self._thread.join()
            self._finish()

    def _join(self, sample: pa.Table, around: Surrounding) -> None:
        """Makes a part of what is new, together with the last parts while these are small beside it."""
        if not self._new:
            return
        members = list(self._new)
        while len(self._parts) > self._floor:
            size = self._parts[-1].alive + len(members)
            large = len(self._there) > TOGETHER and self._parts[-1].alive > STEP * len(members)
            if large or size > max(BESIDE, len(members)):
                break
            members = self._alive(self._parts.pop()) + members
        self._enter(_Part(members, [self._there[key][0] for key in members], sample, around))
        self._new.clear()

    def _alive(self, part: _Part) -> list[int]:
        return [key for key in part.members if key in self._there]

    def _enter(self, part: _Part) -> None:
        """Adds a part whose members may have gone since."""
        for place, key in enumerate(part.members):
            found = self._there.get(key)
            if found is not None:
                part.numbers[place] = found[1]
                part.alive += 1
                self._place[key] = part, place
        self._parts.append(part)

    def _worn(self, events: int) -> bool:
        """Whether an index made of all at once would be better than the parts by more than it costs."""
        if len(self._there) < MANY or not self._parts:
            return False
        rest = sum(part.alive for part in self._parts[1:])
        gone = sum(len(part.members) - part.alive for part in self._parts)
        worn = rest + gone > max(MANY, len(self._there) // 8)
        return worn or len(self._parts) > PARTS or self._parts[0].index.blind(events)

    def _begin(self, sample: pa.Table, around: Surrounding) -> None:
        """Begins with the index of all that is there, beside."""
        members, groups = list(self._there), [group for group, _ in self._there.values()]
        # The next batch may add to the same track while this one's is read beside.
        as_it_is = Surrounding(Track(around.users.base, dict(around.users.changes)), around.entities, around.previous)

        def make() -> None:
            try:
                self._made = _Part(members, groups, sample, as_it_is)
            except Exception:
                log.exception("the index could not be made anew beside")

        self._floor = len(self._parts)
        self._thread = Thread(target=make, name="nearcast-matcher", daemon=True)
        self._thread.start()
        log.info("making the index anew filters=%d parts=%d", len(members), len(self._parts))

    def _finish(self) -> None:
        """Takes what was made beside in the place of the parts that it was made of."""
        if self._thread is None or self._thread.is_alive():
            return
        since, self._parts = self._parts[self._floor :], []
        made, self._made, self._thread, self._floor = self._made, None, None, 0
        if made is None:
            # What failed has said so; all is one new part, made while the batch waits.
            since, self._new = [], dict.fromkeys(self._there)
            return
        self._enter(made)
        self._parts += since
