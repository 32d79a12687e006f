"""Pages as the tests read them: files to save, and console blocks to run with what they must print."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nearcast.cli.system import free_port

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

DEFAULT_PORTS = ("8640", "8641")
SECONDS = 120.0
"""How long one command may take."""

LASTING = {"nearcast up": b"ready:", "nearcast server": b"listening"}
"""Commands that stay, and by what they print when they can be used."""

_FENCE = re.compile(r"^```(?P<kind>[a-z]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVE = re.compile(r"[Ss]ave \S+ as `(?P<name>[^`]+)`|[Aa]nd this as `(?P<again>[^`]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page: its kind, its text, its line, and the file that the page says to save it as."""

    kind: str
    text: str
    line: int
    name: str | None


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page. The paragraph before one tells its file: "save this as `NAME`"."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        before = text[: match.start()].rstrip("\n")
        saved = _SAVE.search(before[before.rfind("\n\n") :])
        name = (saved["name"] or saved["again"]) if saved else None
        yield Block(match["kind"], match["text"], text.count("\n", 0, match.start()) + 1, name)


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, and what each prints there; a backslash at the end continues a command."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        match = re.match(r"((?:.*\\\n)*.*\n)", part)
        assert match
        yield match[0].strip(), part[match.end() :]


def agrees(shown: str, printed: str) -> bool:
    """Whether a command printed what the page shows; `…` stands for anything within a line, alone for any lines."""
    pattern = re.escape(shown.strip()).replace(re.escape("\n…\n"), r"\n(?:.*\n)*?").replace("…", "[^\n]*")
    return re.fullmatch(pattern, re.sub(r" +$", "", printed.strip(), flags=re.MULTILINE)) is not None


class Terminal:
    """Runs a page's commands in a folder of its own, `nearcast up` and `server` in the background, on free ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = (str(free_port()), str(free_port()))
        tools = folder / "tools"
        tools.mkdir()
        for name, words in (
            ("nearcast", f'"{sys.executable}" -m nearcast'),
            ("python", f'"{sys.executable}"'),
        ):
            (tools / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (tools / name).chmod(0o755)
        self.environment = {
            # As in a newcomer's shell: output is buffered, too.
            **{name: value for name, value in os.environ.items() if not name.startswith(("NEARCAST_", "PYTHON"))},
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "COLUMNS": "120",
        }
        self._up: subprocess.Popen[bytes] | None = None

    def follow(self, page: Path) -> list[str]:
        """Does what the page says, in its order; what did not go as shown, each with its place."""
        found = []
        for block in blocks(page):
            if block.name:
                (self.folder / block.name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / block.name).write_text(self._here(block.text), encoding="utf-8")
            elif block.kind == "console":
                for command, shown in commands(block):
                    printed = self.run(command)
                    if not agrees(shown, printed):
                        found.append(f"{page.name}:{block.line}: $ {command}\nshown:\n{shown}\nprinted:\n{printed}")
        return found

    def run(self, command: str) -> str:
        """Runs a command as a shell does; what it prints, errors too, with the default ports in place of ours."""
        printed = self._start(command) if command.startswith(tuple(LASTING)) else self._finish(command)
        for here, default in zip(self.ports, DEFAULT_PORTS, strict=True):
            printed = printed.replace(here, default)
        return printed

    def _here(self, text: str) -> str:
        for here, default in zip(self.ports, DEFAULT_PORTS, strict=True):
            text = text.replace(default, here)
        return text

    def _finish(self, command: str) -> str:
        environment = {**self.environment, "NEARCAST_URL": f"http://127.0.0.1:{self.ports[0]}"}
        if command.startswith("nearcast status"):
            command += f" --pipeline http://127.0.0.1:{self.ports[1]}"
        done = subprocess.run(
            ["bash", "-c", self._here(command)],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
        )
        return done.stdout.decode()

    def _start(self, command: str) -> str:
        self.stop()
        said = self.folder / "up.log"
        words = f"exec {command} --port {self.ports[0]}"
        words += f" --metrics-port {self.ports[1]}" if command.startswith("nearcast up") else ""
        ready = next(sign for start, sign in LASTING.items() if command.startswith(start))
        with said.open("wb") as file:
            self._up = subprocess.Popen(
                ["bash", "-c", words], cwd=self.folder, env=self.environment, stdout=file, stderr=subprocess.STDOUT
            )
        until = time.monotonic() + SECONDS
        while ready not in said.read_bytes() and self._up.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        return said.read_text()

    def stop(self) -> None:
        """Ends what stays, as Ctrl-C does."""
        if self._up:
            self._up.send_signal(signal.SIGINT)
            self._up.wait(60)
            self._up = None


@contextmanager
def terminal(folder: Path) -> Iterator[Terminal]:
    """A terminal whose system is ended, and whose folder is emptied, in any case."""
    one = Terminal(folder)
    try:
        yield one
    finally:
        one.stop()
        shutil.rmtree(folder / "nearcast-data", ignore_errors=True)
