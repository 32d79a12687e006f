"""Numbers by hash: whatever is added and removed, each is found as a dictionary would find it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching.atom_table import CompactHashIndex

# Few hashes, so that many stand in each other's way, also around the end of the slots.
things = st.tuples(st.sampled_from([0, 1, 2, 14, 15, 16, 31, 32, -1, -16, 2**62, -(2**63)]), st.integers(0, 3))


@given(st.lists(st.tuples(things, st.booleans()), max_size=120))
def test_it_finds_what_a_dictionary_would(steps: list[tuple[tuple[int, int], bool]]) -> None:
    """Also where all hashes are alike, and after what stood in between went."""
    hashed, expected, by_number, free = (
        CompactHashIndex(),
        dict[tuple[int, int], int](),
        list[tuple[int, int]](),
        list[int](),
    )
    for thing, add in steps:
        number = hashed.find(thing[0], lambda number, thing=thing: by_number[number] == thing)  # type: ignore[misc]
        assert expected.get(thing, -1) == number
        if add and number < 0:
            number = free.pop() if free else len(by_number)
            by_number[number : number + 1] = [thing]
            expected[thing] = number
            hashed.insert(number, thing[0])
        elif not add and number >= 0:
            free.append(expected.pop(thing))
            hashed.remove(number)
    assert len(expected) == len(hashed)


def test_thousands_are_found() -> None:
    """Whatever room was made for them on the way."""
    hashed = CompactHashIndex()
    for number in range(5_000):
        hashed.insert(number, hash((number, "")))
    assert list(range(5_000)) == [hashed.find(hash((n, "")), lambda found, n=n: found == n) for n in range(5_000)]  # type: ignore[misc]
