"""Where a journal on NATS is: `nats://host:4222,host2:4222/NAME`, and by what who opens it is known there.

What is secret may be in the URL, and is better in the environment: a URL is seen in lists of processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from nearcast.errors import Fault, SetupError

SCHEMES = ("nats", "tls")
"""`tls`: the connection is encrypted, and the server's certificate is checked."""

DEFAULT_STREAM = "nearcast"
PORT = 4222
VARIABLE = "NEARCAST_NATS_"
"""What the names of environment variables begin with: the rest is a field of `Credentials`, in capitals."""

FORM = "nats://host:4222,host2:4222/NAME"
STREAM_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
MOST_REPLICAS = 5
"""What JetStream allows."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """By what a client is known: a user with a password, a token, or a file of credentials; and files for TLS: the
    authorities that are believed, and a certificate with its key.
    """

    user: str | None = None
    password: str | None = None
    token: str | None = None
    creds: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """Servers as URLs without secrets, the name of the stream, on how many servers each message is kept, and `monitor`,
    the URL of a server's monitoring, or None.
    """

    servers: tuple[str, ...]
    stream: str
    replicas: int
    credentials: Credentials
    monitor: str | None

    @property
    def encrypted(self) -> bool:
        """Whether the connection is to be encrypted."""
        found = self.credentials
        return self.servers[0].startswith("tls:") or bool(found.ca or found.cert)

    def __str__(self) -> str:
        """The address without what is secret."""
        first, *rest = self.servers
        return f"{','.join((first, *(server.partition('//')[2] for server in rest)))}/{self.stream}"


def is_nats(where: object) -> bool:
    """Whether a journal's place is an address of NATS, not a path."""
    return isinstance(where, str) and where.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


def parse_address(url: str, environment: Mapping[str, str] = os.environ) -> NatsAddress:
    """Reads a URL. What it does not say of credentials the environment does. Raises `SetupError`."""
    try:
        parts = urlsplit(url)
        secret, _, hosts = parts.netloc.rpartition("@")
        servers = tuple(_server(parts.scheme, host) for host in hosts.split(","))
    except ValueError as error:
        raise _refused(f"{_without_secrets(url)}: {error}") from error
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    replicas, monitor = options.pop("replicas", None), options.pop("monitor", None)
    unknown = set(options) - {"creds", "ca", "cert", "key"}
    if parts.scheme not in SCHEMES or unknown:
        raise _refused(f"the option {min(unknown)}" if unknown else f"the scheme {parts.scheme!r}")
    stream = unquote(parts.path.strip("/")) or DEFAULT_STREAM
    if not STREAM_NAME.fullmatch(stream):
        raise _refused(f"the name {stream!r}; letters, digits, _ and - are allowed, 60 at most")
    return NatsAddress(
        servers, stream, _replicas(replicas, servers), _credentials(secret, options, environment), monitor
    )


def _server(scheme: str, host: str) -> str:
    parts = urlsplit(f"{scheme}://{host}")
    if not parts.hostname:
        raise ValueError("a host is missing")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{scheme}://{name}:{parts.port or PORT}"


def _replicas(said: str | None, servers: tuple[str, ...]) -> int:
    # Of two servers none may fail, so a second copy would gain nothing.
    number = said or ("3" if len(servers) >= 3 else "1")
    if not number.isdecimal() or not 1 <= int(number) <= MOST_REPLICAS:
        raise _refused(f"replicas={number}; 1, 3 or 5 are of use")
    return int(number)


def _credentials(secret: str, options: Mapping[str, str], environment: Mapping[str, str]) -> Credentials:
    user, colon, password = secret.partition(":")
    own = {}
    if colon:
        own = {"user": unquote(user), "password": unquote(password)}
    elif user:
        own = {"token": unquote(user)}
    said = {name: environment.get(VARIABLE + name.upper()) for name in Credentials.__dataclass_fields__}
    return Credentials(**{**said, **options, **own})


def _without_secrets(url: str) -> str:
    return re.sub(r"//[^/?#]*@", "//…@", url)


def _refused(came: str) -> SetupError:
    return SetupError(str(Fault(f"an address of NATS, like {FORM}", came)))
