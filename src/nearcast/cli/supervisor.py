"""Running the parts of a system as processes: a part that dies is started again, and that is said.

A part holds one end of a pipe whose other end only its supervisor has: however the supervisor ends, the pipe does too,
and the part ends itself (`end_with_supervisor`). So a supervisor that is killed leaves nothing behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nearcast.cli.output import warn
from nearcast.errors import SetupError
from nearcast.runtime.backoff import backoff

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a part is started again: doubled each time, and from the beginning after it ran for a minute."""
SETTLED = 60.0
CANNOT = 2
"""The exit code of a part that says that it cannot be run like this: to start it again would not help."""

STOP_SECONDS = 20.0
LOOK = 0.2
SUPERVISED = "NEARCAST_SUPERVISED"
"""Set in the environment of a part: its standard input is the pipe of its supervisor."""

ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""What threads free, glibc keeps for the threads of the same arena; with many arenas a part that runs for long holds
far more than it uses. Whoever sets the variable otherwise has it so."""


@dataclass
class SystemPart:
    """A part of the system: its name, the arguments of `nearcast` that run it, and its process while it runs.

    `module` is what is run with them, instead of `nearcast`; `held` are descriptors of files that it keeps open too.
    `proven`: it has worked, so it can be run, whatever it says when it dies.
    """

    name: str
    arguments: Sequence[str]
    environment: dict[str, str] | None = None
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    longest_pause: float = LONGEST_PAUSE
    module: str = "nearcast"
    held: tuple[int, ...] = ()
    proven: bool = False
    _started: float = 0.0
    _pauses: Iterator[float] | None = None
    _due: float = field(default=0.0)

    def start(self, now: float) -> None:
        """Starts the process. A session of its own: a signal from the terminal reaches the supervisor alone."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module, *self.arguments],
            env={**ARENAS, **(os.environ if self.environment is None else self.environment), SUPERVISED: "1"},
            # Nothing is ever written: that it ends is the message. No other part inherits the end that is kept here.
            stdin=subprocess.PIPE,
            pass_fds=self.held,
            start_new_session=True,
        )
        self._started = now

    def look(self, now: float) -> None:
        """Starts the part again when it has died and its pause is over. Raises SetupError if it cannot run at all."""
        if self.process is None:
            if now >= self._due:
                self.start(now)
            return
        code = self.process.poll()
        if code is None:
            return
        _let_go(self.process)
        if code == CANNOT and not self.proven and self.restarts == 0 and now - self._started < SETTLED:
            raise SetupError(f"the {self.name} cannot run; what it said above tells why")
        if now - self._started > SETTLED or self._pauses is None:
            self._pauses = backoff(FIRST_PAUSE, self.longest_pause)
        pause = next(self._pauses)
        self.restarts += 1
        self.process, self._due = None, now + pause
        warn("warning", f"the {self.name} died ({_reason(code)}); starting it again in {pause:.1f} s")

    def stop(self) -> None:
        """Asks the process to end."""
        if self.process and self.process.poll() is None:
            self.process.terminate()

    def wait(self, seconds: float) -> None:
        """Waits for the process to end; kills it when the time is over."""
        if self.process is None:
            return
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            warn("warning", f"the {self.name} did not end in {seconds:.0f} s; killing it")
            self.process.kill()
            self.process.wait()
        _let_go(self.process)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Closes the pipe of a process that has ended."""
    if process.stdin:
        process.stdin.close()


def _reason(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class Supervisor:
    """Keeps parts running from `start` to `stop`."""

    def __init__(self, parts: Sequence[SystemPart]) -> None:
        self.parts = list(parts)

    def start(self) -> None:
        """Starts every part."""
        for part in self.parts:
            part.start(time.monotonic())

    def look(self) -> None:
        """Looks after every part once."""
        for part in self.parts:
            part.look(time.monotonic())

    def watch(self, until: Callable[[], bool]) -> None:
        """Looks after the parts until that holds."""
        while not until():
            self.look()
            time.sleep(LOOK)

    def stop(self) -> None:
        """Ends every part."""
        # All are asked before one is waited for: they end side by side.
        for part in self.parts:
            part.stop()
        for part in self.parts:
            part.wait(STOP_SECONDS)


def end_with_supervisor() -> None:
    """Lets this process, if it is a part, end as on SIGTERM when its supervisor is no more."""
    if os.environ.get(SUPERVISED):
        threading.Thread(target=_end_with, args=(sys.stdin.fileno(),), name="nearcast-supervised", daemon=True).start()


def _end_with(pipe: int) -> None:
    # Not through sys.stdin: Python's exit would wait for the lock that a read from there holds.
    while os.read(pipe, 1):
        pass
    warn("warning", "the supervisor is no more; ending")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    # Nobody else is left to end a part that does not end.
    os.kill(os.getpid(), signal.SIGKILL)
