"""By what a client is known to NATS, as its library wants it: read anew for each connection, so that it may change."""

from __future__ import annotations

import base64
import importlib
import re
import ssl
from pathlib import Path
from typing import Any

from nearcast.errors import SetupError
from nearcast.journal.jetstream.nats_address import NatsAddress

PART = "-----BEGIN {}-----\\s*(\\S+)\\s*-+END {}-+"
JWT, SEED = "NATS USER JWT", "USER NKEY SEED"
"""The two parts of a file of credentials, as `nsc` makes it."""


def credential_options(address: NatsAddress) -> dict[str, Any]:
    """Options of the library for who connects. Raises `SetupError` where a file or a package is missing."""
    found = address.credentials
    options: dict[str, Any] = {"user": found.user, "password": found.password, "token": found.token}
    if found.creds:
        path, keys = Path(found.creds), _keys()
        # What is wrong with the file is told before anybody is asked.
        try:
            _signed(keys, path, "")
        except OSError as error:
            raise SetupError(str(error)) from error
        options["user_jwt_cb"] = lambda: bytearray(_part(path, JWT).encode())
        options["signature_cb"] = lambda nonce: base64.b64encode(_signed(keys, path, nonce))
    if address.encrypted:
        options["tls"] = _context(address)
    return {name: value for name, value in options.items() if value is not None}


def _keys() -> Any:
    try:
        return importlib.import_module("nkeys")
    except ImportError:
        raise SetupError(
            "expected the package nkeys for a file of credentials, got none; install nearcast[nats]"
        ) from None


def _part(path: Path, name: str) -> str:
    """A part of a file. Raises `OSError`: while a connection comes back, what that is raised for is tried again."""
    found = re.search(PART.format(name, name), path.read_text(errors="replace"))
    if found is None:
        raise OSError(f"expected a file of credentials for NATS, with a part {name}, got {path}")
    return found[1]


def _signed(keys: Any, path: Path, nonce: str) -> bytes:
    """What proves that this has the key of a file. Raises `OSError`."""
    _part(path, JWT)
    try:
        pair = keys.from_seed(bytearray(_part(path, SEED).encode()))
        signature: bytes = pair.sign(nonce.encode())
        pair.wipe()
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"expected a key of NATS in {path}, got {error!r}") from error
    return signature


def _context(address: NatsAddress) -> ssl.SSLContext:
    found = address.credentials
    try:
        context = ssl.create_default_context(cafile=found.ca)
        if found.cert:
            context.load_cert_chain(found.cert, found.key)
    except OSError as error:
        files = ", ".join(filter(None, (found.ca, found.cert, found.key)))
        raise SetupError(f"expected certificates for NATS in {files}, got {error}") from error
    return context
