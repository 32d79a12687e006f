"""The tables of `python -m experiments fulcrum`, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.fulcrum.count import Count, User
from experiments.fulcrum.late import Late
from experiments.fulcrum.laws import Law
from experiments.fulcrum.sea import Sea
from experiments.fulcrum.setting import (
    PUBLISHED,
    PUBLISHED_BROKERS,
    PUBLISHED_USERS,
    PUBLISHED_WEEK,
    by_strategy,
)
from experiments.fulcrum.week import Week


def tables(
    weeks: Sequence[Week], counts: Sequence[Count], lates: Sequence[Late], laws: Sequence[Law], ships: Sequence[Sea]
) -> Iterator[Table]:
    """All of them, those of ships only where there are some."""
    yield _weeks(weeks)
    yield _brokers(weeks[0])
    for rate in sorted({count.rate for count in counts}):
        yield _campus(counts, rate)
    yield _users([count for count in counts if count.strategy == "range-ring"])
    yield _laws(laws)
    yield _late(lates)
    if ships:
        yield _ships(ships)


def _table(title: str, *headings: str, left: int = 1) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", no_wrap=True)
    return table


def _weeks(weeks: Sequence[Week]) -> Table:
    """What the paper says of its week, and the same of ours."""
    table = _table("The week", "", *(f"seed {one.seed}" for one in weeks), "the paper")
    rows = {
        "users": "users",
        "active": "of them report",
        "relations": "relations",
        "from_both": "with reports of both",
        "together": "of both at one time",
        "reports": "reports",
        "related": "of them of users with relations",
    }
    for name, what in rows.items():
        paper = f"{PUBLISHED_WEEK[name]:,}" if name in PUBLISHED_WEEK else ""
        table.add_row(what, *(f"{getattr(one, name):,}" for one in weeks), paper)
    return table


def _brokers(week: Week) -> Table:
    """Table 1: relations by broker of the subscriber, then of the buddy, the paper's beside them."""
    brokers = [str(number) for number in range(len(week.at_brokers))]
    papers = [f"{number},\npaper" for number in brokers]
    table = _table(f"Relations by broker (table 1), seed {week.seed}", "broker", *brokers, *papers)
    for number, row in enumerate(week.at_brokers):
        table.add_row(str(number), *map(str, row), *map(str, PUBLISHED_BROKERS[number]))
    return table


def _campus(counts: Sequence[Count], rate: float) -> Table:
    """Shares of original events, and hops per original event, of every strategy at a rate."""
    found = {name: rows for name, rows in by_strategy(counts, rate).items() if rows}
    first = next(iter(found.values()))[0]
    title = f"{rate:g} times the paper's rate: {first.reports:,} reports of people with relations"
    headings = ("strategy", "rings", "near", "less", "hops", "formula", "paper", "hops,\njoined", "equal")
    table = _table(title, *headings)
    for name, rows in found.items():
        analytic = [one for one in (row.analytic() for row in rows) if one is not None]
        table.add_row(
            name,
            _percent(_mean(rows, lambda row: row.rings / row.reports)),
            _percent(_mean(rows, lambda row: row.entered / row.reports)),
            _percent(_mean(rows, lambda row: row.suppressed)),
            f"{_mean(rows, lambda row: row.per_event):.3f}",
            f"{fmean(analytic):.3f}" if analytic else "",
            _published(name, rate),
            f"{_mean(rows, lambda row: row.joined_per_event):.3f}",
            "yes" if all(row.equal for row in rows) else "NO",
        )
    if rate == 1:
        shares = (_percent(PUBLISHED[name]) for name in ("rings", "entered", "suppressed"))
        # Its ring strategy, of which it says the shares.
        table.add_row("the paper", *shares, "", "", str(PUBLISHED["range-ring"]))
    return table


def _mean(rows: Sequence[Count], of: Callable[[Count], float]) -> float:
    return fmean(map(of, rows))


def _published(name: str, rate: float) -> str:
    """The paper's hops, where it says some."""
    key = name if rate == 1 or name != "range-ring" else f"{name} at {rate:g}"
    return str(PUBLISHED.get(key, ""))


def _users(counts: Sequence[Count]) -> Table:
    """Table 2: who stands still, and who does not."""
    table = _table("Those who report most\nAnd the paper's table 2", "user", "reports", "rings")
    lowest = min(count.rate for count in counts)
    for user in next(count.users for count in counts if count.rate == lowest):
        table.add_row(_activity(user), f"{user.reports:,}", f"{user.rings:,}")
    table.add_section()
    for activity, reports, rings in PUBLISHED_USERS:
        table.add_row(activity, f"{reports:,}", f"{rings:,}")
    return table


def _activity(user: User) -> str:
    return "mobile" if user.mobile else "stationary"


def _laws(laws: Sequence[Law]) -> Table:
    headings = ("law", "S, m", "reports\nper metre", "foretold", "counted")
    table = _table("Head-on log2(2(S-D)), side by side 2/(S-D) a metre; D = 10", *headings)
    for law in laws:
        digits = ".1f" if law.law == "head-on" else ".4f"
        row = f"{law.apart:,g}", f"{law.per_metre:g}", format(law.foretold, digits), format(law.counted, digits)
        table.add_row(law.law, *row)
    return table


def _late(lates: Sequence[Late]) -> Table:
    headings = ("seconds", "reports", "facts", "of them\nlate", "answers", "changes", "kept,\nmost", "equal")
    table = _table("Range rings of busy pairs, by seconds that a message is under way", *headings, left=0)
    for one in lates:
        numbers = (one.reports, one.facts, one.late, one.answers, one.changes, one.kept)
        table.add_row(f"{one.seconds:g}", *(f"{number:,}" for number in numbers), "yes" if one.equal else "NO")
    return table


def _ships(ships: Sequence[Sea]) -> Table:
    headings = ("type", "strategy", "ships", "pairs", "reports", "published", "less", "changes", "equal")
    table = _table("Ships of one type first seen within 0.1 degrees, near is 500 m", *headings, left=2)
    before = None
    for one in ships:
        if before not in (None, one.type):
            table.add_section()
        before = one.type
        numbers = (one.ships, one.pairs, one.reports, one.facts)
        less = _percent(1 - one.facts / one.reports) if one.reports else ""
        row = (*(f"{number:,}" for number in numbers), less, f"{one.changes:,}", "yes" if one.equal else "NO")
        table.add_row(one.type, one.strategy, *row)
    return table


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"
