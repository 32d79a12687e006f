"""`python -m experiments foraging`: context foraging simulated, and a page that holds it against the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from experiments.foraging.claims import Claim, asdr, asdr_own, claims, messages
from experiments.foraging.figures import figures
from experiments.foraging.page import page
from experiments.foraging.run import measured
from experiments.foraging.setting import EXPERIMENTS
from experiments.foraging.studies import Plan, runs
from experiments.foraging.summary import Mean, Point, points
from experiments.results import result_options, write_results
from experiments.sweep import in_turn, sweep
from nearcast.cli.output import print_json, progress

FILES = "foraging.html, foraging.json and figures"
WHOLE, QUICK = Plan(), Plan(seeds=2, duration=30, beyond=False)


@click.command("foraging")
@click.option(
    "--experiment", "experiments", multiple=True, type=click.Choice(EXPERIMENTS), help="Only these of the paper's four."
)
@click.option("--seeds", default=WHOLE.seeds, show_default=True, type=click.IntRange(1), help="How many runs of each.")
@click.option("--seed", default=WHOLE.first, show_default=True, help="The first seed.")
@click.option("--beyond/--no-beyond", default=True, show_default=True, help="What the paper leaves open, too.")
@click.option(
    "--readings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Real readings to put on the nodes: raw_data_xlarge.json.zip.",
)
@click.option("--quick", is_flag=True, help="Two seeds, short runs, none beyond the paper, without Spark.")
@result_options("point", FILES)
def foraging(
    experiments: tuple[str, ...],
    seeds: int,
    seed: int,
    beyond: bool,
    readings: Path | None,
    quick: bool,
    as_json: bool,
    out: Path | None,
) -> None:
    """Let mobile nodes ask each other for context, and count messages and detected situations.

    Experiments A1, A2, B1 and B2 of Tsetsos and Hadjiefthymiades' "An innovative architecture for context foraging":
    foraging (CFor) against polling (CPol), by speed and by spatial validity, eager and lazy; each run a Spark task.
    """
    source = str(readings.resolve()) if readings else None
    asked = replace(QUICK, first=seed) if quick else Plan(seeds, seed, beyond=beyond)
    plan = replace(asked, readings=source)
    planned = runs(plan, experiments or EXPERIMENTS)
    with progress("simulating", len(planned)) as advance:
        outcomes = (in_turn if quick else sweep)(measured, planned, advance)
    found = points(planned, outcomes)
    if as_json:
        for point in found:
            print_json(_row(point))
    else:
        _show(found)
    if out:
        _write(out, plan, found)


def _show(found: Sequence[Point]) -> None:
    console = Console()
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for heading in ("study", "line", "x", "messages", "ASDR", "ASDR′"):
        words = heading in ("study", "line")
        # Where the terminal is narrow words go on in the next line, so that numbers stay whole.
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words)
    for point in found:
        means = [_short(one) for one in _means(point).values()]
        table.add_row(point.study, point.line, f"{point.x:g}", *means)
    console.print(table)
    for one in claims(found):
        console.print(_told(one), highlight=False)


def _short(mean: Mean) -> str:
    """A mean without its interval, which the data and the page have."""
    if not mean.count:
        return ""
    return f"{mean.value:,.0f}" if mean.value > 1 else f"{mean.value:.3f}"


def _told(claim: Claim) -> str:
    return f"[bold]{claim.verdict}[/bold]: {claim.said}\n  {claim.numbers}"


def _means(point: Point) -> dict[str, Mean]:
    measures = {"messages": messages, "asdr": asdr, "asdr_own": asdr_own}
    return {name: point.mean(measure) for name, measure in measures.items()}


def _row(point: Point) -> dict[str, object]:
    means = {name: {"mean": mean.value, "ci95": mean.spread} for name, mean in _means(point).items()}
    return {"study": point.study, "line": point.line, "x": point.x, "runs": len(point.runs), **means}


def _write(folder: Path, plan: Plan, found: Sequence[Point]) -> None:
    every = [
        {"study": point.study, "line": point.line, "x": point.x, "nodes": point.nodes, "seed": seed, **asdict(one)}
        for point in found
        for seed, one in point.runs.items()
    ]
    document = {"plan": asdict(plan), "claims": [asdict(one) for one in claims(found)], "runs": every}
    pictures = {f"{figure.name}.svg": figure.svg for figure in figures(found)}
    write_results(folder, "foraging", document, {"foraging.html": page(found, plan), **pictures}, FILES)
