"""The seam to local sensors: readings as they come, each a class and a value, perhaps with a place."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nearcast.errors import Fault, Mark, SetupError
from nearcast.language.definitions.client_documents import place_of
from nearcast.model.event import Place
from nearcast.model.values import Value

PLACES = ("x", "y", "z", "lon", "lat", "alt")
"""Names in a reading that tell where the node is instead of what it measures."""


@dataclass(frozen=True, slots=True)
class SensorReading:
    """What sensors read at one time, and where the node is if they tell."""

    values: tuple[tuple[str, Value], ...]
    place: Place | None = None


class Sensor(ABC):
    """Something that measures; a reading that is none is a `Fault`, and the next one comes all the same."""

    @abstractmethod
    def measured(self) -> AsyncIterator[SensorReading | Fault]:
        """The readings as they come, perhaps without end."""


@dataclass(frozen=True, slots=True)
class SimulatedSensor(Sensor):
    """A value that wanders between two bounds: its differences follow N(0, `step`)."""

    name: str
    low: float = 0.0
    high: float = 100.0
    step: float = 1.0
    every: float = 1.0
    seed: int | None = None

    async def measured(self) -> AsyncIterator[SensorReading | Fault]:
        """A reading every `every` seconds."""
        chance = random.Random(self.seed)
        value = chance.uniform(self.low, self.high)
        while True:
            yield SensorReading(((self.name, round(value, 3)),))
            value = min(max(value + chance.gauss(0, self.step), self.low), self.high)
            await asyncio.sleep(self.every)


@dataclass(frozen=True, slots=True)
class FileSensor(Sensor):
    """A file of JSON objects, one a line, each what was read at one time; again from its beginning if it `repeats`."""

    path: Path
    every: float = 1.0
    repeats: bool = True

    async def measured(self) -> AsyncIterator[SensorReading | Fault]:
        """A line every `every` seconds. Raises `SetupError` if the file cannot be read."""
        while True:
            number = 0
            for number, line in self._lines():
                yield taken(line, Mark(str(self.path), number))
                await asyncio.sleep(self.every)
            if not self.repeats:
                return
            if not number:
                # An empty file would else be a busy loop.
                await asyncio.sleep(self.every)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, each with its number in the file."""
        try:
            with self.path.open("rb") as lines:
                yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())
        except OSError as error:
            raise SetupError(f"expected a file of readings, got {self.path}: {error.strerror}") from None


def taken(text: bytes, where: Mark) -> SensorReading | Fault:
    """A JSON object of classes and values as readings; what is wrong with it as a fault."""
    try:
        data = orjson.loads(text)
        if not isinstance(data, dict):
            raise Fault("an object of classes and values", repr(data)[:60], where)
        return of_data(data, where)
    except ValueError as error:
        return Fault("an object in JSON", f"{text[:40]!r}: {error}", where)
    except Fault as fault:
        return fault


def of_data(data: Mapping[str, Any], where: Mark) -> SensorReading:
    """Classes and values, and the place among them. Raises `Fault` for values that are no readings."""
    values = []
    for name, value in data.items():
        if name in PLACES:
            continue
        if not isinstance(value, (bool, int, float, str)) or (isinstance(value, str) and len(value) > 200):
            raise Fault(f"{name}: a number, a short text, true or false", repr(value)[:60], where)
        values.append((name, value))
    return SensorReading(tuple(values), place_of(data, where))
