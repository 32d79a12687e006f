"""Folders of which nobody else can change what is in them: what is read there is run, or trusted as if it were."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from nearcast.errors import SetupError

MODE = 0o700
"""Only the owner reads, writes and lists."""


def private_folder(path: Path) -> Path:
    """The folder, made if it is not there, closed to others if it is this user's own.

    Raises SetupError for one that is another user's or a link, OSError where it cannot be made.
    """
    path.mkdir(mode=MODE, parents=True, exist_ok=True)
    if not hasattr(os, "getuid"):
        return path
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        kind = "a link" if stat.S_ISLNK(found.st_mode) else f"one of user {found.st_uid}"
        raise SetupError(f"expected {path} to be a folder of this user, got {kind}; remove it, or name another folder")
    if stat.S_IMODE(found.st_mode) != MODE:
        path.chmod(MODE)
    return path


def is_private(path: Path) -> bool:
    """Whether a folder is there, is this user's own, and is closed to all others."""
    if not hasattr(os, "getuid"):
        return path.is_dir()
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == MODE
