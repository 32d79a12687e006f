"""Which server a client uses: those it was given in turn, those it learned of, and where it is sent."""

from __future__ import annotations

import pytest

from nearcast.client.server_addresses import MOST_LEARNED, ServerAddresses
from nearcast.errors import SessionError


def test_the_next_is_tried_where_one_fails_and_in_the_end_the_first_again() -> None:
    """Who is told whether all were tried waits then; one that works begins anew."""
    servers = ServerAddresses(["http://a:1/", "http://b:2"])
    assert "http://a:1" == servers.current
    assert [False, True] == [servers.failed(), servers.failed()]
    assert "http://a:1" == servers.current
    servers.works()
    assert (False, "http://b:2") == (servers.failed(), servers.current)
    assert ServerAddresses("http://a").failed()


def test_servers_that_one_names_come_after_those_given() -> None:
    """As many as a domain has; what is none is left out."""
    servers = ServerAddresses("http://a")
    servers.learn(["http://b", "http://a", 7, "ftp://c", "b", *(f"http://n{number}" for number in range(200))])
    assert 1 + MOST_LEARNED - 1 == len(servers)
    servers.failed()
    assert "http://b" == servers.current
    servers.learn([])
    assert (True, "http://a") == (servers.failed(), servers.current)


@pytest.mark.parametrize(
    "url", ["", "b", "ftp://b", "http://", "http://me@b", "http://b?x=1", "http://b#x", "http://[b", "http://b:x"]
)
def test_what_is_no_address_of_a_server_is_not_followed(url: str) -> None:
    """The current one stays."""
    servers = ServerAddresses("http://a")
    assert not servers.go_to(url)
    assert "http://a" == servers.current


def test_who_was_given_encryption_keeps_it() -> None:
    """Nobody can send it where its token would be read on the way."""
    servers = ServerAddresses("https://a")
    assert [False, True] == [servers.go_to("http://b"), servers.go_to("https://b/path/")]
    assert "https://b/path" == servers.current
    assert not servers.failed() or "https://a" == servers.current


def test_none_is_an_error() -> None:
    """It is told at once."""
    with pytest.raises(SessionError, match="expected the URL of an access server"):
        ServerAddresses([])
