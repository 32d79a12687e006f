"""What pages in a browser may ask of a server: those of its own address may, others only where their origin is allowed.

A browser sends the requests of any page, also those by which the page only wants something to happen, as by an image.
It says where a page comes from: `Origin`, and `Sec-Fetch-Site` where there is no origin.
What is no browser sends neither. A name that is made to resolve to this machine (DNS rebinding) shows in `Host`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from nearcast.errors import SetupError
from nearcast.server.config import loopback

PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def refusal(headers: Mapping[str, str], allowed: Iterable[str]) -> str | None:
    """Why a request to a server that asks for no token is refused, from what browsers say of it; None if it is not."""
    host, origin, site = headers.get("host", "localhost"), headers.get("origin"), headers.get("sec-fetch-site")
    if not loopback(_split(f"//{host}")[0]):
        return f"expected a request to this machine by its own name, got host {host[:80]}; use tokens"
    if origin is not None:
        if origin in allowed or _split(origin) == _split(f"http://{host}"):
            return None
        return f"expected a page of this server, got origin {origin[:80]}; allow it with --allow-origin, or use tokens"
    if site in ("cross-site", "same-site"):
        return f"expected a page of this server, got one that is {site}; a script of an allowed origin may do this"
    return None


def _split(url: str) -> tuple[str, int | None]:
    """The host and port that a URL names; "" where it names none."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return "", None


def check_origin(origin: str) -> str:
    """An origin as browsers write it. Raises SetupError."""
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
        raise SetupError(f"expected an origin such as https://map.example.org, got {origin[:80]}; no path, no slash")
    return origin.lower()
