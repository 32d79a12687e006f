"""An event's data as the bytes of its media type, and back: the content of binary messages (CloudEvents 1.0, 3.1)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import orjson

from nearcast.errors import Mark
from nearcast.language.cloudevents import BYTE_ORDER_MARK, is_json_type
from nearcast.language.json_text import loads

_CHARSET = re.compile(r';\s*charset\s*=\s*"?([\w.:-]+)', re.IGNORECASE)
_CHARSETS = frozenset({"utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252", "utf-16"})
"""In which texts may come that are data."""


def data_of(content_type: str, content: bytes, where: Mark) -> dict[str, Any]:
    """The field `data` or `data_base64` of content of a media type, JSON where none is given. Raises `EventError`."""
    media_type = content_type.partition(";")[0].strip().lower()
    if not media_type or is_json_type(media_type):
        return {"data": loads(content.removeprefix(BYTE_ORDER_MARK), where)}
    return other_data(media_type, content_type, content)


def other_data(media_type: str, content_type: str, content: bytes) -> dict[str, Any]:
    """Data that are no JSON: a text in the character set it names, else as it came."""
    if media_type.startswith("text/") or media_type.endswith(("/xml", "+xml")):
        try:
            return {"data": content.decode(_charset(content_type))}
        except UnicodeDecodeError:
            pass
    return {"data_base64": base64.b64encode(content).decode()}


def content_of(event: Mapping[str, Any], content_type: str) -> bytes | None:
    """What an event's data are as bytes of a media type; None where it has none. It was read before."""
    if event.get("data_base64") is not None:
        return base64.b64decode(event["data_base64"])
    data = event.get("data")
    if data is None:
        return None
    if isinstance(data, str) and not is_json_type(content_type):
        return data.encode(_charset(content_type), errors="replace")
    return orjson.dumps(data)


def _charset(content_type: str) -> str:
    """The character set that a media type names, where it is one that texts may come in."""
    named = _CHARSET.search(content_type)
    charset = named[1].lower() if named else "utf-8"
    return charset if charset in _CHARSETS else "utf-8"
