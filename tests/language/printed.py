"""The thesis' listings as they are printed, and texts with a place marked."""

from __future__ import annotations

from tests.shared import shared


def listing(title: str) -> str:
    """A listing of the thesis, character by character as its text prints it."""
    text = next(shared("seeds").glob("000_*")).read_text(encoding="utf-8")
    return text.split(f"\n{title}:")[1].split("```")[1].strip("\n")


def marked(text: str) -> tuple[str, int, int]:
    """A text without the ¦ in it, and the line and column at which it stood."""
    before, _, after = text.partition("¦")
    return before + after, before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
