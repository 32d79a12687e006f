"""What is in `deploy/` is held against the program: its commands, options, metrics, addresses and configurations."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nearcast.cli.main import nearcast
from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "nearcast"}


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Every call of `nearcast` in these files, with where it stands."""
    for unit in UNITS:
        [started] = re.findall(r"^ExecStart=\S+/nearcast (.*)$", unit.read_text(), re.MULTILINE)
        yield unit.name, shlex.split(started)
    for name, service in OURS.items():
        yield f"compose.yaml {name}", service["command"]
    for manifest in yaml.safe_load_all((DEPLOY / "kubernetes" / "nearcast.yaml").read_text()):
        if manifest["kind"] == "StatefulSet":
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            yield f"kubernetes {container['name']}", container["args"]
    [default] = re.findall(r"^CMD (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    yield "Dockerfile", json.loads(default)


@pytest.mark.parametrize(("where", "words"), [*command_lines()], ids=lambda one: one if isinstance(one, str) else "")
def test_each_command_is_one_that_nearcast_takes(where: str, words: list[str], tmp_path: Path) -> None:
    """With these options and values."""
    command = nearcast.get_command(None, words[0])  # type: ignore[arg-type]
    assert command is not None, where
    (tmp_path / "definitions.yaml").write_text("")
    found = [str(tmp_path / "definitions.yaml") if word.endswith("definitions.yaml") else word for word in words[1:]]
    command.make_context(words[0], found)


def test_each_metric_that_is_shown_or_watched_is_in_the_reference() -> None:
    """A panel or an alert of a metric that nobody counts would be silent for ever."""
    known = set(re.findall(r"`(nearcast_\w+)`", (ROOT / "docs" / "reference-http.md").read_text()))
    board = json.loads((DEPLOY / "grafana" / "board.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    alerts = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    asked += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    named = {re.sub(r"_bucket$", "", name) for text in asked for name in re.findall(r"nearcast_\w+", text)}
    assert named and set() == named - known


def test_what_is_watched_and_asked_for_is_a_service_of_the_file() -> None:
    """Prometheus' targets and the journal's servers, each at the port where it listens."""
    prometheus = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    targets = [one for job in prometheus["scrape_configs"] for each in job["static_configs"] for one in each["targets"]]
    assert {"north:8640", "south:8640", "pipeline:8641"} == set(targets)
    for service in OURS.values():
        address = service["environment"]["NEARCAST_JOURNAL"]
        hosts = {host.split(":")[0] for host in address.removeprefix("nats://").split("/")[0].split(",")}
        assert set(service["depends_on"]) == hosts <= set(COMPOSE["services"])
    assert {f"{name}:" for name in COMPOSE["volumes"]} >= {
        volume.split(":")[0] + ":" for service in COMPOSE["services"].values() for volume in service.get("volumes", [])
    } - {".:", "./grafana/provisioning:", "./grafana/board.json:"}


def test_the_secrets_that_the_services_ask_for_are_in_the_example() -> None:
    """And none is in the file itself."""
    text = (DEPLOY / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+)", text)) | set(re.findall(r"environment: (\w+)\}", text))
    example = (DEPLOY / "environment.example").read_text()
    assert asked == set(re.findall(r"^(\w+)=", example, re.MULTILINE))


def test_the_configuration_of_nats_is_one_that_its_server_takes(tmp_path: Path) -> None:
    """As `nats-server -t` says."""
    server = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if server is None:
        pytest.skip("no nats-server beside this Python")
    text = (DEPLOY / "nats.conf").read_text().replace('"/data"', f'"{tmp_path}"')
    (tmp_path / "nats.conf").write_text(text)
    secrets = {"SERVER_NAME": "a", "NEARCAST_NATS_USER": "u", "NEARCAST_NATS_PASSWORD": "p"}
    tried = [server, "-t", "-c", str(tmp_path / "nats.conf")]
    found = subprocess.run(tried, env={**os.environ, **secrets}, capture_output=True, text=True)
    assert 0 == found.returncode, found.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_each_unit_is_one_that_systemd_takes(unit: Path, tmp_path: Path) -> None:
    """As `systemd-analyze verify` says, with the program where this Python is."""
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("no systemd-analyze on the PATH")
    text = unit.read_text().replace("/opt/nearcast/bin/nearcast", sys.executable)
    (tmp_path / unit.name).write_text(text)
    found = subprocess.run([verify, "verify", str(tmp_path / unit.name)], capture_output=True, text=True)
    assert (0, "") == (found.returncode, found.stderr)


def test_the_image_has_what_the_package_needs() -> None:
    """Nothing that it copies is held back from it, and it does not run as root."""
    text = (DEPLOY / "Dockerfile").read_text()
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE)
    assert sent == {name for line in copied for name in line.split()}
    assert all((ROOT / name).exists() for name in sent)
    assert "USER 10001" in text
