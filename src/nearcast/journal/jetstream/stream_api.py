"""A stream of JetStream: made, written to with an expected sequence, read by subject and sequence."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import orjson

from nearcast.errors import JournalError
from nearcast.journal.jetstream.answer_watch import AnswerWatch
from nearcast.journal.jetstream.nats_address import NatsAddress
from nearcast.journal.jetstream.nats_connection import NatsConnection, Reply, Unanswered
from nearcast.runtime.backoff import backoff

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds in which somebody has to answer. When the leader dies the others choose a new one in less."""

PAUSE, LONGEST_PAUSE = 0.05, 0.5
"""Seconds between two tries; doubled in between."""

JITTER = 0.5
"""By up to what share each is shorter, by chance."""

RANGE_MESSAGES, RANGE_BYTES = 512, 8 << 20
"""Of what is asked for at once."""

WRONG_LAST_SEQUENCE = 10071
IN_PROCESS = 10164
NOT_FOUND = 10037
NO_ROOM = 10023
NO_STREAM = 10059
STREAM_IN_USE = 10058
QUESTIONS = ("STREAM.INFO.", "STREAM.MSG.GET.")
"""What is asked without changing anything."""
SILENT = 2
"""A question that was asked so often without an answer is told of as unanswered."""
EXPECTED = "Nats-Expected-Last-Subject-Sequence"


class WrongSequence(Exception):
    """Somebody else wrote to this subject meanwhile: nothing was written."""


class SubjectBusy(WrongSequence):
    """What somebody else writes to this subject is on its way to the servers: nothing was written."""


class StreamMessage(NamedTuple):
    """A message of a stream."""

    sequence: int
    subject: str
    data: bytes


