"""The journal's own code on NATS over servers in memory: whatever they lose or do not answer, rows are there once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from nearcast.errors import JournalError
from nearcast.journal.jetstream import log_chain, stream_api
from nearcast.journal.jetstream.nats_journal import NatsJournal
from tests.journal.jetstream_twin import TwinConnection, TwinServers
from tests.journal.rows import deliveries, events, ids, positions

URL = "nats://twin:4222/journal"
SEEDS = [*range(4), 67, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 60))]


@contextmanager
def serving(chance: random.Random) -> Iterator[TwinServers]:
    """Servers to which every journal is connected that is opened."""
    servers = TwinServers(chance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_api, "NatsConnection", partial(TwinConnection, servers))
        # Who tries again does so at once.
        patch.setattr(stream_api.time, "sleep", lambda seconds: None)
        patch.setattr(log_chain, "LAG_SECONDS", 0.05)
        yield servers


def test_what_another_process_lets_go_of_is_passed_over() -> None:
    """By who was there before, and reads on from where it was; also in order to append."""
    with serving(random.Random(1)):
        one, other = NatsJournal(URL), NatsJournal(URL)
        for number in range(6):
            one.append("events", events([number]))
            if number == 3:
                # It remembers which block follows which.
                assert 4 == len(other.read("events", 0, 10))
                other.append("events", events([0]))
        one.trim_through("events", 5)
        assert [6] == positions(other.read("events", 2, 10))
        assert [7] == other.append("events", events(["new"]))


def until_done(call: Callable[[], object]) -> None:
    """Calls again what is not answered, as callers of a journal do."""
    for _ in range(100):
        try:
            call()
            return
        except JournalError as error:
            if "answer" not in str(error) and "hears" not in str(error):
                raise
    raise AssertionError("it is never done")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_several_write_is_there_once_and_in_order(seed: int) -> None:
    """Though answers are lost, and followers that are asked are behind."""
    chance = random.Random(f"twin {seed}")
    with serving(chance) as servers:
        journals = [NatsJournal(URL) for _ in range(3)]
        servers.lost, servers.refused, servers.behind = chance.choice((0.0, 0.3)), chance.choice((0.0, 0.3)), 3
        wanted, decided = set[str](), 0
        for number in range(40):
            journal = chance.choice(journals)
            own = [f"e{number}-{one}" for one in range(chance.randint(1, 3))]
            if chance.random() < 0.6:
                until_done(partial(journal.append, "events", events(own)))
                wanted.update(own)
            else:
                after, decided = decided, len(wanted)
                rows = sorted(chance.choices(range(after + 1, decided + 1), k=min(4, decided - after)))
                # One that writes it again, in other cuts, changes nothing.
                for one in (journal, chance.choice(journals)):
                    until_done(partial(one.commit_range, "deliveries", deliveries(rows), decided))
            if chance.random() < 0.1:
                journals[chance.randrange(3)] = _opened()
            if chance.random() < 0.1:
                until_done(partial(journal.trim_through, "events", chance.randint(0, decided)))
        servers.lost = servers.refused = servers.behind = 0
        read = [journal.read("events", 0, 1_000) for journal in (*journals, NatsJournal(URL))]
        assert all(one.equals(read[0]) for one in read)
        gone = journals[0].trimmed("events")
        assert len(wanted) - gone == len(wanted.intersection(ids(read[0])))
        assert list(range(gone + 1, len(wanted) + 1)) == positions(read[0])
        assert {decided} == {journal.end("deliveries") for journal in journals}


def _opened() -> NatsJournal:
    found: list[NatsJournal] = []
    until_done(lambda: found.append(NatsJournal(URL)))
    return found[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_only_who_took_over_last_decides(seed: int) -> None:
    """Who led before is refused from then on, whatever it wrote, and its answers were lost."""
    chance = random.Random(f"led {seed}")
    with serving(chance) as servers:
        journals, leader, decided = [NatsJournal(URL) for _ in range(3)], None, 0
        journals[0].append("events", events(range(200)))
        servers.lost, servers.refused, servers.behind = chance.choice((0.0, 0.3)), chance.choice((0.0, 0.3)), 3
        for _ in range(30):
            journal = chance.choice(journals)
            if leader is None or chance.random() < 0.2:
                until_done(journal._take_over)
                leader = journal
            elif journal is leader:
                decided += 2
                until_done(partial(journal.commit_range, "deliveries", deliveries([decided - 1, decided]), decided))
            elif journal._epoch is not None:
                with pytest.raises(JournalError, match="took over"):
                    until_done(partial(journal.commit_range, "deliveries", deliveries([decided + 1]), decided + 1))
        servers.lost = servers.refused = servers.behind = 0
        assert list(range(1, decided + 1)) == positions(NatsJournal(URL).read("deliveries", 0, 1_000))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_that_lost_messages_is_refused_or_whole(seed: int) -> None:
    """Nobody reads over what is gone in the middle; without its end it is shorter, and for who knew more refused."""
    chance = random.Random(f"lossy {seed}")
    with serving(chance) as servers:
        journal = NatsJournal(URL)
        for number in range(12):
            journal.append("events", events([number]))
        stream = servers.streams["journal"]
        there = sorted(at for at, (subject, _) in stream.messages.items() if ".log." in subject)
        first = chance.choice(there[1:-1])
        stream.lose(first, chance.choice((first, first + 2, 1 << 60)))
        for one in (journal, None):
            try:
                found = ids((one or NatsJournal(URL)).read("events", 0, 100))
            except JournalError:
                continue
            assert found == [str(number) for number in range(len(found))]
            assert one is None or len(found) == 12
