"""The notebook's code, run cell by cell: `python -m tests.spark.notebook` writes its outputs anew."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


def cells() -> dict[str, Any]:
    """The notebook as it is stored."""
    found: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return found


def outputs(notebook: dict[str, Any]) -> list[str]:
    """What each code cell has printed, as it is stored."""
    code = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    return ["".join("".join(one["text"]) for one in cell["outputs"]) for cell in code]


def run(notebook: dict[str, Any]) -> list[str]:
    """What each code cell prints, run in order in one namespace."""
    names: dict[str, Any] = {"__name__": "notebook"}
    printed = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
            printed.append(said.getvalue())
    return printed


def main() -> None:
    """Stores what the cells print."""
    notebook = cells()
    printed = iter(run(notebook))
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            text = next(printed)
            cell["execution_count"] = number
            stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
            cell["outputs"] = [stream] if text else []
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
