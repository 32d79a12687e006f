"""Sets of texts: intervals, LIKE patterns, and the moments that some texts name, in any combination.

A set is a union of pieces; a piece is an intersection. Complements multiply pieces, so their number has a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import product

from nearcast.decision.algebra.grids import MOMENTS, TEXTS
from nearcast.decision.algebra.intervals import BOTTOM, EVERYTHING, TOP, Cut, Intervals, union
from nearcast.decision.algebra.patterns import Undecided, glue, prefix_of, prefixed, shortest
from nearcast.decision.patterns import like
from nearcast.model.values import time_of

PIECES = 512
"""How many pieces a set may have."""

_LONG = "_" * 36 + "%"
"""Texts too long to name a moment."""

_SHAPE = "____-__-_____:__:__%"
"""What every text that names a moment looks like."""


@dataclass(frozen=True, slots=True)
class Moments:
    """What a text may say of time: a moment of `named`, or, if `none`, no moment at all."""

    named: Intervals = EVERYTHING
    none: bool = True

    def __and__(self, other: Moments) -> Moments:
        return Moments(self.named & other.named, self.none and other.none)

    def __invert__(self) -> Moments:
        return Moments(~self.named, not self.none)

    def __bool__(self) -> bool:
        return self.none or bool(self.named)

    def allow(self, text: str) -> bool:
        """Whether this text says one of them."""
        moment = time_of(text)
        return self.none if moment is None else moment in self.named


ANY_TIME = Moments()


@dataclass(frozen=True, slots=True)
class Piece:
    """The texts within `span` that match all patterns of `like`, none of `unlike`, and say one of `moments`."""

    span: Intervals = EVERYTHING
    like: frozenset[str] = frozenset()
    unlike: frozenset[str] = frozenset()
    moments: Moments = ANY_TIME

    def __bool__(self) -> bool:
        """False where it is plainly empty; True does not say that there is a text."""
        return bool(self.span) and bool(self.moments) and self.like.isdisjoint(self.unlike)

    def __and__(self, other: Piece) -> Piece:
        return Piece(
            self.span & other.span,
            self.like | other.like,
            self.unlike | other.unlike,
            self.moments & other.moments,
        )

    def outside(self) -> Iterator[Piece]:
        """The pieces of everything else."""
        # Not (A and B and C) is not A, or not B, or not C: a piece for each.
        if self.span != EVERYTHING:
            yield Piece(~self.span)
        for pattern in sorted(self.like):
            yield Piece(unlike=frozenset({pattern}))
        for pattern in sorted(self.unlike):
            yield Piece(like=frozenset({pattern}))
        if self.moments != ANY_TIME:
            yield Piece(moments=~self.moments)

    def some(self) -> str | None:
        """A text of this piece, None if there is none. Raises `Undecided`."""
        # One interval after the other: a text in a later one settles it, though an earlier one is undecided.
        unsure = False
        for low, high in self.span.parts:
            part = replace(self, span=Intervals(((low, high),)))
            try:
                found = part.only() if high == TEXTS.after(low[1] if len(low) > 1 else "") else part.among()
            except Undecided:
                unsure = True
                continue
            if found is not None:
                return found
        if unsure:
            raise Undecided
        return None

    def only(self) -> str | None:
        """The same, of a piece whose span is one text."""
        text = TEXTS.some(self.span)
        return text if self.has(text) else None

    def has(self, text: str) -> bool:
        """Whether a text is in this piece."""
        return (
            text in self.span
            and all(like(pattern).fullmatch(text) for pattern in self.like)
            and not any(like(pattern).fullmatch(text) for pattern in self.unlike)
            and self.moments.allow(text)
        )

    def among(self) -> str | None:
        """The same, of a piece whose span is one interval of more."""
        if not self.moments.none:
            return self._naming()
        found = self._shortest()
        if found is not None and not self.moments.allow(found):
            # Texts that name moments are short, so a long text is one that names none.
            found = self._shortest(_LONG) or next(
                (text for text in _spelled(self.moments.named) if self.has(text)), None
            )
            if found is None:
                raise Undecided
        return found

    def _naming(self) -> str | None:
        """The same, of a piece whose texts all name moments."""
        # Spelling some moments is cheaper than walking automata, and mostly enough.
        found = next((text for text in _spelled(self.moments.named) if self.has(text)), None)
        if found is not None:
            return found
        for low, high in (self.span & _written(self.moments.named)).parts:
            # The date's ten characters sort as time does, so moments bound the text; what is left has the right
            # shape and day, but need not be one of the moments.
            near = replace(self, span=Intervals(((low, high),)))._shortest(_SHAPE)
            if near is not None and not self.has(near):
                raise Undecided
            if near is not None:
                return near
        return None

    def _shortest(self, *more: str) -> str | None:
        """A shortest text of the span that matches as wanted, and `more` too, whatever it says of time."""
        if not self.like and not self.unlike and not more:
            return str(TEXTS.some(self.span))
        try:
            return shortest(*self.span.parts[0], [*sorted(self.like), *more], sorted(self.unlike))
        except Undecided:
            # Patterns that ask for parts anywhere are met by the parts one after the other.
            glued = "".join(glue(pattern) for pattern in sorted(self.like))
            if not more and self.has(glued):
                return glued
            raise


def _spelled(moments: Intervals) -> Iterator[str]:
    """Some moments of a set, as texts of several forms and zones."""
    for part in moments.parts:
        moment: datetime = MOMENTS.within(*part)
        for hours in _ZONES:
            try:
                local = moment.astimezone(timezone(timedelta(hours=hours)))
            except OverflowError:
                continue
            for text in (local.isoformat(), local.isoformat(sep=" ")):
                yield from (text,) if hours else (text.replace("+00:00", "Z"), text, text.replace("+00:00", ""))


def _written(moments: Intervals) -> Intervals:
    """Intervals that hold every text that names one of these moments: in any zone its date is a day off at most."""
    return union(_days(*part) for part in moments.parts)


def _days(low: Cut, high: Cut) -> tuple[Cut, Cut]:
    first = datetime.min if low == BOTTOM else low[1].replace(tzinfo=None)
    last = datetime.max if high == TOP else high[1].replace(tzinfo=None)
    begin = first - _DAY if first - datetime.min > _DAY else datetime.min
    # One day for the zone, one because the interval ends before the last day does.
    end = last + 2 * _DAY if datetime.max - last > 2 * _DAY else None
    return (0, f"{begin:%Y-%m-%d}".zfill(10), 0), (0, f"{end:%Y-%m-%d}".zfill(10) if end else ":", 0)


_DAY = timedelta(days=1)
_ZONES = (0, *range(1, 15), *range(-1, -13, -1))


Texts = tuple[Piece, ...]
"""A union of pieces."""

ALL_TEXTS: Texts = (Piece(),)


def joined(pieces: Iterable[Piece]) -> Texts:
    """A union without what is plainly empty; pieces that differ in one respect become one. Raises `Undecided`."""
    spans: dict[tuple[object, ...], Piece] = {}
    for piece in pieces:
        # Intervals under equal conditions are one interval set; a list of thousands of literals is one piece.
        if piece:
            key = (piece.like, piece.unlike, piece.moments)
            there = spans.get(key)
            spans[key] = replace(piece, span=there.span | piece.span) if there else piece
    found: dict[tuple[object, ...], Piece] = {}
    for piece in spans.values():
        same = (piece.like, piece.unlike, piece.span)
        known = found.get(same)
        found[same] = replace(piece, moments=~(~known.moments & ~piece.moments)) if known else piece
    if len(found) > PIECES:
        raise Undecided
    return tuple(found.values())


def both(a: Texts, b: Texts) -> Texts:
    """The intersection. Raises `Undecided` beyond `PIECES`."""
    if len(a) * len(b) > PIECES:
        raise Undecided
    return joined(one & other for one, other in product(a, b))


def others(texts: Texts) -> Texts:
    """The complement. Raises `Undecided` beyond `PIECES`."""
    found = ALL_TEXTS
    for piece in texts:
        found = both(found, tuple(piece.outside()))
    return found


def texts_like(pattern: str) -> Texts:
    """The texts that match a LIKE pattern: an interval where it is a prefix or a plain text."""
    known = prefix_of(pattern)
    if known is None:
        return (Piece(like=frozenset({pattern})),)
    text, open_ended = known
    span = (TEXTS.before(text), TEXTS.after(text)) if not open_ended else prefixed(text)
    return (Piece(Intervals((span,))),)


def texts_within(span: Intervals) -> Texts:
    """The texts of intervals."""
    return (Piece(span),) if span else ()


def texts_naming(moments: Intervals) -> Texts:
    """The texts that name one of these moments."""
    return (Piece(moments=Moments(moments, none=False)),) if moments else ()
