"""Six days of real bushfires, two hundred receivers over measured links, decided and sent on a clock of the test's own.

No process, no socket: what is decided comes from the stages, what is sent from the sessions' queues and pace. So every
single sending of the six days can be judged.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from pyproj import Geod

from nearcast.delivery.pacing import Pacing
from nearcast.delivery.queue import DeliveryQueue, QueuedDelivery
from nearcast.errors import Mark
from nearcast.importers import nsw_fires
from nearcast.importers.mobile_links import LinkTrace, traces
from nearcast.language.cloudevents import read_event
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.rate_limit import RateLimit
from nearcast.model.subscription import ClientProfile, Settings
from nearcast.server.sessions.session import Session
from nearcast.stages.decide import replay
from nearcast.stages.fold import StateFold
from tests.shared import shared

pytestmark = pytest.mark.data

RISE = 2
SHARE = 0.002
"""Of the measured bandwidth: a report takes seconds, as an alert with maps would over the whole of it."""
LOST = 60.0
"""Seconds of a dead link after which the connection is given up."""
OUTAGES = (20 * 3600.0, 5 * 3600.0)
"""A third of the links is dead every so many seconds for so long."""
LOOK = 5.0
"""Seconds between two looks at a link that is dead."""


@dataclass(frozen=True)
class Sending:
    """One sending: the delivery's position and level, and the best level that waited then."""

    at: float
    position: int
    level: int
    best: int
    overtaken: int
    first: bool


@dataclass
class Reception:
    """One receiver over the six days."""

    session: Session
    link: LinkTrace
    offset: float
    outages: bool
    owed: dict[int, int] = field(default_factory=dict)
    received: list[int] = field(default_factory=list)
    sendings: list[Sending] = field(default_factory=list)
    lost: int = 0

    def bandwidth(self, at: float) -> float:
        """kbit/s now; 0 while the link is dead."""
        every, length = OUTAGES
        if self.outages and (at + self.offset) % every < length:
            return 0.0
        return self.link.bandwidth(self.offset + at) * SHARE


@dataclass
class SixDays:
    """What there was, what was decided, and how it was received."""

    documents: list[dict[str, Any]]
    clients: dict[str, ClientProfile]
    radius: dict[str, float]
    receptions: dict[str, Reception]


@pytest.fixture(scope="module")
def days() -> SixDays:
    """The six days, decided and received."""
    return six_days(
        shared("data/nsw_rfs_fires/changes_20191230_20200104.jsonl.gz"), shared("data/hsdpa_norway_3g/3Glogs.tar.gz")
    )


def six_days(reports: Path, links: Path) -> SixDays:
    said = nsw_fires.receivers(reports)
    loaded = load(said)
    documents = list(nsw_fires.events(reports))
    settings = loaded.settings
    events = [read_event(one, Mark("test"), settings.channels) for one in documents]
    deliveries = decided(loaded, events)
    times = [datetime.fromisoformat(one["time"]).timestamp() for one in documents]
    found, clients = traces(links), {client.id: client for client in loaded.clients}
    receptions = {}
    for number, (id, client) in enumerate(clients.items()):
        link = found[number % len(found)]
        session = Session(client, DeliveryQueue(), RateLimit(1e6, 1_000_000))
        reception = Reception(session, link, number * 97.0, number % 3 == 0)
        receptions[id] = reception
        receive(reception, settings, [(times[at - 1], delivery) for at, delivery in deliveries[id]])
    radius = {one["client"]: float(one["filter"]["all"][0].rpartition(" ")[2]) for one in said["subscriptions"]}
    return SixDays(documents, clients, radius, receptions)


def load(document: dict[str, Any]) -> files.DefinitionSet:
    with TemporaryDirectory() as folder:
        path = Path(folder, "fires.yaml")
        path.write_text(yaml.safe_dump(document))
        return files.load([path])


def decided(loaded: files.DefinitionSet, events: list[Event]) -> dict[str, list[tuple[int, QueuedDelivery]]]:
    """By client the deliveries of all events, whose positions count from 1."""
    known = StateFold()
    for change in loaded.changes():
        known.registry.apply(change)
    known = StateFold(known.registry)
    table = to_table(events)
    numbered = table.set_column(0, "position", [list(range(1, len(events) + 1))])
    found: dict[str, list[tuple[int, QueuedDelivery]]] = defaultdict(list)
    for _, deliveries in replay(known, iter([numbered]), changes):
        for row in deliveries.to_pylist():
            event = events[row["position"] - 1]
            one = QueuedDelivery(
                row["position"], row["subscription"], event.entity, row["level"], size=len(event.payload)
            )
            found[row["client"]].append((row["position"], one))
    return found


