"""What a publisher keeps instead of sending it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Event = Mapping[str, Any]
"""A CloudEvent as a JSON-able mapping."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Events to be sent, and the leases that end with them."""

    events: list[Event]
    leases: list[int]
