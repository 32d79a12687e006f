"""An event loop whose time is a number: it stands still while anything is to be done, and leaps to what is due next.

Each callback belongs to a process, the one that scheduled it. One that is killed does nothing any more, not even what
its `finally` says; one that is paused does everything later. What runs in threads runs in threads here too, one at a
time and in an order that the seed alone decides: a thread gives way only where it waits.
"""

from __future__ import annotations

import _thread
import asyncio
import heapq
import random
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

try:
    import greenlet
except ImportError:
    greenlet = None  # type: ignore[assignment]

BEGAN = 1_700_000_000.0
"""The time of day as the simulation begins, in seconds since 1970."""


ROUNDS, LAST_SECONDS = 10, 100.0
"""So often tasks are cancelled at the end, and so long they may take."""


class SimulationOver(BaseException):
    """Ends what waits in a thread when the simulation is closed."""


class Stuck(Exception):
    """Nothing is to be done, now or later."""


class SimulatedProcess:
    """One process, on a host of its name; `held` is what it does once it is paused no more."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.alive, self.paused = True, False
        self.held: list[_Handle] = []


class _Handle(asyncio.TimerHandle):
    """A callback of a process."""

    __slots__ = ("process",)


class SimulatedLoop(asyncio.BaseEventLoop):
    """Everything there is runs in this loop. `current` is the process that runs; `steps` counts callbacks.

    `ahead` says of hosts by how many seconds their clocks are ahead of the true time of day.
    """

    def __init__(self, seed: object) -> None:
        super().__init__()
        self.chance = random.Random(f"loop {seed}")
        self.world = self.current = SimulatedProcess("world")
        self.threads = SimulatedThreads(self)
        self.steps = 0
        self.network: Any = None
        self.errors: list[str] = []
        self.ahead: dict[str, float] = {}
        self._moment = 0.0
        self._closing = False
        self._due: list[tuple[float, int, _Handle]] = []
        self._number = count()
        self._ready: deque[_Handle] = deque()
        # Of the dead too: collected as garbage, their coroutines would end in an orderly way.
        self._tasks: list[asyncio.Task[Any]] = []
        self.set_exception_handler(self._note_error)

    def time(self) -> float:
        return self._moment

    def wall(self) -> float:
        """The time of day by the clock of the host on which something runs, in seconds since 1970."""
        return BEGAN + self._moment + self.ahead.get(self.current.host, 0.0)

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # Not what it happened to: that may be about to be collected as garbage.
        self.errors.append(f"{context['message']}: {error!r}")

    def _process_events(self, event_list: object) -> None: ...

    def _write_to_self(self) -> None: ...

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def schedule(
        self, process: SimulatedProcess, delay: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Calls something as a process, so many seconds from now."""
        return self._at(self._moment + delay, callback, args, None, process)

    def _at(self, when: float, callback: Any, args: Any, context: Any, process: SimulatedProcess) -> _Handle:
        handle = _Handle(when, callback, args, self, context)
        handle.process = process
        heapq.heappush(self._due, (when, next(self._number), handle))
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self._at(when, callback, args, context, self.current)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self._at(self._moment + delay, callback, args, context, self.current)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = _Handle(self._moment, callback, args, self, context)
        handle.process = self.current
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def create_task(self, coro: Any, **more: Any) -> asyncio.Task[Any]:
        task = super().create_task(coro, **more)
        self._tasks.append(task)
        if len(self._tasks) > 10_000:
            self._tasks = [one for one in self._tasks if not one.done()]
        return task

    def spawn(self, process: SimulatedProcess, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begins a task of a process."""
        before, self.current = self.current, process
        try:
            task = self.create_task(work)
            task.add_done_callback(self._note_failure)
            return task
        finally:
            self.current = before

    def _note_failure(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self.errors.append("".join(traceback.format_exception(error)))

    def resume(self, process: SimulatedProcess) -> None:
        """Lets a paused process go on with what it would have done meanwhile."""
        process.paused = False
        self._ready.extend(process.held)
        process.held = []

    def _run_once(self) -> None:
        if not self._ready:
            if not self._due:
                raise Stuck
            self._moment = max(self._moment, self._due[0][0])
        while self._due and self._due[0][0] <= self._moment:
            self._ready.append(heapq.heappop(self._due)[2])
        for _ in range(len(self._ready)):
            self._run(self._ready.popleft())

    def _run(self, handle: _Handle) -> None:
        process = handle.process
        if handle.cancelled() or not (process.alive or self._closing):
            return
        if process.paused and not self._closing:
            process.held.append(handle)
            return
        self.steps += 1
        self.current = process
        handle._run()

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Runs a function in a thread; how soon it begins and its end is noticed, differs."""
        future = self.create_future()

        def tell(set_one: Callable[[Any], None], found: Any) -> None:
            if not future.done():
                set_one(found)

        def call() -> None:
            try:
                found = func(*args)
            except Exception as error:
                self.call_later(self._soon(), tell, future.set_exception, error)
            else:
                self.call_later(self._soon(), tell, future.set_result, found)

        self.call_later(self._soon(), self.threads.begin, call)
        return future

    def _soon(self) -> float:
        return self.chance.uniform(0.0, 0.0005)

    async def getaddrinfo(self, host: Any, port: Any, **more: Any) -> list[Any]:
        return [(2, 1, 6, "", (host.decode() if isinstance(host, bytes) else host, port))]

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        return await self.network.connect(factory, host, port)

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, *, sock: Any = None, **more: Any):  # type: ignore[no-untyped-def]
        return self.network.listen(factory, *(sock.getsockname() if sock else (host, port)))

    def close(self) -> None:
        """Ends everything, in an orderly way: it changes nothing any more."""
        self.threads.close()
        self._closing = True
        self._due, self._ready = [], deque()
        for _ in range(ROUNDS):
            pending = [task for task in self._tasks if not task.done()]
            for task in pending:
                task.cancel()
            self.call_later(LAST_SECONDS, self.stop)
            self.run_forever()
            if not pending:
                break
        self._due, self._ready, self._tasks = [], deque(), []
        super().close()


