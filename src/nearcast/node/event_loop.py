"""The event loop around a foraging node: what it hears and measures goes in, what it says goes out.

The node decides; here are the clock, the sockets and the sensors. Whatever is wrong with a datagram or a reading is
counted by its cause and harms nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from math import inf
from types import MappingProxyType

from nearcast.errors import Fault
from nearcast.foraging.forager import ForagingNode
from nearcast.foraging.message_filter import MessageVerdict
from nearcast.foraging.provider import Readings
from nearcast.foraging.requestor import NodeSituation
from nearcast.model.event import Place
from nearcast.model.foraging import Message, Response
from nearcast.model.values import Value
from nearcast.node.sensors import Sensor, SensorReading
from nearcast.node.transport import Datagram, Transport
from nearcast.node.wire import decode, encode

log = logging.getLogger(__name__)

TICK_SECONDS = 0.2
"""How often a node looks whether a request is due and whether a situation has ended."""

SET_BACK_SECONDS = 1.0
"""Less is how clocks are corrected that run well."""

MOST_TOLD = 10
"""Of one cause so many are logged: many are one cause, and a log may not grow as somebody else likes."""

IN_VAIN = 3
"""So many requests for a class without an answer are reported: perhaps nobody provides it."""

OnSituation = Callable[[NodeSituation], None]
Taken = Callable[[Message, str], None]


def _nobody(*_: object) -> None:
    """Whoever is not interested."""


class NodeEventLoop:
    """A node with its transport and sensors, at a place.

    `ranges` are the values between which readings of some classes lie; others are dropped. `told` is called for each
    change of a situation, `taken` for each message that the node takes, with who sent it, and for its own requests;
    `clock` gives the seconds since the epoch.
    """

    def __init__(
        self,
        node: ForagingNode,
        transport: Transport,
        place: Place,
        sensors: Sequence[Sensor] = (),
        told: OnSituation = _nobody,
        taken: Taken = _nobody,
        clock: Callable[[], float] = time.time,
        ranges: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    ) -> None:
        self.node, self.transport, self.place = node, transport, place
        self.counts: Counter[str] = Counter()
        self.taken, self._clock, self._last = taken, clock, -inf
        self._sensors, self._told, self._ranges = tuple(sensors), told, ranges
        self._unanswered: Counter[str] = Counter()
        self._clocks_told: set[str] = set()
        self._full_told = False

    def counted(self) -> dict[str, int]:
        """All that was counted: by the node, by its filter of messages, and what found no room."""
        verdicts = {str(verdict): number for verdict, number in self.node.message_filter.counts.items()}
        others = {"outdated when heard": self.node.requestor.knowledge.outdated, **self._refused()}
        return {**self.counts, **verdicts, **{name: number for name, number in others.items() if number}}

    def _refused(self) -> dict[str, int]:
        node = self.node
        return {
            "no room: datagrams": self.transport.dropped,
            "no room: ids": node.message_filter.shares.refused,
            "no room: values": node.requestor.knowledge.shares.refused,
            "no room: requests": node.provider.refused,
        }

    def clock(self) -> float:
        """The seconds since the epoch. Where this device's clock was set back the node begins anew: what it knew, and
        when it would have asked again, were of a time that is yet to come.
        """
        now = self._clock()
        if now < self._last - SET_BACK_SECONDS:
            self.counts["clock set back"] += 1
            log.warning("the clock was set back seconds=%.1f: the node begins anew", self._last - now)
            self.node.begin_anew()
        self._last = now
        return now

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with self.transport, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._tick())
            for sensor in self._sensors:
                tasks.create_task(self._follow(sensor))

    async def _listen(self) -> None:
        while heard := await self.transport.receive():
            self.receive(heard)

    def receive(self, heard: Datagram) -> None:
        """Takes a datagram; counts it if it is none, or none of this node's business."""
        try:
            message, via = decode(heard.data)
        except Fault as fault:
            self.counts["malformed"] += 1
            if self.counts["malformed"] <= MOST_TOLD:
                log.warning("datagram dropped sender=%s fault=%r", heard.sender, str(fault))
            return
        # Multicast brings one's own words back; another node that takes this name harms nobody but itself.
        if via == self.node.id:
            self.counts["own voice"] += 1
            return
        # Passed on neither: who measures so should not be believed elsewhere.
        if isinstance(message, Response) and not all(self._in_range(*pair) for pair in message.values):
            self.counts["out of range"] += 1
            return
        before, outdated, now = self.node.message_filter.taken, self._outdated(), self.clock()
        self.broadcast(self.node.hear(message, heard.sender, self.place, now))
        of_use = self._outdated() == outdated
        if not of_use:
            self._tell_clock(message, heard.sender, now)
        if self.node.message_filter.taken > before:
            if of_use:
                self._note(message)
            self.taken(message, heard.sender)
            self.report_changes()

    def _outdated(self) -> int:
        """How many messages were of no use because of their time."""
        verdicts = self.node.message_filter.counts
        return self.node.requestor.knowledge.outdated + verdicts[MessageVerdict.STALE] + verdicts[MessageVerdict.EARLY]

    def _tell_clock(self, message: Message, sender: str, now: float) -> None:
        """Logs, once for each of a few who sent such, that a message was of no use because of its time."""
        if sender not in self._clocks_told and len(self._clocks_told) < MOST_TOLD:
            self._clocks_told.add(sender)
            ago, origin = now - message.time, message.id.origin
            log.warning("old, or of another clock: sender=%s origin=%s seconds behind=%.1f", sender, origin, ago)

    def _note(self, message: Message) -> None:
        """Forgets in how many requests a class was asked for in vain."""
        for name, _ in message.values if isinstance(message, Response) else ():
            for wide in self.node.above(name):
                self._unanswered.pop(wide, None)

    def _in_range(self, name: str, value: Value) -> bool:
        """Whether a reading is one, by the ontology's ranges."""
        low, high = self._ranges.get(name, (-inf, inf))
        return isinstance(value, (bool, str, datetime)) or low <= value <= high

    def broadcast(self, messages: Sequence[Message]) -> None:
        """Broadcasts messages."""
        for message in messages:
            try:
                self.transport.send(encode(message, self.node.id))
                self.counts["said"] += 1
            except Fault as fault:
                self.counts["unsendable"] += 1
                if self.counts["unsendable"] <= MOST_TOLD:
                    log.warning("message not sent id=%s fault=%r", message.id, str(fault))

    async def _tick(self) -> None:
        while True:
            now = self.clock()
            self._ask(now)
            self.report_changes()
            self.node.message_filter.forget(now)
            self._tell_full()
            await asyncio.sleep(TICK_SECONDS)

    def _tell_full(self) -> None:
        """Logs once that somebody has sent more than his share of what is remembered."""
        if not self._full_told and any(self._refused().values()):
            self._full_told = True
            log.warning("a neighbour's share of what is remembered is full refused=%s", self._refused())

    def _ask(self, now: float) -> None:
        """Sends the requests that are due; reports a class that is asked for again and again in vain."""
        for request in self.node.ask(self.place, now):
            self.broadcast([request])
            self.taken(request, self.node.id)
            for name in {str(condition.name) for condition in request.conditions}:
                self._unanswered[name] += 1
                if self._unanswered[name] == IN_VAIN:
                    self.counts[f"unanswered {name}"] += 1
                    log.warning("nobody has answered class=%s requests=%d", name, IN_VAIN)

    def report_changes(self) -> None:
        """Tells of situations that have changed, here and whoever asked for them."""
        now = self.clock()
        for change in self.node.changes(self.place, now):
            self.counts[f"situation {change.phase}"] += 1
            self._told(change)
        self.broadcast(self.node.conclude(self.place, now))

    async def _follow(self, sensor: Sensor) -> None:
        async for measured in sensor.measured():
            if isinstance(measured, Fault):
                self.counts["bad readings"] += 1
                if self.counts["bad readings"] <= MOST_TOLD:
                    log.warning("reading dropped fault=%r", str(measured))
            else:
                self.measure(measured)

    def measure(self, measured: SensorReading) -> None:
        """Takes what a sensor read, and where if it says so; tells whoever asked for it."""
        self.place = measured.place or self.place
        own = [(name, value) for name, value in measured.values if name in self.node.measured]
        readings: Readings = [pair for pair in own if self._in_range(*pair)]
        self.counts["readings"] += len(readings)
        self.counts["unknown classes"] += len(measured.values) - len(own)
        self.counts["out of range"] += len(own) - len(readings)
        now = self.clock()
        self.node.measure(readings, self.place, now)
        self.broadcast(self.node.respond(self.place, now, readings))
        self.report_changes()
