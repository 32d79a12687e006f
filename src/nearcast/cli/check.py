"""`nearcast check FILE…`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from nearcast.cli.options import INPUT_FILE, node_option
from nearcast.cli.output import pluralize, print_json, warn
from nearcast.errors import Fault
from nearcast.language.checks.fault_tally import further_text
from nearcast.language.checks.file_check import check


@click.command("check")
@click.argument("files", nargs=-1, required=True, type=INPUT_FILE)
@click.option(
    "--events",
    "event_files",
    multiple=True,
    type=INPUT_FILE,
    help="Events, whatever the file's ending: the definitions are held against them.",
)
@node_option("The server the files are meant for; scope: local means it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per fault and warning.")
def command(files: tuple[Path, ...], event_files: tuple[Path, ...], node: str, as_json: bool) -> None:
    """Check definitions (.yaml), thesis XML (.xml) and event files (.jsonl, .geojson, …).

    Definitions among the files are read together, and events are checked against their channels. Prints faults with
    file, line and column, what was expected and what came, at most 20 of a kind; warns about atoms that can never hold,
    and, with events beside definitions, about names and values that no event has, and what selects none. Exits with 1
    if there is a fault.
    """
    # As the server will judge them: a time far ahead of its clock is a fault there.
    report = check(files, node, datetime.now(UTC), event_files)
    for kind, found, further in (
        ("error", report.faults, report.further_faults),
        ("warning", report.warnings, report.further_warnings),
    ):
        for fault in found:
            print_json(_data(kind, fault)) if as_json else warn(kind, fault)
        for expected, more in further:
            print_json({"kind": kind, "more": more, "expected": expected}) if as_json else warn(
                kind, further_text(expected, more)
            )
    if not as_json:
        faults, warnings = (
            len(found) + sum(more for _, more in further)
            for found, further in ((report.faults, report.further_faults), (report.warnings, report.further_warnings))
        )
        click.echo(f"{pluralize(faults, 'fault')}, {pluralize(warnings, 'warning')}")
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
