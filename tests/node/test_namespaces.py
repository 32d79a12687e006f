"""Nodes as processes in network namespaces of their own, joined by a virtual cable, through bad air."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nearcast

SCRIPT = """
set -e
mount -t tmpfs none /run
mkdir -p /run/netns
ip netns add one
ip netns add two
ip link add left netns one type veth peer name right netns two
ip -n one addr add 10.86.0.1/24 dev left
ip -n two addr add 10.86.0.2/24 dev right
ip -n one link set left up
ip -n two link set right up
ip netns exec two {python} -m nearcast node {folder}/two.yaml --seconds {seconds} > {folder}/two.out &
ip netns exec one {python} -m nearcast node {folder}/one.yaml --seconds {seconds} > {folder}/one.out
wait
"""

ONE = """
node: one
place: {x: 0, y: 0}
sensors:
  - {class: Temperature, simulated: {low: 85, high: 95}, every: 200 ms}
situations:
  - {id: fire, class: Fire, when: "Temperature > 80 AND Humidity < 10", within: 100, valid: 1 s}
multicast: {interface: 10.86.0.1}
weather: {loss: 0.3, twice: 0.3, late: 100 ms}
"""

TWO = """
node: two
place: {x: 30, y: 0}
sensors:
  - {class: Humidity, simulated: {low: 3, high: 8}, every: 200 ms}
multicast: {interface: 10.86.0.2}
weather: {loss: 0.3, twice: 0.3, late: 100 ms}
"""


def namespaces() -> bool:
    """Whether this user may make namespaces here."""
    if not all(map(shutil.which, ("unshare", "ip", "mount"))):
        return False
    tried = "mount -t tmpfs none /run && mkdir /run/netns && ip netns add x && ip link add v0 netns x type veth"
    return subprocess.run(["unshare", "-rnm", "sh", "-c", tried], capture_output=True).returncode == 0


@pytest.mark.faults
@pytest.mark.skipif(not namespaces(), reason="needs unshare and ip, and the right to make network namespaces")
def test_nodes_in_namespaces_find_each_other_in_bad_air(tmp_path: Path) -> None:
    """Three in ten datagrams lost at either end, as many doubled, all of them late: the situation is found."""
    (tmp_path / "one.yaml").write_text(ONE)
    (tmp_path / "two.yaml").write_text(TWO)
    script = SCRIPT.format(python=sys.executable, folder=tmp_path, seconds=20)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(Path(nearcast.__file__).parents[1])}
    ran = subprocess.run(["unshare", "-rnm", "sh", "-c", script], capture_output=True, text=True, env=environment)
    # One may ask in vain until the other is there, and says so.
    assert [] == [line for line in ran.stderr.splitlines() if "nobody has answered" not in line]
    assert 0 == ran.returncode
    *changes, counted = [json.loads(line) for line in (tmp_path / "one.out").read_text().splitlines()]
    assert ("Fire", "begin") == (changes[0]["situation"], changes[0]["phase"])
    assert {"one", "two"} == {reading["provider"] for reading in changes[0]["readings"]}
    assert counted["duplicate"] > 0
    assert counted["taken"] > 0
