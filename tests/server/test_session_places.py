"""Where sessions are, and where they are sent: pure rules over what servers say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearcast.server.domain.balance import ServerRoom, better_server, fair_share, least_loaded, surplus
from nearcast.server.domain.session_places import SessionClaim, SessionPlaces, claim_table, claims_in, keeper_of

NORTH, SOUTH = ("north", "n1"), ("south", "s1")


def claim(at: int, of: tuple[str, str], holder: str | None = None, takeover: bool | None = False) -> SessionClaim:
    return SessionClaim("a", *of, holder, takeover, position=at)


def where(*claims: SessionClaim) -> tuple[str, int, bool]:
    """Server, position and whether somebody is connected, after these claims."""
    places = SessionPlaces()
    for one in claims:
        places.fold(one)
    found = places.of("a")
    assert found
    return found.server, found.position, found.connected


def ended(at: int, of: tuple[str, str], claimed: int) -> SessionClaim:
    return SessionClaim("a", *of, ends=claimed, position=at)


def test_a_claim_counts_where_the_session_is_free() -> None:
    """The first has it; another one where it takes over, is the same holder, or the first is gone."""
    first = claim(1, NORTH, "h")
    assert ("north", 1, True) == where(first, claim(2, SOUTH)) == where(first, claim(2, SOUTH, "other"))
    assert ("south", 2, True) == where(first, claim(2, SOUTH, "h")) == where(first, claim(2, SOUTH, None, True))
    assert ("south", 3, True) == where(first, ended(2, NORTH, 1), claim(3, SOUTH))


def test_an_end_counts_for_the_connection_of_its_claim_only() -> None:
    """What comes late, after another claim, changes nothing."""
    first, second = claim(1, NORTH), claim(2, SOUTH, None, True)
    assert ("north", 1, False) == where(first, ended(2, NORTH, 1))
    assert ("south", 2, True) == where(first, second, ended(3, NORTH, 1))


def test_a_server_that_states_what_it_has_takes_nothing() -> None:
    """It was alone until then, or its claim is old; who claimed meanwhile has the session."""
    stated = claim(2, NORTH, "h", None)
    assert ("south", 1, True) == where(claim(1, SOUTH, "h"), stated)
    assert ("north", 2, True) == where(claim(1, NORTH, "h"), stated) == where(stated)
    assert ("north", 3, True) == where(claim(1, SOUTH), ended(2, SOUTH, 1), claim(3, NORTH, None, None))


def test_a_move_is_told_with_where_the_session_was() -> None:
    """Another connection at the same server is none."""
    places = SessionPlaces()
    assert [None, None] == [places.fold(claim(1, NORTH, "h")), places.fold(claim(2, NORTH, "h"))]
    before = places.fold(claim(3, SOUTH, "h"))
    assert before and ("north", 2) == (before.server, before.position)
    assert [] == places.abandoned(["a"])
    assert [] == places.abandoned([])
    places.fold(ended(4, SOUTH, 3))
    assert ["a"] == places.abandoned([])
    places.forget(["a"])
    assert 0 == len(places)


def test_claims_are_read_as_they_were_written() -> None:
    """Apart from their position, which the log gives."""
    written = [claim(0, NORTH, "h", True), claim(0, SOUTH, None, None), ended(0, SOUTH, 7)]
    assert written == [*claims_in(claim_table(written))]


@given(st.sets(st.text(min_size=1), min_size=2), st.lists(st.text(), min_size=1))
def test_who_keeps_a_session_changes_with_that_server_only(names: set[str], clients: list[str]) -> None:
    """Where one goes, what others kept stays with them."""
    gone = min(names)
    for client in clients:
        keeper = keeper_of(client, names)
        if keeper != gone:
            assert keeper == keeper_of(client, names - {gone})


ROOMS = st.lists(st.builds(ServerRoom, st.text(), st.integers(0, 500), st.booleans()), max_size=6)


@given(st.integers(0, 500), ROOMS, st.floats(0, 1), st.integers(0, 20))
def test_a_client_is_sent_from_more_to_less_only(own: int, others: list[ServerRoom], margin: float, slack: int) -> None:
    """To a server that lets it in and is below the share, and never by one that has not clearly more than the share."""
    share, found = fair_share(own, others), better_server(own, others, margin, slack)
    if found is None:
        assert 0 == surplus(own, others, margin, slack)
        return
    assert found.open and found == least_loaded(others)
    assert found.sessions < share < own and own > share + slack and own > share * (1 + margin)
    assert 0 <= surplus(own, others, margin, slack) <= own - share


def test_sessions_are_leveled_in_the_end() -> None:
    """A server with all of them gives down to the share; then nobody is sent anywhere."""
    rooms = [ServerRoom("b", 0), ServerRoom("c", 0), ServerRoom("d", 40, open=False)]
    given_away = surplus(300, rooms, 0.2, 10)
    assert 200 == given_away
    assert 0 == surplus(100, [ServerRoom("b", 100), ServerRoom("c", 100)], 0.2, 10)
    assert better_server(111, [ServerRoom("b", 95), ServerRoom("c", 94)], 0.2, 10) is None
