"""One POST of a webhook: to an address that may be reached, within a total time, and with little of its answer read.

The body is the CloudEvent. `Idempotency-Key` is its id, what is not printable ASCII percent-encoded: who gets it again
has it already. `X-Nearcast-Signature` is `t=SECONDS,v1=HEX`: HMAC-SHA256 of `SECONDS.BODY` with the shared secret.

The name of a target is resolved here, every address of it is looked at, and the connection goes to the very address
that was looked at: a name that means another address a moment later does not matter.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import quote

import httpx

from nearcast.model.event import Event
from nearcast.model.situation import SECRET_PREFIX, Webhook
from nearcast.server.config import ServerLimits

AGAIN = frozenset({408, 425, 429})
"""Answers of the 400s after which it is worth trying again."""

PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What a header may have as it is. Ids have the names of actions and situations in them, in any script."""


class ActionFailed(Exception):
    """An action did not succeed: why, whether to try again, and after how many seconds at least.

    `reached`: the target answered, if only that it does not want this.
    """

    def __init__(self, reason: str, final: bool = False, pause: float = 0.0, reached: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.final, self.pause, self.reached = reason, final, pause, reached


def webhook_client() -> httpx.AsyncClient:
    """A client for webhooks: no proxy of the environment, which would choose the address, and no redirects, which lead
    to addresses that nobody declared.

    A connection is of one post: kept by its address, it would be taken for another name that has the same address, and
    whose certificate nobody looked at.
    """
    return httpx.AsyncClient(
        follow_redirects=False, trust_env=False, limits=httpx.Limits(max_connections=None, max_keepalive_connections=0)
    )


async def post(
    http: httpx.AsyncClient, webhook: Webhook, event: Event, seconds: int, private: bool, limits: ServerLimits
) -> None:
    """Posts an event once, `seconds` since 1970 being now. Raises `ActionFailed`.

    `private`: whether the addresses of this machine and of private networks may be reached.
    """
    sent, total = headers(event, _secret(webhook), seconds), limits.webhook_seconds
    try:
        async with asyncio.timeout(total):
            url = httpx.URL(webhook.url)
            port = url.port or (443 if url.scheme == "https" else 80)
            addresses = await reachable_addresses(url.host, port, private)
            status, pause = await _first_answer(http, url, addresses, event.payload, sent, limits)
    except TimeoutError:
        raise ActionFailed(f"expected an answer within {total:g} s, got none or a part of one") from None
    except httpx.HTTPError as error:
        raise ActionFailed(f"{type(error).__name__}: {error}") from error
    if 200 <= status < 300:
        return
    final = status < 500 and status not in AGAIN
    raise ActionFailed(f"expected an answer of 200 to 299, got {status}", final, pause, reached=final)


async def _first_answer(
    http: httpx.AsyncClient,
    url: httpx.URL,
    addresses: Sequence[str],
    content: bytes,
    sent: dict[str, str],
    limits: ServerLimits,
) -> tuple[int, float]:
    """The answer of the first address that can be connected to."""
    for address in addresses[:-1]:
        with suppress(httpx.ConnectError):
            return await _answer(http, url, address, content, sent, limits)
    return await _answer(http, url, addresses[-1], content, sent, limits)


async def _answer(
    http: httpx.AsyncClient, url: httpx.URL, address: str, content: bytes, sent: dict[str, str], limits: ServerLimits
) -> tuple[int, float]:
    """The status, and the pause that is asked for. A little of the body is read, as some do not like to be cut off."""
    request = http.build_request(
        "POST",
        url.copy_with(host=address),
        content=content,
        # What is asked for is not compressed; and if it is all the same, nobody decompresses it.
        headers={**sent, "Host": url.netloc.decode("ascii"), "Accept-Encoding": "identity"},
        # The certificate is to be the name's, not the address'.
        extensions={"sni_hostname": url.raw_host.decode("ascii")},
        timeout=None,
    )
    answer = await http.send(request, stream=True)
    try:
        size = 0
        async for piece in answer.aiter_raw(4096):
            size += len(piece)
            if size > limits.webhook_answer_bytes:
                break
    finally:
        await answer.aclose()
    return answer.status_code, _asked_pause(answer, limits.action_pause_seconds)


async def reachable_addresses(host: str, port: int, private: bool) -> list[str]:
    """The addresses of a host, all of them being such that they may be reached. Raises `ActionFailed`."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ActionFailed(f"expected {host} to be a host that is known, got {error}") from error
    addresses = [str(place[0]) for *_, place in found]
    closed = [one for one in addresses if not (private or is_public(one))]
    if closed:
        raise ActionFailed(
            f"expected {host} to be on the public network, got {closed[0]}; the option --private-webhooks lets webhooks"
            " reach this machine and private networks",
            final=True,
            reached=True,
        )
    return addresses


def is_public(address: str) -> bool:
    """Whether an address is of the public network: no loopback, link-local, private, shared or reserved one."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        # An IPv4 address in the clothes of an IPv6 one leads where that leads.
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is None and found in ipaddress.IPv6Network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast


def _secret(webhook: Webhook) -> str | None:
    """The key of the signature, if one is named. Raises `ActionFailed` where it cannot be had."""
    if webhook.secret is None:
        return None
    if not webhook.secret.startswith(SECRET_PREFIX):
        raise ActionFailed(
            f"expected the key in an environment variable {SECRET_PREFIX}…, got the name {webhook.secret}; give the"
            " variable such a name, here and in the definition",
            final=True,
            reached=True,
        )
    secret = os.environ.get(webhook.secret)
    if not secret:
        # Never unsigned: the receiver would have to take it from anybody.
        raise ActionFailed(
            f"expected the key of the signature in the environment variable {webhook.secret}, got none", reached=True
        )
    return secret


def headers(event: Event, secret: str | None, seconds: int) -> dict[str, str]:
    """The headers of a post."""
    found = {"Content-Type": "application/cloudevents+json", "Idempotency-Key": quote(event.id, safe=PLAIN)}
    if secret is not None:
        found["X-Nearcast-Signature"] = f"t={seconds},v1={signature(secret, seconds, event.payload)}"
    return found


def signature(secret: str, seconds: int, body: bytes) -> str:
    """The signature of a body at a time, hexadecimal."""
    return hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()


def _asked_pause(answer: httpx.Response, longest: float) -> float:
    """The seconds for which the receiver asks to be left alone, up to the longest."""
    written = answer.headers.get("Retry-After", "")
    return min(float(written), longest) if written.isascii() and written.isdigit() else 0.0
