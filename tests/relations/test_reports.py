"""Tables that grow, of which rows are dropped."""

from __future__ import annotations

import numpy as np

from nearcast.relations.entity_table import ROOM, GrowableTable


def test_a_row_in_the_place_of_a_dropped_one_has_what_is_given_and_else_the_fill() -> None:
    """Nothing of the dropped one is left in it, before the table grows and after."""
    table = GrowableTable({"rule": np.int32(-1), "held": np.False_})
    table.append(3, rule=[1, 2, 3], held=True)
    table.keep(np.array([False, True, False]))
    table.append(rule=7)
    assert [2, 7] == table["rule"].tolist()
    assert [True, False] == table["held"].tolist()
    table.append(2 * ROOM, held=True)
    assert [-1] * (2 * ROOM) == table["rule"][2:].tolist()
    assert 2 * ROOM + 1 == int(table["held"].sum())
