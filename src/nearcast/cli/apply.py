"""`nearcast apply FILE…`: the definitions of a running system become those of files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import orjson

from nearcast.cli.options import server_options
from nearcast.cli.output import plain, pluralize, print_json, progress, warn, warn_of
from nearcast.cli.running_definitions import RunningDefinitions
from nearcast.errors import NearcastError, first_error
from nearcast.language.definitions.document_differences import (
    KINDS,
    DocumentDifference,
    Documents,
    differences,
    documents_of,
    settings_difference,
)
from nearcast.language.definitions.files import DefinitionSet, load
from nearcast.language.definitions.zone_documents import zone_changes
from nearcast.model.changes import ZoneShapesChange

SHOWN = 100
"""Characters of a value that are shown."""


@click.command("apply")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only print what would change.")
@click.option("--prune", is_flag=True, help="Also remove what stands in no file, and reset such settings.")
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print each difference as a JSON object.")
def command(files: tuple[Path, ...], dry_run: bool, prune: bool, url: str, token: str | None, as_json: bool) -> None:
    """Change the definitions of a running system to those of FILES, and print the difference.

    Several files are read together. What stands in none of them stays, unless --prune is given. Readings and the place
    of a client that is there are its own word: files say them of new clients only. All is checked before anything
    changes; each change is in effect when it is made. Safe to repeat, also after a fault in between.
    """
    asyncio.run(_apply(files, _Wishes(dry_run, prune, as_json), RunningDefinitions(url, token)))


@dataclass(frozen=True, slots=True)
class _Wishes:
    dry_run: bool
    prune: bool
    as_json: bool


@dataclass(slots=True)
class _DefinitionPlan:
    """What is to change, zones by themselves, and how much stays as it is."""

    differences: list[DocumentDifference]
    zones: list[ZoneShapesChange] = field(default_factory=list)
    alike: int = 0


async def _apply(files: Sequence[Path], wishes: _Wishes, system: RunningDefinitions) -> None:
    async with system:
        plan = await _planned(files, wishes, system)
        _tell(plan, wishes)
        if not wishes.dry_run:
            await _carried_out(plan, system)
        _sum_up(plan, wishes)


async def _planned(files: Sequence[Path], wishes: _Wishes, system: RunningDefinitions) -> _DefinitionPlan:
    """What the files would change."""
    there = await system.settings()
    asked = load(files) if wishes.prune else load(files, there)
    warn_of("warning", asked.warnings)
    known, wanted = await system.documents(), documents_of(asked)
    found = differences(known, wanted, wishes.prune)
    made = sum(difference.after is not None for difference in found)
    plan = _DefinitionPlan(settings_difference(there, asked) + found)
    plan.alike = sum(map(len, wanted.values())) - made
    plan.zones = await _zones_planned(asked, known, system)
    return plan


async def _zones_planned(asked: DefinitionSet, known: Documents, system: RunningDefinitions) -> list[ZoneShapesChange]:
    planned: list[ZoneShapesChange] = []
    for layer in asked.zones:
        rule = known["zones"].get(layer.id)
        before = None if rule is None else await system.layer(rule, asked.settings.limits)
        planned += zone_changes(layer, before)
    return planned


async def _carried_out(plan: _DefinitionPlan, system: RunningDefinitions) -> None:
    """Makes the changes. Raises what the first that was refused raises, when those beside it are done."""
    total, made = len(plan.differences) + len(plan.zones), 0

    def done(count: int) -> None:
        """Counts what was made."""
        nonlocal made
        made += count
        advance(count)

    with progress("applying", total) as advance:
        try:
            await system.change(plan.differences, done)
            await system.change_zones(plan.zones, done)
        except* NearcastError as refused:
            warn("note", f"{made:,} of {pluralize(total, 'change')} made; the same again makes the rest")
            raise first_error(refused) from None


def _tell(plan: _DefinitionPlan, wishes: _Wishes) -> None:
    for difference in plan.differences:
        if wishes.as_json:
            print_json(_json(difference))
        else:
            click.echo("\n".join(_lines(difference)))
    for change in plan.zones:
        if wishes.as_json:
            names = [zone.name for zone in change.zones]
            print_json({"kind": "features", "id": change.layer, "zones": names, "removed": list(change.removed)})
        else:
            click.echo(plain(f"~ zones of {change.layer}: {_told_of_zones(change)}"))


def _told_of_zones(change: ZoneShapesChange) -> str:
    told = [f"{len(change.zones):,} added or changed"] if change.zones else []
    return ", ".join([*told, *([f"{len(change.removed):,} removed"] if change.removed else [])])


def _json(difference: DocumentDifference) -> dict[str, Any]:
    return {
        "kind": difference.kind,
        "id": difference.id or None,
        "before": difference.before,
        "after": difference.after,
    }


def _lines(difference: DocumentDifference) -> Iterator[str]:
    """A difference as a line, and one for each field that changes."""
    name = plain(f"{KINDS[difference.kind]} {difference.id}") if difference.id else "settings"
    if difference.after is None:
        yield f"- {name}"
    elif difference.before is None:
        yield f"+ {name}"
    else:
        yield f"~ {name}"
        for field_name, before, after in difference.fields():
            yield plain(f"    {field_name}: {_value(before)} → {_value(after)}")


def _value(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _sum_up(plan: _DefinitionPlan, wishes: _Wishes) -> None:
    added = sum(one.before is None for one in plan.differences)
    removed = sum(one.after is None for one in plan.differences)
    changed = len(plan.differences) - added - removed + len(plan.zones)
    told = f"{added:,} added, {changed:,} changed, {removed:,} removed, {plan.alike:,} as they were"
    warn("note", f"{told}{'; a dry run: nothing is changed' if wishes.dry_run else ''}")
