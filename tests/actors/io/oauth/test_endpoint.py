"""Codes, devices and tokens at the token endpoint, and what servers answer there."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import trio
import trio.testing
from support.auth_server import SECRET, LocalAuthServer
from support.messages import says

from callboard.actors.io.oauth.authorization import authorization
from callboard.actors.io.oauth.endpoint import AuthHttp, TokenEndpoint
from callboard.actors.io.oauth.token import LONGEST_LIFETIME
from callboard.protocol.errors import CallboardError, ConfigError, NobodyToAsk, OAuthRefused, UpstreamError

from .conftest import signed_in

BACK = "http://127.0.0.1:1/callback"


async def test_a_code_becomes_a_token(server: LocalAuthServer, endpoint: TokenEndpoint) -> None:
    token = await signed_in(server, endpoint)
    assert server.is_good(token.access_token)
    assert token.refresh_token
    assert token.scopes == ("chat", "profile")
    assert token.lifetime == 3600.0
    request = server.requests[-1]
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.headers["accept"] == "application/json"
    assert "authorization" not in request.headers


async def test_the_wrong_verifier_gets_nothing(server: LocalAuthServer, endpoint: TokenEndpoint) -> None:
    code = server.approve(authorization(endpoint.server, BACK).url)
    with pytest.raises(OAuthRefused, match="bad code: invalid_grant") as error:
        await endpoint.exchange(authorization(endpoint.server, BACK), code)
    assert error.value.exit_code == 3


@pytest.mark.parametrize("basic", [False, True])
async def test_a_client_with_a_secret_shows_it(server: LocalAuthServer, basic: bool) -> None:
    server.secret = SECRET
    endpoint = TokenEndpoint(server.client(client_secret=SECRET, basic=basic), AuthHttp({}))
    assert await signed_in(server, endpoint)
    assert ("authorization" in server.requests[-1].headers) is basic
    assert (SECRET.encode() in server.requests[-1].body) is not basic


async def test_a_server_that_wants_json_gets_it(server: LocalAuthServer) -> None:
    endpoint = TokenEndpoint(server.client(body="json"), AuthHttp({}))
    token = await signed_in(server, endpoint)
    assert server.requests[-1].json["state"]
    await endpoint.refresh(token)
    assert server.requests[-1].json["grant_type"] == "refresh_token"


async def test_what_the_token_is_for_is_said_each_time(server: LocalAuthServer) -> None:
    endpoint = TokenEndpoint(server.client(resource="https://mcp.example/mcp"), AuthHttp({}))
    token = await signed_in(server, endpoint)
    await endpoint.refresh(token)
    assert [server.fields(each)["resource"] for each in server.requests] == ["https://mcp.example/mcp"] * 2


@pytest.mark.parametrize(
    ("expires_in", "lifetime"),
    [
        (60, 60.0),
        ("60", 60.0),
        (0, 0.0),
        (1e300, LONGEST_LIFETIME),
        (10**400, None),
        (-5, None),
        ("soon", None),
        ("nan", None),
        (None, None),
        (True, None),
        ([60], None),
    ],
)
async def test_how_servers_say_how_long(
    server: LocalAuthServer, endpoint: TokenEndpoint, expires_in: object, lifetime: float | None
) -> None:
    server.answer = lambda fields: fields | {"expires_in": expires_in}
    assert (await signed_in(server, endpoint)).lifetime == lifetime


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"access_token": ""}, ConfigError, "has no access token"),
        ({"access_token": 5}, ConfigError, "has no access token"),
        ({"access_token": "a b"}, ConfigError, "has no access token"),
        ({"access_token": "x\r\nevil: 1"}, ConfigError, "has no access token"),
        ({"access_token": "ü"}, ConfigError, "has no access token"),
        ({"token_type": "mac"}, ConfigError, says("io.oauth.endpoint.TokenEndpoint._token", kind="mac")),
        ({"error": "invalid_client"}, OAuthRefused, "invalid_client"),
        ({"error": {"message": "as Google has it"}}, OAuthRefused, "as Google has it"),
    ],
)
async def test_answers_that_are_no_token(
    server: LocalAuthServer, endpoint: TokenEndpoint, fields: dict[str, Any], kind: type[CallboardError], words: str
) -> None:
    server.answer = lambda given: given | fields
    with pytest.raises(kind, match=words) as error:
        await signed_in(server, endpoint)
    assert "s3cret" not in str(error.value)


async def test_a_form_as_answer_is_read_as_well(server: LocalAuthServer, endpoint: TokenEndpoint) -> None:
    from callboard.actors.io.oauth.endpoint import _fields

    form = b"access_token=abc&token_type=bearer&scope=repo%20gist"
    assert _fields(form, "application/x-www-form-urlencoded") == {
        "access_token": "abc",
        "token_type": "bearer",
        "scope": "repo gist",
    }


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (200, b"<html>sign in to the wifi</html>", ConfigError, says("io.oauth.endpoint._good.2")),
        (200, [1], ConfigError, says("io.oauth.endpoint._good.2")),
        (404, b"<html>", ConfigError, says("io.oauth.endpoint._good", status=404)),
        (302, b"", ConfigError, "HTTP 302"),
        (503, b"<html>", UpstreamError, "HTTP 503"),
        (429, b"", UpstreamError, "HTTP 429"),
        (503, {"error": "invalid_grant"}, UpstreamError, "HTTP 503"),
        (400, {"error": "temporarily_unavailable"}, UpstreamError, "temporarily_unavailable"),
    ],
)
async def test_answers_that_are_no_answers(
    server: LocalAuthServer,
    endpoint: TokenEndpoint,
    status: int,
    body: object,
    kind: type[CallboardError],
    words: str,
) -> None:
    async def page(_request: object) -> tuple[int, object]:
        return status, body

    server.pages["/token"] = page
    with pytest.raises(kind, match=words):
        await signed_in(server, endpoint)


async def test_a_server_that_is_not_there(endpoint: TokenEndpoint, server: LocalAuthServer) -> None:
    gone = TokenEndpoint(server.client(token_url="http://127.0.0.1:1/token"), AuthHttp({}))
    with pytest.raises(UpstreamError, match=r"the exchange of the code: 127\.0\.0\.1"):
        await signed_in(server, gone)


@pytest.mark.parametrize("host", ["xn--", "xn--\u20ac", "a..b", "x" * 300])
async def test_a_host_that_is_none(server: LocalAuthServer, host: str) -> None:
    odd = TokenEndpoint(server.client(token_url=f"https://{host}/token"), AuthHttp({}))
    with pytest.raises((ConfigError, UpstreamError), match=says("io.oauth.endpoint.TokenEndpoint.exchange")):
        await signed_in(server, odd)


async def test_an_answer_without_end(server: LocalAuthServer, endpoint: TokenEndpoint) -> None:
    async def page(_request: object) -> tuple[int, object]:
        return 200, b"x" * 10_000_000

    server.pages["/token"] = page
    with pytest.raises(UpstreamError, match=says("io.http.transport.simple_request")):
        await signed_in(server, endpoint)


# --- another device


async def test_the_device_flow_waits_for_the_person(server: LocalAuthServer, endpoint: TokenEndpoint) -> None:
    server.device_says = ["authorization_pending"] * 3
    grant = await endpoint.device()
    assert grant.user_code == "WDJB-MJHT"
    assert grant.verification_uri == f"{server.url}/activate"
    assert grant.complete_uri.endswith("user_code=WDJB-MJHT")
    assert "WDJB" not in repr(grant)
    token = await endpoint.device_token(grant)
    assert server.is_good(token.access_token)
    assert server.asked_for("urn:ietf:params:oauth:grant-type:device_code") == 4


async def test_a_server_that_says_slow_down_is_asked_less_often(
    server: LocalAuthServer, endpoint: TokenEndpoint, clock: trio.testing.MockClock
) -> None:
    server.device_says = ["slow_down", "authorization_pending", "slow_down"]
    grant = await endpoint.device()
    began, waits = trio.current_time(), []

    async def hurry() -> None:
        while True:
            before = len(server.requests)
            await trio.sleep(0.05)
            if len(server.requests) == before:
                clock.jump(1.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hurry)
        await endpoint.device_token(grant)
        waits.append(trio.current_time() - began)
        nursery.cancel_scope.cancel()
    assert waits[0] >= 5 + 5 + 10


@pytest.mark.parametrize(
    ("says", "kind", "words"),
    [
        ("expired_token", NobodyToAsk, says("io.oauth.endpoint.TokenEndpoint.device_token.3")),
        ("access_denied", OAuthRefused, "access_denied"),
        ("invalid_client", OAuthRefused, "invalid_client"),
    ],
)
async def test_the_device_flow_ends(
    server: LocalAuthServer, endpoint: TokenEndpoint, says: str, kind: type[CallboardError], words: str
) -> None:
    server.device_says = ["authorization_pending", says]
    with pytest.raises(kind, match=words):
        await endpoint.device_token(await endpoint.device())


async def test_a_code_that_is_not_entered(
    server: LocalAuthServer, endpoint: TokenEndpoint, clock: trio.testing.MockClock
) -> None:
    server.device_says = ["authorization_pending"] * 1000
    grant = await endpoint.device()

    async def later() -> None:
        await trio.sleep(0.1)
        clock.jump(600.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(later)
        with pytest.raises(NobodyToAsk, match=says("io.oauth.endpoint.TokenEndpoint.device_token", lifetime=600)):
            await endpoint.device_token(grant)


@pytest.mark.parametrize("field", ["device_code", "user_code", "verification_uri"])
async def test_a_device_answer_with_a_gap(server: LocalAuthServer, endpoint: TokenEndpoint, field: str) -> None:
    whole = {"device_code": "d", "user_code": "u", "verification_uri": "https://id.example", "expires_in": math.pi}

    async def page(_request: object) -> tuple[int, object]:
        return 200, {name: value for name, value in whole.items() if name != field}

    server.pages["/device"] = page
    with pytest.raises(ConfigError, match=says("io.oauth.endpoint.TokenEndpoint.device.3")):
        await endpoint.device()


async def test_a_server_without_devices(server: LocalAuthServer) -> None:
    with pytest.raises(ConfigError, match=says("io.oauth.endpoint.TokenEndpoint.device")):
        await TokenEndpoint(server.client(device_url=""), AuthHttp({})).device()


# --- the end


async def test_a_token_is_given_back(server: LocalAuthServer, endpoint: TokenEndpoint) -> None:
    token = await signed_in(server, endpoint)
    await endpoint.revoke(token)
    assert not server.is_good(token.access_token)
    assert json.dumps(server.fields(server.requests[-1])).count("refresh_token") == 1
    with pytest.raises(OAuthRefused, match="invalid_grant"):
        await endpoint.refresh(token)


async def test_a_server_without_revocation_is_not_asked(server: LocalAuthServer, endpoint: TokenEndpoint) -> None:
    token = await signed_in(server, endpoint)
    await TokenEndpoint(server.client(revocation_url=""), AuthHttp({})).revoke(token)
    assert server.is_good(token.access_token)
