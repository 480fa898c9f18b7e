"""How it is found out who gives out tokens for a server, when what is found is late, huge, elsewhere or nonsense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.fake_mcp_http import Talk, fake_mcp
from support.fake_models import Request
from support.mcp_protected import OAUTH, RESOURCE, ProtectedServers, serve_protected
from support.messages import says

from callboard.actors.io.oauth.endpoint import OAuthResponse
from callboard.actors.work.mcp.auth.discovery import GuardedAuthHttp, discover
from callboard.actors.work.mcp.auth.metadata import Unusable
from callboard.protocol.errors import ConfigError, UpstreamError

HTTP = GuardedAuthHttp({}, private=True)


class Web:
    """A web of documents; `asked` are the addresses that were looked at."""

    def __init__(self, pages: dict[str, Any]) -> None:
        self.pages = pages
        self.asked: list[str] = []

    async def get(self, url: str, what: str) -> OAuthResponse:
        self.asked.append(url)
        page = self.pages.get(url)
        if isinstance(page, str):
            return OAuthResponse(status=302, headers={"location": page}, fields=None)
        if isinstance(page, Exception):
            raise page
        return OAuthResponse(status=404 if page is None else 200, headers={}, fields=page)


def issuer(url: str) -> dict[str, Any]:
    return {
        "issuer": url,
        "authorization_endpoint": f"{url}/a",
        "token_endpoint": f"{url}/t",
        "code_challenge_methods_supported": ["S256"],
    }


URL = "https://x.example/mcp"
OWN = {"resource": URL, "authorization_servers": ["https://auth.example/tenant"]}


async def test_all_places_are_tried_in_their_order() -> None:
    web = Web({"https://auth.example/tenant/.well-known/openid-configuration": issuer("https://auth.example/tenant")})
    web.pages[f"https://x.example{RESOURCE}"] = OWN
    found = await discover(URL, web, advertised="https://x.example/gone")
    assert found.server.issuer == "https://auth.example/tenant"
    assert web.asked == [
        "https://x.example/gone",
        f"https://x.example{RESOURCE}/mcp",
        f"https://x.example{RESOURCE}",
        f"https://auth.example{OAUTH}/tenant",
        "https://auth.example/.well-known/openid-configuration/tenant",
        "https://auth.example/tenant/.well-known/openid-configuration",
    ]


async def test_what_can_t_be_got_is_told_with_its_reason() -> None:
    web = Web({f"https://x.example{RESOURCE}": OWN})
    web.pages[f"https://auth.example{OAUTH}/tenant"] = UpstreamError("it is down")
    web.pages["https://auth.example/.well-known/openid-configuration/tenant"] = {"issuer": 3}
    with pytest.raises(Unusable) as caught:
        await discover(URL, web)
    text = str(caught.value)
    assert text.startswith("https://auth.example/tenant publishes no authorization server metadata: ")
    assert "tenant: it is down" in text
    assert "Expected `str`, got `int`" in text
    assert "HTTP 404" in text


async def test_a_redirect_is_followed_within_its_origin() -> None:
    web = Web({f"https://x.example{RESOURCE}/mcp": "/moved", "https://x.example/moved": OWN})
    web.pages[f"https://auth.example{OAUTH}/tenant"] = issuer("https://auth.example/tenant")
    assert (await discover(URL, web)).resource == URL


@pytest.mark.parametrize("target", ["https://evil.example/x", "http://x.example/x", "//evil.example", "https://[", ""])
async def test_and_not_beyond(target: str) -> None:
    web = Web({f"https://x.example{RESOURCE}/mcp": target})
    with pytest.raises(Unusable):
        await discover(URL, web)
    assert not any("evil" in address or address.startswith("http:") for address in web.asked)


async def test_a_redirect_that_leads_round_in_circles_ends() -> None:
    web = Web({f"https://x.example{RESOURCE}/mcp": f"{RESOURCE}/mcp"})
    with pytest.raises(Unusable):
        await discover(URL, web)
    assert len(web.asked) < 10


async def test_many_authorization_servers_are_not_all_tried() -> None:
    many = [f"https://a{number}.example" for number in range(1000)]
    web = Web({f"https://x.example{RESOURCE}/mcp": {**OWN, "authorization_servers": many}})
    with pytest.raises(Unusable, match=says("work.mcp.auth.discovery._Search._issuer.2", issuer="…a0.example")):
        await discover(URL, web)
    assert len(web.asked) < 12


@pytest.mark.parametrize("url", ["http://x.example/mcp", "http://10.0.0.8/mcp"])
async def test_no_token_for_a_server_that_would_get_it_in_the_clear(url: str) -> None:
    web = Web({})
    with pytest.raises(Unusable, match=says("work.mcp.auth.metadata.safe_address.3")):
        await discover(url, web)
    assert web.asked == []


async def test_a_server_may_not_have_us_look_at_metadata_in_the_clear() -> None:
    with pytest.raises(Unusable, match=says("work.mcp.auth.discovery._Search.resource")):
        await discover(URL, Web({}), advertised="http://169.254.169.254/latest/meta-data")


async def test_silence_ends(autojump_clock: trio.testing.MockClock) -> None:
    class Silent(Web):
        async def get(self, url: str, what: str) -> OAuthResponse:
            await trio.sleep_forever()
            raise AssertionError

    begun = trio.current_time()
    with pytest.raises(Unusable, match=says("work.mcp.auth.discovery.discover", WITHIN=30)):
        await discover(URL, Silent({}))
    assert trio.current_time() - begun == pytest.approx(30)


# --- on real sockets


async def test_a_document_without_an_end_is_not_read_to_it(nursery: trio.Nursery) -> None:
    sent = 0

    async def endless(request: Request, talk: Talk) -> None:
        nonlocal sent
        await talk.stream(200)
        for _ in range(10_000):
            await talk.chunk(b" " * 65536)
            sent += 65536

    server = await fake_mcp(nursery, endless)
    with pytest.raises(Unusable, match=says("io.http.transport.simple_request")):
        await discover(server.url, HTTP)
    assert sent < 16 * 1024 * 1024


async def test_pages_are_no_documents(nursery: trio.Nursery) -> None:
    async def page(request: Request, talk: Talk) -> None:
        await talk.whole(b"<!doctype html><title>App</title>", 200, content_type="text/html")

    server = await fake_mcp(nursery, page)
    with pytest.raises(Unusable, match="no JSON"):
        await discover(server.url, HTTP)


async def test_a_server_of_the_internet_does_not_have_us_knock_at_this_machine(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    protected_servers: ProtectedServers = await serve_protected(nursery)
    outside = GuardedAuthHttp({}, private=False)
    for name in ("127.0.0.1", "localhost"):
        with pytest.raises(ConfigError, match=says("io.http.guarded.check.2")):
            await outside.get(protected_servers.auth.url.replace("127.0.0.1", name) + OAUTH, "its metadata")
        with pytest.raises(ConfigError, match=says("io.http.guarded.check.2")):
            await outside.post(protected_servers.auth.url.replace("127.0.0.1", name) + "/token", {}, "a token")
    assert protected_servers.auth.requests == []


async def test_what_the_user_names_is_got_another_way() -> None:
    theirs, ours = Web({f"https://x.example{RESOURCE}/mcp": OWN}), Web({"https://sso.example/m": issuer("https://sso")})
    found = await discover(URL, theirs, configured="https://sso.example/m", trusted=ours)
    assert (found.server.issuer, found.resource) == ("https://sso", URL)
    assert ours.asked == ["https://sso.example/m"]
    assert not any("sso" in address for address in theirs.asked)


async def test_no_browser_is_sent_where_clouds_hand_out_credentials() -> None:
    with pytest.raises(ConfigError, match=says("io.http.guarded.check")):
        await HTTP.get("https://169.254.169.254/latest", "its metadata")


# --- 2025-03-26: the server is its own authorization server


async def test_where_nothing_is_published_the_endpoints_are_those_of_the_first_revision() -> None:
    found = await discover(URL, Web({}))
    server = found.server
    assert (server.issuer, server.authorization_endpoint, server.token_endpoint, server.registration_endpoint) == (
        "https://x.example",
        "https://x.example/authorize",
        "https://x.example/token",
        "https://x.example/register",
    )
    assert found.assumed
    assert found.document is None


@pytest.mark.parametrize("odd", [UpstreamError("down"), {"a": "page"}, "https://x.example/elsewhere"])
@pytest.mark.parametrize("place", [f"{RESOURCE}/mcp", OAUTH])
async def test_endpoints_are_not_assumed_unless_every_place_says_that_nothing_is_there(odd: Any, place: str) -> None:
    with pytest.raises(Unusable):
        await discover(URL, Web({f"https://x.example{place}": odd, "https://x.example/elsewhere": {}}))


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("https://x.example/oauth", True),
        ("https://x.example/", True),
        ("https://y.example/oauth", False),
        ("https://x.example:8443/oauth", False),
        ("http://x.example/oauth", False),
        ("https://x.example/oauth#f", False),
        ("https://u@x.example/oauth", False),
        ("no url at all [", False),
    ],
)
async def test_an_undocumented_server_may_name_an_issuer_below_its_origin_and_no_other(name: str, good: bool) -> None:
    web = Web({f"https://x.example{OAUTH}": issuer("https://x.example") | {"issuer": name}})
    if good:
        assert (await discover(URL, web)).server.issuer == name
    else:
        with pytest.raises(Unusable):
            await discover(URL, web)


async def test_a_documented_server_has_to_be_the_issuer_that_it_names() -> None:
    web = Web({f"https://x.example{RESOURCE}": {"resource": URL, "authorization_servers": ["https://x.example"]}})
    web.pages[f"https://x.example{OAUTH}"] = issuer("https://x.example") | {"issuer": "https://x.example/oauth"}
    with pytest.raises(Unusable):
        await discover(URL, web)
