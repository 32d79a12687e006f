"""File descriptors: how many this process may have, and whether it has run out of them."""

from __future__ import annotations

import os
import resource

RESERVED = 64
"""Descriptors for the journal, logs and pipes, beside those of connections."""


def room_for_connections(wanted: int) -> int:
    """How many connections there are descriptors for, up to the number wanted; the soft limit is raised if it may be.

    At least one, however few there are.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(min(wanted, soft - RESERVED), 1)


def exhausted() -> str | None:
    """What to say where this process can open nothing more; None where it can."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"no file descriptor is free, of {soft:,}: {error.strerror}; raise the limit (ulimit -n)"
    return None
