"""The one rule of what begins, lasts and ends: the same one by one as in columns over a stretch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.columns import to_table
from nearcast.relations.entity_table import EntityTable
from nearcast.relations.pair_rules import PairRules
from nearcast.relations.reports import ReportTable
from nearcast.relations.shards import pair_rows
from nearcast.relations.transition_events import CAUSED, EXPIRED, OVERDUE
from nearcast.relations.transitions import (
    BEGINS,
    FAILS,
    FALLS_SILENT,
    LEAVES,
    UNCHANGED,
    HoldState,
    Lifecycle,
    PairEffects,
    deadline,
    deadlines,
    effect_of,
    gathered_until,
    pair_transitions,
    tells_exit,
)
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.stream_clocks import StreamClocks
from tests.relations.stories import defined, report

FORMS = (
    {},
    {"lasting": 2},
    {"lasting": 3, "detect": ["enter", "dwell", "exit"]},
    {"lasting": 1, "detect": ["dwell"]},
    {"detect": ["exit"]},
    {"detect": ["enter"]},
    {"lasting": 2, "detect": ["dwell", "exit"]},
)
SECOND = 1_000_000

Told = tuple[int, int, str, int, int]
"""Pair, row, what, phase, since when."""


@dataclass
class Drawn:
    """A stretch: the clock at its rows, by how much the moment of each is behind, the relations of pairs, and what
    evaluations do to these at some rows.
    """

    seconds: list[int]
    behind: list[int]
    forms: list[int]
    states: list[HoldState | None]
    effects: list[list[int]]
    silences: list[list[int]]


@st.composite
def row_ranges(draw: st.DrawFn) -> Drawn:
    """Up to five pairs over up to twelve rows; each falls silent now and then, at some second."""
    seconds = sorted(draw(st.lists(st.integers(0, 15), min_size=1, max_size=12)))
    count = draw(st.integers(1, 5))
    rows = st.lists(
        st.sampled_from([UNCHANGED, UNCHANGED, BEGINS, BEGINS, FAILS, LEAVES]),
        min_size=len(seconds),
        max_size=len(seconds),
    )
    held = st.builds(HoldState, st.integers(-5, 0), st.sampled_from([FOREVER, 1, 4, 20]), st.just(False))
    return Drawn(
        seconds,
        draw(st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=len(seconds), max_size=len(seconds))),
        draw(st.lists(st.sampled_from(range(len(FORMS))), min_size=count, max_size=count)),
        draw(st.lists(st.none() | held, min_size=count, max_size=count)),
        draw(st.lists(rows, min_size=count, max_size=count)),
        draw(st.lists(st.lists(st.integers(0, 15), max_size=2), min_size=count, max_size=count)),
    )


def silent_rows(seconds: Sequence[int], silences: Sequence[int]) -> dict[int, int]:
    """At which rows silence is noticed, and through which second it was none."""
    found = {}
    for one in sorted(silences, reverse=True):
        row = next((row for row, second in enumerate(seconds) if second > one), None)
        if row is not None:
            found[row] = one
    return found


def one_by_one(drawn: Drawn, rules: PairRules) -> tuple[list[Told], list[HoldState | None]]:
    """What the rule for one thing tells, row by row; and the states in the end."""
    told: list[Told] = []
    states = []
    for pair, (form, state) in enumerate(zip(drawn.forms, drawn.states, strict=True)):
        rule = rules.all[form]
        assert rule
        lifecycle, silent = Lifecycle.of(rule.relation), silent_rows(drawn.seconds, drawn.silences[pair])
        rows = zip(drawn.seconds, drawn.behind, drawn.effects[pair], strict=True)
        for row, (second, behind, effect) in enumerate(rows):
            if state:
                since, until = state.started_at, silent[row] * SECOND if row in silent else FOREVER
                state, found = lifecycle.passed(state, until, second * SECOND)
                told += [(pair, row, detect, EXPIRED, since) for detect in found]
            before = state
            began = (second - behind) * SECOND
            state, detect = lifecycle.evaluated(state, effect, began, began)
            if detect:
                since = (before or state or HoldState(NEVER, NEVER)).started_at
                told.append((pair, row, detect, CAUSED, since))
            if state and not before:
                state, found = lifecycle.lasted(state, second * SECOND)
                told += [(pair, row, one, OVERDUE, began) for one in found]
        states.append(state)
    return told, states


def in_columns(drawn: Drawn, rules: PairRules) -> tuple[list[Told], list[HoldState | None]]:
    """The same by the rule in columns."""
    reports = ReportTable.of(
        to_table([report("a", 0, second=second) for second in drawn.seconds]), EntityTable(), StreamClocks()
    )
    epoch = int(reports.now[0]) - drawn.seconds[0] * SECOND
    reports.clocks = reports.clocks - epoch
    reports.now = reports.clocks[0]
    reports.moment = reports.began = reports.now - np.array(drawn.behind) * SECOND
    pairs = pair_rows()
    for form, state in zip(drawn.forms, drawn.states, strict=True):
        held = {} if state is None else {"held": True} | dict(state._asdict())
        pairs.append(rule=form, **held)
    rows = [effect for pair in range(len(drawn.forms)) for effect in listed(drawn, pair)]
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    effects = PairEffects(*columns)
    found = pair_transitions(pairs, np.arange(len(drawn.forms)), effects, rules.columns, reports)
    told = [
        (pair, row, one.detect, phase, since)
        for one in found
        for pair, row, phase, since in zip(
            one.pair.tolist(), one.row.tolist(), one.phase.tolist(), one.started_at.tolist(), strict=True
        )
    ]
    states = [
        HoldState(*(pairs[name][pair].item() for name in HoldState._fields)) if pairs["held"][pair] else None
        for pair in range(len(drawn.forms))
    ]
    return told, states


def listed(drawn: Drawn, pair: int) -> Iterator[tuple[int, int, int, int]]:
    """What evaluations do to a pair, as columns have it."""
    silent = silent_rows(drawn.seconds, drawn.silences[pair])
    for row, effect in enumerate(drawn.effects[pair]):
        if row in silent:
            yield pair, row, FALLS_SILENT, silent[row] * SECOND
        if effect != UNCHANGED:
            yield pair, row, effect, FOREVER


@given(row_ranges())
def test_columns_tell_what_the_rule_tells_one_by_one(drawn: Drawn) -> None:
    """The same things at the same rows, and the same states after the stretch."""
    rules = PairRules()
    for number, form in enumerate(FORMS):
        rules.add_relation(defined(f"r{number}", **form).relation, number)
    drawn.states = [
        state if state is None or state.due == FOREVER else state._replace(due=state.due * SECOND)
        for state in drawn.states
    ]
    expected, states = one_by_one(drawn, rules)
    found, kept = in_columns(drawn, rules)
    assert sorted(expected) == sorted(found)
    assert states == kept


@given(st.lists(st.tuples(st.sampled_from([NEVER, 0, 5]), st.sampled_from([FOREVER, 1, 7])), min_size=1))
def test_deadlines_are_deadlines_in_columns(drawn: list[tuple[int, int]]) -> None:
    """Of known starts and unknown ones, with a span or without."""
    start, span = (np.array(column) for column in zip(*drawn, strict=True))
    assert [deadline(*one) for one in drawn] == deadlines(start, span).tolist()


@pytest.mark.parametrize(
    ("held", "member", "truth", "expected"),
    [
        (False, True, True, BEGINS),
        (False, True, None, UNCHANGED),
        (True, True, None, UNCHANGED),
        (True, True, False, FAILS),
        (True, False, True, LEAVES),
    ],
)
def test_what_is_unknown_changes_nothing(held: bool, member: bool, truth: bool | None, expected: int) -> None:
    """It begins where it is TRUE, and ends where it is FALSE."""
    assert expected == effect_of(held, member, lambda staying: truth if staying == held else not truth)


def test_an_end_is_told_of_what_was_told_to_have_begun() -> None:
    """By `enter`, or where only `dwell` is told, by that."""
    lifecycles = [Lifecycle.of(defined(**form).relation).detects for form in FORMS]
    assert [True, False, True, False, True, False, False] == [tells_exit(one, False) for one in lifecycles]
    assert [True, True, True, False, True, False, True] == [tells_exit(one, True) for one in lifecycles]


def test_a_gathering_lasts_until_one_too_many_is_silent() -> None:
    """Of three that are needed, with three others around."""
    assert 20 == gathered_until(50, [10, 30, 20], 3)
    assert 5 == gathered_until(5, [10, 30, 20], 3)
    assert FOREVER == gathered_until(FOREVER, [FOREVER, 3], 2)
