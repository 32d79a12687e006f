"""Webhooks: an event is posted to a URL, signed, so that the receiver knows who it is from and has it once.

The body is the CloudEvent. `Idempotency-Key` is its id, what is not printable ASCII percent-encoded: who gets it again
has it already. `X-Nearcast-Signature` is `t=SECONDS,v1=HEX`: HMAC-SHA256 of `SECONDS.BODY` with the shared secret.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from urllib.parse import quote

import httpx

from nearcast.model.event import Event
from nearcast.model.situation import Webhook

TIMEOUT_SECONDS = 10.0
AGAIN = frozenset({408, 425, 429})
"""Answers of the 400s after which it is worth trying again."""

LONGEST_PAUSE = 60.0

PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What a header may have as it is. Ids have the names of actions and situations in them, in any script."""


class NotRun(Exception):
    """An action did not succeed: why, whether to try again, and after how many seconds at least."""

    def __init__(self, reason: str, final: bool = False, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.final, self.pause = reason, final, pause


async def post(http: httpx.AsyncClient, webhook: Webhook, event: Event, seconds: int) -> None:
    """Posts an event once, `seconds` since 1970 being now. Raises `NotRun`."""
    secret = None
    if webhook.secret is not None:
        secret = os.environ.get(webhook.secret)
        if not secret:
            # Never unsigned: the receiver would have to take it from anybody.
            raise NotRun(f"expected the key of the signature in the environment variable {webhook.secret}, got none")
    try:
        answer = await http.post(
            webhook.url, content=event.payload, headers=headers(event, secret, seconds), timeout=TIMEOUT_SECONDS
        )
    except httpx.HTTPError as error:
        raise NotRun(f"{type(error).__name__}: {error}") from error
    if answer.is_success:
        return
    final = answer.status_code < 500 and answer.status_code not in AGAIN
    raise NotRun(f"expected an answer of 200 to 299, got {answer.status_code}", final, _asked_pause(answer))


def headers(event: Event, secret: str | None, seconds: int) -> dict[str, str]:
    """The headers of a post."""
    found = {"Content-Type": "application/cloudevents+json", "Idempotency-Key": quote(event.id, safe=PLAIN)}
    if secret is not None:
        found["X-Nearcast-Signature"] = f"t={seconds},v1={signature(secret, seconds, event.payload)}"
    return found


def signature(secret: str, seconds: int, body: bytes) -> str:
    """The signature of a body at a time, hexadecimal."""
    return hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()


def _asked_pause(answer: httpx.Response) -> float:
    """The seconds for which the receiver asks to be left alone."""
    written = answer.headers.get("Retry-After", "")
    return min(float(written), LONGEST_PAUSE) if written.isdigit() else 0.0
