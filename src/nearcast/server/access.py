"""Who may do what: bearer tokens with rights, compared in constant time.

NEARCAST_TOKENS holds tokens separated by white space, each `name:token:rights`; rights are separated by commas and are
`publish`, `receive` (as any client), `receive=CLIENT` (as that one only) and `manage` (definitions, metrics, status).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nearcast.errors import AccessError, RightError, SetupError

Right = Literal["publish", "receive", "manage"]
RIGHTS = ("publish", "receive", "manage")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A secret, the name it is known by in logs, and what it allows; `clients` empty: as any client."""

    name: str
    secret: str
    rights: frozenset[str]
    clients: frozenset[str] = frozenset()

    def allows(self, right: Right, client: str | None) -> bool:
        """Whether the right is held, for this client if one is named."""
        if right not in self.rights:
            return False
        return right != "receive" or client is None or not self.clients or client in self.clients


def tokens_from(text: str) -> tuple[AccessToken, ...]:
    """The tokens that the value of NEARCAST_TOKENS names; raises SetupError without telling a secret."""
    return tuple(_token(word, number) for number, word in enumerate(text.split(), 1))


def _token(word: str, number: int) -> AccessToken:
    name, _, rest = word.partition(":")
    # From the right: a secret may have colons in it, rights have none.
    secret, _, rights = rest.rpartition(":")
    given = [part for part in rights.split(",") if part]
    kinds = frozenset(part.partition("=")[0] for part in given)
    if not name or not secret or not kinds or not kinds <= set(RIGHTS):
        raise SetupError(
            f"expected name:token:rights with rights among {', '.join(RIGHTS)}, receive=CLIENT in NEARCAST_TOKENS, got"
            f" something else as word {number}; write for example dashboard:SECRET:receive,manage"
        )
    clients = frozenset(part.partition("=")[2] for part in given if part.startswith("receive="))
    return AccessToken(name, secret, kinds, frozenset() if "receive" in given else clients)


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
