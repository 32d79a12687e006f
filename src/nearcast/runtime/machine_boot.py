"""Which start of this machine it is: what was not yet on its disk before that start may be gone."""

from __future__ import annotations

import uuid
from functools import cache
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_name() -> str:
    """A name that is another after each start of the machine; where none is told, another in each process."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return uuid.uuid4().hex
