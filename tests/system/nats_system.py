"""A whole system on three servers of NATS, as on six machines: what is killed is started again, links can be cut."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from nearcast.cli.options import JOURNAL, state_path
from nearcast.cli.supervisor import Supervisor, SystemPart
from nearcast.cli.system import define, free_port
from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.language.definitions import files
from nearcast.pipeline.snapshots import ready_file
from tests.nats_servers import NatsServer, addresses
from tests.system.machine_clock import MachineClock
from tests.system.relays import Relay

ROOT = Path(__file__).parents[2]
NODES = ("n0", "n1", "n2")
SERVERS = ("north", "south")
PIPELINE = "pipeline"
READY_SECONDS = 300.0


@dataclass
class NatsSystem:
    """Used from one event loop; what waits for processes does so in threads. Without `spark` the pipeline is plain."""

    folder: Path
    definitions: dict[str, Any]
    spark: bool = True
    clock: MachineClock | None = None
    """That of the machine of the last access server, if it is another one's."""
    nodes: dict[str, NatsServer] = field(default_factory=dict)
    relays: dict[tuple[str, str], Relay] = field(default_factory=dict)
    """By who speaks, and to which node."""
    parts: dict[str, SystemPart] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    used: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    """Megabytes and open files of each process, as they were looked at."""

    async def start(self) -> None:
        """Starts all, defines what is to be defined, and waits until it is ready."""
        await self._open_relays()
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in self.nodes.values()))
        for (_, to), relay in self.relays.items():
            if not relay.target:
                relay.target = int(self.nodes[to].url.rpartition(":")[2])
        path = self.folder / "definitions.yaml"
        path.write_text(yaml.safe_dump(self.definitions))
        await asyncio.to_thread(self._define, path)
        self.ports = {name: free_port() for name in (*SERVERS, PIPELINE)}
        for name in (*SERVERS, PIPELINE):
            self.parts[name] = self._part(name)
        self.supervisor = Supervisor([*self.parts.values()])
        self.supervisor.start()
        async with asyncio.timeout(READY_SECONDS):
            while not await self.ready():
                await asyncio.sleep(0.2)

    def _define(self, path: Path) -> None:
        with closing(NatsJournal(self.direct)) as journal:
            define(journal, files.load([path]))

    async def journal(self, read_only: bool = True) -> NatsJournal:
        """The journal, not by way of a relay; opened in a thread, while relays work."""
        return await asyncio.to_thread(NatsJournal, self.direct, read_only)

    async def _open_relays(self) -> None:
        """Each part and each node speaks to the nodes by relays of its own; nodes are not told any other way."""
        listening = {name: free_port() for name in NODES}
        for one in NODES:
            for other in NODES:
                if one != other:
                    self.relays[one, other] = Relay(listening[other])
        self.relays |= {(part, node): Relay() for part in (*SERVERS, PIPELINE) for node in NODES}
        for relay in self.relays.values():
            await relay.open()
        for name in NODES:
            routes = ", ".join(
                f'"nats://127.0.0.1:{self.relays[name, other].port}"' for other in NODES if other != name
            )
            # Nobody answers where it says that it is: whoever hears of it by others finds it by no way round a relay.
            more = (
                f'cluster {{ name: "tests", listen: "127.0.0.1:{listening[name]}", routes: [{routes}],'
                ' advertise: "127.0.0.1:1", no_advertise: true }\n'
            )
            self.nodes[name] = NatsServer(self.folder / name, name, more)

    def _part(self, name: str) -> SystemPart:
        servers = ",".join(f"127.0.0.1:{self.relays[name, node].port}" for node in NODES)
        machine = self.clock.environment if self.clock and name == SERVERS[-1] else os.environ
        environment = {**machine, "PYTHONUNBUFFERED": "1", JOURNAL: f"nats://{servers}/system"}
        words = ["--data", str(self.data(name))]
        if name == PIPELINE and not self.spark:
            environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
            module, words = "tests.system.plain_pipeline", [str(self.data(name))]
            return SystemPart(name, words, environment, longest_pause=0.5, proven=True, module=module)
        if name == PIPELINE:
            arguments = ["pipeline", *words, "--master", "local[1]", "--metrics-port", str(self.ports[name])]
        else:
            arguments = ["server", *words, "--port", str(self.ports[name]), "--node", name]
        return SystemPart(name, arguments, environment, longest_pause=0.5, proven=True)

    def data(self, name: str) -> Path:
        """The data folder of a part: each has its own, as on a machine of its own."""
        return self.folder / name

    @property
    def direct(self) -> str:
        """Where the journal is, not by way of a relay."""
        return f"{addresses([*self.nodes.values()])}/system"

    @property
    def urls(self) -> list[str]:
        """Where the access servers are."""
        return [f"http://127.0.0.1:{self.ports[name]}" for name in SERVERS]

    async def ready(self) -> bool:
        """Whether everything is there and works."""
        if not ready_file(state_path(self.data(PIPELINE))).exists():
            return False
        return all([await self.answers(name) for name in SERVERS])

    async def answers(self, name: str) -> bool:
        """Whether an access server answers."""
        with suppress(httpx.HTTPError):
            async with httpx.AsyncClient(timeout=2.0) as http:
                return (await http.get(f"http://127.0.0.1:{self.ports[name]}/health")).status_code == 200
        return False

    async def look_after(self) -> None:
        """Starts again what died, without end; now and then it is noted what each process uses."""
        turn = 0
        while True:
            self.supervisor.look()
            if turn % 50 == 0:
                self._note_used()
            turn += 1
            await asyncio.sleep(0.1)

    def _note_used(self) -> None:
        processes = {name: part.process for name, part in self.parts.items()}
        processes |= {name: node.process for name, node in self.nodes.items()}
        for name, process in processes.items():
            with suppress(OSError):
                if process:
                    self.used.setdefault(name, []).append(used_by(process.pid))

    async def kill(self, name: str) -> None:
        """Kills a part (-9) once it runs; it is started again by whoever looks after it."""
        part = self.parts[name]
        while part.process is None or part.process.poll() is not None:
            await asyncio.sleep(0.05)
        part.process.kill()
        await asyncio.to_thread(part.process.wait)

    async def cluster(self) -> dict[str, Any]:
        """Who leads the journal's stream, and how the others are; `whole`: all have what the leader has."""
        found = await asyncio.to_thread(self._asked_cluster)
        replicas = found.get("replicas") or []
        whole = len(replicas) == len(NODES) - 1 and all(one["current"] and not one.get("offline") for one in replicas)
        return {**found, "whole": bool(found.get("leader")) and whole}

    def _asked_cluster(self) -> dict[str, Any]:
        running = [node for node in self.nodes.values() if node.process and node.process.poll() is None]
        with closing(NatsJournal(f"{addresses(running)}/system?replicas=3", read_only=True)) as journal:
            found: dict[str, Any] = journal._stream.info()["cluster"]
            return found

    async def whole(self) -> dict[str, Any]:
        """The same, once all of them have everything."""
        while not (found := await self.cluster())["whole"]:
            await asyncio.sleep(0.2)
        return found

    def cut(self, links: Sequence[tuple[str, str]]) -> None:
        """Cuts links; between nodes that is both ways."""
        for link in links:
            self.relays[link].cut()

    def mend(self, links: Sequence[tuple[str, str]], reset: bool) -> None:
        """Mends them."""
        for link in links:
            self.relays[link].mend(reset)

    async def status(self, name: str) -> dict[str, Any]:
        """What an access server says of itself."""
        async with httpx.AsyncClient(timeout=20.0) as http:
            found: dict[str, Any] = (await http.get(f"http://127.0.0.1:{self.ports[name]}/status")).json()
            return found

    async def metrics(self, name: str) -> dict[str, float]:
        """Its metrics without labels, or those of the pipeline."""
        async with httpx.AsyncClient(timeout=20.0) as http:
            text = (await http.get(f"http://127.0.0.1:{self.ports[name]}/metrics")).text
        lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in lines if "{" not in name}

    async def stop(self) -> None:
        """Ends all."""
        if hasattr(self, "supervisor"):
            await asyncio.to_thread(self.supervisor.stop)
        for node in self.nodes.values():
            await asyncio.to_thread(node.kill)
        await asyncio.gather(*(relay.close() for relay in self.relays.values()))


def used_by(process: int) -> tuple[float, int]:
    """Megabytes that a process and those below it have in memory, and how many files it has open itself."""
    below = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    own = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return own + sum(used_by(int(one))[0] for one in below), len(os.listdir(f"/proc/{process}/fd"))
