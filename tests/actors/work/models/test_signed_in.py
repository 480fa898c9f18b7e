"""Clients that people sign in for: which requests carry which token, and what becomes of one that is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from support.auth_server import CLIENT, LocalAuthServer, auth_server
from support.fake_models import FakeModels, Reply, Request
from support.gateways import Recorder, reaching
from support.messages import says

import callboard
from callboard.actors.io.oauth.authorization import authorization
from callboard.actors.io.oauth.endpoint import AuthHttp, TokenEndpoint
from callboard.actors.io.oauth.token import OAuthToken
from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.signed_in import auth_server_of, client_to_sign_in, token_file_of
from callboard.protocol import events
from callboard.protocol.chat import ChatRequest, UserTurn
from callboard.protocol.errors import ConfigError, CredentialsError, SignInNeeded, UsageError
from callboard.protocol.settings import ClientSettings, Settings, read_settings
from callboard.protocol.settings.model import ModelSettings, OAuthSettings

HELLO = ChatRequest(model="lab:m", messages=(UserTurn("hello"),))


@pytest.fixture
async def server(nursery: trio.Nursery) -> LocalAuthServer:
    return await auth_server(nursery)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def client_of(server: LocalAuthServer, models: FakeModels, kind: str = "claude", **oauth: Any) -> ClientSettings:
    settings = OAuthSettings(
        client_id=CLIENT, authorization_url=f"{server.url}/authorize", token_url=f"{server.url}/token", **oauth
    )
    return ClientSettings(
        type=kind,
        name="lab",
        api_base=f"{models.url}/v1",
        auth="oauth",
        oauth=settings,
        models=(ModelSettings(name="m"),),
    )


async def signed_in(client: ClientSettings, server: LocalAuthServer, environ: dict[str, str]) -> OAuthToken:
    auth = auth_server_of(client, "config.yaml")
    request = authorization(auth, auth.redirect_uri)
    token = await TokenEndpoint(auth, AuthHttp({})).exchange(request, server.approve(request.url))
    await token_file_of(client.name, environ).put(token, auth)
    return token


def bearer(request: Request) -> str:
    return request.headers["authorization"].removeprefix("Bearer ")


def guard(server: LocalAuthServer) -> Callable[[Request], Reply]:
    """A provider that takes the tokens that are good."""
    return lambda request: (
        Reply("ok") if server.is_good(bearer(request)) else Reply(status=401, error="the token has expired")
    )


@pytest.mark.parametrize(
    ("kind", "without"), [("claude", "x-api-key"), ("openai-compatible", "x-api-key"), ("anthropic", "x-api-key")]
)
async def test_requests_carry_the_token_and_no_key(
    server: LocalAuthServer, fake_model: FakeModels, environ: dict[str, str], kind: str, without: str
) -> None:
    fake_model.answer_with(guard(server))
    client = client_of(server, fake_model, kind, headers={"anthropic-beta": "oauth-2025-04-20"})
    token = await signed_in(client, server, environ)
    environ |= {"ANTHROPIC_API_KEY": "sk-test-of-the-environment", "LAB_API_KEY": "sk-test-of-lab"}
    settings = Settings(clients=(msgspec.structs.replace(client, api_key="sk-test-of-the-file"),))
    async with reaching(settings, environ) as gateway:
        assert gateway.check("lab:m") == "lab:m"
        assert (await gateway.chat(Recorder(), HELLO)).text == "ok"
    (request,) = fake_model.requests
    assert bearer(request) == token.access_token
    assert without not in request.headers
    assert request.headers["anthropic-beta"] == "oauth-2025-04-20"
    assert "sk-test" not in str(request.headers)


async def test_a_token_that_is_refused_is_renewed_and_the_request_sent_once_more(
    server: LocalAuthServer, fake_model: FakeModels, environ: dict[str, str]
) -> None:
    fake_model.answer_with(guard(server))
    client = client_of(server, fake_model)
    old = await signed_in(client, server, environ)
    server.expire_all()
    me = Recorder()
    async with reaching(Settings(clients=(client,)), environ) as gateway:
        assert (await gateway.chat(me, HELLO)).text == "ok"
        assert (await gateway.chat(me, HELLO)).text == "ok"
    assert server.refreshes == 1
    assert [bearer(request) == old.access_token for request in fake_model.requests] == [True, False, False]
    (retry,) = me.of(events.LlmRetry)
    assert retry.wait == 0.0
    assert "s3cret" not in repr(me.events)


async def test_fifty_agents_whose_token_has_ended_make_one_refresh(
    server: LocalAuthServer, fake_model: FakeModels, environ: dict[str, str]
) -> None:
    fake_model.answer_with(guard(server))
    client = client_of(server, fake_model)
    await signed_in(client, server, environ)
    server.expire_all()
    said: list[str] = []
    async with reaching(Settings(clients=(client,)), environ) as gateway:

        async def agent() -> None:
            said.extend([(await gateway.chat(Recorder(), HELLO)).text for _ in range(3)])

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(agent)
    assert said == ["ok"] * 150
    assert server.refreshes == 1
    assert not server.grants[0].revoked


async def test_who_was_signed_out_is_told_how_to_sign_in(
    server: LocalAuthServer, fake_model: FakeModels, environ: dict[str, str]
) -> None:
    fake_model.answer_with(guard(server))
    client = client_of(server, fake_model)
    await signed_in(client, server, environ)
    server.revoke_all()
    async with reaching(Settings(clients=(client,)), environ) as gateway:
        for _ in range(2):
            with pytest.raises(SignInNeeded, match=r"client 'lab': .*sign in: callboard auth login lab$") as error:
                await gateway.chat(Recorder(), HELLO)
            assert error.value.exit_code == 3
        await signed_in(client, server, environ)  # in another terminal
        assert (await gateway.chat(Recorder(), HELLO)).text == "ok"


async def test_a_provider_that_refuses_the_new_token_as_well(
    server: LocalAuthServer, fake_model: FakeModels, environ: dict[str, str]
) -> None:
    fake_model.answer_with(lambda _: Reply(status=401, error="not you"))
    client = client_of(server, fake_model)
    await signed_in(client, server, environ)
    async with reaching(Settings(clients=(client,)), environ) as gateway:
        with pytest.raises(
            SignInNeeded,
            match=says("work.models.signed_in.SignedIn.once_more.2", said="…not you (HTTP 401)", sign_in="sign in: …"),
        ):
            await gateway.chat(Recorder(), HELLO)
        with pytest.raises(SignInNeeded):
            await gateway.chat(Recorder(), HELLO)
    assert server.refreshes == 1
    assert len(fake_model.requests) == 3


async def test_an_account_that_may_not_do_this_is_no_matter_of_tokens(
    server: LocalAuthServer, fake_model: FakeModels, environ: dict[str, str]
) -> None:
    fake_model.answer_with(lambda _: Reply(status=403, error="your plan has no models"))
    client = client_of(server, fake_model)
    await signed_in(client, server, environ)
    async with reaching(Settings(clients=(client,)), environ) as gateway:
        with pytest.raises(
            CredentialsError, match=says("work.models.signed_in.SignedIn.once_more", said="…(HTTP 403)")
        ):
            await gateway.chat(me := Recorder(), HELLO)
    assert me.of(events.LlmRetry) == []
    assert server.refreshes == 0
    assert len(fake_model.requests) == 1


async def test_a_run_does_not_begin_without_a_sign_in(
    server: LocalAuthServer, fake_model: FakeModels, environ: dict[str, str]
) -> None:
    async with reaching(Settings(clients=(client_of(server, fake_model),)), environ) as gateway:
        with pytest.raises(SignInNeeded, match=says("work.models.signed_in.check_signed_in")):
            gateway.check("lab:m")
    assert server.requests == []


async def test_a_client_that_people_sign_in_for_is_the_default_like_one_with_a_key(
    server: LocalAuthServer, fake_model: FakeModels
) -> None:
    client = msgspec.structs.replace(client_of(server, fake_model), api_base="")
    assert ModelCatalog(Settings(clients=(client,)), {}).choice().model == "lab:m"


async def test_a_file_that_names_another_address_does_not_get_the_token(
    server: LocalAuthServer, fake_model: FakeModels, environ: dict[str, str]
) -> None:
    from callboard.actors.work.models.providers import client_of as described

    client = client_of(server, fake_model)
    await signed_in(client, server, environ)
    settings = Settings(clients=(client,))
    stranger = described("lab", f"{fake_model.url}/stranger", None, settings, environ)
    assert stranger is not None
    async with reaching(settings, environ) as gateway:
        name = gateway.catalog.adopt(stranger)
        await gateway.chat(Recorder(), msgspec.structs.replace(HELLO, model=f"{name}:m"))
    assert "authorization" not in fake_model.requests[0].headers


def test_google_is_known_and_everything_may_be_elsewhere() -> None:
    client = ClientSettings(type="gemini", name="g", auth="oauth", oauth=OAuthSettings(client_id="me"))
    google = auth_server_of(client, "config.yaml")
    assert google.token_url == "https://oauth2.googleapis.com/token"
    assert google.more["access_type"] == "offline"
    own = OAuthSettings(client_id="me", token_url="https://id.example/t", authorization_url="https://id.example/a")
    moved = auth_server_of(msgspec.structs.replace(client, oauth=own), "config.yaml")
    assert (moved.token_url, moved.scopes, moved.more, moved.revocation_url) == ("https://id.example/t", (), {}, "")
    assert moved.issuer == ""


@pytest.mark.parametrize(
    ("kind", "oauth", "words"),
    [
        ("gemini", None, "no `oauth.client_id`"),
        ("claude", None, says("work.models.signed_in.auth_server_of", named="`oauth.client_id` and `oauth.token_url`")),
        (
            "claude",
            OAuthSettings(client_id="me"),
            says("work.models.signed_in.auth_server_of", named="`oauth.token_url`"),
        ),
        ("openai-compatible", OAuthSettings(token_url="https://x.example"), "no `oauth.client_id`"),
    ],
)
def test_what_an_entry_lacks_is_named(kind: str, oauth: OAuthSettings | None, words: str) -> None:
    client = ClientSettings(type=kind, name="lab", api_base="http://127.0.0.1:1", auth="oauth", oauth=oauth)
    with pytest.raises(ConfigError, match=words):
        auth_server_of(client, "config.yaml")


async def test_patches_go_along_with_the_token(
    server: LocalAuthServer, fake_model: FakeModels, environ: dict[str, str]
) -> None:
    text = f"""
