"""Groups read into arrays: what is put together of parts is what reading gives, and equal atoms have one number."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching.atom_table import QUESTION_SHIFT, AtomTable
from nearcast.matching.postfix import DEEPEST, FilterGroup, PostfixFilters, packed, read, shifted, together
from nearcast.model.filter import Atom, Not, Operator
from tests.matching.test_engine import groups

deep: FilterGroup = (Atom("v", Operator.EQ, 1), (0,))
for _ in range(DEEPEST + 1):
    deep = Not(deep[0]), (0,)


def rows(flat: PostfixFilters) -> list[tuple[list[int], list[int]] | None]:
    """Of each group the tokens and classes; None if it was refused."""
    return [
        None
        if root < 0
        else (
            flat.tokens[flat.starts[root] : flat.starts[root + 1]].tolist(),
            flat.classes[flat.class_starts[root] : flat.class_starts[root + 1]].tolist(),
        )
        for root in flat.roots.tolist()
    ]


parts = st.lists(st.lists(st.tuples(st.one_of(groups, st.just(deep)), st.booleans()), max_size=5), max_size=4)


@given(parts)
def test_parts_together_are_as_if_read_together(drawn: list[list[tuple[FilterGroup, bool]]]) -> None:
    """In their order, without those that nobody wants."""
    atom_table = AtomTable()
    flats = [(read([group for group, _ in part], atom_table), np.array([k for _, k in part], bool)) for part in drawn]
    wanted = [group for part in drawn for group, kept in part if kept]
    assert rows(read(wanted, atom_table)) == rows(together([*flats, (read([], atom_table), np.zeros(0, np.bool_))]))


def test_equal_atoms_have_one_number_and_others_another() -> None:
    """One and true are not equal here; a NaN has no literal, though its question is one of others with numbers."""
    values = [1, True, 1.0, "1", float("nan"), 2]
    atom_table = AtomTable()
    one, true, float_one, text, nan, two = [atom_table.number(Atom("v", Operator.LT, value)) for value in values]
    assert one == float_one
    assert 5 == len({one, true, text, nan, two})
    assert ["LT"] == [atom.operator.name for atom in atom_table.opaque(np.array([nan, one]))]


numbers = st.builds(
    lambda question, rest: question << QUESTION_SHIFT | rest, st.integers(0, 2**30), st.integers(0, 2**20)
)


@given(st.lists(st.one_of(numbers, st.integers(0, 2**34), st.integers(-400, -1))), st.booleans())
def test_packed_tokens_are_the_same_tokens(tokens: list[int], few: bool) -> None:
    """In 32 bits if they fit, else in 64; connectives stay as they are."""
    if few:
        tokens = [token % (1 << QUESTION_SHIFT + 4) & ~(0xFFF << 20) if token >= 0 else token for token in tokens]
    array, shift = packed(np.array(tokens, np.int64))
    assert tokens == shifted(array.astype(np.int64), shift, QUESTION_SHIFT).tolist()
    assert array.dtype == np.int32 or not few
