"""Which relevance a subscription's atoms have for a client: its own, else that of the client's role and task."""

from __future__ import annotations

from nearcast.model.filter import atoms
from nearcast.model.subscription import ANY_SUBSCRIPTION, Roles, Subscription


def relevance_for(subscription: Subscription, roles: Roles, role: str | None, task: str | None) -> tuple[float, ...]:
    """One value per atom, in document order.

    The subscription's own relevance wins; else the vector of role and task for this subscription; else their vector
    for any subscription, if its length agrees; else 1 for every atom. What a client does not state of role and task
    is the roles' default.
    """
    if subscription.relevance is not None:
        return subscription.relevance
    size = sum(1 for _ in atoms(subscription.filter))
    vectors = roles.vectors.get(role_and_task(roles, role, task), {})
    for key in (subscription.id, ANY_SUBSCRIPTION):
        if len(vectors.get(key, ())) == size:
            return vectors[key]
    return (1.0,) * size


def role_and_task(roles: Roles, role: str | None, task: str | None) -> tuple[str, str]:
    """The role and task that count for a client who states these, or None."""
    default = roles.default or ("", "")
    return (default[0] if role is None else role, default[1] if task is None else task)
