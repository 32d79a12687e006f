"""Shares: however much one neighbour sends, there is room for another; and what is gone is given back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearcast.foraging.forager import ForagingNode, ForagingSettings
from nearcast.foraging.knowledge import ResponseCache
from nearcast.foraging.message_filter import FEWEST_SWEPT, AdmissionControl, MessageRates
from nearcast.foraging.neighbour_shares import NeighbourShares
from nearcast.foraging.provider import Provider
from nearcast.model.event import Place
from nearcast.model.filter import Atom, Operator
from nearcast.model.foraging import MessageId, Request, Response

HERE = Place("planar", 0.0, 0.0)


@given(st.integers(1, 12), st.lists(st.integers(0, 3), max_size=60))
def test_who_holds_nothing_finds_room_as_long_as_there_are_few(most: int, senders: list[int]) -> None:
    """No more than `most` are held, and four that send what they like leave room where there are five places."""
    shares = NeighbourShares(most)
    for sender in senders:
        shares.hold(str(sender))
    assert len(shares) <= most
    assert len(senders) == len(shares) + shares.refused
    assert most < 5 or shares.admits("another")


def test_one_neighbour_alone_has_half_and_gets_back_what_it_gives_up() -> None:
    """Two have a third each."""
    shares = NeighbourShares(9)
    assert 5 == sum(shares.hold("a") for _ in range(20))
    assert 2 == sum(shares.hold("b") for _ in range(20))
    shares.release("a")
    assert [True, False] == [shares.admits(one) for one in "ba"]
    shares.clear()
    assert 5 == sum(shares.hold("b") for _ in range(20))


def request(number: int, threshold: int, valid: float = 10.0) -> Request:
    asked = (Atom("Humidity", Operator.LT, threshold),)
    return Request(MessageId("N1", number), HERE, 100.0, 0.0, valid, asked)


def test_invented_thresholds_do_not_keep_others_from_asking() -> None:
    """Their requests are taken, and those that are there already go on; what has ended makes room."""
    provider = Provider(["Humidity"], most=10)
    assert 5 == sum(len(provider.register(request(number, number), 0.0, "noisy")) for number in range(20))
    assert 15 == provider.refused
    assert () == provider.register(request(20, 3, valid=30.0), 0.0, "noisy")
    assert 15 == provider.refused
    assert 1 == len(provider.register(request(21, 77), 0.0, "another"))
    assert provider.answer([("Humidity", 76)], 5.0)
    assert (
        5 == sum(len(provider.register(request(30 + number, 30 + number), 10.0, "noisy")) for number in range(20)) + 1
    )
    assert provider.answer([("Humidity", 2)], 20.0)


def test_invented_providers_do_not_drive_out_what_a_relay_keeps_of_others() -> None:
    """The newest of a provider takes the place of its own, not of another's."""
    cache = ResponseCache(10.0, most=4)

    def kept(provider: str, now: float, neighbour: str) -> None:
        values = (("Humidity", 5),)
        cache.keep(Response(MessageId(provider, 1), provider, HERE, 100.0, now, 1.0, values), now, neighbour)

    kept("quiet", 0.0, "q")
    for number in range(20):
        kept(f"invented {number}", 1.0, "n")
    kept("quiet", 2.0, "q")
    kept("other", 2.0, "o")
    found = {one.provider for one in cache.answers(request(1, 10), 3.0)}
    assert {"invented 0", "invented 1", "quiet", "other"} == found
    kept("late", 20.0, "n")
    assert ["late"] == [one.provider for one in cache.answers(request(2, 10), 20.5)]


def test_a_relay_does_not_say_again_what_was_taken_back() -> None:
    """Nor when the older message that is taken back comes once more, along another way."""
    relay = ForagingNode("R", manner=ForagingSettings(keeps=5.0))
    fire = Response(MessageId("N2", 1), "N2", HERE, 100.0, 0.0, 5.0, (("Fire", True),))
    back = Response(MessageId("N2", 2), "N2", HERE, 100.0, 1.0, 0.001, (("Fire", True),), retracted=True)
    for message in (fire, back):
        relay.hear(message, "N2", HERE, message.time)
    asked = Request(MessageId("N1", 1), HERE, 100.0, 2.0, 10.0, (Atom("Fire", Operator.EQ, True),))
    assert [asked] == relay.hear(asked, "N1", HERE, 2.0)


def test_invented_origins_leave_no_buckets_behind() -> None:
    """A neighbour's own bucket bounds how many there are, and full ones go; another's that are empty stay so."""
    admission = AdmissionControl(MessageRates(neighbour=100, neighbour_burst=200, origin=1, origin_burst=5))
    assert 5 == sum(admission.admits("relay", "flooder", 0.0) for _ in range(20))
    for number in range(20_000):
        admission.admits("noisy", f"name {number}", number / 1_000)
    assert len(admission.shares) <= 2 * (100 + FEWEST_SWEPT) + 200
    assert not admission.admits("relay", "flooder", 0.5)
