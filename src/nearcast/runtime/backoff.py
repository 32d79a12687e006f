"""How long to wait before the next attempt, where what failed may work in a moment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator


def backoff(
    first: float, longest: float, jitter: float = 0.0, chance: Callable[[], float] = random.random
) -> Iterator[float]:
    """Seconds to wait before each further attempt, without end: `first`, then twice as long each time, up to `longest`.

    Each pause is cut by a random share of at most `jitter` (0 to 1), so that many do not come back at the same moment;
    `chance` draws from 0 to 1. Begin a new one after an attempt that succeeded.
    """
    pause = min(first, longest)
    while True:
        yield pause * (1 - jitter * chance()) if jitter else pause
        pause = min(2 * pause, longest)
