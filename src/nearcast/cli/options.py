"""What several subcommands take: where the data is."""

from __future__ import annotations

from pathlib import Path

DATA = Path("nearcast-data")
"""The folder of a local nearcast, unless another is named."""


def journal_path(data: Path) -> Path:
    """The journal within a data folder."""
    return data / "journal"