clients:
  - type: claude
    name: lab
    api_base: {fake_model.url}/v1
    auth: oauth
    oauth: {{client_id: {CLIENT}, authorization_url: "{server.url}/authorize", token_url: "{server.url}/token"}}
    patch: {{chat_completions: {{".*": {{headers: {{x-team: blue, anthropic-version: null}}, body: {{seed: 5}}}}}}}}
"""
    settings, problems = read_settings(text, "config.yaml", {})
    assert problems == []
    token = await signed_in(settings.clients[0], server, environ)
    async with reaching(settings, environ) as gateway:
        await gateway.chat(Recorder(), HELLO)
    (request,) = fake_model.requests
    assert bearer(request) == token.access_token
    assert request.headers["x-team"] == "blue"
    assert "anthropic-version" not in request.headers
    assert request.json["seed"] == 5


async def test_a_run_asks_with_the_token(
    server: LocalAuthServer, fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fake_model.answer_with(guard(server))
    client = client_of(server, fake_model)
    await signed_in(client, server, {"XDG_STATE_HOME": str(tmp_path / "state")})
    server.expire_all()
    config = tmp_path / "config"
    config.mkdir()
    (config / "config.yaml").write_bytes(msgspec.yaml.encode({"clients": [msgspec.to_builtins(client)]}))
    agent = tmp_path / "a.yaml"
    agent.write_text("name: a\nmodel: lab:m\nprompt: be brief\n")
    outcome = await callboard.run(agent, "hello", config_dir=config)
    assert outcome.output == "ok"


def test_a_sign_in_without_a_client_that_signs_in_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=says("work.models.signed_in.client_to_sign_in.2", file="config.yaml")):
        client_to_sign_in(None, Settings(file="config.yaml"))
