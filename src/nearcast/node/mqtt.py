"""Sensors that speak MQTT; needs the package aiomqtt, which the extra `nearcast[mqtt]` brings."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from nearcast.errors import Fault, Mark, SetupError
from nearcast.node.sensors import Sensor, SensorReading, of_data, taken
from nearcast.runtime.backoff import backoff

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before connecting to a broker again; doubled in between."""


@dataclass(frozen=True, slots=True)
class MqttSensor(Sensor):
    """A broker's topic (`+` and `#` allowed). A message is an object of classes and values in JSON, or one value: of
    the class `name`, else of the one that the topic's last level names.
    """

    host: str
    topic: str
    port: int = 1883
    name: str | None = None
    user: str | None = None
    password: str | None = None

    async def measured(self) -> AsyncIterator[SensorReading | Fault]:
        """The messages as they come; connects again when the connection is lost. Raises `SetupError`."""
        client = _library()
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                async with client.Client(self.host, self.port, username=self.user, password=self.password) as broker:
                    await broker.subscribe(self.topic)
                    pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
                    async for message in broker.messages:
                        yield read_message(str(message.topic), bytes(message.payload or b""), self.name)
            except client.MqttError as error:
                yield Fault(f"a broker at {self.host}:{self.port}", str(error), Mark(self.topic))
            await asyncio.sleep(next(pauses))


def _library() -> Any:
    try:
        return importlib.import_module("aiomqtt")
    except ImportError:
        raise SetupError("expected the package aiomqtt, got none; install nearcast[mqtt]") from None


def read_message(topic: str, payload: bytes, name: str | None = None) -> SensorReading | Fault:
    """A message as readings; what is wrong with it as a fault."""
    where = Mark(topic)
    if payload.lstrip()[:1] == b"{":
        return taken(payload, where)
    try:
        value = orjson.loads(payload)
    except ValueError:
        # Many a device sends a bare word, as `on`.
        value = payload.decode(errors="replace")
    try:
        return of_data({name or topic.rsplit("/", 1)[-1]: value}, where)
    except Fault as fault:
        return fault
