"""Writes the help of every command into docs/reference-cli.md: `python -m tests.docs.cli_reference`."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from tests.docs.test_pages import help_of

PAGE = ROOT / "docs" / "reference-cli.md"


def main() -> None:
    """Replaces what each `$ nearcast … --help` shows."""

    def block(match: re.Match[str]) -> str:
        return f"```console\n$ nearcast {match[1]}--help\n{help_of(match[1].strip())}\n```"

    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        re.sub(r"```console\n\$ nearcast ((?:\w+ )*)--help\n.*?```", block, text, flags=re.DOTALL), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
