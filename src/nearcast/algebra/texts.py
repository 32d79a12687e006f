"""Sets of texts: intervals, LIKE patterns, moments that texts name; and whether some text is in one.

A set is a union of pieces; a piece is an intersection. Complements multiply pieces, so their number has a limit.

Patterns and bounds are automata. Characters that no pattern and no bound tells apart are one class, so the automata
are walked together over few classes, breadth first: the first text found is a shortest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise, product

from nearcast.algebra.intervals import BOTTOM, EVERYTHING, MOMENTS, TEXTS, TOP, Cut, Intervals, union
from nearcast.filters.like_patterns import ANY, ONE, Items, items_of, like
from nearcast.model.values import time_of

STATES = 40_000
"""How many states, times patterns, of the joint automaton are visited before giving up: products can be large."""

_LAST = 0x10FFFF
_PLEASANT = "axAX0- "


class Undecided(Exception):
    """Nothing was found and nothing was proven within the stated budget, or it lies beyond what is decidable here."""


def prefix_of(pattern: str) -> tuple[str, bool] | None:
    """(text, whether anything may follow) where a pattern has no other wildcard than one `%` at its end; else None."""
    items = items_of(pattern)
    open_ended = items[-1:] == ((ANY, True),)
    plain = items[:-1] if open_ended else items
    return None if any(wild for _, wild in plain) else ("".join(character for character, _ in plain), open_ended)


def glue(pattern: str) -> str:
    """A text that matches a pattern, which many texts "contains …" may be put together from."""
    return "".join(character if not wild else "a" if character == ONE else "" for character, wild in items_of(pattern))


def prefixed(text: str) -> tuple[Cut, Cut]:
    """The interval of the texts that begin so."""
    low: Cut = (0, text, 0) if text else BOTTOM
    stem = text.rstrip(chr(_LAST))
    return low, (0, stem[:-1] + chr(ord(stem[-1]) + 1), 0) if stem else TOP


State = tuple[int, ...]
"""Where the automata are: an offset into each bound, −1 once it no longer matters; a set of offsets, as bits, into each
pattern."""


def shortest(low: Cut, high: Cut, like: Sequence[str], unlike: Sequence[str]) -> str | None:
    """A shortest text in [low, high) that matches all of `like` and none of `unlike`; None: there is none.

    Raises `Undecided` where the joint automaton is too large.
    """
    walk = _PatternWalk(low, high, [_PatternAutomaton(items_of(pattern)) for pattern in (*like, *unlike)], len(like))
    # The work of a state grows with the patterns, and so would the time without this.
    most = STATES // (1 + len(walk.patterns))
    seen = {walk.start}
    waiting = deque([(walk.start, "")])
    while waiting:
        state, text = waiting.popleft()
        if walk.accepts(state):
            return text
        for character in walk.alphabet:
            after = walk.step(state, character)
            if after is not None and after not in seen:
                if len(seen) >= most:
                    raise Undecided
                seen.add(after)
                waiting.append((after, text + character))
    return None


class _PatternAutomaton:
    """One pattern: from a set of offsets, as bits, and a character to the next set, in a few operations on integers."""

    def __init__(self, items: Items) -> None:
        self.stay = sum(1 << at for at, item in enumerate(items) if item == (ANY, True))
        self.end = 1 << len(items)
        self.one = sum(1 << at for at, item in enumerate(items) if item == (ONE, True))
        self.plain: dict[str, int] = {}
        for at, (character, wild) in enumerate(items):
            if not wild:
                self.plain[character] = self.plain.get(character, 0) | 1 << at
        self.start = self._closed(1)

    def step(self, offsets: int, character: str) -> int:
        """The offsets after one more character."""
        on = offsets & (self.one | self.plain.get(character, 0))
        return self._closed((offsets & self.stay) | on << 1)

    def _closed(self, offsets: int) -> int:
        """With those that are reached without a character: behind each `%`, of which no two stand together."""
        return offsets | (offsets & self.stay) << 1


class _PatternWalk:
    """The joint automaton of two bounds and some patterns, of which the first `wanted` must match, the others not."""

    def __init__(self, low: Cut, high: Cut, patterns: list[_PatternAutomaton], wanted: int) -> None:
        self.low: str | None = None if low == BOTTOM else low[1]
        self.high: str | None = None if high == TOP else high[1]
        self.patterns, self.wanted = patterns, wanted
        plain = (character for pattern in patterns for character in pattern.plain)
        self.alphabet = _classes({*(self.low or ""), *(self.high or ""), *plain})
        starts = (pattern.start for pattern in patterns)
        self.start: State = (0 if self.low else -1, -1 if self.high is None else 0, *starts)

    def accepts(self, state: State) -> bool:
        """Whether a text may end here."""
        # A text that ends within the lower bound lies below it; one that ends within the upper bound does too.
        ends = [bool(bits & pattern.end) for bits, pattern in zip(state[2:], self.patterns, strict=True)]
        return state[0] < 0 and all(ends[: self.wanted]) and not any(ends[self.wanted :])

    def step(self, state: State, character: str) -> State | None:
        """The state after one more character; None if no text that goes on so is wanted."""
        low, high = state[0], state[1]
        # Still on the lower bound's own characters: below it there is no way back, above it no more to watch.
        if low >= 0 and self.low is not None:
            if character < self.low[low]:
                return None
            low = low + 1 if character == self.low[low] and low + 1 < len(self.low) else -1
        # The upper bound is not in the interval: having all its characters is too far already.
        if high >= 0 and self.high is not None:
            if character > self.high[high] or (character == self.high[high] and high + 1 == len(self.high)):
                return None
            high = high + 1 if character == self.high[high] else -1
        sets = [pattern.step(bits, character) for bits, pattern in zip(state[2:], self.patterns, strict=True)]
        # A pattern that must match and has no offset left never will; one that must not is welcome to fail.
        return (low, high, *sets) if all(sets[: self.wanted]) else None


def _classes(told_apart: set[str]) -> list[str]:
    """One character of each class: those told apart, and one between any two of them; pleasant ones first."""
    found = [character for character in _PLEASANT if character not in told_apart][:1]
    points = [-1, *sorted(ord(character) for character in told_apart), _LAST + 1]
    # Between two characters that are told apart, one stands for all: they behave alike everywhere.
    for below, above in pairwise(points):
        if below + 1 < above:
            found.append(_between(below, above))
    return [*dict.fromkeys(found), *sorted(told_apart)]


def _between(below: int, above: int) -> str:
    """A character between two code points: a pleasant one, else no surrogate, for those are not text outside Python."""
    pleasant = next((character for character in _PLEASANT if below < ord(character) < above), None)
    point = below + 1
    if 0xD800 <= point <= 0xDFFF and above > 0xE000:
        point = 0xE000
    return pleasant or chr(point)


PIECES = 512
"""How many pieces a set may have."""

_LONG = "_" * 36 + "%"
"""Texts too long to name a moment."""

_SHAPE = "____-__-_____:__:__%"
"""What every text that names a moment looks like."""


@dataclass(frozen=True, slots=True)
class TextMoments:
    """What a text may say of time: a moment of `named`, or, if `none`, no moment at all."""

    named: Intervals = EVERYTHING
    none: bool = True

    def __and__(self, other: TextMoments) -> TextMoments:
        return TextMoments(self.named & other.named, self.none and other.none)

    def __invert__(self) -> TextMoments:
        return TextMoments(~self.named, not self.none)

    def __bool__(self) -> bool:
        return self.none or bool(self.named)

    def allow(self, text: str) -> bool:
        """Whether this text says one of them."""
        moment = time_of(text)
        return self.none if moment is None else moment in self.named


ANY_TIME = TextMoments()


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The texts within `span` that match all patterns of `like`, none of `unlike`, and say one of `moments`."""

    span: Intervals = EVERYTHING
    like: frozenset[str] = frozenset()
    unlike: frozenset[str] = frozenset()
    moments: TextMoments = ANY_TIME

    def __bool__(self) -> bool:
        """False where it is plainly empty; True does not say that there is a text."""
        return bool(self.span) and bool(self.moments) and self.like.isdisjoint(self.unlike)

    def __and__(self, other: TextPiece) -> TextPiece:
        return TextPiece(
            self.span & other.span,
            self.like | other.like,
            self.unlike | other.unlike,
            self.moments & other.moments,
        )

    def outside(self) -> Iterator[TextPiece]:
        """The pieces of everything else."""
        # Not (A and B and C) is not A, or not B, or not C: a piece for each.
        if self.span != EVERYTHING:
            yield TextPiece(~self.span)
        for pattern in sorted(self.like):
            yield TextPiece(unlike=frozenset({pattern}))
        for pattern in sorted(self.unlike):
            yield TextPiece(like=frozenset({pattern}))
        if self.moments != ANY_TIME:
            yield TextPiece(moments=~self.moments)

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


Texts = tuple[TextPiece, ...]
"""A union of pieces."""

ALL_TEXTS: Texts = (TextPiece(),)


def joined(pieces: Iterable[TextPiece]) -> Texts:
    """A union without what is plainly empty; pieces that differ in one respect become one. Raises `Undecided`."""
    spans: dict[tuple[object, ...], TextPiece] = {}
    for piece in pieces:
        # Intervals under equal conditions are one interval set; a list of thousands of literals is one piece.
        if piece:
            key = (piece.like, piece.unlike, piece.moments)
            there = spans.get(key)
            spans[key] = replace(piece, span=there.span | piece.span) if there else piece
    found: dict[tuple[object, ...], TextPiece] = {}
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
        return (TextPiece(like=frozenset({pattern})),)
    text, open_ended = known
    span = (TEXTS.before(text), TEXTS.after(text)) if not open_ended else prefixed(text)
    return (TextPiece(Intervals((span,))),)


def texts_within(span: Intervals) -> Texts:
    """The texts of intervals."""
    return (TextPiece(span),) if span else ()


def texts_naming(moments: Intervals) -> Texts:
    """The texts that name one of these moments."""
    return (TextPiece(moments=TextMoments(moments, none=False)),) if moments else ()
