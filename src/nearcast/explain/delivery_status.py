"""What became of an event's deliveries, as the logs of the journal tell it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.event import Event


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """What became of an event for one client. `outcome` is one of `OUTCOME_NAMES`, or one of these:

    "undecided": the pipeline has not come so far; "none": decided, and no delivery; "waiting": decided, not settled: it
    waits, or was sent and is not acknowledged. The rest is None as long as no outcome tells it.
    """

    outcome: str
    decided_through: int
    subscription: str | None = None
    level: int | None = None
    priority: int | None = None
    attempts: int | None = None
    accepted: datetime | None = None
    queued: datetime | None = None
    sent: datetime | None = None
    settled: datetime | None = None
    early: bool | None = None
    """Whether an access server decided it before the pipeline did."""


def delivery_statuses(
    event: Event, deliveries: pa.Table, outcomes: Iterable[pa.Table], decided_through: int
) -> dict[str, DeliveryStatus]:
    """The fate of every delivery of an event, by client.

    `deliveries` are rows at its position, `outcomes` the log of outcomes in any cuts, `decided_through` the end of
    the log of deliveries.
    """
    found = {
        row["client"]: DeliveryStatus(
            "waiting", decided_through, row["subscription"], row["level"], accepted=event.accepted
        )
        for row in deliveries.filter(pc.equal(deliveries.column("part"), event.part)).to_pylist()
    }
    for table in outcomes if found else ():
        own = pc.and_(pc.equal(table.column("event"), event.position), pc.equal(table.column("part"), event.part))
        for row in table.filter(own).to_pylist():
            if row["client"] in found:
                found[row["client"]] = _settled(found[row["client"]], row)
        if all(delivery_status.settled for delivery_status in found.values()):
            break
    return found


def _settled(delivery_status: DeliveryStatus, row: dict[str, object]) -> DeliveryStatus:
    return DeliveryStatus(
        outcome=str(row["outcome"]),
        decided_through=delivery_status.decided_through,
        subscription=delivery_status.subscription,
        level=delivery_status.level,
        accepted=delivery_status.accepted,
        **{name: row[name] for name in ("priority", "attempts", "queued", "sent", "settled", "early")},  # type: ignore[arg-type]
    )


def undelivered(event: Event, decided_through: int) -> DeliveryStatus:
    """The fate where there is no delivery."""
    return DeliveryStatus("none" if event.position <= decided_through else "undecided", decided_through)
