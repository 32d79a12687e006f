"""Atoms as numbers that stay, and the index that finds them by hash.

An atom's number is that of its question — name, operator, kinds of literals — times 2^32, plus that of its literal, or
of its list of literals, or of the whole atom where codes cannot show its truth. A vocabulary only grows. Who has a
number may look it up while another thread adds to it: nothing that was there moves.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.matching.batch_columns import plain
from nearcast.matching.column_tests import ColumnPredicates, Key, key_of, operator_of
from nearcast.model.arrays import Integers, placed, runs
from nearcast.model.filter import Atom
from nearcast.model.values import Value
from nearcast.runtime.background import Lock

FEWEST = 16
"""The fewest slots."""


class CompactHashIndex:
    """Numbers from 0 on, each with a hash: eight bytes, and four for each of at most three slots.

    A dictionary has sixty and more for each, with its key and its number as objects. Which of those that have a hash
    is meant is said by who asks. A number that was removed may be added again.
    """

    def __init__(self) -> None:
        # A number stands, one added to it, in the first slot from its hash on that was free; 0 is a free one.
        self._slots = array("i", bytes(4 * FEWEST))
        self._hashes = array("q")
        self._count = 0

    def __len__(self) -> int:
        """How many numbers are there."""
        return self._count

    def find(self, hashed: int, meant: Callable[[int], bool]) -> int:
        """The number with a hash that is meant, or −1."""
        slots, hashes = self._slots, self._hashes
        most = len(slots) - 1
        at = hashed & most
        while number := slots[at]:
            if hashes[number - 1] == hashed and meant(number - 1):
                return number - 1
            at = at + 1 & most
        return -1

    def insert(self, number: int, hashed: int) -> None:
        """Adds a number: one that was removed, or the next one."""
        self._count += 1
        if 3 * self._count > 2 * len(self._slots):
            self._grow()
        if number == len(self._hashes):
            self._hashes.append(hashed)
        else:
            self._hashes[number] = hashed
        slots = self._slots
        most = len(slots) - 1
        at = hashed & most
        while slots[at]:
            at = at + 1 & most
        slots[at] = number + 1

    def remove(self, number: int) -> None:
        """Removes a number."""
        self._count -= 1
        slots, hashes = self._slots, self._hashes
        most = len(slots) - 1
        at = hashes[number] & most
        while slots[at] != number + 1:
            at = at + 1 & most
        # What stands behind moves up, unless it would come before the place that its hash says.
        free = at
        while other := slots[at := at + 1 & most]:
            if (at - hashes[other - 1] & most) >= (at - free & most):
                slots[free], free = other, at
        slots[free] = 0

    def _grow(self) -> None:
        """Twice as many slots, filled all at once: one by one it would be a pause of a second for a few million."""
        old, hashes = np.array(self._slots), np.array(self._hashes)
        slots = np.zeros(2 * len(old), np.int32)
        left = old[old > 0]
        at = hashes[left - 1] & len(slots) - 1
        while len(left):
            free = slots[at] == 0
            # Of several for one slot the last stays, and the others go on.
            slots[at[free]] = left[free]
            on = slots[at] != left
            left, at = left[on], at[on] + 1 & len(slots) - 1
        self._slots = array("i", slots.tobytes())


QUESTION_SHIFT = 32
REST = (1 << QUESTION_SHIFT) - 1

OPAQUE_QUESTION = 0
"""The question of all atoms that codes of one column do not show."""


UNLIKE = ("boolean", "time")
"""The kinds of literals that a column has in other terms."""


class AppendedArrays:
    """Integers to which more are added behind; what was shown of them stays, whoever adds to them meanwhile.

    What is added waits in a list until it is settled, for each time it takes a microsecond. They take 16 bits until one
    does not fit.
    """

    def __init__(self) -> None:
        self._room: npt.NDArray[Any] = np.zeros(64, np.uint16)
        self._settled = 0
        self._waiting: list[int] = []

    def __len__(self) -> int:
        """How many there are, those that wait among them."""
        return self._settled + len(self._waiting)

    def extend(self, more: list[int]) -> None:
        """Adds some."""
        self._waiting += more

    def publish(self) -> None:
        """Shows all that was added."""
        if not self._waiting:
            return
        end = len(self)
        if end > len(self._room):
            self._move(end + end // 8 + 64, self._room.dtype)
        try:
            self._room[self._settled : end] = self._waiting
        except OverflowError:
            self._move(len(self._room), np.dtype(np.int32))
            self._room[self._settled : end] = self._waiting
        self._settled, self._waiting = end, []

    def _move(self, size: int, numbers: np.dtype[Any]) -> None:
        room = np.zeros(size, numbers)
        room[: self._settled] = self.shown
        self._room = room

    @property
    def shown(self) -> npt.NDArray[Any]:
        """All that is settled."""
        return self._room[: self._settled]


class AtomTable:
    """The numbers of atoms, given out under a lock, and settled before it is let go; `told` is of how many groups."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.told = 0
        self._questions: dict[tuple[object, ...], int] = {}
        # Of each question: its column, its operator, whether it has lists; and the rest of the number by literal. Of
        # those with lists the rest is the number of the list, which is found among all.
        self._fields: list[tuple[int, int, bool]] = [(-1, -1, False)]
        self._rests: list[dict[Any, int]] = [{}]
        self._listed = CompactHashIndex()
        self._columns: dict[Key, int] = {}
        self._keys: list[Key] = []
        self._literals: list[dict[Any, int]] = []
        self._values: list[list[Any]] = []
        # Literals of all columns are counted with the same objects.
        self._count: list[int] = []
        self._list_starts = AppendedArrays()
        self._list_starts.extend([0])
        self._list_starts.publish()
        self._lists = AppendedArrays()
        self._opaque: list[Atom] = []

    def number(self, atom: Atom) -> int:
        """The number of an atom; equal ones have one."""
        # The operator by its own text, for the hash of an enumeration is slow.
        question = self._questions.get((atom.name, atom.operator._value_, atom.kinds))
        if question is None:
            question = self._question(atom)
        if question == OPAQUE_QUESTION:
            return self._opaque_number(atom)
        if self._fields[question][2]:
            return self._list_number(question, atom)
        rest = self._rests[question].get(atom.value)
        if rest is None:
            # Of the same question one atom may be plain, and another have NaN for its literal.
            if key_of(atom) is None:
                return self._opaque_number(atom)
            rest = self._rests[question][atom.value] = self._literal(self._fields[question][0], atom.value)
        return question << QUESTION_SHIFT | rest

    def publish(self) -> None:
        """Lets all look up the numbers that were given out."""
        self._list_starts.publish()
        self._lists.publish()

    def opaque(self, numbers: Integers) -> list[Atom]:
        """The atoms that no column shows, of ascending numbers, which begin with theirs."""
        first = int(np.searchsorted(numbers, 1 << QUESTION_SHIFT))
        return [self._opaque[number] for number in numbers[:first].tolist()]

    def asked(self, numbers: Integers) -> dict[Key, tuple[Integers, ColumnPredicates]]:
        """What atoms ask of each column: which of them do, and what."""
        questions, which = placed(numbers >> QUESTION_SHIFT)
        fields = np.array([self._fields[question] for question in questions.tolist()], np.int64).reshape(-1, 3)
        found: dict[Key, tuple[Integers, ColumnPredicates]] = {}
        columns, operators, listed = fields[which].T
        for column in np.unique(columns[columns >= 0]).tolist():
            own = np.flatnonzero(columns == column)
            counts, literals = self._literals_of(numbers[own] & REST, listed[own] > 0)
            used, literals = placed(literals)
            values = list(map(self._values[column].__getitem__, used.tolist()))
            found[self._keys[column]] = own, ColumnPredicates(operators[own], counts, literals, values)
        return found

    def _literals_of(self, rests: Integers, listed: npt.NDArray[np.bool_]) -> tuple[Integers, Integers]:
        """How many literals each atom has, and all of them."""
        if not listed.any():
            return np.ones(len(rests), np.int64), rests
        # What starts there has its literals already: these are added first.
        starts, lists = self._list_starts.shown, self._lists.shown
        which = np.where(listed, rests, 0)
        counts = np.where(listed, starts[which + 1] - starts[which], 1).astype(np.int64)
        places = np.where(np.repeat(listed, counts), runs(starts[which], counts), 0)
        return counts, np.where(np.repeat(listed, counts), lists[places], np.repeat(rests, counts))

    def _question(self, atom: Atom) -> int:
        """Numbers a question."""
        key = key_of(atom)
        # What is not about an attribute has as many names as atoms.
        if key is None:
            return OPAQUE_QUESTION
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = len(self._keys)
            self._keys.append(key)
            self._literals.append({})
            self._values.append([])
        listed = type(atom.value) is tuple
        question = len(self._fields)
        self._fields.append((column, operator_of(atom), listed))
        # The literals of a column are the rests of all questions that have one, unless they are others in a column.
        shared = not listed and key[1] in ("number", "text")
        self._rests.append(self._literals[column] if shared else {})
        self._questions[atom.name, atom.operator._value_, atom.kinds] = question
        return question

    def _list_number(self, question: int, atom: Atom) -> int:
        """The number of an atom of a question with lists."""
        column = self._fields[question][0]
        numbers = self._known(column, atom.literals)
        if None in numbers:
            # Lists with NaN, which no column has among its literals, are of the same question.
            if key_of(atom) is None:
                return self._opaque_number(atom)
            numbers = self._all_literals(column, atom.literals)
        # With the question: one list may be asked of as many attributes as there are filters.
        hashed = hash((question, *numbers))
        rest = self._listed.find(hashed, partial(self._is_list, numbers))
        if rest < 0:
            rest = len(self._listed)
            self._lists.extend(numbers)
            self._list_starts.extend([len(self._lists)])
            self._listed.insert(rest, hashed)
        return question << QUESTION_SHIFT | rest

    def _known(self, column: int, literals: tuple[Value, ...]) -> list[Any]:
        """The numbers of literals in a column; None for one that it has not."""
        return list(map(self._literals[column].get, self._all_plain(column, literals)))

    def _all_literals(self, column: int, literals: tuple[Value, ...]) -> list[int]:
        """The numbers of literals in a column, new ones added: together, as one by one a long list takes thrice as
        long.
        """
        known, values = self._literals[column], self._values[column]
        own = self._all_plain(column, literals)
        new = [literal for literal in dict.fromkeys(own) if literal not in known]
        first = len(values)
        values.extend(new)
        self._count.extend(range(len(self._count), len(values)))
        known.update(zip(new, self._count[first : len(values)], strict=True))
        return list(map(known.__getitem__, own))

    def _all_plain(self, column: int, literals: tuple[Value, ...]) -> Sequence[Any]:
        """Literals as they are known in a column."""
        return literals if self._keys[column][1] not in UNLIKE else list(map(plain, literals))

    def _is_list(self, numbers: list[int], rest: int) -> bool:
        """Whether a list is of literals with these numbers."""
        # Few lists have the hash of another that is not it, or are asked of again.
        self.publish()
        begin, end = self._list_starts.shown[rest : rest + 2].tolist()
        return numbers == self._lists.shown[begin:end].tolist()

    def _plain(self, column: int, value: Any) -> Any:
        """A literal as it is known in a column."""
        return plain(value) if self._keys[column][1] in UNLIKE else value

    def _literal(self, column: int, value: Any) -> int:
        known = self._plain(column, value)
        number = self._literals[column].get(known)
        if number is None:
            values = self._values[column]
            if len(values) == len(self._count):
                self._count.append(len(values))
            number = self._literals[column][known] = self._count[len(values)]
            values.append(known)
        return number

    def _opaque_number(self, atom: Atom) -> int:
        key = (atom.name, atom.operator._value_, atom.value, atom.kinds)
        number = self._rests[OPAQUE_QUESTION].get(key)
        if number is None:
            number = self._rests[OPAQUE_QUESTION][key] = len(self._opaque)
            self._opaque.append(atom)
        return number
