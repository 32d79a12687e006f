"""The one place where the server reads the time; everything else gets it as a value."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> float:
    """Seconds since 1970."""
    return time.time()


def moment(seconds: float) -> datetime:
    """Seconds since 1970 as a moment in UTC."""
    return datetime.fromtimestamp(seconds, UTC)
