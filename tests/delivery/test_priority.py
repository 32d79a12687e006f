"""From readings to context classes, and from classes to priorities (semantics §3)."""

from __future__ import annotations

import pytest

from nearcast.delivery.priority import awareness_class, context_class, priority
from nearcast.model.context import (
    Awareness,
    ContextSpace,
    delay_matrix,
    equal_intervals,
    matrix_fault,
    restriction_matrix,
)
from nearcast.model.subscription import ClientProfile, Settings

BANDWIDTH = Awareness("bandwidth", equal_intervals(3750, 3))
BATTERY = Awareness("battery", (20.0, 50.0))


@pytest.mark.parametrize(
    ("expected", "reading"),
    [(0, 0.1), (0, 195.6), (0, 1250), (1, 1250.0001), (1, 2500), (2, 2500.0001), (2, 3750), (2, 1e9)],
)
def test_the_default_bandwidth_intervals_have_inclusive_upper_bounds(expected: int, reading: float) -> None:
    """(0, 1250] is class 0, (1250, 2500] class 1, above class 2."""
    assert expected == awareness_class(BANDWIDTH, reading)


def test_equal_intervals_divide_the_maximum() -> None:
    """N levels have N − 1 bounds between them."""
    assert (1250, 2500) == equal_intervals(3750, 3)
    assert (25, 50, 75) == equal_intervals(100, 4)
    assert () == equal_intervals(100, 1)
    assert (0.1, 0.2) == equal_intervals(0.3, 3)


def test_the_context_class_is_the_least_of_the_modules() -> None:
    """The worst of what is known decides."""
    space = ContextSpace((BANDWIDTH, BATTERY))
    assert context_class(space, {"bandwidth": 3000, "battery": 30}, 3) == 1
    assert context_class(space, {"bandwidth": 3000, "battery": 5}, 3) == 0


def test_a_module_without_a_reading_speaks_against_nothing() -> None:
    """Neither alone nor beside others."""
    space = ContextSpace((BANDWIDTH, BATTERY))
    assert context_class(space, {"battery": 30}, 3) == 1
    assert context_class(space, {}, 3) == 2
    assert context_class(ContextSpace(), {"bandwidth": 1}, 3) == 2


def test_a_table_maps_every_vector_of_classes() -> None:
    """The rows are the first module's classes, the columns the second's."""
    space = ContextSpace((BANDWIDTH, BATTERY), (0, 0, 1, 0, 1, 1, 2, 2, 2))
    assert context_class(space, {"bandwidth": 100, "battery": 100}, 3) == 1
    assert context_class(space, {"bandwidth": 3000, "battery": 1}, 3) == 2
    assert context_class(space, {"bandwidth": 100}, 3) == 1


def test_the_delay_matrix_is_that_of_the_thesis() -> None:
    """P = max(0, N−1−(k+c)); tables 4-4 and 4-8 print it for N = 3, counting from 1."""
    assert ((2, 1, 0), (1, 0, 0), (0, 0, 0)) == delay_matrix(3)
    assert ((3, 2, 1, 0), (2, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0)) == delay_matrix(4)
    assert Settings().matrix == delay_matrix(3)


def test_the_restriction_matrix_is_that_of_the_thesis() -> None:
    """Table 4-9, counting from 0."""
    assert ((-1, -1, 0), (-1, 1, 0), (0, 0, 0)) == restriction_matrix(3)


@pytest.mark.parametrize("levels", range(1, 9))
def test_both_strategies_keep_what_a_matrix_must_keep(levels: int) -> None:
    """For any number of levels."""
    assert matrix_fault(delay_matrix(levels), levels) is None
    assert matrix_fault(restriction_matrix(levels), levels) is None


@pytest.mark.parametrize(
    ("came", "matrix"),
    [
        ("[0, 1, 2] in row 1", ((2, 1, 0), (0, 1, 2), (0, 0, 0))),
        ("[1, -1, 0] in row 0", ((1, -1, 0), (1, 0, 0), (0, 0, 0))),
        ("3 in row 0", ((3, 1, 0), (1, 0, 0), (0, 0, 0))),
        ("-2 in row 2", ((2, 1, 0), (1, 0, 0), (-2, 0, 0))),
        ("2 rows of 3", ((2, 1, 0), (1, 0, 0))),
        ("3 rows of 2 and 3", ((2, 1, 0), (1, 0), (0, 0, 0))),
        ("0 rows of no", ()),
    ],
)
def test_a_matrix_that_gets_less_urgent_as_the_relevance_rises_is_refused(
    came: str, matrix: tuple[tuple[int, ...], ...]
) -> None:
    """As are wrong shapes and priorities that there are not; −1 is the least urgent of all."""
    fault = matrix_fault(matrix, 3)
    assert fault is not None
    assert came == fault.came


def test_a_matrix_that_withholds_what_matters_least_is_accepted() -> None:
    """−1 comes before every priority in a row."""
    assert matrix_fault(((-1, 2, 0), (-1, -1, -1), (2, 2, 1)), 3) is None


def test_a_priority_is_looked_up_in_the_clients_own_matrix_first() -> None:
    """A client's matrix goes before that of all; a level of −1 is never sent."""
    settings = Settings(space=ContextSpace((BANDWIDTH,)))
    slow = ClientProfile("a", readings={"bandwidth": 195.6})
    assert [2, 1, 0] == [priority(settings, slow, level) for level in range(3)]
    own = ClientProfile("a", readings={"bandwidth": 195.6}, matrix=restriction_matrix(3))
    assert [-1, -1, 0] == [priority(settings, own, level) for level in range(3)]
    assert priority(settings, slow, -1) == -1


def test_a_matrix_of_ones_own_that_does_not_fit_counts_as_none() -> None:
    """The number of levels may change after the client stated it."""
    small = ClientProfile("a", matrix=restriction_matrix(2))
    assert [0, 0, 0] == [priority(Settings(), small, level) for level in range(3)]