class JetStream:
    """The stream of an address. Every method raises `JournalError` where nobody answers within `PATIENCE`."""

    def __init__(
        self,
        address: NatsAddress,
        connection: NatsConnection | None = None,
        name: str | None = None,
        watch: AnswerWatch | None = None,
    ) -> None:
        self.address, self.name = address, name or address.stream
        self.connection = connection or NatsConnection(address)
        self.watch = watch or AnswerWatch(str(address))

    def beside(self, what: str) -> JetStream:
        """Another stream of the same journal, by the same connection."""
        return JetStream(self.address, self.connection, f"{self.name}_{what}", self.watch)

    def close(self) -> None:
        """Ends the connection."""
        self.connection.close()

    def make(self, subjects: list[str], **settings: Any) -> dict[str, Any]:
        """Makes the stream, unless it is there; what it is now."""
        asked = {
            "name": self.name,
            "subjects": subjects,
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "num_replicas": self.address.replicas,
            "allow_direct": True,
            "allow_rollup_hdrs": True,
            **settings,
        }
        found = self.api(f"STREAM.CREATE.{self.name}", asked)
        if found.get("error", {}).get("err_code") == STREAM_IN_USE:
            return self.info()
        return self._checked(found)

    def grow(self, found: dict[str, Any]) -> dict[str, Any]:
        """Has the stream kept on more servers, where there are more than when it was made; what it is now."""
        if found["config"].get("num_replicas", 1) < self.address.replicas:
            return self.change({**found["config"], "num_replicas": self.address.replicas})
        return found

    def change(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Gives the stream other settings; what it is now."""
        return self._checked(self.api(f"STREAM.UPDATE.{self.name}", settings))

    def info(self) -> dict[str, Any]:
        """What the stream is, and how it is."""
        return self._checked(self.api(f"STREAM.INFO.{self.name}", {}))

    def found(self, **asked: Any) -> dict[str, Any] | None:
        """The same, or None where there is no such stream; with more `asked`, more."""
        found = self.api(f"STREAM.INFO.{self.name}", asked)
        return None if found.get("error", {}).get("err_code") == NO_STREAM else self._checked(found)

    def write(
        self, subject: str, message: bytes, expected: int | None, headers: Mapping[str, str] | None = None
    ) -> int:
        """Writes a message where the newest of its subject is the one with a sequence, 0: none; its own sequence.

        Raises `WrongSequence`, `SubjectBusy` among it, and `Unanswered` where nobody knows whether it was written.
        """
        said = dict(headers or {})
        if expected is not None:
            said[EXPECTED] = str(expected)
        answer = orjson.loads(self.connection.request(subject, message, said).data)
        error = answer.get("error")
        if error is None and answer.get("stream") == self.name:
            return int(answer["seq"])
        if error and error.get("err_code") == WRONG_LAST_SEQUENCE:
            raise WrongSequence(error.get("description", ""))
        # Where several servers keep the stream they do not take a second one to a subject before the first is kept.
        if error and error.get("err_code") == IN_PROCESS:
            raise SubjectBusy(error.get("description", ""))
        if error and error.get("code") == 503:
            found = Unanswered(error.get("description", ""))
            # Of several servers another one may lead soon, and have room.
            if error.get("err_code") == NO_ROOM and self.address.replicas == 1:
                raise JournalError(f"journal {self.address}: {found}{_advice(error)}") from found
            raise found
        raise JournalError(f"journal {self.address}: {_described(error or answer)}{_advice(error)}")

    def last(self, subject: str) -> StreamMessage | None:
        """The newest message of a subject, as the leader knows it; None if there is none."""
        return self._stored({"last_by_subj": subject})

    def newest_near(self, subject: str, sequence: int) -> StreamMessage | None:
        """The first message of a subject from a sequence on, as any server knows it; None if there is none yet."""
        return self._direct({"seq": max(sequence, 1), "next_by_subj": subject})

    def at(self, sequence: int) -> StreamMessage | None:
        """The message with a sequence; None if it is not there."""
        return self._direct({"seq": sequence}) or self._stored({"seq": sequence})

    def range(self, subject: str, sequence: int) -> list[StreamMessage]:
        """The messages of a subject from a sequence on, in order: not all of them, but at least one if there is any."""
        asked = {
            "seq": max(sequence, 1),
            "next_by_subj": subject,
            "batch": RANGE_MESSAGES,
            "max_bytes": RANGE_BYTES,
        }
        replies = self.patiently(
            lambda: self.connection.replies(f"$JS.API.DIRECT.GET.{self.name}", orjson.dumps(asked))
        )
        return [_message(reply.headers, reply.data) for reply in replies if "Status" not in reply.headers]

    def purge(self, subject: str, sequence: int | None = None) -> None:
        """Removes the messages of a subject before a sequence; None: all of them."""
        asked = {"filter": subject} if sequence is None else {"filter": subject, "seq": sequence}
        self._checked(self.api(f"STREAM.PURGE.{self.name}", asked))

    def _direct(self, asked: dict[str, Any]) -> StreamMessage | None:
        request = orjson.dumps(asked)
        reply = self.patiently(lambda: self._question(f"$JS.API.DIRECT.GET.{self.name}", request))
        return None if "Status" in reply.headers else _message(reply.headers, reply.data)

    def _stored(self, asked: dict[str, Any]) -> StreamMessage | None:
        found = self.api(f"STREAM.MSG.GET.{self.name}", asked)
        if found.get("error", {}).get("err_code") == NOT_FOUND:
            return None
        message = self._checked(found)["message"]
        return StreamMessage(message["seq"], message["subject"], base64.b64decode(message.get("data", "")))

    def api(self, what: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What JetStream answers to a request; what has no answer just now is asked again."""

        return self.patiently(lambda: self._asked(what, asked), made=False)

    def once(self, what: str, asked: dict[str, Any]) -> dict[str, Any]:
        """The same, asked once. Raises `Unanswered`."""
        return self._checked(self._asked(what, asked))

    def _asked(self, what: str, asked: dict[str, Any]) -> dict[str, Any]:
        ask = self._question if what.startswith(QUESTIONS) else self.connection.request
        found: dict[str, Any] = orjson.loads(ask(f"$JS.API.{what}", orjson.dumps(asked)).data)
        if found.get("error", {}).get("code") == 503:
            raise Unanswered(_described(found["error"]))
        return found

    def _question(self, subject: str, request: bytes) -> Reply:
        """The answer to what changes nothing; while there is none after some tries, that is told."""
        began = self.watch.begin()

        def repeating(count: int) -> None:
            if count >= SILENT:
                self.watch.failed("asking", Unanswered("no answer yet"), began)

        return self.connection.request(subject, request, repeating=repeating)

    def patiently(self, call: Callable[[], T], made: bool = True) -> T:
        """What a call gives that may be made again, once somebody answers; `made`: it is of a stream that has to be
        there.
        """
        until, pauses = time.monotonic() + PATIENCE, backoff(PAUSE, LONGEST_PAUSE, JITTER)
        while True:
            began = self.watch.begin()
            try:
                found = call()
            except Unanswered as error:
                self.watch.failed("asking", error, began)
                if time.monotonic() > until:
                    raise self.unreachable(error) from error
                if made:
                    self._refuse_if_gone()
                time.sleep(next(pauses))
            else:
                self.watch.works("asking")
                return found

    def _refuse_if_gone(self) -> None:
        """Nobody answers for a stream that was deleted, either."""
        with suppress(Unanswered):
            found = orjson.loads(self.connection.request(f"$JS.API.STREAM.INFO.{self.name}", b"").data)
            if found.get("error", {}).get("err_code") == NO_STREAM:
                self._checked(found)

    def unreachable(self, error: Exception) -> JournalError:
        """What is raised where nobody answered for too long."""
        if "insufficient" in str(error):
            return JournalError(f"journal {self.address}: {error}{_advice({'description': str(error)})}")
        advice = "are most of the servers running, is JetStream on there, and are the credentials still right?"
        return JournalError(f"journal {self.address}: nobody answered within {PATIENCE:.0f} s ({error}); {advice}")

    def _checked(self, found: dict[str, Any]) -> dict[str, Any]:
        if "error" in found:
            raise JournalError(f"journal {self.address}: {_described(found['error'])}{_advice(found['error'])}")
        return found


def _message(headers: Mapping[str, str], data: bytes) -> StreamMessage:
    return StreamMessage(int(headers["Nats-Sequence"]), headers["Nats-Subject"], data)


def _described(error: dict[str, Any]) -> str:
    return str(error.get("description") or error)


def _advice(error: dict[str, Any] | None) -> str:
    code, text = (error or {}).get("err_code"), _described(error or {})
    if code == NO_STREAM:
        return "; the stream is gone: stop, and find out who removed it, or restore a copy"
    if "maximum" in text or "insufficient" in text or "no suitable peers" in text:
        return "; free space on the servers' disks, or add servers; what was answered is kept"
    return ""
