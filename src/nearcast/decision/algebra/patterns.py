"""Texts that match some LIKE patterns, match none of others, and lie within an interval: is there one, and which?

Patterns and bounds are automata. Characters that no pattern and no bound tells apart are one class, so the automata
are walked together over few classes, breadth first: the first text found is a shortest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from nearcast.decision.algebra.intervals import BOTTOM, TOP, Cut
from nearcast.decision.patterns import ANY, ONE, Items, items_of

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
    walk = _Walk(low, high, [_Automaton(items_of(pattern)) for pattern in (*like, *unlike)], len(like))
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


class _Automaton:
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


class _Walk:
    """The joint automaton of two bounds and some patterns, of which the first `wanted` must match, the others not."""

    def __init__(self, low: Cut, high: Cut, patterns: list[_Automaton], wanted: int) -> None:
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
