"""How an experiment gives out what it found: JSON on standard output, or files in a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from nearcast.cli.output import warn

F = TypeVar("F", bound=Callable[..., object])


def result_options(row: str, files: str) -> Callable[[F], F]:
    """The options --json and --out of an experiment: what is printed is called `row`, and `files` are written."""

    def options(command: F) -> F:
        out = click.option(
            "--out", type=click.Path(file_okay=False, path_type=Path), help=f"Write {files} into this folder."
        )
        return click.option("--json", "as_json", is_flag=True, help=f"Print one JSON object per {row}.")(out(command))

    return options


def write_results(folder: Path, name: str, document: Mapping[str, Any], texts: Mapping[str, str], files: str) -> None:
    """Writes NAME.json and texts by the names of their files into a folder, and says that `files` are there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    warn("note", f"{files} in {folder}")
