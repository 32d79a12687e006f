"""For how long a journal has not answered that is kept by others than this process."""

from __future__ import annotations

from typing import NamedTuple


class JournalOutage(NamedTuple):
    """For how many seconds nobody has answered for a journal by now, 0 where it works; in all; and how many times."""

    seconds: float = 0.0
    total: float = 0.0
    times: int = 0
