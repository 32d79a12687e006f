"""How many bytes an event takes as the newest of its entity, about: without its payload, which the journal keeps."""

from __future__ import annotations

from nearcast.model.event import Event

FIXED = 200
"""Bytes of an event besides its texts and attributes, about."""

ENTRY = 40
"""Bytes of an attribute besides its name and text, about."""


def size_of(event: Event) -> int:
    """The bytes of one event; `repository.sizes_of` has those of a table."""
    texts = [event.id, event.source, event.subject or ""]
    for name, value in event.attributes:
        texts += (name, value) if isinstance(value, str) else (name,)
    return FIXED + ENTRY * len(event.attributes) + sum(map(_bytes, texts))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
