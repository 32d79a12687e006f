"""What holds, as derived events tell it, is the same wherever the fold over them is begun anew."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.relation import RELATION_EVENT
from nearcast.model.situation import SITUATION_TYPE
from nearcast.model.zone import ZONE_EVENT
from nearcast.state.derived import Cause, derived_event
from nearcast.state.held_derivations import ActiveDerivation, HeldDerivations

KINDS = (RELATION_EVENT, SITUATION_TYPE, ZONE_EVENT)
NAMES = st.sampled_from("abc")
TOLD = st.one_of(
    st.fixed_dictionaries(
        {"relation": NAMES, "a": NAMES, "b": NAMES, "detect": st.sampled_from(["enter", "exit"])}
    ).map(lambda data: (RELATION_EVENT, data)),
    st.fixed_dictionaries({"id": NAMES, "phase": st.sampled_from(["begin", "update", "end"])}).map(
        lambda data: (SITUATION_TYPE, data)
    ),
    st.fixed_dictionaries(
        {"layer": NAMES, "entity": NAMES, "zone": NAMES, "detect": st.sampled_from(["enter", "exit", "outside"])}
    ).map(lambda data: (ZONE_EVENT, data)),
)


def derived(told: list[tuple[str, dict[str, Any]]], first: int) -> list[Event]:
    """Events of which each position causes two."""
    return [
        derived_event(type_, "s", str(at), "x", data, Cause(at // 2 + 1, None, None), None, 1 + at % 2)
        for at, (type_, data) in enumerate(told, first)
    ]


def held(one: HeldDerivations) -> dict[str, list[ActiveDerivation]]:
    return {kind: list(one.each(kind)) for kind in KINDS}


@given(st.lists(TOLD, max_size=40), st.integers(0, 40), st.sampled_from([2, 100]))
def test_a_fold_goes_on_from_its_rows(told: list[tuple[str, dict[str, Any]]], cut: int, most: int) -> None:
    """With the same order, data and number of what is left out."""
    whole, first = HeldDerivations(most), HeldDerivations(most)
    whole.fold(to_table(derived(told, 0)))
    first.fold(to_table(derived(told[:cut], 0)))
    rest = HeldDerivations(most, first.rows())
    rest.fold(to_table(derived(told[cut:], len(told[:cut]))))
    assert held(whole) == held(rest)
    assert whole.left_out == rest.left_out
    assert all(len(each) <= most for each in held(rest).values())
