"""Where the tests find data that is not part of the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared(*parts: str) -> Path:
    """A path among the shared data; skips the test where it is not there."""
    beside = Path(__file__).parents[1].parent / "shared"
    path = Path(os.environ.get("NEARCAST_SHARED", beside)).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there: set NEARCAST_SHARED")
    return path
