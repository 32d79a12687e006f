"""`python -m experiments merging`: what covering and merging save, and what precision merging costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from experiments.merging.plot import plot
from experiments.merging.run import OPERATORS, PUBLISHED, Setting, Summary, run, summarized
from experiments.results import result_options, write_results
from nearcast.cli.output import print_json, progress

PAPER = Setting()
FILES = "merging.json and merging.svg"

EXPLAINED = (
    "The paper prints precisions only; its sizes are in a picture, of XML filters, ours are CQL2 texts. Its precision"
    " of imperfect merging is what chance gives if each constraint selects half of the events: with n attributes and 20"
    " subscriptions to a schema, 1 - (1 - 1/2^n)^20, that is 99.7, 93 and 72 %. It does not name its operators; with"
    " `--operators ranges` ours select about half too. `kept` merges only while the precision stated stays: measured on"
    " events other than those it decided by, so it may come out a little lower."
)


@click.command("merging")
@click.option("--schemas", default=PAPER.schemas, show_default=True, type=click.IntRange(1))
@click.option("--subscriptions", default=PAPER.subscriptions, show_default=True, type=click.IntRange(1))
@click.option("--replications", default=PAPER.replications, show_default=True, type=click.IntRange(1))
@click.option(
    "--attributes",
    multiple=True,
    default=PAPER.attributes,
    show_default=True,
    type=click.IntRange(1),
    help="Of each schema; may be given several times.",
)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    default=PAPER.precisions,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True),
    help="Merge as long as it is kept; may be given several times.",
)
@click.option(
    "--operators",
    type=click.Choice(sorted(OPERATORS)),
    default=PAPER.operators,
    show_default=True,
    help="Constraints on numbers and strings: < <= > >= (ranges), or = and <> as well (all).",
)
@click.option("--seed", default=PAPER.seed, show_default=True, help="Another seed, other schemas and subscriptions.")
@result_options("row", FILES)
def merging(
    schemas: int,
    subscriptions: int,
    replications: int,
    attributes: tuple[int, ...],
    precisions: tuple[float, ...],
    operators: Literal["ranges", "all"],
    seed: int,
    as_json: bool,
    out: Path | None,
) -> None:
    """Count what covering and merging save, and what precision merging costs.

    Figure 1 of Tarkoma's "Event dissemination service for pervasive computing": filters and bytes of a routing table
    unmerged, covered, merged perfectly, merged imperfectly, and merged as long as a precision is kept. Takes some
    minutes in the paper's size.
    """
    setting = Setting(
        schemas,
        subscriptions,
        replications,
        tuple(dict.fromkeys(attributes)),
        tuple(sorted(set(precisions), reverse=True)),
        operators,
        seed=seed,
    )
    with progress("filling tables", setting.rounds) as advance:
        summaries = summarized(list(run(setting, advance)))
    for summary in summaries if as_json else ():
        print_json(asdict(summary))
    if not as_json:
        console = Console()
        console.print(_table(summaries))
        console.print(EXPLAINED, highlight=False)
    if out:
        _write(out, setting, summaries)


def _table(summaries: Sequence[Summary]) -> Table:
    table = Table(
        title="Means over the replications; n attributes", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for heading in ("n", "table", "filters", "bytes", "gzip\neach", "gzip\nstream", "precision", "paper", "seconds"):
        table.add_column(heading, justify="left" if heading == "table" else "right", no_wrap=True)
    before = None
    for one in summaries:
        if before not in (None, one.attributes):
            table.add_section()
        before, mean = one.attributes, one.mean
        sizes = [f"{mean[name]:,.0f}" for name in ("filters", "raw", "gzip_filter", "gzip_stream")]
        table.add_row(
            str(one.attributes), one.variant, *sizes, _percent(mean["precision"]), _paper(one), f"{mean['seconds']:.2f}"
        )
    return table


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _paper(summary: Summary) -> str:
    """The paper's precision, where it says one."""
    if summary.variant != "imperfect" or summary.attributes not in PUBLISHED:
        return ""
    low, high = PUBLISHED[summary.attributes]
    return f"{low * 100:.0f} %" if low == high else f"{low * 100:.0f}–{high * 100:.0f} %"


def _write(folder: Path, setting: Setting, summaries: Sequence[Summary]) -> None:
    document = {"setting": asdict(setting), "published": PUBLISHED, "rows": [asdict(one) for one in summaries]}
    write_results(folder, "merging", document, {"merging.svg": plot(setting, summaries)}, FILES)
