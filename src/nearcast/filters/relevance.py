"""From relevances to classes, and from a filter with classes to the level of an event (Agent §4.1.1; semantics §3)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal

from nearcast.model.filter import atoms
from nearcast.model.subscription import ANY_SUBSCRIPTION, Roles, Subscription

Classes = tuple[int, ...]
"""One relevance class per atom in document order; −1 for an atom of relevance 0, which is not there."""

ABSENT = -1


def relevance_class(relevance: float, levels: int) -> int:
    """The class k = ⌈r·N⌉ − 1 of a relevance r in [0, 1]; −1 for r = 0. Exact on the decimal that was written."""
    return int((Decimal(repr(float(relevance))) * levels).to_integral_value(ROUND_CEILING)) - 1


def classes_of(relevance: Sequence[float] | None, count: int, levels: int) -> Classes:
    """The classes of a filter's `count` atoms; without a relevance every atom has 1, the top class."""
    if relevance is None:
        return (levels - 1,) * count
    return tuple(relevance_class(value, levels) for value in relevance)


def role_relevance(
    subscription: Subscription, roles: Roles, role: str | None, task: str | None
) -> tuple[float, ...] | None:
    """The vector that a role and task give this subscription; None: every atom has 1.

    Inline tables name the subscription; a RELEVANCE file does not, and fits every filter with as many atoms.
    Definitions with a vector of another length are refused; where settings change later, it counts as none.
    """
    if role is None and task is None and roles.default:
        role, task = roles.default
    vectors = roles.vectors.get((role or "", task or ""), {})
    vector = vectors.get(subscription.id, vectors.get(ANY_SUBSCRIPTION))
    fits = vector is not None and len(vector) == sum(1 for _ in atoms(subscription.filter))
    return vector if fits else None


def by_role(subscription: Subscription, roles: Roles) -> bool:
    """Whether some role and task decides how much the subscription's atoms matter."""
    return subscription.relevance is None and any(
        role_relevance(subscription, roles, role, task) is not None for role, task in roles.vectors
    )
