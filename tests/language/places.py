"""Where the tests find data that is not part of the checkout, and the thesis' listings as they are printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared(*parts: str) -> Path:
    """A path among the shared data; skips the test where it is not there."""
    beside = Path(__file__).parents[2].parent / "shared"
    path = Path(os.environ.get("NEARCAST_SHARED", beside)).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there: set NEARCAST_SHARED")
    return path


def listing(title: str) -> str:
    """A listing of the thesis, character by character as its text prints it."""
    text = next(shared("seeds").glob("000_*")).read_text(encoding="utf-8")
    return text.split(f"\n{title}:")[1].split("```")[1].strip("\n")


def marked(text: str) -> tuple[str, int, int]:
    """A text without the ¦ in it, and the line and column at which it stood."""
    before, _, after = text.partition("¦")
    return before + after, before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
