"""The arrays in which reports that count are kept, as they grow, and what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from nearcast.geo.distance import surely_beyond, surely_within, unit_vector
from nearcast.geo.dynamic_index import joined_levels, level_of
from nearcast.model.event import Place
from nearcast.situations.counts.report_arrays import ABSENT, FLAT, HIGH, NOWHERE, ON_GLOBE, SINCE, ReportArrays

FEWEST = 64
"""Nodes, entities and discs that there is room for at first."""

ALIKE = 4096
"""Different rows of what events say that are kept."""

WIDEST = 1_000
"""The highest level of cells."""

NO_POINT = 0.0, 0.0, 0.0, NOWHERE

Point = tuple[float, float, float, int]
"""A place in metres, or on the unit sphere, and its form."""


@cache
def _kernels() -> ModuleType:
    # Many a command loads this without rules that count, and the compiler takes half a second to load.
    from nearcast.situations.counts import report_kernels

    return report_kernels


def point_of(place: Place | None) -> Point:
    """A place as kernels have it."""
    if place is None:
        return NO_POINT
    if place.coordinates == "planar":
        return place.x, place.y, 0.0 if place.z is None else place.z, FLAT if place.z is None else HIGH
    return *unit_vector(place), ON_GLOBE


class CountLook(NamedTuple):
    """What is looked for around each report of an entity that counts: that `enough` do within so many metres, whose
    reports are `valid` for so many microseconds (None: until the next) and behind a position.
    """

    name: int
    metres: float
    enough: int
    valid: int | None
    after: int


class ReportCells:
    """Reports by entity and name, each a number; `levels`: for each name those that it is asked by."""

    def __init__(self, levels: Sequence[Sequence[int]], looks: Sequence[CountLook]) -> None:
        # Cells half as wide: where many are around a place, more of those looked at are near it.
        kept = [joined_levels((min(level, WIDEST) - 1 for level in own), 1) or (9,) for own in levels]
        self._levels = kept
        # By what is looked for: at each size of cells the widest first.
        self.order = sorted(range(len(looks)), key=lambda one: self._place_of(looks[one]))
        self._said: dict[tuple[Any, ...], Any] = {}
        self._arrays = self._made([looks[one] for one in self.order])
        self._free_discs: list[int] = []
        self._discs = 0

    def __getstate__(self) -> dict[str, Any]:
        # What is read as doubles is made again, or it would be another memory than that of the integers.
        return {**self.__dict__, "_arrays": self._arrays._replace(spots=np.zeros((0, 8)))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._arrays = self._arrays._replace(spots=self._arrays.rows.view(np.float64))

    def _place_of(self, look: CountLook) -> tuple[int, int, float]:
        return look.name, self._level(look.name, look.metres), -look.metres

    def _level(self, name: int, metres: float) -> int:
        """The number of the size of cells in which what is within so many metres is looked for."""
        least, own = level_of(metres) - 1, self._levels[name]
        return next((number for number, level in enumerate(own) if level >= least), len(own) - 1)

    def _made(self, looks: Sequence[CountLook]) -> ReportArrays:
        names, most = len(self._levels), max(map(len, self._levels), default=1)
        widths = np.zeros((names, most))
        for name, own in enumerate(self._levels):
            widths[name, : len(own)] = [2.0**level for level in own]
        first = np.searchsorted([one.name for one in looks], np.arange(names + 1)).astype(np.int64)
        asked = [
            (one.name, self._level(one.name, one.metres), one.enough, -1 if one.valid is None else one.valid, one.after)
            for one in looks
        ]
        bounds = [(0.0, 0.0, 0.0, *_bounds(one.metres)) for one in looks]
        return ReportArrays(
            pairs=_absent(0),
            rows=(rows := np.zeros((0, 8), np.int64)),
            spots=rows.view(np.float64),
            before=np.zeros(0, np.int64),
            heads=np.full(1, -1, np.int64),
            widths=widths,
            free=np.zeros(1, np.int64),
            looks=np.array(asked, np.int64).reshape(-1, 5),
            bounds=np.array(bounds).reshape(-1, 6),
            first_look=first,
            discs=np.zeros((0, 6)),
            followed=np.full((0, 5), -1, np.int64),
            disc_chains=np.zeros((0, 3), np.int64),
            disc_heads=np.full(1, -1, np.int64),
            told=np.zeros(4 + 4 * names + len(looks), np.int64),
            hits=np.zeros(len(looks), np.int64),
        )

    @property
    def names(self) -> int:
        """How many names are counted."""
        return len(self._levels)

    def admit(self, slot: int, name: int) -> None:
        """Lets an entity's reports be kept from now on."""
        if (slot + 1) * self.names > len(self._arrays.pairs):
            own = self._arrays.pairs
            more = _absent(max(len(own), FEWEST * self.names))
            self._arrays = self._arrays._replace(pairs=np.concatenate([own, more]))
        # Any report is newer.
        self._arrays.pairs[slot * self.names + name, 0] = ABSENT + 1

    def kept(self, slot: int, name: int) -> list[int]:
        """Moment, position and node of an entity's report; −1 where it does not count."""
        index = slot * self.names + name
        found: list[int] = self._arrays.pairs[index].tolist() if index < len(self._arrays.pairs) else [ABSENT, -1, -1]
        return found

    def is_known(self, slot: int, name: int) -> bool:
        """Whether an entity's reports are kept."""
        return self.kept(slot, name)[0] != ABSENT

    def of(self, slot: int) -> list[list[int]]:
        """Moment, position and node of an entity's reports as each name."""
        found: list[list[int]] = self._arrays.pairs[slot * self.names : (slot + 1) * self.names].tolist()
        return found

    def put(
        self, slot: int, said: tuple[int, ...], point: Point, moment: int, position: int, now: int
    ) -> tuple[list[int], list[int], list[int]]:
        """Takes in what an entity reports; see `put_report`. What it changes, four numbers for each name; the discs in
        which too few may be left; the looks that find enough.
        """
        own = self._arrays
        if own.free[0] < self.names:
            own = self._grown()
        row = self._said.get(said)
        if row is None:
            if len(self._said) >= ALIKE:
                self._said.clear()
            row = self._said[said] = np.array(said, np.int64)
        x, y, z, form = point
        _put_report()(own, slot, row, x, y, z, form, moment, position, now)
        changed, shaken, looked, *first = own.told[:7].tolist()
        if changed <= 1 and not shaken and not looked:
            return first if changed else [], [], []
        end = 3 + 4 * changed
        rest = own.told[3 : end + shaken + looked].tolist()
        return rest[: end - 3], rest[end - 3 : end - 3 + shaken], rest[end - 3 + shaken :]

    def keep_false(self, slot: int, name: int, moment: int, position: int) -> None:
        """Keeps of an entity that it does not count, since when."""
        self._arrays.pairs[slot * self.names + name] = moment, position, -1

    def drop(self, slot: int) -> list[int]:
        """Forgets the reports of an entity; the discs in which too few may be left."""
        _kernels().drop_entity(self._arrays, slot)
        found: list[int] = self._arrays.told[1 : 1 + self._arrays.told[0]].tolist()
        return found

    def around(
        self, name: int, place: Place, metres: float, oldest: int, after: int, most: int
    ) -> tuple[list[int], list[int]]:
        """The nodes within so many metres of a place, and those for which a geodesic is to be measured; no more than
        until `most` count.
        """
        own, level = self._arrays, self._level(name, metres)
        number = _kernels().list_around(own, name, level, *point_of(place), *_bounds(metres), oldest, after, most)
        found = own.told[:number].tolist()
        if number and min(found) < 0:
            return [one for one in found if one >= 0], [-1 - one for one in found if one < 0]
        return found, []

    def follow(self, name: int, place: Place, metres: float) -> int:
        """Tells from now on which reports leave a disc, by the number of it."""
        if not self._free_discs:
            self._grow_discs()
        disc, own = self._free_discs.pop(), self._arrays
        *at, form = point_of(place)
        own.discs[disc] = (*at, *_bounds(metres))
        own.followed[disc] = name, form, self._level(name, metres), ABSENT, 0
        _kernels().chain_disc(own, disc)
        return disc

    def promise(self, disc: int, since: int, spare: int) -> None:
        """Tells of a disc no more until so many more than these have left whose reports are of a moment or later."""
        self._arrays.followed[disc, SINCE:] = since, spare

    def unfollow(self, disc: int) -> None:
        """Ends that."""
        _kernels().unchain_disc(self._arrays, disc)
        self._free_discs.append(disc)

    def _grown(self) -> ReportArrays:
        """Makes room for more nodes."""
        own, levels = self._arrays, self._arrays.widths.shape[1]
        before = len(own.rows) // levels
        size = max(FEWEST, 2 * before, before + self.names)
        more = np.arange(size - 1, before - 1, -1)
        left = int(own.free[0])
        free = np.zeros(size + 1, np.int64)
        free[0], free[1 : 1 + left], free[1 + left : 1 + left + len(more)] = (
            left + len(more),
            own.free[1 : 1 + left],
            more,
        )
        rows = _longer(own.rows, size * levels)
        self._arrays = own._replace(
            rows=rows,
            spots=rows.view(np.float64),
            before=_longer(own.before, size * levels),
            heads=_heads(size * levels),
            disc_heads=_heads(len(own.discs)),
            free=free,
        )
        self._make_room_to_tell()
        _kernels().chain_all(self._arrays)
        return self._arrays

    def _grow_discs(self) -> None:
        own = self._arrays
        before, size = len(own.discs), max(FEWEST, 2 * len(own.discs))
        followed = np.full((size, 5), -1, np.int64)
        followed[:before] = own.followed
        self._arrays = own._replace(
            discs=_longer(own.discs, size),
            followed=followed,
            disc_chains=_longer(own.disc_chains, size),
            heads=_heads(len(own.heads)),
            disc_heads=_heads(size),
        )
        self._free_discs += range(size - 1, before - 1, -1)
        self._make_room_to_tell()
        _kernels().chain_all(self._arrays)

    def _make_room_to_tell(self) -> None:
        own = self._arrays
        # A disc may be left by reports of several names, though each is of one.
        size = 4 + 4 * self.names + len(own.looks) + max(len(own.discs), len(own.rows))
        self._arrays = own._replace(told=np.zeros(size, np.int64))


@cache
def _put_report() -> Any:
    return _kernels().put_report


def _bounds(metres: float) -> tuple[float, float, float]:
    """Metres, and squares of chords: up to the first surely within them, above the second surely beyond."""
    return metres, surely_within(metres), surely_beyond(metres)


def _absent(size: int) -> Any:
    found = np.full((size, 3), -1, np.int64)
    found[:, 0] = ABSENT
    return found


def _longer(array: Any, size: int) -> Any:
    found = np.zeros((size, *array.shape[1:]), array.dtype)
    found[: len(array)] = array
    return found


def _heads(size: int) -> Any:
    """Buckets for so many: a power of two."""
    return np.full(1 << max(size - 1, 0).bit_length(), -1, np.int64)
