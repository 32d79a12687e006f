"""Whether a stream can be a journal, whether it still is the one that was opened, and how safely it is kept."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from nearcast.errors import JournalError
from nearcast.journal.jetstream.chained_blocks import DamagedChain
from nearcast.journal.jetstream.stream_api import JetStream

FORMAT, BEFORE = "2", "1"
"""The version of messages and subjects, in the stream's metadata; a stream of another is not touched. One of the format
before goes on in that, so that the version that made it can read it: its blocks have no lengths in the place of
offsets.
"""

IDENTITY, VERSION = "nearcast-journal", "nearcast-format"
"""What a stream's metadata has: which journal it is, whatever its name, and of which format."""

NEEDED = {
    "storage": ("file",),
    "retention": ("limits",),
    "max_age": (0,),
    "max_msgs": (-1, 0),
    "max_bytes": (-1, 0),
    "max_msgs_per_subject": (-1, 0),
    "discard": ("new",),
    "allow_direct": (True,),
    "persist_mode": ("default", None),
}
"""Settings of a stream, and what they may be: otherwise servers would let go of what nobody has read."""

LOOK_SECONDS = 1.0
"""Between two looks whether the stream is still the same."""

MONITOR_SECONDS = 3.0


def identity_of(stream: JetStream, found: Mapping[str, Any]) -> str:
    """Which journal a stream is. Raises `JournalError` where it is none, or none that keeps what is written."""
    metadata = found["config"].get("metadata") or {}
    if IDENTITY not in metadata:
        raise JournalError(f"journal {stream.address}: expected a journal, got another program's stream; give another")
    if metadata.get(VERSION) not in (BEFORE, FORMAT):
        came = f"{metadata.get(VERSION)}; use the version of nearcast that wrote it"
        raise JournalError(f"journal {stream.address}: expected format {FORMAT}, got {came}")
    for name, allowed in NEEDED.items():
        if found["config"].get(name) not in allowed:
            raise JournalError(
                f"journal {stream.address}: expected a stream with {name} {allowed[0]}, got"
                f" {found['config'].get(name)}: it would not keep all; change that with `nats stream edit`"
            )
    return str(metadata[IDENTITY])


def has_lengths(found: Mapping[str, Any]) -> bool:
    """Whether blocks of a stream may have lengths in the place of offsets (`encoded_rows`)."""
    return bool(found["config"]["metadata"][VERSION] == FORMAT)


class SameStream:
    """Looks now and then whether a stream is the one that was opened, and has what it had."""

    def __init__(self, stream: JetStream, identity: str, newest: Callable[[], int]) -> None:
        self._stream, self._identity, self._newest = stream, identity, newest
        self._looked = time.monotonic()

    def look(self) -> None:
        """Raises `DamagedChain` where it is another one, or lost its newest messages."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        wanted = self._newest()
        found = self._stream.info()
        metadata = found["config"].get("metadata") or {}
        if metadata.get(IDENTITY) != self._identity:
            raise DamagedChain(
                f"expected the stream that was opened, of journal {self._identity}, got another of that name, made"
                f" {found.get('created')}: the one before was deleted"
            )
        last = found["state"]["last_seq"]
        if last < wanted:
            raise DamagedChain(f"expected messages up to {wanted}, got {last} at most: the newest are lost")
        self._looked = time.monotonic()


def durability(stream: JetStream, found: Mapping[str, Any]) -> tuple[str, bool]:
    """How safely a stream is kept, in words; and whether that survives a loss of power, as far as anybody tells.

    The servers' setting `sync_interval` is told by their monitoring only, which is asked where the address names it.
    """
    replicas = found["config"].get("num_replicas", 1)
    kept = f"kept on {replicas} server{'s' * (replicas > 1)}"
    monitor = stream.address.monitor
    if monitor is None:
        return (
            f"{kept}; whether each write is synced to the disk was not looked at (name ?monitor=http://HOST:8222)",
            True,
        )
    try:
        settings = _told(monitor)["jetstream"]["config"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{kept}; expected to be told by {monitor}/varz how writes are synced, got {error!r}", True
    if settings.get("sync_always"):
        return f"{kept}; each write is synced to the disk before it is answered", True
    seconds = settings.get("sync_interval", 0) / 1e9
    return (
        f"{kept}; expected `sync_interval: always`, got {seconds:g} s: after a loss of power what was answered may be"
        " missing; set it in the block `jetstream` of each server's configuration",
        False,
    )


def _told(monitor: str) -> dict[str, Any]:
    if not monitor.startswith(("http://", "https://")):
        raise ValueError("expected a URL that begins with http")
    with urllib.request.urlopen(f"{monitor.rstrip('/')}/varz", timeout=MONITOR_SECONDS) as answer:
        document: dict[str, Any] = orjson.loads(answer.read())
        return document
