"""`python -m experiments fulcrum`: what strategies for relations cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console

from experiments.fulcrum.count import Count, count
from experiments.fulcrum.late import late
from experiments.fulcrum.laws import laws
from experiments.fulcrum.plot import plot
from experiments.fulcrum.sea import sea
from experiments.fulcrum.setting import RATES, Sweep
from experiments.fulcrum.tables import tables
from experiments.fulcrum.week import week
from experiments.results import result_options, write_results
from experiments.sweep import in_turn, sweep
from nearcast.cli.output import print_json, progress

FILES = "fulcrum.json and fulcrum.svg"


@click.command("fulcrum")
@click.option(
    "--rate",
    "rates",
    multiple=True,
    default=RATES,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Times the paper's 1 to 6 reports a minute; may be given several times.",
)
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(1), help="Campuses, from as many seeds.")
@click.option("--metres", default=10.0, show_default=True, type=click.FloatRange(0), help="How near is near.")
@click.option("--ais", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A file of ships, csv.gz.")
@click.option("--quick", is_flag=True, help="A campus of a few dozen people.")
@click.option("--engine", type=click.Choice(["local", "spark"]), default="spark", show_default=True)
@click.option("--master", help="Where Spark runs; all cores of this machine unless given.")
@result_options("row", FILES)
def fulcrum(
    rates: tuple[float, ...],
    seeds: int,
    metres: float,
    ais: Path | None,
    quick: bool,
    engine: Literal["local", "spark"],
    master: str | None,
    as_json: bool,
    out: Path | None,
) -> None:
    """Count what strategies for relations send, on a campus for a week and among ships.

    Boyer and Griswold's "Fulcrum": 643 people with 2,165 relations at four brokers around a fifth, and the news that a
    buddy is near. Ring events, proximity events and hops of every strategy, how they grow with the rate of reports,
    and the laws by which the paper foretells them.
    """
    compared = Sweep(tuple(sorted(set(rates))), tuple(range(1, seeds + 1)), metres, quick)
    run = in_turn if engine == "local" else partial(sweep, master=master)
    tasks, delayed = compared.tasks(), compared.late_tasks()
    with progress("counting", len(tasks)) as advance:
        counts = run(count, tasks, advance)
    with progress("with messages that take time", len(delayed)) as advance:
        lates = run(late, delayed, advance)
    ships = list(sea(ais, pairs=40 if quick else 400)) if ais else []
    weeks = [week(compared.campus(seed)) for seed in compared.seeds]
    rows: dict[str, list[Any]] = {"weeks": weeks, "counts": counts, "late": lates, "laws": list(laws()), "ships": ships}
    if as_json:
        for kind, found in rows.items():
            for one in found:
                print_json({"kind": kind, **_row(one)})
    else:
        console = Console()
        for table in tables(weeks, counts, lates, rows["laws"], ships):
            console.print(table)
    if out:
        _write(out, compared, rows, counts)


def _row(one: Any) -> dict[str, Any]:
    """A row as a document, with what is computed from it."""
    if not isinstance(one, Count):
        return asdict(one)
    computed = {"per_event": one.per_event, "joined_per_event": one.joined_per_event, "analytic": one.analytic()}
    return {**asdict(one), **computed, "suppressed": one.suppressed}


def _write(folder: Path, compared: Sweep, rows: dict[str, list[Any]], counts: Sequence[Count]) -> None:
    document: dict[str, Any] = {"setting": asdict(compared), "campus": asdict(compared.campus(compared.seeds[0]))}
    document |= {kind: [_row(one) for one in found] for kind, found in rows.items()}
    write_results(folder, "fulcrum", document, {"fulcrum.svg": plot(compared, counts)}, FILES)
