"""Which names we answer to, and which pages may call us."""

from __future__ import annotations

import pytest

from callboard.actors.front.access.origins import Origins, is_loopback, is_within, network_of, peer_of
from callboard.protocol.errors import Denied
from callboard.protocol.settings.api import ApiSettings, Cors

HERE = ApiSettings(allowed_hosts=("board.example.org", "*.lan"), cors=Cors(allowed_origins=("https://friend.test",)))


def admits(host: str, origin: str | None = None, *, loopback: bool = True, settings: ApiSettings = HERE) -> bool:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    try:
        Origins(settings, loopback=loopback).check(headers)
    except Denied:
        return False
    return True


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:3400", "localhost:3400", "LocalHost", "[::1]:3400", "board.example.org:443", "a.lan"],
)
def test_our_own_names_are_answered_to(host: str) -> None:
    assert admits(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.test", "evil.test:3400", "127.0.0.1.evil.test", "localhost.evil.test", "a.lan.evil.test"),
        *(
            "user@127.0.0.1",
            "localhost:3400:1",
            "127.0.0.1:x",
            "127.0.0.1:99999",
            "[::1]:3400:1",
            "127.0.0.1/evil",
            "127.0.0.1, evil.test",
            "evil.test#127.0.0.1",
            "[::1",
            "0.0.0.0",
            "10.0.0.7",
        ),
    ],
)
def test_a_name_that_was_made_to_point_here_is_not_answered_to(host: str) -> None:
    assert not admits(host)


def test_beyond_loopback_addresses_are_answered_to_and_foreign_names_are_not() -> None:
    assert admits("10.0.0.7:3400", loopback=False)
    assert not admits("evil.test", loopback=False)


def test_a_server_without_names_of_its_own_answers_to_those_of_the_machine_alone() -> None:
    assert not admits("board.example.org", settings=ApiSettings())


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:3400", "http://127.0.0.1:3400"),
        ("board.example.org", "https://board.example.org"),
        ("localhost:3400", "https://friend.test"),
        ("[::1]:3400", "http://[::1]:3400"),
    ],
)
def test_our_own_page_and_those_that_were_allowed_may_call(host: str, origin: str) -> None:
    assert admits(host, origin)


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "https://evil.test",
            "null",
            "",
            "http://127.0.0.1:9999",
            "http://localhost:3400",
            "file://",
            "http://127.0.0.1",
            "https://127.0.0.1:3400",
            "HTTPS://127.0.0.1:3400",
        ),
        *("http://friend.test", "https://friend.test.evil.test", "http://127.0.0.1:3400@evil.test", "//127.0.0.1:3400"),
        *("http://user@127.0.0.1:3400", "http://127.0.0.1:3400x", "chrome-extension://abcdef"),
    ],
)
def test_pages_of_other_origins_may_not_call(origin: str) -> None:
    assert not admits("127.0.0.1:3400", origin)


def test_an_origin_of_the_name_that_was_asked_for_is_worth_nothing_if_the_name_is_not_ours() -> None:
    assert not admits("evil.test:3400", "http://evil.test:3400")


def test_a_proxy_is_believed_only_if_it_is_trusted() -> None:
    said = {"x-forwarded-for": "203.0.113.9, 198.51.100.7, 10.0.0.2"}
    assert peer_of(said, "10.0.0.1", ("10.0.0.0/8",)) == "198.51.100.7"
    assert peer_of(said, "192.0.2.1", ("10.0.0.0/8",)) == "192.0.2.1"
    assert peer_of(said, "10.0.0.1", ()) == "10.0.0.1"
    assert peer_of({"x-forwarded-for": "nonsense"}, "10.0.0.1", ("10.0.0.0/8",)) == "10.0.0.1"


def test_one_ipv6_host_counts_as_one_whatever_address_it_takes() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1")
    assert network_of("192.0.2.1") != network_of("192.0.2.2")


def test_an_ipv4_address_in_the_clothes_of_ipv6_is_itself_and_not_one_of_all() -> None:
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("::ffff:192.0.2.2")
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("::ffff:192.0.2.1")
    assert is_within("::ffff:10.1.2.3", ("10.0.0.0/8",))
    forwarded = {"x-forwarded-for": "127.0.0.1, ::ffff:203.0.113.5"}
    assert peer_of(forwarded, "::ffff:10.0.0.1", ("10.0.0.0/8",)) == "::ffff:203.0.113.5"


def test_the_name_of_an_interface_is_no_part_of_an_address() -> None:
    assert network_of("fe80::1%eth0") == network_of("fe80::2%eth1")
    assert network_of("what is this" * 100) == ("what is this" * 100)[:64]


@pytest.mark.parametrize(
    ("host", "origin", "scheme", "good"),
    [
        ("127.0.0.1:3400", "https://127.0.0.1:3400", "https", True),
        ("127.0.0.1:3400", "http://127.0.0.1:3400", "https", False),
        ("127.0.0.1:3400", "http://127.0.0.1:3400", "http", True),
        ("board.example.org", "https://board.example.org", "HTTPS ", True),
        ("board.example.org", "http://board.example.org", "https", False),
        ("board.example.org:443", "https://board.example.org", "https", True),
        ("127.0.0.1:3400", "https://127.0.0.1:3400", "gopher", False),
    ],
)
def test_the_scheme_of_our_own_origin_is_what_the_proxy_says(host: str, origin: str, scheme: str, good: bool) -> None:
    assert Origins(HERE, loopback=True).admits(origin, host, scheme) is good
