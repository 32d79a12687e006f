"""What the commands of small files load: nothing that the files do not need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nearcast.cli import match

DEFINITIONS = """\
channels: {roads: {coordinates: geographic}}
clients: [{id: ann, position: {lon: 11.57, lat: 48.14}}]
ontology:
  classes: {Temperature: {within: 100}}
  situations: {Fire: {}}
subscriptions:
  - {id: near, client: ann, filter: "distance(user('ann'), this) <= 10000 AND type = 'queue' AND casei(road) LIKE 'a%'"}
relations: [{id: r, a: "type = 'car'", b: "type = 'bus'", when: "distance(a, b) <= 10", margin: 2}]
situations: [{id: fire, class: Fire, when: "Temperature > 80"}]
actions: [{id: alert, when: Fire, publish: {type: alert, data: {n: 1}}}]
"""
EVENT = (
    '{"specversion": "1.0", "id": "e", "type": "queue", "source": "s", "data": {"minutes": 12, "lon": 1, "lat": 4}}\n'
)
SLOW = {"numpy", "pandas", "pyarrow", "numba", "shapely", "pyproj", "rdflib", "pint", "pyspark", "fastapi", "rich"}


def loaded(folder: Path, *arguments: str) -> set[str]:
    """The libraries that a command loads; it must do what it is asked for."""
    (folder / "d.yaml").write_text(DEFINITIONS)
    (folder / "e.jsonl").write_text(EVENT)
    command = [sys.executable, "-X", "importtime", "-m", "nearcast", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert 0 == ran.returncode, ran.stderr[-2000:]
    return {name.split(".")[0] for name in re.findall(r"^import time:.*\| +(\S+)$", ran.stderr, re.MULTILINE)}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("check", "d.yaml", "e.jsonl"),
        ("match", "type = 'queue' AND minutes >= 10", "e.jsonl"),
        ("match", "minutes + 1 BETWEEN 10 AND 20", "e.jsonl", "--count"),
        ("compare", "a >= 10 AND b = 'x'", "a > 5"),
    ],
)
def test_a_small_file_loads_no_heavy_library(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Neither columns nor geometry, units, compiled code, Spark or the web stack."""
    assert set() == loaded(tmp_path, *arguments) & SLOW


@pytest.mark.parametrize("events", [0, 9, 400])
def test_many_events_are_matched_as_few_are(events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In columns instead of one by one, with the same outcome in the same order."""
    path = tmp_path / "e.jsonl"
    path.write_text("".join(EVENT.replace("12", str(one)).replace('"e"', f'"{one}"') for one in range(events)))
    found = []
    for small in (match.SMALL, 200):
        monkeypatch.setattr(match, "SMALL", small)
        ran = CliRunner().invoke(match.command, ["minutes > 5 AND minutes <> 7 AND lon = 1", str(path)])
        found.append((ran.exit_code, ran.stdout.split()))
    expected = [str(one) for one in range(6, events) if one != 7]
    assert [(0 if expected else 1, expected)] * 2 == found


def test_geometry_is_loaded_where_a_filter_has_some(tmp_path: Path) -> None:
    """And what it stands on, but no table library."""
    found = loaded(tmp_path, "match", "S_INTERSECTS(geom, BBOX(0, 3, 2, 5))", "e.jsonl")
    assert {"numpy", "shapely"} == found & SLOW


def test_what_a_command_imports_is_not_looked_through_for_cycles() -> None:
    """It stays until the end: then and as it grows, looking is a third of what starting the server costs."""
    program = (
        "import atexit, gc\n"
        "atexit.register(lambda: print('frozen', gc.get_freeze_count() > 10_000, gc.isenabled()))\n"
        "from nearcast.cli.main import main\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, "match", "--help"], capture_output=True, text=True, check=True)
    assert "frozen True True" == ran.stdout.splitlines()[-1]
