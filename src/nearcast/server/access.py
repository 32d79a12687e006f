"""Who may do what: bearer tokens with rights, compared in constant time.

NEARCAST_TOKENS holds tokens separated by white space, each `name:token:rights`, and so does a file of tokens, where `#`
begins a comment. Rights are separated by commas and are `publish`, `receive` (as any client), `receive=CLIENT` (as that
one only), `watch` (metrics, status) and `manage` (definitions, and what `watch` allows). `sources=A|B` and `types=T|U`
beside them bind what is published to these; one that ends with `*` is all that begins so. In sources and types `%3A` is
a colon, `%2C` a comma, and so on.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from nearcast.errors import AccessError, EventError, Fault, Mark, RightError, SetupError

Right = Literal["publish", "receive", "manage", "watch"]
RIGHTS = ("publish", "receive", "manage", "watch")
BOUNDS = ("sources", "types")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A secret, the name it is known by in logs, and what it allows; `clients` empty: as any client.

    `sources`, `types`: of what may be published, with a `*` at the end all that begin so; empty: any.
    """

    name: str
    secret: str
    rights: frozenset[str]
    clients: frozenset[str] = frozenset()
    sources: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    def check_event(self, source: str, type: str, where: Mark | None = None) -> None:
        """Raises EventError for an event that the token must not publish."""
        for what, value, bound in (("source", source, self.sources), ("type", type, self.types)):
            if bound and not any(_fits(value, one) for one in bound):
                expected = f"an event whose {what} is among {', '.join(bound)}, to which the token {self.name} is bound"
                raise EventError(Fault(expected, value[:200], where, "publish as what you are, or use another token"))

    def allows(self, right: Right, client: str | None) -> bool:
        """Whether the right is held, for this client if one is named."""
        if right == "watch" and "manage" in self.rights:
            return True
        if right not in self.rights:
            return False
        return right != "receive" or client is None or not self.clients or client in self.clients


def tokens_from(text: str) -> tuple[AccessToken, ...]:
    """The tokens that the value of NEARCAST_TOKENS names; raises SetupError without telling a secret."""
    return tuple(_token(word, number) for number, word in enumerate(text.split(), 1))


def tokens_in(path: Path) -> tuple[AccessToken, ...]:
    """The tokens of a file; raises SetupError, without telling a secret, also for one that cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "bytes that are no UTF-8"
        raise SetupError(f"expected tokens in {path}, got {why}; write one in a line, name:token:rights") from error
    words = [word for line in lines for word in line.partition("#")[0].split()]
    if not words:
        raise SetupError(f"expected tokens in {path}, got none; write one in a line, name:token:rights")
    return tuple(_token(word, number, str(path)) for number, word in enumerate(words, 1))


def _token(word: str, number: int, where: str = "NEARCAST_TOKENS") -> AccessToken:
    name, _, rest = word.partition(":")
    # From the right: a secret may have colons in it, rights have none.
    secret, _, rights = rest.rpartition(":")
    given = [part for part in rights.split(",") if part]
    kinds = frozenset(part.partition("=")[0] for part in given)
    bounds = {one: _bound(given, one) for one in BOUNDS}
    empty = any(one in kinds and not (bound and all(bound)) for one, bound in bounds.items())
    if not name or not secret or not kinds & set(RIGHTS) or not kinds <= {*RIGHTS, *BOUNDS} or empty:
        raise SetupError(
            f"expected name:token:rights with rights among {', '.join(RIGHTS)}, receive=CLIENT, and sources=A|B and"
            f" types=A|B beside publish, in {where}, got something else as word {number}; write for example"
            " dashboard:SECRET:receive,manage or city:SECRET:publish,sources=city (a colon in a source as %3A)"
        )
    clients = frozenset(part.partition("=")[2] for part in given if part.startswith("receive="))
    return AccessToken(
        name,
        secret,
        kinds & set(RIGHTS),
        frozenset() if "receive" in given else clients,
        bounds["sources"],
        bounds["types"],
    )


def _bound(given: Iterable[str], what: str) -> tuple[str, ...]:
    """The values that a token is bound to."""
    values = (part.partition("=")[2] for part in given if part.partition("=")[0] == what)
    return tuple(unquote(one) for value in values for one in value.split("|"))


def _fits(value: str, bound: str) -> bool:
    return value.startswith(bound[:-1]) if bound.endswith("*") else value == bound


def allow(
    tokens: Iterable[AccessToken], presented: str | None, right: Right, client: str | None = None
) -> AccessToken | None:
    """The token that allows it; None where there are no tokens at all. Raises AccessError, or RightError.

    Every token is compared, whichever fits, so that time tells nothing.
    """
    tokens = tuple(tokens)
    if not tokens:
        return None
    given = (presented or "").encode()
    fitting = [token for token in tokens if hmac.compare_digest(token.secret.encode(), given)]
    if not fitting:
        came = "none" if presented is None else "one that is not known"
        raise AccessError(f"expected a bearer token, got {came}; send the header Authorization: Bearer TOKEN")
    if not any(token.allows(right, client) for token in fitting):
        of = f" for client {client}" if client else ""
        raise RightError(f"expected a token with the right {right}{of}, got that of {fitting[0].name}")
    return fitting[0]


def bearer(header: str | None, query: str | None = None) -> str | None:
    """The token in an Authorization header, else the one in the query (browsers set no header on WebSockets)."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else query