class _Worker:
    """What runs one call after the other in a thread; `go` is the turn of that thread."""

    def __init__(self) -> None:
        self.go = _thread.allocate_lock()
        self.go.acquire()
        self.call: Callable[[], None] | None = None
        self.stack: Any = None


class _Wait:
    """A thread waits; whatever comes first ends that."""

    def __init__(self, threads: SimulatedThreads, worker: _Worker) -> None:
        self._threads, self._worker = threads, worker
        self.process = threads.loop.current
        self.ended, self.value = False, False

    def end(self, value: bool) -> None:
        if not self.ended:
            self.ended, self.value = True, value
            self._threads.switch(self._worker)


class SimulatedThreads:
    """Threads of which one runs at a time: the loop's, or one that it lets run until that waits or ends.

    Where greenlets are installed those stand for them: on a machine that is busy a thread waits long for its turn.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.running: _Worker | None = None
        self._back = _thread.allocate_lock()
        self._back.acquire()
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._own = {_thread.get_ident()}
        self._over = False

    def instead_of(self, real: Callable[..., Any], simulated: Callable[..., Any]) -> Callable[..., Any]:
        """The simulated function for threads of the simulation, and the real one for all others of this process: they
        are no part of it, and one that gave way in it would take the turn of another.
        """
        return lambda *args: (simulated if _thread.get_ident() in self._own else real)(*args)

    def begin(self, call: Callable[[], None]) -> None:
        """Runs a call in a thread; returns when that waits, or has ended."""
        if self._over:
            return
        if not self._idle:
            worker = _Worker()
            self._workers.append(worker)
            if greenlet:
                worker.stack = greenlet.greenlet(self._work)
            else:
                _thread.start_new_thread(self._work, (worker,))
        else:
            worker = self._idle.pop()
        worker.call = call
        self.switch(worker)

    def switch(self, worker: _Worker) -> None:
        """Lets a thread run until it waits, or has ended."""
        self.running = worker
        if worker.stack is not None:
            worker.stack.switch(worker)
        else:
            worker.go.release()
            self._back.acquire()
        self.running = None

    def _give_way(self, worker: _Worker) -> None:
        """Lets the loop go on until it is this thread's turn again."""
        if worker.stack is not None:
            worker.stack.parent.switch()
        else:
            self._back.release()
            worker.go.acquire()

    def _work(self, worker: _Worker) -> None:
        if worker.stack is None:
            self._own.add(_thread.get_ident())
            worker.go.acquire()
        while not self._over:
            assert worker.call, "given before it goes on"
            try:
                worker.call()
            except SimulationOver:
                break
            except BaseException as error:
                self.loop.errors.append(f"thread: {error!r}")
            worker.call = None
            self._idle.append(worker)
            self._give_way(worker)
        if worker.stack is None:
            self._back.release()

    def wait(self, waiters: list[_Wait] | None, seconds: float | None) -> bool:
        """Waits in a thread until one of its `waiters` is told, or so many seconds are over; whether it was told."""
        worker = self.running
        if self._over or worker is None:
            raise SimulationOver
        wait = _Wait(self, worker)
        if waiters is not None:
            waiters.append(wait)
        if seconds is not None:
            self.loop.call_later(seconds, wait.end, False)
        self._give_way(worker)
        if self._over:
            raise SimulationOver
        return wait.value

    def tell(self, waiters: list[_Wait], delay: float = 0.0) -> None:
        """Tells all who wait, a moment later."""
        for one in waiters:
            self.loop.schedule(one.process, delay, one.end, True)
        waiters.clear()

    def sleep(self, seconds: float) -> None:
        """As `time.sleep`."""
        self.wait(None, max(0.0, seconds))

    def close(self) -> None:
        """Ends all threads."""
        self._over = True
        for worker in self._workers:
            self.switch(worker)


class SimulatedEvent:
    """As `threading.Event`, for the threads of a simulation."""

    def __init__(self, threads: SimulatedThreads) -> None:
        self._threads, self._set = threads, False
        self._waiters: list[_Wait] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._threads.tell(self._waiters)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._set or self._threads.wait(self._waiters, timeout)


class SimulatedThread:
    """As `threading.Thread`, for the threads of a simulation."""

    def __init__(self, threads: SimulatedThreads, target: Callable[..., None], name: str = "", daemon: bool = False):
        self._threads, self._target = threads, target
        self._alive = False
        self._ended = SimulatedEvent(threads)

    def start(self) -> None:
        self._alive = True
        self._threads.loop.call_soon(self._threads.begin, self._run)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._alive = False
            self._ended.set()

    def is_alive(self) -> bool:
        return self._alive

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)


class SimulatedFuture:
    """As what `asyncio.run_coroutine_threadsafe` gives."""

    def __init__(self, loop: SimulatedLoop, work: Coroutine[Any, Any, Any]) -> None:
        self._ended = SimulatedEvent(loop.threads)
        self._task: asyncio.Task[Any] | None = None
        self._loop = loop
        loop.call_soon(self._begin, work)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(lambda task: self._ended.set())

    def done(self) -> bool:
        return self._ended.is_set()

    def result(self, timeout: float | None = None) -> Any:
        if not self._ended.wait(timeout):
            raise TimeoutError
        assert self._task, "it has ended"
        return self._task.result()
