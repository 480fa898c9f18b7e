"""Tokens in use: with each request, refreshed once for all, refused, widened; and never sent to anybody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from support.auth_server import CLIENT, SECRET
from support.fake_mcp_http import Stream, Talk, fake_mcp
from support.fake_models import Request
from support.mcp_processes import House
from support.mcp_protected import Town, protected_town
from support.messages import says

from callboard.actors.work.mcp.auth.access import TRIES
from callboard.actors.work.mcp.auth.sign_in import sign_in, sign_out
from callboard.protocol.errors import McpError, McpLost, McpSignInNeeded, McpUnauthorized
from callboard.protocol.mcp.config import OAuth
from callboard.supervisors import Root


@pytest.fixture
async def town(nursery: trio.Nursery) -> Town:
    return await protected_town(nursery)


@asynccontextmanager
async def house(directory: Path, *servers: Any) -> AsyncIterator[House]:
    """A process with these servers."""
    async with Root() as root:
        one = House(root, directory)
        one.environ["XDG_STATE_HOME"] = str(directory)
        one.build(*servers)
        yield one


async def signed_in(town: Town, directory: Path, **options: Any) -> None:
    await sign_in(town.entry(**options), town.store(directory, **options), {}, town.person)
    town.tokens.clear()


async def test_every_request_carries_the_token(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    async with house(tmp_path, town.entry()) as one:
        assert await one.call(one.scope(), "docs", "read") == "read: done"
    assert set(town.tokens) == town.auth.grants[0].access, "GET and DELETE among them"


async def test_without_a_sign_in_the_command_is_named(town: Town, tmp_path: Path) -> None:
    async with house(tmp_path, town.entry()) as one:
        with pytest.raises(McpSignInNeeded) as caught:
            await one.call(one.scope(), "docs", "read")
    assert "answered initialize with HTTP 401" in str(caught.value)
    assert str(caught.value).endswith("; sign in: callboard auth login mcp:docs")
    assert (caught.value.exit_code, caught.value.scopes) == (3, ())
    assert town.opened == []


async def test_who_signs_in_meanwhile_is_noticed(town: Town, tmp_path: Path) -> None:
    async with house(tmp_path, town.entry()) as one:
        scope = one.scope()
        for _ in range(7):
            with pytest.raises(McpSignInNeeded), trio.fail_after(60):  # it has not failed, so it need not rest
                await one.call(scope, "docs", "read")
        await signed_in(town, tmp_path)
        assert await one.call(scope, "docs", "read") == "read: done"


async def test_a_token_that_expires_in_the_middle_is_refreshed_once_for_fifty_agents(
    town: Town, tmp_path: Path
) -> None:
    await signed_in(town, tmp_path)
    done: list[str] = []
    async with house(tmp_path, town.entry()) as one:
        await one.call(one.scope(), "docs", "read")
        town.auth.expire_all()
        town.auth.delay = 0.1

        async def agent(number: int) -> None:
            done.append(await one.call(one.scope(f"/agent-{number}"), "docs", "read"))

        async with trio.open_nursery() as agents:
            for number in range(50):
                agents.start_soon(agent, number)
    assert (len(done), town.auth.refreshes, len(town.opened)) == (50, 1, 1)


async def test_a_token_near_its_end_is_refreshed_before_it_is_refused(town: Town, tmp_path: Path) -> None:
    town.auth.lifetime = 0.0
    await signed_in(town, tmp_path)
    town.auth.lifetime = 3600.0
    async with house(tmp_path, town.entry()) as one:
        await one.call(one.scope(), "docs", "read")
    assert town.auth.refreshes == 1
    assert len(set(town.tokens)) == 1


async def test_a_revoked_token_says_so_and_is_not_refreshed_for_ever(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    async with house(tmp_path, town.entry()) as one:
        scope = one.scope()
        await one.call(scope, "docs", "read")
        town.auth.revoke_all()
        for _ in range(3):
            with pytest.raises(McpSignInNeeded, match=r"revoked.*sign in: callboard auth login mcp:docs"):
                await one.call(scope, "docs", "read")
        assert town.auth.refreshes == 1
        await signed_in(town, tmp_path)
        assert await one.call(scope, "docs", "read") == "read: done", "on the same connection"


async def test_a_server_that_refuses_whatever_it_gets_is_not_asked_for_ever(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    async with house(tmp_path, town.entry()) as one:
        scope = one.scope()
        await one.call(scope, "docs", "read")
        town.tokens.clear()
        town.refuses = 1000
        with pytest.raises(McpSignInNeeded):
            await one.call(scope, "docs", "read")
    assert len(town.tokens) <= TRIES + 3
    assert town.auth.refreshes <= TRIES


async def test_an_authorization_server_that_is_down_is_no_reason_to_sign_in(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    async with house(tmp_path, town.entry()) as one:
        scope = one.scope()
        await one.call(scope, "docs", "read")
        town.auth.expire_all()
        town.auth.fails = 99
        with pytest.raises(
            McpError, match=says("work.mcp.links.http.HttpServerAccess._token", who="MCP server 'docs'", error="…503…")
        ) as caught:
            await one.call(scope, "docs", "read")
        assert not isinstance(caught.value, McpUnauthorized | McpLost)


# --- more scopes


async def test_what_a_tool_needs_more_is_named_and_asked_for_next_time(town: Town, tmp_path: Path) -> None:
    town.needs = {"write": {"files:write"}}
    await signed_in(town, tmp_path)
    async with house(tmp_path, town.entry()) as one:
        scope = one.scope()
        assert await one.call(scope, "docs", "read") == "read: done"
        with pytest.raises(
            McpSignInNeeded, match=says("work.mcp.links.texts._unauthorized", named=" (files:write)")
        ) as caught:
            await one.call(scope, "docs", "write")
        assert caught.value.scopes == ("files:write",)
        assert town.auth.refreshes == 0, "a refresh can't widen a token"
        await signed_in(town, tmp_path)
        assert "scope=read+files%3Awrite" in town.opened[-1]
        assert await one.call(scope, "docs", "write") == "write: done", "the running process has noticed"
        assert await one.call(scope, "docs", "read") == "read: done"


async def test_a_refusal_for_other_reasons_is_no_matter_of_scopes(town: Town, tmp_path: Path) -> None:
    async def forbidden(request: Request, talk: Talk) -> None:
        await talk.json({"error": "not yours"}, 403)

    town.inner = forbidden
    await signed_in(town, tmp_path)
    async with house(tmp_path, town.entry()) as one:
        with pytest.raises(McpUnauthorized, match=says("work.mcp.links.texts._unauthorized.2")) as caught:
            await one.call(one.scope(), "docs", "read")
    assert not isinstance(caught.value, McpSignInNeeded)


# --- whose token it is


async def test_another_address_under_the_same_name_gets_no_token(
    town: Town, tmp_path: Path, nursery: trio.Nursery
) -> None:
    await signed_in(town, tmp_path)
    other = await fake_mcp(nursery, town)
    async with house(tmp_path, town.entry(url=other.url)) as one:
        with pytest.raises(McpSignInNeeded):
            await one.call(one.scope(), "docs", "read")
    assert all("authorization" not in request.headers for request in other.requests)


async def test_another_path_of_the_same_host_gets_no_token(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    async with house(tmp_path, town.entry(url=f"{town.origin}/mcp2")) as one:
        with pytest.raises(McpSignInNeeded):
            await one.call(one.scope(), "docs", "read")
    assert set(town.tokens) == {""}


async def test_no_redirect_takes_the_token_elsewhere(town: Town, tmp_path: Path, nursery: trio.Nursery) -> None:
    await signed_in(town, tmp_path)
    thief = await fake_mcp(nursery, town)

    async def moved(request: Request, talk: Talk) -> None:
        await talk.whole(b"", 307, location=thief.url)

    town.inner = moved
    town.server.answer = moved
    async with house(tmp_path, town.entry()) as one:
        with pytest.raises(McpError, match=says("work.mcp.links.texts.refusal.4")):
            await one.call(one.scope(), "docs", "read")
    assert thief.requests == []


async def test_no_redirect_takes_a_refresh_token_elsewhere(town: Town, tmp_path: Path, nursery: trio.Nursery) -> None:
    await signed_in(town, tmp_path)
    thief = await fake_mcp(nursery, town)

    async def moved(request: Request) -> tuple[int, Any]:
        return 307, {"location": thief.url}

    town.auth.pages["/token"] = moved
    town.auth.expire_all()
    async with house(tmp_path, town.entry()) as one:
        with pytest.raises(McpError):
            await one.call(one.scope(), "docs", "read")
    assert thief.requests == []


async def test_who_brings_a_server_along_gets_none_of_the_user_s_tokens(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    async with house(tmp_path) as one:
        with one.scope() as scope:
            scope.bring(town.entry())
            with pytest.raises(McpUnauthorized) as caught:
                await one.call(scope, "docs", "read")
    assert set(town.tokens) == {""}
    assert not isinstance(caught.value, McpSignInNeeded)


async def test_a_header_given_by_hand_wins(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    async with house(tmp_path, town.entry(headers={"Authorization": "Bearer mine"})) as one:
        with pytest.raises(
            McpUnauthorized, match=says("work.mcp.links.texts._credentials", given="Authorization")
        ) as caught:
            await one.call(one.scope(), "docs", "read")
    assert set(town.tokens) == {"mine"}
    assert not isinstance(caught.value, McpSignInNeeded)


async def test_oauth_that_is_turned_off_is_off(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    async with house(tmp_path, town.entry(oauth=False)) as one:
        with pytest.raises(McpUnauthorized, match=says("work.mcp.links.texts._credentials.2")):
            await one.call(one.scope(), "docs", "read")
    assert set(town.tokens) == {""}


async def test_two_accounts_are_two_servers(town: Town, tmp_path: Path) -> None:
    work, home = OAuth(account="work"), OAuth(account="home")
    await signed_in(town, tmp_path, oauth=work)
    await signed_in(town, tmp_path, oauth=home)
    entries = [town.entry(name="work", oauth=work), town.entry(name="home", oauth=home)]
    async with house(tmp_path, *entries) as one:
        scope = one.scope()
        await one.call(scope, "work", "read")
        first = set(town.tokens)
        town.tokens.clear()
        await one.call(scope, "home", "read")
        assert (first, {token for token in town.tokens if token not in first}) == (
            town.auth.grants[0].access,
            town.auth.grants[1].access,
        )


async def test_after_signing_out_the_next_process_has_none(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    await sign_out(town.store(tmp_path), {})
    async with house(tmp_path, town.entry()) as one:
        with pytest.raises(McpSignInNeeded):
            await one.call(one.scope(), "docs", "read")
    assert set(town.tokens) == {""}


async def test_files_that_others_could_have_written_are_not_used(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    store = town.store(tmp_path)
    store.tokens.path.chmod(0o644)
    async with house(tmp_path, town.entry()) as one:
        with pytest.raises(McpError, match=says("io.oauth.token.TokenFile._bytes.4")):
            await one.call(one.scope(), "docs", "read")
    assert set(town.tokens) <= {""}


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\x00", b'{"version": 9}'])
async def test_a_damaged_sign_in_counts_as_none(town: Town, tmp_path: Path, damage: bytes) -> None:
    await signed_in(town, tmp_path)
    town.store(tmp_path).path.write_bytes(damage)
    async with house(tmp_path, town.entry()) as one:
        with pytest.raises(McpSignInNeeded):
            await one.call(one.scope(), "docs", "read")


async def test_a_server_of_the_older_transport_gets_tokens_too(town: Town, tmp_path: Path) -> None:
    await signed_in(town, tmp_path)
    town.inner = Stream()
    town.server.answer = town._gate
    async with house(tmp_path, town.entry(type="sse")) as one:
        with trio.fail_after(60), pytest.raises(KeyError):  # it echoes, and gives no result of a tool
            await one.call(one.scope(), "docs", "read")
    assert town.tokens.count("") == 0
    assert len(town.tokens) >= 3, "the stream, and what is said to it"


# --- clients that sign in by themselves


def private_and_public(kind: str) -> tuple[str, str]:
    """A new pair of keys, as PEM."""
    key: Any
    if kind == "EC":
        key = ec.generate_private_key(ec.SECP256R1())
    elif kind == "RSA":
        key = rsa.generate_private_key(65537, 2048)
    else:
        key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


def alone(town: Town, **credentials: str) -> Any:
    return town.entry(oauth=OAuth(client_id=CLIENT, grant_type="client_credentials", **credentials))


@pytest.mark.parametrize("kind", ["secret", "EC", "RSA", "Ed25519"])
async def test_a_client_with_credentials_of_its_own_signs_in_without_a_person(
    town: Town, tmp_path: Path, kind: str
) -> None:
    if kind == "secret":
        town.auth.secret = SECRET
        entry = alone(town, client_secret=SECRET)
    else:
        private, town.auth.public_key = private_and_public(kind)
        entry = alone(town, private_key=private)
    async with house(tmp_path, entry) as one:
        scope = one.scope()
        assert await one.call(scope, "docs", "read") == "read: done"
        assert town.auth.asked_for("client_credentials") == 1
        town.auth.expire_all()
        assert await one.call(scope, "docs", "read") == "read: done"
        assert town.auth.asked_for("client_credentials") == 2
        town.needs["write"] = {"write"}
        assert await one.call(scope, "docs", "write") == "write: done"
    assert town.opened == []
    assert not any(b"PRIVATE KEY" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


async def test_many_calls_of_such_a_client_sign_in_once(town: Town, tmp_path: Path) -> None:
    town.auth.secret = SECRET
    async with house(tmp_path, alone(town, client_secret=SECRET)) as one:
        scope = one.scope()
        async with trio.open_nursery() as calls:
            for _ in range(10):
                calls.start_soon(one.call, scope, "docs", "read")
    assert town.auth.asked_for("client_credentials") == 1


@pytest.mark.parametrize("credentials", [{"client_secret": "wrong"}, {"private_key": "no key"}])
async def test_such_a_client_that_is_refused_says_why(town: Town, tmp_path: Path, credentials: dict[str, str]) -> None:
    town.auth.secret = SECRET
    async with house(tmp_path, alone(town, **credentials)) as one:
        with pytest.raises(McpSignInNeeded) as caught:
            await one.call(one.scope(), "docs", "read")
    assert CLIENT in str(caught.value) or "unknown client" in str(caught.value)
    assert town.opened == []
