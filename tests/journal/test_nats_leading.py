"""Who decides: one pipeline at a time, on whichever machine; one that was thought dead writes nothing any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from nearcast.errors import JournalError
from nearcast.journal.jetstream import role_lease
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.jetstream.nats_journal import NatsJournal
from tests.journal.rows import deliveries, events, positions


@pytest.fixture
def pair(new_stream: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[NatsJournal, NatsJournal]]:
    """One journal, opened by two."""
    monkeypatch.setattr(role_lease, "WAIT_SECONDS", 0.02)
    url = new_stream()
    with closing(NatsJournal(url)) as one, closing(NatsJournal(url)) as other:
        one.append("events", events(range(9)))
        yield one, other


def test_one_leads_and_the_next_waits(pair: tuple[NatsJournal, NatsJournal]) -> None:
    """Until the first one is done, or the second is asked to end; other roles are others' own."""
    one, other = pair
    with one.leading("pipeline") as leads:
        assert leads
        asked = iter([False, False, True])
        with other.leading("pipeline", lambda: next(asked)) as waited:
            assert not waited
        with other.leading("actions") as leads:
            assert leads
        one.commit_range("deliveries", deliveries([1, 2]), 2)
    with other.leading("pipeline") as leads:
        assert leads
        other.commit_range("deliveries", deliveries([3]), 3)
    assert [1, 2, 3] == positions(one.read("deliveries", 0, 9))


def test_a_pipeline_that_was_thought_dead_is_refused(
    pair: tuple[NatsJournal, NatsJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease lapsed while it was held up, and another took over: whatever it writes then is not written."""
    monkeypatch.setattr(role_lease, "LEASE_SECONDS", 1.0)
    one, other = pair
    monkeypatch.setattr(role_lease.RoleLease, "_renew", lambda self: None)
    with ExitStack() as both:
        both.enter_context(one.leading("pipeline"))
        one.commit_range("deliveries", deliveries([1]), 1)
        both.enter_context(other.leading("pipeline"))
        for log in ("deliveries", "derived", "source filters"):
            with pytest.raises(JournalError, match=r"expected this to be the pipeline that decides, got another one"):
                one.commit_range(log, one.read(log, 0, 0), 5)
        other.commit_range("deliveries", deliveries([2]), 2)
        assert [1, 2] == positions(one.read("deliveries", 0, 9))
        # What happens enters by whomever.
        assert [10] == one.append("events", events(["x"]))


def test_two_that_take_over_at_once_are_one_behind_the_other(pair: tuple[NatsJournal, NatsJournal]) -> None:
    """Whatever leases say: of two that write, one is refused."""
    threads = [threading.Thread(target=journal._take_over) for journal in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {1, 2} == {journal._epoch for journal in pair} or {1, 3} >= {pair[0]._epoch} | {pair[1]._epoch}
    older, newer = sorted(pair, key=lambda journal: journal._epoch or 0)
    newer.commit_range("deliveries", deliveries([1]), 1)
    with pytest.raises(JournalError, match="end this one"):
        older.commit_range("deliveries", deliveries([2]), 2)


def test_a_lease_is_renewed_as_long_as_it_is_held(
    pair: tuple[NatsJournal, NatsJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the time after which it would lapse."""
    # Only who is not renewed for all that time loses it: the machine may be busy.
    monkeypatch.setattr(role_lease, "LEASE_SECONDS", 3.0)
    monkeypatch.setattr(role_lease, "RENEWALS", 30)
    one, other = pair
    with one.leading("pipeline"):
        until = time.monotonic() + 4.0
        with other.leading("pipeline", lambda: time.monotonic() > until) as leads:
            assert not leads


def test_a_renewal_without_an_answer_is_known_again(
    pair: tuple[NatsJournal, NatsJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was made or not, the lease is held until it lapses, and the next renewal finds it."""
    monkeypatch.setattr(role_lease.RoleLease, "_renew", lambda self: None)
    lease, other = (role_lease.RoleLease(journal._stream, "pipeline") for journal in pair)
    assert lease.acquire(lambda: False)
    write = lease._stream.write
    for made in (True, False):

        def unanswered(*args: Any, made: bool = made) -> int:
            if made:
                write(*args)
            raise Unanswered("the answer did not come")

        monkeypatch.setattr(lease._stream, "write", unanswered)
        with pytest.raises(Unanswered):
            lease._try()
        assert lease.held
        assert lease._holder == other._try()
        monkeypatch.setattr(lease._stream, "write", write)
        assert lease._try() is None
    lease.release()
    assert other._try() is None
