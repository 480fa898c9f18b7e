"""Where servers publish how to sign in, and what has to be true of what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import says

from callboard.actors.work.mcp.auth import metadata
from callboard.actors.work.mcp.auth.metadata import AuthorizationServer, ProtectedResource, Unusable

RESOURCE = "/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("https://x.example", [RESOURCE]),
        ("https://x.example/", [RESOURCE]),
        ("https://x.example/mcp", [f"{RESOURCE}/mcp", RESOURCE]),
        ("https://x.example/public/mcp?a=1", [f"{RESOURCE}/public/mcp", RESOURCE]),
        ("https://x.example/mcp/", [f"{RESOURCE}/mcp/", f"{RESOURCE}/mcp", RESOURCE]),
    ],
)
def test_where_the_metadata_of_a_server_lies(url: str, places: list[str]) -> None:
    assert metadata.resource_addresses(url) == [f"https://x.example{place}" for place in places]
    said = "https://x.example/elsewhere"
    assert metadata.resource_addresses(url, said)[0] == said
    assert metadata.resource_addresses(url, f"https://x.example{places[0]}")[0] == f"https://x.example{places[0]}"


def test_where_the_metadata_of_an_authorization_server_lies() -> None:
    # the examples of the specification
    assert metadata.issuer_addresses("https://auth.example.com/tenant1") == [
        "https://auth.example.com/.well-known/oauth-authorization-server/tenant1",
        "https://auth.example.com/.well-known/openid-configuration/tenant1",
        "https://auth.example.com/tenant1/.well-known/openid-configuration",
    ]
    assert metadata.issuer_addresses("https://auth.example.com") == [
        "https://auth.example.com/.well-known/oauth-authorization-server",
        "https://auth.example.com/.well-known/openid-configuration",
    ]
    assert metadata.issuer_addresses("https://auth.example.com/") == metadata.issuer_addresses(
        "https://auth.example.com"
    )


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("HTTPS://MCP.Example.com:443/Mcp", "https://mcp.example.com/Mcp"),
        ("https://mcp.example.com/", "https://mcp.example.com"),
        ("https://mcp.example.com:8443", "https://mcp.example.com:8443"),
        ("http://localhost:80/mcp/#x", "http://localhost/mcp/"),
        ("https://mcp.example.com/mcp?tenant=1", "https://mcp.example.com/mcp?tenant=1"),
        ("http://[::1]:9/mcp", "http://[::1]:9/mcp"),
    ],
)
def test_the_canonical_form_of_an_address(url: str, canonical: str) -> None:
    assert metadata.canonical(url) == canonical
    assert metadata.canonical(canonical) == canonical


@pytest.mark.parametrize(
    ("resource", "url"),
    [
        ("https://mcp.slack.com", "https://mcp.slack.com/mcp"),  # as Slack has it
        ("https://api.githubcopilot.com/mcp", "https://api.githubcopilot.com/mcp/"),  # as GitHub has it
        ("https://x.example/mcp/", "https://x.example/mcp"),
        ("https://X.example:443/mcp", "https://x.example/mcp"),
        ("https://x.example/mcp", "https://x.example/mcp/deeper"),
        ("https://x.example/mcp?t=1", "https://x.example/mcp?t=1"),
    ],
)
def test_a_resource_is_the_server_or_above_it(resource: str, url: str) -> None:
    assert metadata.covers(resource, url)
    assert metadata.checked_resource(ProtectedResource(resource=resource), url).resource == resource


@pytest.mark.parametrize(
    ("resource", "url"),
    [
        ("https://x.example/mcp", "https://x.example/mcp2"),
        ("https://x.example/mcp/deeper", "https://x.example/mcp"),
        ("https://x.example.evil.example/mcp", "https://x.example/mcp"),
        ("http://x.example/mcp", "https://x.example/mcp"),
        ("https://x.example:8443/mcp", "https://x.example/mcp"),
        ("https://x.example/mcp?t=2", "https://x.example/mcp?t=1"),
        ("https://x.example/mcp#f", "https://x.example/mcp"),
        ("https://u@x.example/mcp", "https://x.example/mcp"),
        ("https://[x/", "https://x.example/mcp"),
        ("https://x.example:99999", "https://x.example/mcp"),
        ("", "https://x.example/mcp"),
    ],
)
def test_a_resource_that_is_another(resource: str, url: str) -> None:
    with pytest.raises(Unusable, match=says("work.mcp.auth.metadata.checked_resource")):
        metadata.checked_resource(ProtectedResource(resource=resource), url)


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_of_a_stranger_makes_it_crash(one: str, other: str) -> None:
    for address in (one, f"https://{one}/{other}", f"http://localhost:{other}"):
        for check in (
            lambda address=address: metadata.safe_address(address, "it"),
            lambda address=address: metadata.checked_resource(
                ProtectedResource(resource=address), "https://x.example/mcp"
            ),
        ):
            try:
                check()
            except Unusable:
                continue


@pytest.mark.parametrize("address", ["https://x", "http://127.0.0.1:9/a", "http://localhost/a?b=%20", "http://[::1]/"])
def test_addresses_where_credentials_may_go(address: str) -> None:
    assert metadata.safe_address(address, "it") == address


@pytest.mark.parametrize(
    "address",
    [
        "http://x.example",
        "http://10.0.0.1/",
        "http://localhost.evil.example/",
        "http://127.0.0.1.evil.example/",
        "ws://x",
        "//x/y",
        "https://",
        "https://x y/",
        "https://x/\u202etxt",
        'https://x/"',
        "https://x\\@y/",
        "https://x/" + "a" * 5000,
    ],
)
def test_addresses_where_they_may_not(address: str) -> None:
    with pytest.raises(Unusable, match=r"^it "):
        metadata.safe_address(address, "it")


def test_which_scopes_a_sign_in_asks_for() -> None:
    server = AuthorizationServer(issuer="https://x", scopes_supported=("a", "offline_access"))
    plain = AuthorizationServer(issuer="https://x", scopes_supported=("a", "b"))
    resource = ProtectedResource(resource="https://x", scopes_supported=("r", "r", "s"))
    choose = metadata.scopes_for
    assert choose(configured=(), challenged=("c",), resource=resource, server=server) == ()
    assert choose(configured=None, challenged=("c",), resource=resource, server=plain) == ("c",)
    assert choose(configured=None, challenged=(), resource=resource, server=plain) == ("r", "s")
    assert choose(configured=None, challenged=(), resource=None, server=plain) == ()
    assert choose(configured=None, challenged=(), resource=None, server=server) == (), "the choice is the server's"
    assert choose(configured=None, challenged=("c",), resource=None, server=server) == ("c", "offline_access")


def test_scopes_are_joined_without_losing_any() -> None:
    assert metadata.union(("a", "b"), ("b", "c"), ()) == ("a", "b", "c")
    assert metadata.words(" a  b a ") == ("a", "b")
    assert metadata.words(None) == ()
