"""What the README shows is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the README writes, and a command `nearcast`."""
    for _, text in BLOCK.findall(README.read_text()):
        name = re.match(r"# file: (\S+)\n", text)
        if name:
            (tmp_path / name[1]).write_text(text[name.end() :])
    command = tmp_path / "bin" / "nearcast"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nearcast.cli.main "$@"\n')
    command.chmod(0o755)
    return tmp_path


def conversations() -> Iterator[tuple[str, str]]:
    """Each command that the README shows with what it prints."""
    for kind, text in BLOCK.findall(README.read_text()):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if kind == "console" else ():
            command, _, printed = part.partition("\n")
            yield command, printed


@pytest.mark.parametrize(("command", "printed"), list(conversations()))
def test_commands_print_what_the_readme_shows(command: str, printed: str, folder: Path) -> None:
    """Character by character."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path}
    )
    assert printed.rstrip("\n") == done.stdout.rstrip("\n"), done.stderr