def receive(reception: Reception, settings: Settings, owed: list[tuple[float, QueuedDelivery]]) -> None:
    """Queues each delivery when its event was seen, and sends as the server's pump does, until all is received."""
    session, waiting = reception.session, reception.session.waiting
    reception.owed = {delivery.sequence: delivery.level for _, delivery in owed}
    coming = list(reversed(owed))
    arriving: list[tuple[float, int]] = []
    now, free, connected, dead_since = owed[0][0] if owed else 0.0, 0.0, True, None
    while coming or waiting.waiting or waiting.in_flight:
        while coming and coming[-1][0] <= now:
            delivery = coming.pop()[1]
            waiting.insert(delivery, session.priority_of(settings)(delivery), now)
        while arriving and arriving[0][0] <= now:
            position = heapq.heappop(arriving)[1]
            reception.received.append(position)
            session.pace.acknowledged(position, now)
            waiting.acknowledge([position], now)
        rate = reception.bandwidth(now)
        moments = [coming[-1][0]] if coming else []
        moments += [arriving[0][0]] if arriving else []
        if rate == 0:
            dead_since = now if dead_since is None else dead_since
            if connected and now - dead_since >= LOST:
                connected, arriving = False, []
                reception.lost += len(waiting.in_flight)
                waiting.take_back(session.priority_of(settings), now)
            # What is on a dead link arrives when it lives again, unless it is given up before.
            arriving = [(at + LOOK, position) for at, position in arriving]
            moments = [coming[-1][0]] if coming and not waiting.waiting and not arriving else [now + LOOK]
        else:
            dead_since = None
            if not connected:
                connected, session.pace, free = True, Pacing(), now
            _told(reception, settings, rate / SHARE)
            wait = _send(reception, arriving, max(free, now), rate, now)
            free = max((at for at, _ in arriving), default=now)
            moments = [coming[-1][0]] if coming else []
            moments += [arriving[0][0]] if arriving else []
            moments += [now + wait] if wait else []
        if moments:
            now = max(now, min(moments))


def _told(reception: Reception, settings: Settings, bandwidth: float) -> None:
    """The client tells its bandwidth; where the context is another now, what waits is reordered."""
    session = reception.session
    before = session.priority_inputs(settings)
    session.client = ClientProfile(**{**_fields(session.client), "readings": {"bandwidth": bandwidth}})
    if session.priority_inputs(settings) != before:
        session.waiting.reorder(session.priority_of(settings))


def _fields(client: ClientProfile) -> dict[str, Any]:
    return {name: getattr(client, name) for name in ("id", "role", "task", "readings", "place", "matrix")}


def _send(
    reception: Reception, arriving: list[tuple[float, int]], free: float, rate: float, now: float
) -> float | None:
    """Sends what the pace allows; the seconds until it allows more, None if that is for an arrival to say."""
    waiting, pace = reception.session.waiting, reception.session.pace
    while delivery := waiting.next():
        wait = pace.delay(delivery.size, now)
        if wait != 0:
            return wait
        levels = [one.level for one in waiting.waiting.values()]
        overtaken = sum(
            1 for one in waiting.waiting.values() if one.sequence < delivery.sequence and one.level < delivery.level
        )
        first = delivery.attempts == 0
        reception.sendings.append(Sending(now, delivery.sequence, delivery.level, max(levels), overtaken, first))
        waiting.send(delivery, now)
        pace.sent(delivery.sequence, delivery.size, now, waiting.next() is not None)
        free += delivery.size * 8 / (rate * 1000)
        heapq.heappush(arriving, (free, delivery.sequence))
    return None


def test_nothing_is_lost_and_everything_ends_once(days: SixDays) -> None:
    """Whatever the link did: what was owed was received once, and every queue balances."""
    assert 200 == len(days.receptions)
    assert 20_000 < sum(len(one.owed) for one in days.receptions.values())
    assert 20 < sum(one.lost for one in days.receptions.values()), "some must be sent again, else nothing is tested"
    for reception in days.receptions.values():
        assert sorted(reception.owed) == sorted(reception.received)
        assert 0 == reception.session.waiting.balance()
        assert {"acknowledged"} >= set(reception.session.waiting.settled)


