"""Addresses of journals on NATS."""

from __future__ import annotations

import pytest

from nearcast.errors import SetupError
from nearcast.journal.jetstream.nats_address import Credentials, is_nats, parse_address


def test_an_address_has_servers_and_a_name() -> None:
    """Ports and the name may be left out; of three servers or more each message is kept on three."""
    found = parse_address("nats://a,b:1,[::1]:5/rescue", {})
    assert ("nats://a:4222", "nats://b:1", "nats://[::1]:5") == found.servers
    assert ("rescue", 3) == (found.stream, found.replicas)
    assert ("nearcast", 1) == (parse_address("nats://a", {}).stream, parse_address("nats://a,b", {}).replicas)
    assert 5 == parse_address("nats://a?replicas=5", {}).replicas


def test_credentials_are_of_the_url_or_the_environment() -> None:
    """What the URL says counts."""
    told = {"NEARCAST_NATS_USER": "me", "NEARCAST_NATS_PASSWORD": "p", "NEARCAST_NATS_CA": "ca.pem"}
    assert Credentials("you", "a:b", ca="ca.pem") == parse_address("nats://you:a%3Ab@h", told).credentials
    assert Credentials("me", "p", ca="x") == parse_address("nats://h?ca=x", told).credentials
    assert Credentials(token="t") == parse_address("nats://t@h", {}).credentials
    assert (False, True, True) == tuple(
        parse_address(url, {}).encrypted for url in ("nats://h", "tls://h", "nats://h?ca=x")
    )


def test_what_is_secret_is_not_shown() -> None:
    """Neither in what an address says of itself, nor in what is said of a wrong one."""
    assert "nats://h:4222,i:4222/nearcast" == str(parse_address("nats://me:secret@h,i", {}))
    with pytest.raises(SetupError) as refused:
        parse_address("nats://me:secret@h:port", {})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "came"),
    [
        ("nats://", "a host is missing"),
        ("nats://h/a.b", "the name 'a.b'"),
        ("nats://h?more=1", "the option more"),
        ("nats://h?replicas=9", "replicas=9"),
        ("http://h", "the scheme 'http'"),
        ("nats://h:99999", "Port out of range"),
    ],
)
def test_a_wrong_address_is_told(url: str, came: str) -> None:
    """With an example of a right one."""
    with pytest.raises(SetupError, match=rf"like nats://host:4222,host2:4222/NAME, got .*{came}"):
        parse_address(url, {})


def test_a_path_is_no_address() -> None:
    """Nor is what is no text."""
    assert [True, True, False, False] == [is_nats(one) for one in ("nats://h", "tls://h", "nats-data", None)]
