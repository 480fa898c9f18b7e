"""Which proxy a URL goes through."""

from __future__ import annotations

import pytest
from support.messages import says

from callboard.actors.io.http.proxies import Proxies
from callboard.protocol.errors import ConfigError

PROXY = "http://proxy.example:3128"


def through(environ: dict[str, str], scheme: str = "https", host: str = "api.example.com", port: int = 443) -> bool:
    return Proxies(environ).of(scheme, host, port) is not None


def test_the_variable_of_the_scheme_decides() -> None:
    assert through({"HTTPS_PROXY": PROXY})
    assert not through({"HTTP_PROXY": PROXY})
    assert through({"HTTP_PROXY": PROXY}, "http", port=80)
    assert through({"ALL_PROXY": PROXY})


def test_small_letters_win() -> None:
    chosen = Proxies({"https_proxy": "http://small:1", "HTTPS_PROXY": "http://big:1"}).of("https", "x.com", 443)
    assert chosen is not None
    assert chosen.host == "small"


def test_this_machine_is_never_reached_through_a_proxy() -> None:
    for host in ("localhost", "127.0.0.1", "127.8.9.1", "::1", "app.localhost"):
        assert not through({"ALL_PROXY": PROXY}, host=host)


@pytest.mark.parametrize(
    ("pattern", "excepted"),
    [
        ("*", True),
        ("example.com", True),
        (".example.com", True),
        ("*.example.com", True),
        ("api.example.com", True),
        ("api.example.com:443", True),
        ("api.example.com:8443", False),
        ("ample.com", False),
        ("other.org, example.com", True),
        ("10.0.0.0/8", False),
    ],
)
def test_no_proxy_names_exceptions(pattern: str, excepted: bool) -> None:
    assert through({"HTTPS_PROXY": PROXY, "NO_PROXY": pattern}) is not excepted


def test_no_proxy_knows_addresses_and_networks() -> None:
    assert not through({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, host="10.1.2.3")
    assert not through({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.1.2.3"}, host="10.1.2.3")
    assert through({"HTTPS_PROXY": PROXY, "NO_PROXY": "2.3"}, host="10.1.2.3")


def test_a_cgi_request_cannot_choose_the_proxy() -> None:
    assert not through({"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, "http", port=80)


def test_a_fixed_proxy_or_none_wins_over_the_environment() -> None:
    fixed = Proxies({"NO_PROXY": "*"}, PROXY).of("https", "x.com", 443)
    assert fixed is not None
    assert Proxies({"HTTPS_PROXY": PROXY}, "-").of("https", "x.com", 443) is None


def test_a_proxy_without_a_scheme_is_an_http_proxy() -> None:
    chosen = Proxies({"HTTPS_PROXY": "proxy:3128"}).of("https", "x.com", 443)
    assert chosen is not None
    assert (chosen.scheme, chosen.host, chosen.port) == ("http", "proxy", 3128)


def test_a_socks_proxy_is_refused_with_a_reason() -> None:
    with pytest.raises(ConfigError, match=says("io.http.proxies._url.2")):
        through({"HTTPS_PROXY": "socks5://proxy:1080"})
