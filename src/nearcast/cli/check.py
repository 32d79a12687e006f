"""`nearcast check FILE…`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from nearcast.cli.options import INPUT_FILE, node_option
from nearcast.cli.output import pluralize, print_json, warn
from nearcast.errors import Fault
from nearcast.language.file_check import check


@click.command("check")
@click.argument("files", nargs=-1, required=True, type=INPUT_FILE)
@node_option("The server the files are meant for; scope: local means it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per fault and warning.")
def command(files: tuple[Path, ...], node: str, as_json: bool) -> None:
    """Check definitions (.yaml), thesis XML (.xml) and event files (.jsonl, .geojson, …).

    Definitions among the files are read together, and events are checked against their channels. Prints every fault
    with file, line and column, what was expected and what came; warns about atoms that can never hold. Exits with 1 if
    there is a fault.
    """
    # As the server will judge them: a time far ahead of its clock is a fault there.
    report = check(files, node, datetime.now(UTC))
    for kind, found in (("error", report.faults), ("warning", report.warnings)):
        for fault in found:
            print_json(_data(kind, fault)) if as_json else warn(kind, fault)
    if not as_json:
        click.echo(f"{pluralize(len(report.faults), 'fault')}, {pluralize(len(report.warnings), 'warning')}")
    sys.exit(0 if report.good else 1)


def _data(kind: str, fault: Fault) -> dict[str, object]:
    where = fault.where
    return {
        "kind": kind,
        "file": where.file if where else None,
        "line": where.line if where else None,
        "column": where.column if where else None,
        "expected": fault.expected,
        "came": fault.came,
        "advice": fault.advice,
    }
