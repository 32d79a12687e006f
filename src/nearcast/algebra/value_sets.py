"""Sets of values of all kinds: which values satisfy an atom's operator and literals, and which compare with them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nearcast.algebra.intervals import BOOLEANS, EVERYTHING, INTEGERS, MOMENTS, NOTHING, NUMBERS, TEXTS, Intervals
from nearcast.algebra.texts import (
    ALL_TEXTS,
    Texts,
    Undecided,
    both,
    joined,
    others,
    texts_like,
    texts_naming,
    texts_within,
)
from nearcast.model.filter import Atom, Operator
from nearcast.model.values import Value, kind_of


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A set of values, kind by kind; `nan` is whether NaN, a number that lies nowhere, is among them."""

    numbers: Intervals = NOTHING
    nan: bool = False
    booleans: Intervals = NOTHING
    moments: Intervals = NOTHING
    texts: Texts = ()

    def __bool__(self) -> bool:
        """False where it is plainly empty; True does not say that there is a value."""
        return bool(self.numbers or self.nan or self.booleans or self.moments or self.texts)

    def __or__(self, other: ValueSet) -> ValueSet:
        return ValueSet(
            self.numbers | other.numbers,
            self.nan or other.nan,
            self.booleans | other.booleans,
            self.moments | other.moments,
            joined((*self.texts, *other.texts)),
        )

    def __and__(self, other: ValueSet) -> ValueSet:
        return ValueSet(
            self.numbers & other.numbers,
            self.nan and other.nan,
            self.booleans & other.booleans,
            self.moments & other.moments,
            both(self.texts, other.texts),
        )

    def __sub__(self, other: ValueSet) -> ValueSet:
        return ValueSet(
            self.numbers - other.numbers,
            self.nan and not other.nan,
            self.booleans - other.booleans,
            self.moments - other.moments,
            # Complements of texts are dear, and most sets hold none.
            both(self.texts, others(other.texts)) if self.texts and other.texts else self.texts,
        )

    def some(self) -> Value | None:
        """A value of the set, None if there is none. Raises `Undecided` where that takes more than is done here."""
        for grid, found in ((NUMBERS, self.numbers), (BOOLEANS, self.booleans), (MOMENTS, self.moments)):
            if found:
                value: Value = grid.some(found)
                return value
        unsure = False
        for piece in self.texts:
            try:
                text = piece.some()
            except Undecided:
                unsure = True
                continue
            if text is not None:
                return text
        if self.nan:
            return math.nan
        if unsure:
            raise Undecided
        return None

    def __contains__(self, value: Value) -> bool:
        match kind_of(value):
            case "number":
                return self.nan if value != value else value in self.numbers
            case "boolean":
                return value in self.booleans
            case "text":
                return any(piece.has(str(value)) for piece in self.texts)
            case _:
                return value in self.moments

    def within(self, other: ValueSet) -> bool:
        """Whether every value of this set is one of the other. Raises `Undecided`."""
        return (self - other).some() is None


NO_VALUES = ValueSet()
ALL_VALUES = ValueSet(EVERYTHING, True, EVERYTHING, EVERYTHING, ALL_TEXTS)
TEXT_VALUES = ValueSet(texts=ALL_TEXTS)
NUMBER_VALUES = ValueSet(EVERYTHING)


def satisfying(atom: Atom, whole: bool = False) -> tuple[ValueSet, ValueSet]:
    """(the values that satisfy an atom, the values that compare with it), as `evaluate.satisfies` has it.

    `whole`: every number is an integer. `IS NULL` is not about values and has none. Raises `Undecided`.
    """
    match atom.operator:
        case Operator.IN:
            return _any_of(atom.value, whole)  # type: ignore[arg-type]
        case Operator.BETWEEN:
            low, high = atom.value  # type: ignore[misc, str-unpack]
            # Nothing lies between bounds of two kinds.
            if kind_of(low) != kind_of(high):
                return NO_VALUES, NO_VALUES
            above, below = _compared(Operator.GE, low, whole), _compared(Operator.LE, high, whole)
            return above[0] & below[0], above[1] & below[1]
        case Operator.LIKE:
            return ValueSet(texts=texts_like(str(atom.value))), TEXT_VALUES
        case _:
            return _compared(atom.operator, atom.value, whole)


def _any_of(literals: tuple[Value, ...], whole: bool) -> tuple[ValueSet, ValueSet]:
    holding = [_compared(Operator.EQ, literal, whole) for literal in literals]
    return united([one[0] for one in holding]), united([one[1] for one in holding])


def united(sets: list[ValueSet]) -> ValueSet:
    """The union of any number of sets, halved again and again: a list of thousands is merged, not inserted."""
    if len(sets) < 2:
        return sets[0] if sets else NO_VALUES
    middle = len(sets) // 2
    return united(sets[:middle]) | united(sets[middle:])


def _compared(operator: Operator, literal: Any, whole: bool) -> tuple[ValueSet, ValueSet]:
    """The values that satisfy, and that compare with, one literal."""
    match kind_of(literal):
        case "number":
            return _number(operator, literal, whole)
        case "boolean":
            return ValueSet(booleans=BOOLEANS.compared(operator, literal)), ValueSet(booleans=EVERYTHING)
        case "text":
            return ValueSet(texts=texts_within(TEXTS.compared(operator, literal))), TEXT_VALUES
        case _:
            return _moment(operator, literal)


def _number(operator: Operator, literal: float, whole: bool) -> tuple[ValueSet, ValueSet]:
    """NaN satisfies <> only, and so does every number where the literal is NaN."""
    comparable = ValueSet(numbers=EVERYTHING, nan=not whole)
    unequal = operator is Operator.NE
    if math.isnan(literal):
        return comparable if unequal else NO_VALUES, comparable
    grid = INTEGERS if whole else NUMBERS
    return ValueSet(numbers=grid.compared(operator, literal), nan=unequal and not whole), comparable


def _moment(operator: Operator, literal: datetime) -> tuple[ValueSet, ValueSet]:
    """A text that names a moment is that moment."""
    found = MOMENTS.compared(operator, literal)
    comparable = ValueSet(moments=EVERYTHING, texts=texts_naming(EVERYTHING))
    return ValueSet(moments=found, texts=texts_naming(found)), comparable
