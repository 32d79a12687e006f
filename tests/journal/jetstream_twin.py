"""JetStream in memory, as far as a journal asks of it: what answers is lost, late followers, and who loses messages.

It stands for the connection, so that everything above it is the journal's own code: its chain, the expected sequences,
what it does where it cannot know whether something was written.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from nearcast.journal.jetstream.nats_address import NatsAddress
from nearcast.journal.jetstream.nats_connection import Reply, Unanswered
from nearcast.journal.jetstream.stream_api import EXPECTED, NO_STREAM, NOT_FOUND, STREAM_IN_USE, WRONG_LAST_SEQUENCE

NOTHING = Reply({"Status": "404"}, b"")
END = Reply({"Status": "204"}, b"")
CREATED = "2026-01-01T00:00:00Z"


@dataclass
class TwinStream:
    """A stream: its settings, and its messages by sequence, each with its subject and content."""

    config: dict[str, Any]
    messages: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    last: int = 0

    def newest(self, subject: str) -> int:
        """The sequence of the newest message of a subject; 0 if there is none."""
        return max((at for at, (own, _) in self.messages.items() if own == subject), default=0)

    def lose(self, first: int, last: int = 1 << 60) -> None:
        """Loses messages for good; those at its end as if they had never been."""
        self.messages = {at: one for at, one in self.messages.items() if not first <= at <= last}
        if last >= self.last:
            self.last = max(self.messages, default=0)


@dataclass
class TwinServers:
    """All servers together. `lost` and `refused` are the shares of requests whose answers are lost, and that nobody
    hears; `behind` is by how many of the newest messages a follower may be behind, which answers direct questions.
    """

    chance: random.Random
    lost: float = 0.0
    refused: float = 0.0
    behind: int = 0
    streams: dict[str, TwinStream] = field(default_factory=dict)

    def ask(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> list[Reply]:
        """What is answered; raises `Unanswered` before or after it is done."""
        if self.chance.random() < self.refused:
            raise Unanswered("nobody hears it")
        found = self._answer(subject, payload, headers)
        if self.chance.random() < self.lost:
            raise Unanswered("the answer did not come")
        return found

    def _answer(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> list[Reply]:
        if not subject.startswith("$JS.API."):
            return [_json(self._written(subject, payload, headers))]
        what, _, name = subject.removeprefix("$JS.API.").rpartition(".")
        asked = orjson.loads(payload or b"{}")
        stream = self.streams.get(name)
        if what == "STREAM.CREATE":
            return [_json(self._created(name, asked))]
        if stream is None:
            return [_json(_error(404, NO_STREAM))]
        if what == "DIRECT.GET":
            return self._direct(stream, asked)
        if what == "CONSUMER.CREATE":
            raise Unanswered("nobody tells of news here")
        return [_json(self._questions[what](self, stream, asked))]

    def _created(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        if name in self.streams:
            return _error(400, STREAM_IN_USE)
        defaults = {"max_age": 0, "max_msgs": -1, "max_bytes": -1, "max_msgs_per_subject": -1}
        self.streams[name] = TwinStream({**defaults, **asked})
        return self._info(self.streams[name], {})

    def _info(self, stream: TwinStream, asked: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = {"last_seq": stream.last, "messages": len(stream.messages)}
        if wanted := asked.get("subjects_filter"):
            own = [one for one, _ in stream.messages.values() if one.startswith(wanted.rstrip(">"))]
            state["subjects"] = {one: own.count(one) for one in own}
        return {"config": stream.config, "state": state, "created": CREATED}

    def _stored(self, stream: TwinStream, asked: dict[str, Any]) -> dict[str, Any]:
        at = asked.get("seq") or stream.newest(asked["last_by_subj"])
        if at not in stream.messages:
            return _error(404, NOT_FOUND)
        subject, data = stream.messages[at]
        return {"message": {"seq": at, "subject": subject, "data": base64.b64encode(data).decode()}}

    def _purged(self, stream: TwinStream, asked: dict[str, Any]) -> dict[str, Any]:
        before = asked.get("seq", 1 << 60)
        gone = [at for at, (own, _) in stream.messages.items() if own == asked["filter"] and at < before]
        for at in gone:
            del stream.messages[at]
        return {"success": True, "purged": len(gone)}

    _questions: Mapping[str, Callable[[TwinServers, TwinStream, dict[str, Any]], dict[str, Any]]] = field(
        init=False, default_factory=lambda: {
            "STREAM.INFO": TwinServers._info,
            "STREAM.MSG.GET": TwinServers._stored,
            "STREAM.PURGE": TwinServers._purged,
        }
    )  # fmt: skip

    def _direct(self, stream: TwinStream, asked: dict[str, Any]) -> list[Reply]:
        known = stream.last - self.chance.randint(0, self.behind)
        wanted = asked.get("next_by_subj")
        found = [
            Reply({"Nats-Sequence": str(at), "Nats-Subject": own}, data)
            for at, (own, data) in sorted(stream.messages.items())
            if asked["seq"] <= at <= known and (own == wanted if wanted else at == asked["seq"])
        ]
        if "batch" not in asked:
            return found[:1] or [NOTHING]
        return [*found[: self.chance.randint(1, asked["batch"])], END] if found else [NOTHING]

    def _written(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        name, stream = next((name, one) for name, one in self.streams.items() if subject.startswith(f"{name}."))
        newest = stream.newest(subject)
        if EXPECTED in headers and int(headers[EXPECTED]) != newest:
            return _error(400, WRONG_LAST_SEQUENCE)
        if headers.get("Nats-Rollup") == "sub":
            self._purged(stream, {"filter": subject})
        stream.last += 1
        stream.messages[stream.last] = subject, payload
        return {"stream": name, "seq": stream.last}


class TwinConnection:
    """Stands for `NatsConnection`."""

    max_payload = 1 << 20

    def __init__(self, servers: TwinServers, address: NatsAddress) -> None:
        self.address, self._servers = address, servers

    def request(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        repeating: Callable[[int], None] | None = None,
    ) -> Reply:
        """See `NatsConnection.request`."""
        return self._servers.ask(subject, payload, headers or {})[0]

    def replies(self, subject: str, payload: bytes) -> list[Reply]:
        """See `NatsConnection.replies`."""
        return self._servers.ask(subject, payload, {})

    def listen(self, heard: Callable[[str, str], None]) -> str:
        """See `NatsConnection.listen`."""
        return "inbox"

    def forget(self, inbox: str) -> None:
        """See `NatsConnection.forget`."""

    def close(self) -> None:
        """See `NatsConnection.close`."""


def _json(found: dict[str, Any]) -> Reply:
    return Reply({}, orjson.dumps(found))


def _error(code: int, number: int) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": number, "description": f"error {number}"}}
