"""Folders that are closed to other users."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcast.errors import SetupError
from nearcast.runtime.private_folder import is_private, private_folder


def test_a_folder_is_made_closed_or_is_closed(tmp_path: Path) -> None:
    """Only its owner may write, read and list."""
    assert 0o700 == private_folder(tmp_path / "a" / "b").stat().st_mode & 0o777
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert not is_private(tmp_path / "open")
    assert is_private(private_folder(tmp_path / "open"))
    assert not is_private(tmp_path / "none")


def test_a_link_is_no_folder_of_ours(tmp_path: Path) -> None:
    """It may lead anywhere."""
    (tmp_path / "link").symlink_to(private_folder(tmp_path / "there"))
    with pytest.raises(SetupError, match="to be a folder of this user, got a link"):
        private_folder(tmp_path / "link")
    assert not is_private(tmp_path / "link")
