"""Checksums of a journal's blocks, and links between them: what is damaged is reported, never read as something else.

A checksum covers a block's rows and all that its table says of it; every reader computes it of every block, so it is
one that takes a tenth of the time of decompressing (XXH3). A link names the block before it in its log, and the
log's end names its newest block: so a block that SQLite does not find any more is missed. Of formats before some blocks
have neither, others a checksum made in another way; they are read as they are until they are merged with others.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import xxhash

BYTES = 8
"""Of a checksum of what is short, and of blocks of a format before: one damaged in 10^19 is taken for a sound one."""

COLUMNS = "number, first, last, tier, size, previous, checksum, rows"
"""The columns of a block, as `StoredBlock` has them."""

UNCHECKED = "unchecked blocks"
"""In the table of ends: blocks up to this number may be of a format before, without checksums."""


class StoredBlock(NamedTuple):
    """A block as it lies in its table; `previous` is 0 for the first of a log, None for one of a format before."""

    number: int
    first: int
    last: int
    tier: int
    size: int
    previous: int | None
    checksum: bytes | None
    rows: bytes


def checksum_of(*values: object) -> bytes:
    """The checksum of numbers, texts and bytes, in their order."""
    found = hashlib.blake2b(digest_size=BYTES)
    for part in _parts(values):
        found.update(part)
    return found.digest()


def block_checksum(log: str, block: StoredBlock) -> bytes:
    """What the checksum of a block should be. Its number may change, as in a copy of the table."""
    covered = log, block.first, block.last, block.tier, block.size, block.previous, block.rows
    if isinstance(block.checksum, bytes) and len(block.checksum) == BYTES:
        return checksum_of(*covered)
    found = xxhash.xxh3_128()
    for part in _parts(covered):
        found.update(part)
    return found.digest()


def _parts(values: Iterable[object]) -> Iterator[bytes]:
    """Values as bytes, each behind its length, or bytes could go from one to the next."""
    for value in values:
        part = value if isinstance(value, bytes) else str(value).encode()
        yield len(part).to_bytes(8)
        yield part


def checked_block(log: str, row: tuple[Any, ...], unchecked: int) -> StoredBlock:
    """A block that is as it was written. Raises `sqlite3.DatabaseError` for one that is not."""
    block = StoredBlock(*row)
    if block.checksum is None and block.previous is None and is_position(block.number) and block.number <= unchecked:
        kinds = (block.first, block.last, block.tier, block.size)
        if all(map(is_position, kinds)) and isinstance(block.rows, bytes):
            return block
    elif block.checksum == block_checksum(log, block):
        return block
    raise malformed(f"block {block.number} of the log {log!r}, positions {block.first} to {block.last}")


def check_links(log: str, blocks: Iterable[tuple[int, int | None]]) -> None:
    """Raises `sqlite3.DatabaseError` where one of neighbouring blocks, each a number and a link, does not follow."""
    for (number, _), (following, previous) in pairwise(blocks):
        if previous is not None and previous != number:
            raise malformed(f"log {log!r}: a block is missing between blocks {number} and {following}")


def malformed(what: str) -> sqlite3.DatabaseError:
    """The error for what is damaged: as SQLite's own, so that it is reported in the same way, with the file's name."""
    return sqlite3.DatabaseError(f"malformed {what}")


def is_position(value: object) -> bool:
    """Whether a value that SQLite gave is a whole number, as it was written."""
    return isinstance(value, int) and value >= 0
