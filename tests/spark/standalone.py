"""A standalone cluster of Spark, on this machine or on machines of its own: network namespaces with their own
addresses, joined by a bridge, in which the driver's folders are not there.

Everything there ends with the process that holds the namespaces. No rights are needed but those of user namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from nearcast.pipeline.spark_session import java_home
from tests.conftest import SHORT_LIVED

NETWORK = "10.77.0"
HEAD = f"{NETWORK}.1"
"""The address of the driver's machine, on which the master runs too."""

PORT = 7077
"""Of the master: its network is nobody else's."""

DEPLOY = "org.apache.spark.deploy"
WAIT_SECONDS = 900


class Machine:
    """Namespaces that a process holds: an address, and folders that are not there. Without a holder: this machine."""

    def __init__(self, holder: subprocess.Popen[bytes] | None, address: str) -> None:
        self.address = address
        self._pid = holder and holder.pid

    def words(self, *words: str | Path) -> list[str]:
        """The command that runs another one there."""
        if self._pid is None:
            return [*map(str, words)]
        enter = ["nsenter", "--target", str(self._pid), "--user", "--net", "--mount", "--preserve-credentials"]
        # Into a mount namespace one comes at its root.
        return [*enter, f"--wdns={os.getcwd()}", *map(str, words)]

    def run(self, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a command there to its end, in a folder of its own."""
        return subprocess.run(
            self.words(*words), env={**os.environ, **environment}, capture_output=True, text=True, timeout=WAIT_SECONDS
        )


@contextmanager
def machines(hidden: Sequence[Path], workers: int = 2) -> Iterator[tuple[Machine, list[Machine]]]:
    """The driver's machine and those of workers, in which the `hidden` folders are empty; skips where none can be."""
    for tool in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(tool) is None:
            pytest.skip(f"no program {tool} to make machines with")
    with ExitStack() as stack:
        head = Machine(stack.enter_context(_holder(["unshare", "--user", "--map-root-user", "--net", "--mount"])), HEAD)
        made = head.run(
            "sh",
            "-ec",
            f"ip link set lo up; ip link add name hub type bridge; ip addr add {HEAD}/24 dev hub; ip link set hub up",
        )
        if made.returncode:
            pytest.skip(f"no namespaces to make machines of: {made.stderr}")
        found = []
        for number in range(workers):
            holder = stack.enter_context(_holder(head.words("unshare", "--net", "--mount")))
            worker = Machine(holder, f"{NETWORK}.{number + 10}")
            cable = (f"ip link add v{number} type veth peer name eth0 netns {holder.pid}", f"ip link set v{number} up")
            assert 0 == head.run("sh", "-ec", "; ".join((*cable, f"ip link set v{number} master hub"))).returncode
            commands = [f"ip addr add {worker.address}/24 dev eth0", "ip link set eth0 up", "ip link set lo up"]
            commands += [f"mount -t tmpfs none {path}" for path in hidden]
            done = worker.run("sh", "-ec", "; ".join(commands))
            assert 0 == done.returncode, done.stderr
            found.append(worker)
        yield head, found


@contextmanager
def _holder(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    holder = subprocess.Popen([*words, "sh", "-c", "echo; exec sleep 3600"], stdout=subprocess.PIPE)
    try:
        # It says a line when the namespaces are made.
        assert holder.stdout
        holder.stdout.readline()
        yield holder
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()  # type: ignore[union-attr]


@contextmanager
def daemon(machine: Machine, folder: Path, words: Sequence[str], said: str) -> Iterator[None]:
    """One of Spark's own processes, with folders of its own and nothing of this one's environment for Python; it has
    said something in its log when it is given.
    """
    for name in ("home", "tmp"):
        (folder / name).mkdir(parents=True)
    home = Path(pyspark.__file__).parent
    surroundings = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(home),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_IP": machine.address,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
    }
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(
            machine.words(home / "bin" / "spark-class", *words), cwd=folder, env=surroundings, stdout=log, stderr=log
        )
    try:
        until = time.monotonic() + WAIT_SECONDS
        while said not in (folder / "log").read_text():
            assert time.monotonic() < until and started.poll() is None, (folder / "log").read_text()
            time.sleep(0.2)
        yield
    finally:
        started.terminate()
        started.wait(60)


@contextmanager
def standalone(
    head: Machine,
    workers: Sequence[Machine],
    folder: Path,
    properties: Path | None = None,
    memory: str = "1g",
    port: int = PORT,
) -> Iterator[str]:
    """A master on the driver's machine and a worker with one core on each of others; the master's URL."""
    more = ("--properties-file", str(properties)) if properties else ()
    with ExitStack() as stack:
        master = (f"{DEPLOY}.master.Master", "--host", head.address, "--port", str(port), "--webui-port", "0", *more)
        stack.enter_context(daemon(head, folder / "master", master, "New state: ALIVE"))
        url = f"spark://{head.address}:{port}"
        for number, machine in enumerate(workers):
            words = ("--cores", "1", "--memory", memory, "--webui-port", "0", "--host", machine.address, *more, url)
            worker = (f"{DEPLOY}.worker.Worker", *words)
            stack.enter_context(daemon(machine, folder / f"worker{number}", worker, "Successfully registered"))
        yield url
