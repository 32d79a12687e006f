"""Where the tests find data that is not part of the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def found(*parts: str) -> Path | None:
    """A path among the shared data, or None where it is not there."""
    path = _path(parts)
    return path if path.exists() else None


def shared(*parts: str) -> Path:
    """A path among the shared data; skips the test where it is not there."""
    path = _path(parts)
    if not path.exists():
        pytest.skip(f"{path} is not there: set NEARCAST_SHARED")
    return path


def _path(parts: tuple[str, ...]) -> Path:
    beside = Path(__file__).parents[1].parent / "shared"
    return Path(os.environ.get("NEARCAST_SHARED", beside)).joinpath(*parts)
