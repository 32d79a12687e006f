"""`nearcast node`, as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nearcast
from tests.node.conftest import PORTS
from tests.processes import killed_at_the_end

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(nearcast.__file__).parents[1])}

WARM = """
node: warm
place: {{x: 0, y: 0}}
sensors:
  - {{class: Temperature, simulated: {{low: 85, high: 95}}, every: 100 ms}}
situations:
  - {{id: fire, class: Fire, when: "Temperature > 80 AND Humidity < 10", within: 100, valid: 1 s}}
multicast: {{interface: 127.0.0.1, port: {port}}}
"""

DRY = """
node: dry
place: {{x: 30, y: 0}}
sensors:
  - {{class: Humidity, {sensor}, every: 100 ms}}
multicast: {{interface: 127.0.0.1, port: {port}}}
"""


def start(path: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "nearcast", "node", str(path), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def test_two_processes_find_a_situation_together(tmp_path: Path) -> None:
    """One prints it, with a reading of each; both print at their end what they have counted."""
    port = next(PORTS) + 1_000
    (tmp_path / "warm.yaml").write_text(WARM.format(port=port))
    (tmp_path / "dry.yaml").write_text(DRY.format(port=port, sensor="simulated: {low: 3, high: 8}"))
    dry = start(tmp_path / "dry.yaml")
    warm = start(tmp_path / "warm.yaml")
    assert warm.stdout and dry.stdout
    with killed_at_the_end(warm, dry):
        first = json.loads(warm.stdout.readline())
        for process in (warm, dry):
            process.terminate()
            *_, counts = process.communicate(timeout=60)[0].splitlines()
            assert (0, True) == (process.returncode, json.loads(counts)["taken"] > 0)
    assert ("Fire", "fire", "begin") == (first["situation"], first["rule"], first["phase"])
    assert {"warm", "dry"} == {reading["provider"] for reading in first["readings"]}
    assert all(reading["age"] < 30 for reading in first["readings"])


ONTOLOGY = """
classes: {Temperature: {unit: degC}, Button: }
situations: {Emergency: , Fire: {part-of: Emergency}, Alarm: }
"""
INFERRING = """
node: inferring
place: {{x: 0, y: 0}}
ontology: world.yaml
sensors:
  - {{class: Temperature, file: readings.jsonl, every: 500 ms}}
situations:
  - {{id: fire, class: Fire, when: "Temperature > 80", within: 100, valid: 1 s}}
multicast: {{interface: 127.0.0.1, port: {port}}}
"""
WATCHING = """
node: watching
place: {{x: 30, y: 0}}
ontology: world.yaml
situations:
  - {{id: alarm, class: Alarm, when: Emergency, within: 100, valid: 1 s}}
multicast: {{interface: 127.0.0.1, port: {port}}}
"""


def test_a_node_asks_for_a_situation_that_another_process_infers(tmp_path: Path) -> None:
    """An emergency is served by the fire that is part of one: it begins and ends with it, and says whose it is."""
    port = next(PORTS) + 1_000
    (tmp_path / "world.yaml").write_text(ONTOLOGY)
    readings = [json.dumps({"Temperature": value}) for value in [20] * 6 + [90] * 12 + [20] * 200]
    (tmp_path / "readings.jsonl").write_text("\n".join(readings))
    for name, definition in (("inferring", INFERRING), ("watching", WATCHING)):
        (tmp_path / f"{name}.yaml").write_text(definition.format(port=port))
    watching, inferring = start(tmp_path / "watching.yaml"), start(tmp_path / "inferring.yaml")
    assert watching.stdout and inferring.stdout
    with killed_at_the_end(watching, inferring):
        begun, ended = (json.loads(watching.stdout.readline()) for _ in range(2))
        for process in (watching, inferring):
            process.terminate()
            process.communicate(timeout=60)
    assert ("Alarm", "begin", "end") == (begun["situation"], begun["phase"], ended["phase"])
    assert [("Fire", True, "inferring")] == [(one["class"], one["value"], one["provider"]) for one in begun["readings"]]


def test_a_sensor_that_cannot_be_read_ends_the_command_with_its_reason(tmp_path: Path) -> None:
    """In one line, and without a traceback; what was counted till then is printed."""
    (tmp_path / "dry.yaml").write_text(DRY.format(port=next(PORTS) + 1_000, sensor="file: none.jsonl"))
    ended = start(tmp_path / "dry.yaml", "--seconds", "60")
    out, err = ended.communicate(timeout=120)
    assert (2, 1) == (ended.returncode, len(err.splitlines()))
    assert "expected a file of readings" in err
    assert "dry" == json.loads(out)["node"]


def test_a_definition_is_checked_without_running(tmp_path: Path) -> None:
    """What it defines, or every fault."""
    (tmp_path / "warm.yaml").write_text(WARM.format(port=1))
    (tmp_path / "bad.yaml").write_text("node: 5")
    good, bad = (start(tmp_path / name, "--check") for name in ("warm.yaml", "bad.yaml"))
    assert "node warm, 1 sensor, 1 rule" in good.communicate(timeout=120)[1]
    assert 2 == len(bad.communicate(timeout=120)[1].splitlines())
    assert (0, 2) == (good.returncode, bad.returncode)
