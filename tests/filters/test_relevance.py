"""From relevances to classes, and whose relevance counts (semantics §3)."""

from __future__ import annotations

import pytest

from nearcast.errors import Mark
from nearcast.filters.relevance import by_role, classes_of, relevance_class, role_relevance
from nearcast.language.cql2 import parse
from nearcast.language.quantities import relevance_of
from nearcast.model.subscription import ANY_SUBSCRIPTION, Roles, Subscription

HERE = Mark("here")
ROLES = Roles(
    {
        ("leader", "offense"): {ANY_SUBSCRIPTION: (1, 0.5)},
        ("leader", "defense"): {"s": (0, 1), ANY_SUBSCRIPTION: (1, 1)},
    },
    ("leader", "offense"),
)


def subscription(
    id: str = "s", text: str = "a = 1 OR b = 2", relevance: tuple[float, ...] | None = None
) -> Subscription:
    return Subscription(id, ("ann",), parse(text, HERE), relevance)


@pytest.mark.parametrize(
    ("expected", "relevance", "levels"),
    [
        (-1, 0, 3),
        (0, 1e-300, 3),
        (0, 0.1, 3),
        (0, 0.3, 3),
        (1, 0.5, 3),
        (2, 0.8, 3),
        (2, 0.9, 3),
        (2, 1, 3),
        (0, 0.25, 4),
        (1, 0.26, 4),
        (6, 0.07, 100),
        (28, 0.29, 100),
        (0, 1, 1),
    ],
)
def test_the_class_is_the_ceiling_of_relevance_times_levels_less_one(
    expected: int, relevance: float, levels: int
) -> None:
    """k = ⌈r·N⌉ − 1, exact on the decimal as written: 0.07 · 100 is 7, whatever a double makes of it."""
    assert expected == relevance_class(relevance, levels)


@pytest.mark.parametrize(
    ("expected", "name"), [(0, "LOW"), (1, "MEDIUM"), (2, "HIGH"), (0, "L"), (1, "m"), (2, "High")]
)
def test_names_stand_for_the_three_classes(expected: int, name: str) -> None:
    """LOW, MEDIUM, HIGH and their first letters, in any case."""
    assert expected == relevance_class(relevance_of(name, HERE, 3), 3)


def test_without_a_relevance_every_atom_has_the_top_class() -> None:
    """Whatever N."""
    assert (2, 2) == classes_of(None, 2, 3)
    assert (0,) == classes_of(None, 1, 1)
    assert (-1, 1, 2) == classes_of((0, 0.5, 1), 3, 3)


def test_a_vector_named_for_the_subscription_goes_before_one_for_any() -> None:
    """A table that names a subscription says more than a file for all."""
    assert (0, 1) == role_relevance(subscription(), ROLES, "leader", "defense")
    assert (1, 1) == role_relevance(subscription("other"), ROLES, "leader", "defense")


def test_the_default_role_is_for_clients_that_state_none() -> None:
    """A role that no vector is for has none, so every atom counts fully."""
    assert (1, 0.5) == role_relevance(subscription(), ROLES, None, None)
    assert role_relevance(subscription(), ROLES, "cook", None) is None


def test_a_vector_of_another_length_counts_as_none() -> None:
    """It is for another filter."""
    assert role_relevance(subscription(text="a = 1"), ROLES, "leader", "offense") is None


def test_a_relevance_of_its_own_frees_a_subscription_from_roles() -> None:
    """Roles decide where the subscription says nothing and a vector fits."""
    assert by_role(subscription(), ROLES)
    assert not by_role(subscription(relevance=(1, 1)), ROLES)
    assert not by_role(subscription(text="a = 1"), ROLES)
    assert not by_role(subscription(), Roles())
