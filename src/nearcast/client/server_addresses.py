"""Where a client connects: access servers of one domain, the next where one does not answer, and where it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from nearcast.errors import SessionError

MOST_LEARNED = 100
"""Servers that are known beside those that were given: a domain has no more."""

HAPPY_SECONDS = 0.25
"""A name may stand for several addresses: where one does not answer so soon, the next is tried beside it."""


class ServerAddresses:
    """URLs of access servers, http or https. `current` is the one to use; those given come first, in their order.

    Raises SessionError where none is given.
    """

    def __init__(self, urls: str | Sequence[str]) -> None:
        given = [urls] if isinstance(urls, str) else [*urls]
        if not given:
            raise SessionError("expected the URL of an access server, or several, got none")
        self._given = [one.rstrip("/") for one in given]
        self._learned: list[str] = []
        self._secure = all(urlsplit(one).scheme == "https" for one in self._given)
        self.current = self._given[0]
        self._tried = 0

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> list[str]:
        return [*dict.fromkeys([*self._given, *self._learned])]

    def failed(self) -> bool:
        """Goes on to the next server; whether all of them were tried since one worked."""
        known = self._all()
        after = known.index(self.current) + 1 if self.current in known else 0
        self.current = known[after % len(known)]
        self._tried += 1
        return self._tried >= len(known)

    def works(self) -> None:
        """The current server answers."""
        self._tried = 0

    def go_to(self, url: str) -> bool:
        """The next connection is to this server; False, and nothing changes, for a URL that may not be followed: one
        without encryption where those given have it, or of something else.
        """
        if not self._allowed(url):
            return False
        self.current = url.rstrip("/")
        return True

    def learn(self, urls: Iterable[object]) -> None:
        """Takes note of the domain's other servers, as one of them names them."""
        allowed = [one for one in urls if isinstance(one, str) and self._allowed(one)]
        self._learned = [one.rstrip("/") for one in allowed[:MOST_LEARNED]]

    def _allowed(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
            named = bool(parts.hostname) and parts.port != 0
        except ValueError:
            return False
        plain = not (parts.query or parts.fragment or "@" in parts.netloc)
        return named and plain and parts.scheme in (("https",) if self._secure else ("http", "https"))


def websocket_url(url: str, path: str) -> str:
    """Where a path of a server is reached by WebSocket."""
    return f"ws{url.rstrip('/').removeprefix('http')}{path}"
