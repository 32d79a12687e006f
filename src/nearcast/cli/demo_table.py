"""What the demo shows: a live table of who gets what, and the summary at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nearcast.experiments.performance import Performance, Receiver

MOST_ROWS = 30
PRIORITIES = (0, 1, 2)
STYLES = {0: "bold red", 1: "yellow", 2: "cyan"}


def picture(performance: Performance) -> RenderableType:
    """The receivers as a table: role and task, link, arrivals by priority, the last event and how long it waited."""
    table = Table(box=None, pad_edge=False, title=f"{performance.clock:5.1f} s of the story", title_justify="left")
    for heading in ("receiver", "role, task", "link"):
        table.add_column(heading, no_wrap=True)
    for priority in PRIORITIES:
        table.add_column(f"p{priority}", justify="right", style=STYLES[priority])
    table.add_column("last", no_wrap=True, overflow="ellipsis")
    table.add_column("waited", justify="right")
    for receiver in list(performance.receivers.values())[:MOST_ROWS]:
        counts = receiver.by_priority()
        duty = ", ".join(part for part in (receiver.role, receiver.task) if part)
        arrived = (f"{counts[each]:,}" for each in PRIORITIES)
        table.add_row(receiver.id, duty, _link(receiver), *arrived, *_last(receiver))
    more = len(performance.receivers) - MOST_ROWS
    return Group(table, Text(f"and {more} more receivers")) if more > 0 else table


def _link(receiver: Receiver) -> Text:
    bandwidth = receiver.link.bandwidth
    if bandwidth <= 0:
        return Text("dead", "bold red")
    return Text(f"{bandwidth:,.0f} kbit/s", "yellow" if bandwidth < 100 else "")


def _last(receiver: Receiver) -> tuple[Text, str]:
    if not receiver.arrivals:
        return Text("–"), ""
    arrival = receiver.arrivals[-1]
    event = arrival.delivery.event
    waited = "" if arrival.waited is None else f"{arrival.waited:.1f} s"
    words = f"{event['type']} {event.get('subject', '')}"
    return Text(words, STYLES.get(arrival.delivery.priority, "")), waited


def summary(performance: Performance, status: Mapping[str, Any], restarts: Mapping[str, int]) -> dict[str, Any]:
    """The whole performance in figures. `balance` must be 0: queued deliveries that nobody can account for."""
    arrived = sum((receiver.by_priority() for receiver in performance.receivers.values()), Counter[int]())
    broadcast = len(performance.published) * len(performance.receivers)
    dropped = {name: count for name, count in status["outcomes"].items() if count and name != "acknowledged"}
    return {
        "events": len(performance.published),
        "refused": performance.refused,
        "receivers": len(performance.receivers),
        "deliveries": {str(priority): count for priority, count in sorted(arrived.items())},
        "saved_of_broadcast": 1 - status["queued"] / broadcast if broadcast else 0.0,
        "seconds": {
            str(priority): {"median": _share(waits, 0.5), "p99": _share(waits, 0.99), "longest": waits[-1]}
            for priority, waits in performance.waits().items()
        },
        "duplicates_removed": sum(receiver.client.duplicates for receiver in performance.receivers.values()),
        "connections": sum(receiver.client.connections for receiver in performance.receivers.values()),
        "waiting": dict(status["waiting"]),
        "in_flight": status["in_flight"],
        "dropped": dropped,
        "balance": status["balance"],
        "restarts": dict(restarts),
    }


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def told(result: Mapping[str, Any]) -> RenderableType:
    """The summary for a person."""
    heading = Text("\nWhat arrived, and how long after it was published", "bold")
    table = Table(box=None, pad_edge=False)
    for name in ("priority", "deliveries", "median", "p99", "longest"):
        table.add_column(name, justify="right")
    for priority, count in result["deliveries"].items():
        waits = result["seconds"].get(priority)
        cells = [f"{waits[name]:,.2f} s" for name in ("median", "p99", "longest")] if waits else ["–"] * 3
        table.add_row(priority, f"{count:,}", *cells, style=STYLES.get(int(priority), ""))
    waiting = sum(result["waiting"].values())
    withheld = result["waiting"].get("-1", 0)
    dropped = ", ".join(f"{name} {count:,}" for name, count in result["dropped"].items()) or "none"
    lines = [
        f"{result['events']:,} events for {result['receivers']} receivers; "
        f"{result['saved_of_broadcast']:.0%} fewer messages than a broadcast to everybody",
        f"waiting {waiting:,} (withheld {withheld:,}), in flight {result['in_flight']:,}; dropped: {dropped}",
        f"balance {result['balance']}: queued, less acknowledged, dropped, waiting and in flight",
    ]
    return Group(heading, table, *(Text(line) for line in lines))
