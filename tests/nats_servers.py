"""NATS servers for tests: real ones, each in a folder of its own, at ports that the system gives."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nearcast.cli.system import free_port

START_SECONDS = 120.0


def binary() -> str | None:
    """The program nats-server, in the environment's own folder or elsewhere; None if there is none."""
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


class NatsServer:
    """A server with JetStream in a folder, which is kept when it ends."""

    def __init__(self, folder: Path, name: str = "n1", more: str = "", sync: str = "always") -> None:
        self.folder, self.name = folder, name
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "nats.conf"
        self.config.write_text(
            f'server_name: "{name}"\nhost: "127.0.0.1"\nport: -1\nhttp: "127.0.0.1:-1"\nports_file_dir: "{folder}"\n'
            f'jetstream {{ store_dir: "{folder}/store", sync_interval: {sync} }}\n{more}'
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.url = self.monitor = ""

    def start(self) -> NatsServer:
        """Starts it, and waits until it listens."""
        program = binary()
        assert program
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([program, "-c", str(self.config)], stdout=log, stderr=log)
        ports = self._ports()
        self.url, self.monitor = ports["nats"][0], ports["monitoring"][0]
        # Who is connected finds it again when it is started again.
        port = self.url.rpartition(":")[2]
        self.config.write_text(self.config.read_text().replace("\nport: -1\n", f"\nport: {port}\n"))
        return self

    def _ports(self) -> dict[str, list[str]]:
        assert self.process
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            for file in self.folder.glob(f"*_{self.process.pid}.ports"):
                found: dict[str, list[str]] = json.loads(file.read_text() or "{}")
                if found:
                    return found
            time.sleep(0.01)
        raise AssertionError((self.folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        """Kills it (-9), as a loss of power would."""
        if self.process:
            self.process.kill()
            self.process.wait()


def cluster(folder: Path, number: int = 3) -> list[NatsServer]:
    """So many servers that know each other, started."""
    ports = _free_ports(number)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers = [
        NatsServer(
            folder / f"n{at}",
            f"n{at}",
            f'cluster {{ name: "tests", listen: "127.0.0.1:{port}", routes: [{routes}] }}\n',
        )
        for at, port in enumerate(ports)
    ]
    for server in servers:
        server.start()
    return servers


def addresses(servers: Sequence[NatsServer]) -> str:
    """The servers in one URL."""
    return "nats://" + ",".join(server.url.partition("//")[2] for server in servers)


def _free_ports(number: int) -> list[int]:
    found = set[int]()
    while len(found) < number:
        found.add(free_port())
    return [*found]
