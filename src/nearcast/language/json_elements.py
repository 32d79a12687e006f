"""Where the elements of a large JSON array stand, found without parsing it, so that it can be parsed in parts.

A parser holds Python's lock from the first byte to the last, for eight mebibytes up to a quarter of a second, and until
then nothing else runs. Arrays of bytes are compared without it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.model.arrays import Flags, Integers

Bytes = npt.NDArray[np.uint8]

BLANKS = b" \t\n\r"

_STEPS = np.zeros(256, np.int8)
_STEPS[[*b"[{"]], _STEPS[[*b"]}"]] = 1, -1


def element_bounds(text: bytes) -> Integers | None:
    """Begin and end of what stands between the commas of an array, shape (n, 2), blanks with it; None where no array is
    to be seen. Of JSON it is sure that these are its elements; whether it is JSON is not looked at.
    """
    begin, end = len(text) - len(text.lstrip(BLANKS)), len(text.rstrip(BLANKS))
    if text[begin : begin + 1] != b"[" or text[end - 1 : end] != b"]" or end - begin < 2:
        return None
    inner = np.frombuffer(text, np.uint8, end - begin - 2, begin + 1)
    within = _within_texts(inner)
    if len(inner) and within[-1]:
        return None
    depth = _depths(inner, within)
    if depth.min(initial=0) < 0 or (len(depth) and depth[-1]):
        return None
    if not text[begin + 1 : end - 1].strip(BLANKS):
        return np.empty((0, 2), np.int64)
    commas = np.flatnonzero((inner == ord(",")) & (depth == 0) & ~within)
    edges = np.concatenate([[-1], commas, [len(inner)]]) + begin + 1
    return np.stack([edges[:-1] + 1, edges[1:]], axis=1)


def _within_texts(text: Bytes) -> Flags:
    """Which bytes stand in a text, the quote before it among them."""
    quotes = (text == ord('"')).view(np.uint8)
    slashes = np.flatnonzero(text == ord("\\"))
    if len(slashes):
        quotes[_escaped(slashes, len(text))] = 0
    within: Bytes = np.bitwise_xor.accumulate(quotes)
    return within.view(np.bool_)


def _escaped(slashes: Integers, size: int) -> Integers:
    """The places behind an odd number of backslashes: what stands there is taken as it is."""
    first = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
    count = np.diff(first, append=len(slashes))
    # Of a run of backslashes every second one is escaped itself; they are no quotes, so only what follows matters.
    behind = slashes[first] + count
    return behind[(count % 2 == 1) & (behind < size)]


def _depths(text: Bytes, within: Flags) -> npt.NDArray[np.int32]:
    """How many brackets and braces are open behind each byte."""
    steps = np.take(_STEPS, text)
    steps[within] = 0
    return np.cumsum(steps, dtype=np.int32)


def parts(bounds: Integers, size: int) -> list[tuple[int, int]]:
    """First and last, not included, of elements that are parsed together: of about so many bytes, or one."""
    if not len(bounds):
        return []
    which = (bounds[:, 1] - bounds[0, 0]) // size
    firsts = np.flatnonzero(np.diff(which, prepend=-1))
    return list(zip(firsts.tolist(), [*firsts[1:].tolist(), len(bounds)], strict=True))
