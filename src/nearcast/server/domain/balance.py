"""Where a client is sent: which of several access servers has room, and how many of its sessions one gives away.

Pure functions over what servers say of themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ServerRoom(NamedTuple):
    """What counts of a server: how many sessions are connected there, or on their way; whether it lets new ones in."""

    name: str
    sessions: int
    open: bool = True


def fair_share(own: int, others: Sequence[ServerRoom]) -> float:
    """How many sessions each of the servers that let new ones in would have, if all had as many."""
    counts = [own, *(one.sessions for one in others if one.open)]
    return sum(counts) / len(counts)


def least_loaded(others: Sequence[ServerRoom]) -> ServerRoom | None:
    """The server with the fewest sessions of those that let new ones in; None if there is none."""
    return min((one for one in others if one.open), key=lambda one: (one.sessions, one.name), default=None)


def better_server(own: int, others: Sequence[ServerRoom], margin: float, slack: int) -> ServerRoom | None:
    """Where one more client is sent by a server that has `own` sessions; None: it stays.

    It is sent away where `own` is above the fair share by more than `margin` of it and by more than `slack` sessions,
    and to a server that is below it.
    """
    share = fair_share(own, others)
    least = least_loaded(others)
    if least is None or own <= share * (1 + margin) or own <= share + slack or least.sessions >= share:
        return None
    return least


def surplus(own: int, others: Sequence[ServerRoom], margin: float, slack: int) -> int:
    """How many sessions a server gives away: down to the fair share, where a further client would be sent away."""
    if better_server(own, others, margin, slack) is None:
        return 0
    return int(own - fair_share(own, others))
