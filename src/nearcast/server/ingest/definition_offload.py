"""Reading what came: what is large in a thread, so that the server goes on meanwhile, and definitions only once."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from nearcast.model.changes import Change, SubscriptionChange
from nearcast.model.event import Event
from nearcast.model.subscription import Settings
from nearcast.server.admin.documents import checked_changes

LARGE = 64 * 1024
"""Bytes that take about a millisecond to read: more than the way to a thread and back."""

LARGE_DEFINITION = 2 * 1024
"""Bytes of a definition that take about as long: two hundred sums of a filter have five thousand and take eleven, an
outline of 32 KiB takes thirty.
"""

REMEMBERED = 8
"""Large definitions that are on their way through the journal at once."""

P = ParamSpec("P")
T = TypeVar("T")


class DefinitionOffload:
    """Reads in one thread of its own: several would take the event loop's turns, for Python runs one at a time."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "nearcast-reading")
        self._lock = threading.Lock()
        self._read: OrderedDict[bytes, tuple[Settings, list[Change]]] = OrderedDict()

    async def of(self, size: int, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function reads from so many bytes."""
        if size < LARGE:
            return read(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: read(*args, **kwargs))

    async def of_definition(self, size: int, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same of a definition, which takes longer for its size."""
        return await self.of(size if size < LARGE_DEFINITION else max(size, LARGE), read, *args, **kwargs)

    def changes(self, event: Event, settings: Settings) -> list[Change]:
        """What a control event changes: as it was read on its way into the journal, if it was here. See
        `checked_changes`.
        """
        with self._lock:
            under, found = self._read.pop(event.payload, (None, []))
        return found if under is settings else checked_changes(event, settings)

    def remember(self, event: Event, settings: Settings, changes: list[Change]) -> None:
        """Takes note of what an event was read as that will come back from the journal, if that took long."""
        # Only subscriptions: what a relation is depends on where the event enters.
        if len(event.payload) >= LARGE_DEFINITION and all(isinstance(one, SubscriptionChange) for one in changes):
            with self._lock:
                self._read[event.payload] = settings, changes
                while len(self._read) > REMEMBERED:
                    self._read.popitem(last=False)

    def close(self) -> None:
        """Lets go of the thread once it is done with what it reads."""
        self._executor.shutdown(wait=False)
