"""The server's time where the machine's clock is set: timers go on, times of acceptance never fall."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.server import clock
from nearcast.server.clock import ServerClock
from nearcast.testing import ManualClock
from tests.server.conftest import received, run, running, unit, until

HOUR, DAY = 3_600.0, 86_400.0


def of(machine: ManualClock) -> ServerClock:
    return ServerClock(machine, machine.monotonic)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 10_000), st.floats(-DAY, DAY)), max_size=20))
def test_times_of_acceptance_never_fall_and_timers_run_evenly(steps: list[tuple[bool, float, float]]) -> None:
    """However the machine's clock is set between looks."""
    machine = ManualClock()
    server = of(machine)
    last, began, passed = server.now(), server.steady(), 0.0
    for moved, seconds, by in steps:
        machine.move(seconds) if moved else machine.set(by)
        passed += seconds if moved else 0.0
        now = server.now()
        assert now > last
        last = now
        assert passed == pytest.approx(server.steady() - began, abs=1e-3)


def test_a_clock_that_is_set_back_is_counted_and_waited_for() -> None:
    """Time goes on from where it was, a hundredth slower, until the machine's clock has come up again."""
    machine = ManualClock()
    server, start = of(machine), machine()
    before = server.now()
    machine.set(-HOUR)
    assert [before, before] == [pytest.approx(server.now(), abs=1e-5) for _ in range(2)]
    assert 1 == server.set_back
    machine.move(100)
    assert before + 99 == pytest.approx(server.now())
    machine.move(100 * HOUR)
    assert start - HOUR + 100 + 100 * HOUR == pytest.approx(server.now())
    assert 1 == server.set_back


@pytest.mark.parametrize("by", [-HOUR, 0.0, DAY])
def test_what_waits_gets_older_by_what_passes_not_by_what_is_set(by: float) -> None:
    """Ten seconds are ten seconds, for what was stamped before and for what is told in steady time."""
    machine = ManualClock()
    server = of(machine)
    accepted, queued = server.now(), server.steady()
    machine.move(4)
    server.now()
    machine.set(by)
    machine.move(6)
    assert (9.94 if by < 0 else 10.0) == pytest.approx(server.age(accepted), abs=1e-3)
    assert 10.0 == pytest.approx(server.now() - server.stamp(queued), abs=1e-3)
    later = server.now()
    assert [pytest.approx(server.age(one), abs=1e-3) for one in (accepted, later)] == server.ages([accepted, later])


def test_what_was_set_back_and_forward_again_ages_as_if_it_was_not() -> None:
    """The time of day did not leap, so nothing is taken off for it."""
    machine = ManualClock()
    server = of(machine)
    accepted = server.now()
    for seconds in (-HOUR, 0.0, HOUR, HOUR, -HOUR):
        machine.move(10)
        server.now()
        machine.set(seconds)
        server.now()
    machine.move(10)
    assert 60.0 == pytest.approx(server.age(accepted), abs=0.7)


def test_a_server_goes_on_from_the_last_acceptance_of_its_journal() -> None:
    """Also one whose machine's clock is behind that of the server before."""
    machine = ManualClock()
    server = of(machine)
    server.not_before(machine() + HOUR)
    assert server.now() > machine() + HOUR - 1


@pytest.mark.parametrize("by", [-HOUR, DAY])
def test_deliveries_go_on_where_the_clock_is_set(by: float) -> None:
    """Nothing waits for an hour, paced or not, and nothing expires that has just been queued."""
    shift = [0.0]
    machine = ServerClock(lambda: time.time() + shift[0])

    async def test() -> None:
        with clock.replaced(machine):
            async with running() as server:
                await server.declare("a", ttl=600)
                positions = await server.publish(*(unit(f"e{number}", f"u{number}") for number in range(5)))
                session = server.service.session_manager.session("a")
                await _until_waiting(session, 5)
                shift[0] = by
                # Paced by tokens, which are earned as time passes.
                async with server.client("a") as client:
                    await client.say(readings={"bandwidth": 40.0})
                    found = await received(client, 5)
                    assert positions == sorted(delivery.position for delivery in found)
                    positions = await server.publish(unit("later"))
                    assert positions == [one.position for one in await received(client, 1)]
                assert "expired" not in session.waiting.settled

    run(test)
    assert (by < 0) == machine.set_back


def test_who_conflates_is_not_left_with_the_older_report() -> None:
    """What was held up in a tunnel comes after a newer one, and ends as conflated."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a", conflate=True)
            [newer] = await server.publish({**unit("new"), "time": "2026-03-01T12:10:00Z"})
            await server.publish({**unit("late"), "time": "2026-03-01T12:00:00Z"})
            session = server.service.session_manager.session("a")
            await until(lambda: session.waiting.queued == 2)
            async with server.client("a") as client:
                assert [newer] == [one.position for one in await received(client, 1)]
            assert 1 == session.waiting.settled["conflated"]

    run(test)


async def _until_waiting(session: object, count: int) -> None:
    await until(lambda: len(session.waiting.waiting) == count)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def the_real_clock_afterwards() -> Iterator[None]:
    yield
    assert abs(clock.now() - time.time()) < HOUR / 2
