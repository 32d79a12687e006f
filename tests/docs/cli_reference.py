"""Writes the help of every command into the pages that show them: `python -m tests.docs.cli_reference`."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from tests.docs.test_pages import PROGRAMS, help_of


def main() -> None:
    """Replaces what each `$ nearcast … --help` and `$ python -m experiments … --help` shows."""
    for program, (name, _) in PROGRAMS.items():
        page = ROOT / "docs" / name
        shown = rf"```console\n\$ {program} ((?:\w+ )*)--help\n.*?```"

        def block(match: re.Match[str], program: str = program) -> str:
            return f"```console\n$ {program} {match[1]}--help\n{help_of(match[1].strip(), program)}\n```"

        text = page.read_text(encoding="utf-8")
        page.write_text(re.sub(shown, block, text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
