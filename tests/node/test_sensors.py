"""Sensors: simulated, from files, and by MQTT, with what is no reading among them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from nearcast.errors import Fault, Mark, SetupError
from nearcast.model.event import Place
from nearcast.node.mqtt import MqttSensor, read_message
from nearcast.node.sensors import FileSensor, Sensor, SensorReading, SimulatedSensor, taken

pytest.importorskip("aiomqtt", reason="needs nearcast[mqtt]")


def first(sensor: Sensor, count: int) -> list[SensorReading | Fault]:
    """The first readings of a sensor."""

    async def read() -> list[SensorReading | Fault]:
        found: list[SensorReading | Fault] = []
        async with asyncio.timeout(60):
            async for one in sensor.measured():
                found.append(one)
                if len(found) == count:
                    return found
        return found

    return asyncio.run(read())


def test_a_simulated_sensor_wanders_within_its_bounds() -> None:
    """And is the same for the same seed."""
    sensor = SimulatedSensor("Temperature", 10, 12, step=5, every=0.001, seed=1)
    found = first(sensor, 50)
    values = [one.values[0][1] for one in found if isinstance(one, SensorReading)]
    assert 50 == len(values) and all(isinstance(value, (int, float)) and 10 <= value <= 12 for value in values)
    assert len(set(values)) > 5
    assert found == first(sensor, 50)


def test_a_file_is_read_line_by_line_and_from_its_beginning_again(tmp_path: Path) -> None:
    """A line that is none is a fault with its place, and the next one counts."""
    path = tmp_path / "readings.jsonl"
    path.write_text('{"Temperature": 81}\nnonsense\n{"Temperature": 82, "x": 1, "y": 2}\n')
    one, fault, two, again = first(FileSensor(path, every=0.001), 4)
    assert SensorReading((("Temperature", 81),)) == one == again
    assert isinstance(fault, Fault) and Mark(str(path), 2) == fault.where
    assert SensorReading((("Temperature", 82),), Place("planar", 1.0, 2.0)) == two


def test_a_file_begins_again_as_soon_as_its_next_line_would_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pause for each line; an empty file has one for each look; faults name lines of the file, empty ones too."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 20:
            raise TimeoutError

    monkeypatch.setattr("nearcast.node.sensors.asyncio.sleep", pause)
    path = tmp_path / "readings.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}\nnonsense\n')
    found = first(FileSensor(path, every=5.0), 7)
    assert [5.0] * 6 == pauses
    assert [4, 4] == [one.where.line for one in found if isinstance(one, Fault) and isinstance(one.where, Mark)]
    path.write_text("\n")
    with pytest.raises(TimeoutError):
        first(FileSensor(path, every=5.0), 1)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A node would wait for ever."""
    with pytest.raises(SetupError, match="expected a file of readings"):
        first(FileSensor(tmp_path / "none.jsonl"), 1)


@pytest.mark.parametrize("text", [b"[1]", b'{"a": [1]}', b'{"a": null}', b'{"lon": 500, "lat": 0}', b"{", b"\xff"])
def test_what_is_no_reading_is_a_fault(text: bytes) -> None:
    """Told, not raised: the next one may be good."""
    assert isinstance(taken(text, Mark("sensor", 1)), Fault)


@pytest.mark.parametrize(
    "topic, payload, name, values",
    [
        ("home/kitchen/Humidity", b"41.5", None, (("Humidity", 41.5),)),
        ("home/kitchen/h", b"41.5", "Humidity", (("Humidity", 41.5),)),
        ("home/kitchen", b'{"Humidity": 41, "Smoke": false}', None, (("Humidity", 41), ("Smoke", False))),
        ("home/door", b"open", None, (("door", "open"),)),
        ("home/door", b'"open"', "Door", (("Door", "open"),)),
    ],
)
def test_mqtt_messages_are_objects_or_single_values(
    topic: str, payload: bytes, name: str | None, values: tuple[tuple[str, object], ...]
) -> None:
    """Of the class that is given, else of the topic's last level."""
    assert SensorReading(values) == read_message(topic, payload, name)  # type: ignore[arg-type]


@pytest.mark.parametrize("payload", [b"[1, 2]", b"null", b"x" * 300])
def test_other_mqtt_messages_are_faults(payload: bytes) -> None:
    """With the topic as their place."""
    found = read_message("home/h", payload)
    assert isinstance(found, Fault) and Mark("home/h") == found.where


CONNECT, SUBSCRIBE = 1, 8


async def read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The kind of the next MQTT packet, and what is in it."""
    kind = (await reader.readexactly(1))[0] >> 4
    size, shift, more = 0, 0, True
    while more:
        byte = (await reader.readexactly(1))[0]
        size, shift, more = size | (byte & 127) << shift, shift + 7, byte > 127
    return kind, await reader.readexactly(size)


@asynccontextmanager
async def broker(*payloads: bytes) -> AsyncIterator[int]:
    """As little of an MQTT broker as it takes: who subscribes gets these payloads, and the connection is closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            while (packet := await read_packet(reader))[0] != SUBSCRIBE:
                if packet[0] == CONNECT:
                    writer.write(b"\x20\x02\x00\x00")
            writer.write(b"\x90\x03" + packet[1][:2] + b"\x00")
            for payload in payloads:
                message = b"\x00\x0chall/Celsius" + payload
                writer.write(b"\x30" + bytes([len(message)]) + message)
            await writer.drain()
            await asyncio.sleep(0.1)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def test_an_mqtt_sensor_reads_what_a_broker_has_and_comes_back_when_that_is_gone() -> None:
    """A lost connection is a fault among the readings, no end of them."""

    async def read() -> list[SensorReading | Fault]:
        found: list[SensorReading | Fault] = []
        async with asyncio.timeout(60), broker(b"21.5", b"22") as port:
            async for one in MqttSensor("127.0.0.1", "hall/+", port).measured():
                found.append(one)
                if len(found) == 5:
                    break
        return found

    one, two, lost, again, _ = asyncio.run(read())
    assert SensorReading((("Celsius", 21.5),)) == one == again
    assert SensorReading((("Celsius", 22),)) == two
    assert isinstance(lost, Fault) and "a broker at 127.0.0.1" in lost.expected