def test_no_routine_update_is_sent_while_a_rise_waits(days: SixDays) -> None:
    """At every single sending of the six days, over any link: none less urgent goes before a rise that is there."""
    sendings = [sending for one in days.receptions.values() for sending in one.sendings]
    assert [] == [sending for sending in sendings if sending.best == RISE > sending.level]
    overtaking = [sending for sending in sendings if sending.level == RISE and sending.overtaken]
    assert 50 < len(overtaking), "rises must find routine updates waiting, else nothing is tested"


def test_a_rise_arrives_before_what_was_published_with_it_or_before_and_still_waited(days: SixDays) -> None:
    """Not only sent first: it arrives first, for a link keeps the order of what is on it."""
    for reception in days.receptions.values():
        arrived = {position: turn for turn, position in enumerate(reception.received)}
        routine = {one.position: one.at for one in reception.sendings if one.level < RISE}
        for rise in (one for one in reception.sendings if one.level == RISE and one.first):
            later = [position for position, at in routine.items() if position < rise.position and at > rise.at]
            assert all(arrived[rise.position] < arrived[position] for position in later)


def test_after_a_dead_link_returns_the_urgent_ones_come_first(days: SixDays) -> None:
    """In what had waited through an outage of hours no rise stands behind anything else."""
    outages = mixed = 0
    for reception in days.receptions.values():
        for burst in bursts(reception):
            outages += 1
            levels = [sending.level == RISE for sending in burst]
            assert sorted(levels, reverse=True) == levels
            mixed += len(set(levels)) > 1
    assert 50 < outages
    assert 10 < mixed


def bursts(reception: Reception) -> Iterator[list[Sending]]:
    """After each outage of hours: the sendings of what was there when the link returned, in their order."""
    if not reception.outages:
        return
    for before, after in zip(reception.sendings, reception.sendings[1:], strict=False):
        every, length = OUTAGES
        if after.at - before.at >= length / 2 and (after.at + reception.offset) % every < length + 60:
            index = reception.sendings.index(after)
            yield [one for one in reception.sendings[index:] if one.position <= newest(reception, after.at)]


def newest(reception: Reception, at: float) -> int:
    """The last position that was queued by a moment: that of the sendings up to then cannot be beyond it."""
    return max(one.position for one in reception.sendings if one.at <= at)


def test_a_rise_inside_the_radius_is_the_most_urgent_and_nothing_else_is(days: SixDays) -> None:
    """Against a reckoning of its own: levels by incident remembered across vanishing, distances on the ellipsoid."""
    rises = risen(days.documents)
    geod = Geod(ellps="WGS84")
    for id, reception in days.receptions.items():
        place = days.clients[id].place
        assert place
        inside = {
            number for number, (lon, lat) in rises.items() if geod.inv(place.x, place.y, lon, lat)[2] <= days.radius[id]
        }
        assert inside == {position for position, level in reception.owed.items() if level == RISE}
    assert 81 == len(rises)


def risen(documents: list[dict[str, Any]]) -> dict[int, tuple[float, float]]:
    """The position and place of every event by which an incident's alert level rose."""
    found, last = {}, {}
    for number, document in enumerate(documents, 1):
        if document["type"] == "incident":
            data, subject = document["data"], document["subject"]
            if data["alert_rank"] > last.get(subject, 3):
                found[number] = (data["lon"], data["lat"])
            last[subject] = data["alert_rank"]
    return found


def test_the_dirt_goes_through(days: SixDays) -> None:
    """Incidents that vanish and return, reports that are late, moments shared by many: all of it was received."""
    received = {position for one in days.receptions.values() for position in one.received}
    of = dict(enumerate(days.documents, 1))
    gone = {of[number]["subject"] for number in received if of[number]["type"] == "incident.gone"}
    back = {of[number]["subject"] for number in received if of[number]["data"].get("action") == "new"}
    assert 20 < len(gone & back)
    assert any(of[number]["data"].get("late") for number in received)
    times = [datetime.fromisoformat(document["time"]).astimezone(UTC) for document in days.documents]
    assert sorted(times) == times
