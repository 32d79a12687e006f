"""A delivery that waits, as people are told of it."""

from __future__ import annotations

from typing import Any

from nearcast.delivery.queue import QueuedDelivery
from nearcast.model.sequence import write_sequence
from nearcast.server import clock


def waiting_row(one: QueuedDelivery) -> dict[str, Any]:
    """What is told of a delivery that waits for a client."""
    return {
        "position": write_sequence(one.sequence),
        "priority": one.priority,
        "level": one.level,
        "subscription": one.subscription,
        "entity": one.entity,
        "attempts": one.attempts,
        "expires": None if one.expires is None else clock.stamp(one.expires),
    }
