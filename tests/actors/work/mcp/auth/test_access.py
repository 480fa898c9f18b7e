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
from support.mcp_processes import McpProcesses
from support.mcp_protected import ProtectedServers, serve_protected
from support.messages import has_message, says

from callboard.actors.work.mcp.auth.access import TRIES
from callboard.actors.work.mcp.auth.sign_in import sign_in, sign_out
from callboard.protocol.errors import McpError, McpLost, McpSignInNeeded, McpUnauthorized
from callboard.protocol.mcp.config import OAuth
from callboard.supervisors import Root


@pytest.fixture
async def protected_servers(nursery: trio.Nursery) -> ProtectedServers:
    return await serve_protected(nursery)


@asynccontextmanager
async def mcp_processes(directory: Path, *servers: Any) -> AsyncIterator[McpProcesses]:
    """A process with these servers."""
    async with Root() as root:
        one = McpProcesses(root, directory)
        one.environ["XDG_STATE_HOME"] = str(directory)
        one.build(*servers)
        yield one


async def signed_in(protected_servers: ProtectedServers, directory: Path, **options: Any) -> None:
    await sign_in(
        protected_servers.entry(**options), protected_servers.store(directory, **options), {}, protected_servers.person
    )
    protected_servers.tokens.clear()


async def test_every_request_carries_the_token(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    await signed_in(protected_servers, tmp_path)
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        assert await one.call(one.scope(), "docs", "read") == "read: done"
    assert set(protected_servers.tokens) == protected_servers.auth.grants[0].access, "GET and DELETE among them"


async def test_without_a_sign_in_the_command_is_named(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        with pytest.raises(McpSignInNeeded) as caught:
            await one.call(one.scope(), "docs", "read")
    assert "answered initialize with HTTP 401" in str(caught.value)
    assert has_message(str(caught.value), "work.mcp.auth.access.remedy", name="docs")
    assert (caught.value.exit_code, caught.value.scopes) == (3, ())
    assert protected_servers.opened == []


async def test_who_signs_in_meanwhile_is_noticed(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        scope = one.scope()
        for _ in range(7):
            with pytest.raises(McpSignInNeeded), trio.fail_after(60):  # it has not failed, so it need not rest
                await one.call(scope, "docs", "read")
        await signed_in(protected_servers, tmp_path)
        assert await one.call(scope, "docs", "read") == "read: done"


async def test_a_token_that_expires_in_the_middle_is_refreshed_once_for_fifty_agents(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    await signed_in(protected_servers, tmp_path)
    done: list[str] = []
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        await one.call(one.scope(), "docs", "read")
        protected_servers.auth.expire_all()
        protected_servers.auth.delay = 0.1

        async def agent(number: int) -> None:
            done.append(await one.call(one.scope(f"/agent-{number}"), "docs", "read"))

        async with trio.open_nursery() as agents:
            for number in range(50):
                agents.start_soon(agent, number)
    assert (len(done), protected_servers.auth.refreshes, len(protected_servers.opened)) == (50, 1, 1)


async def test_a_token_near_its_end_is_refreshed_before_it_is_refused(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    protected_servers.auth.lifetime = 0.0
    await signed_in(protected_servers, tmp_path)
    protected_servers.auth.lifetime = 3600.0
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        await one.call(one.scope(), "docs", "read")
    assert protected_servers.auth.refreshes == 1
    assert len(set(protected_servers.tokens)) == 1


async def test_a_revoked_token_says_so_and_is_not_refreshed_for_ever(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    await signed_in(protected_servers, tmp_path)
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        scope = one.scope()
        await one.call(scope, "docs", "read")
        protected_servers.auth.revoke_all()
        for _ in range(3):
            with pytest.raises(McpSignInNeeded, match=r"revoked.*sign in: callboard auth login mcp:docs"):
                await one.call(scope, "docs", "read")
        assert protected_servers.auth.refreshes == 1
        await signed_in(protected_servers, tmp_path)
        assert await one.call(scope, "docs", "read") == "read: done", "on the same connection"


async def test_a_server_that_refuses_whatever_it_gets_is_not_asked_for_ever(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    await signed_in(protected_servers, tmp_path)
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        scope = one.scope()
        await one.call(scope, "docs", "read")
        protected_servers.tokens.clear()
        protected_servers.refuses = 1000
        with pytest.raises(McpSignInNeeded):
            await one.call(scope, "docs", "read")
    assert len(protected_servers.tokens) <= TRIES + 3
    assert protected_servers.auth.refreshes <= TRIES


async def test_an_authorization_server_that_is_down_is_no_reason_to_sign_in(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    await signed_in(protected_servers, tmp_path)
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        scope = one.scope()
        await one.call(scope, "docs", "read")
        protected_servers.auth.expire_all()
        protected_servers.auth.fails = 99
        with pytest.raises(
            McpError, match=says("work.mcp.links.http.HttpServerAccess._token", who="MCP server 'docs'", error="…503…")
        ) as caught:
            await one.call(scope, "docs", "read")
        assert not isinstance(caught.value, McpUnauthorized | McpLost)


# --- more scopes


async def test_what_a_tool_needs_more_is_named_and_asked_for_next_time(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    protected_servers.needs = {"write": {"files:write"}}
    await signed_in(protected_servers, tmp_path)
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        scope = one.scope()
        assert await one.call(scope, "docs", "read") == "read: done"
        with pytest.raises(
            McpSignInNeeded, match=says("work.mcp.links.texts._unauthorized", named=" (files:write)")
        ) as caught:
            await one.call(scope, "docs", "write")
        assert caught.value.scopes == ("files:write",)
        assert protected_servers.auth.refreshes == 0, "a refresh can't widen a token"
        await signed_in(protected_servers, tmp_path)
        assert "scope=read+files%3Awrite" in protected_servers.opened[-1]
        assert await one.call(scope, "docs", "write") == "write: done", "the running process has noticed"
        assert await one.call(scope, "docs", "read") == "read: done"


async def test_a_refusal_for_other_reasons_is_no_matter_of_scopes(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    async def forbidden(request: Request, talk: Talk) -> None:
        await talk.json({"error": "not yours"}, 403)

    protected_servers.inner = forbidden
    await signed_in(protected_servers, tmp_path)
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        with pytest.raises(McpUnauthorized, match=says("work.mcp.links.texts._unauthorized.2")) as caught:
            await one.call(one.scope(), "docs", "read")
    assert not isinstance(caught.value, McpSignInNeeded)


# --- whose token it is


async def test_another_address_under_the_same_name_gets_no_token(
    protected_servers: ProtectedServers, tmp_path: Path, nursery: trio.Nursery
) -> None:
    await signed_in(protected_servers, tmp_path)
    other = await fake_mcp(nursery, protected_servers)
    async with mcp_processes(tmp_path, protected_servers.entry(url=other.url)) as one:
        with pytest.raises(McpSignInNeeded):
            await one.call(one.scope(), "docs", "read")
    assert all("authorization" not in request.headers for request in other.requests)


async def test_another_path_of_the_same_host_gets_no_token(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    await signed_in(protected_servers, tmp_path)
    async with mcp_processes(tmp_path, protected_servers.entry(url=f"{protected_servers.origin}/mcp2")) as one:
        with pytest.raises(McpSignInNeeded):
            await one.call(one.scope(), "docs", "read")
    assert set(protected_servers.tokens) == {""}


async def test_no_redirect_takes_the_token_elsewhere(
    protected_servers: ProtectedServers, tmp_path: Path, nursery: trio.Nursery
) -> None:
    await signed_in(protected_servers, tmp_path)
    thief = await fake_mcp(nursery, protected_servers)

    async def moved(request: Request, talk: Talk) -> None:
        await talk.whole(b"", 307, location=thief.url)

    protected_servers.inner = moved
    protected_servers.server.answer = moved
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        with pytest.raises(McpError, match=says("work.mcp.links.texts.refusal.4")):
            await one.call(one.scope(), "docs", "read")
    assert thief.requests == []


async def test_no_redirect_takes_a_refresh_token_elsewhere(
    protected_servers: ProtectedServers, tmp_path: Path, nursery: trio.Nursery
) -> None:
    await signed_in(protected_servers, tmp_path)
    thief = await fake_mcp(nursery, protected_servers)

    async def moved(request: Request) -> tuple[int, Any]:
        return 307, {"location": thief.url}

    protected_servers.auth.pages["/token"] = moved
    protected_servers.auth.expire_all()
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        with pytest.raises(McpError):
            await one.call(one.scope(), "docs", "read")
    assert thief.requests == []


async def test_who_brings_a_server_along_gets_none_of_the_user_s_tokens(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    await signed_in(protected_servers, tmp_path)
    async with mcp_processes(tmp_path) as one:
        with one.scope() as scope:
            scope.bring(protected_servers.entry())
            with pytest.raises(McpUnauthorized) as caught:
                await one.call(scope, "docs", "read")
    assert set(protected_servers.tokens) == {""}
    assert not isinstance(caught.value, McpSignInNeeded)


async def test_a_header_given_by_hand_wins(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    await signed_in(protected_servers, tmp_path)
    async with mcp_processes(tmp_path, protected_servers.entry(headers={"Authorization": "Bearer mine"})) as one:
        with pytest.raises(
            McpUnauthorized, match=says("work.mcp.links.texts._credentials", given="Authorization")
        ) as caught:
            await one.call(one.scope(), "docs", "read")
    assert set(protected_servers.tokens) == {"mine"}
    assert not isinstance(caught.value, McpSignInNeeded)


async def test_oauth_that_is_turned_off_is_off(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    await signed_in(protected_servers, tmp_path)
    async with mcp_processes(tmp_path, protected_servers.entry(oauth=False)) as one:
        with pytest.raises(McpUnauthorized, match=says("work.mcp.links.texts._credentials.2")):
            await one.call(one.scope(), "docs", "read")
    assert set(protected_servers.tokens) == {""}


async def test_two_accounts_are_two_servers(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    work, home = OAuth(account="work"), OAuth(account="home")
    await signed_in(protected_servers, tmp_path, oauth=work)
    await signed_in(protected_servers, tmp_path, oauth=home)
    entries = [protected_servers.entry(name="work", oauth=work), protected_servers.entry(name="home", oauth=home)]
    async with mcp_processes(tmp_path, *entries) as one:
        scope = one.scope()
        await one.call(scope, "work", "read")
        first = set(protected_servers.tokens)
        protected_servers.tokens.clear()
        await one.call(scope, "home", "read")
        assert (first, {token for token in protected_servers.tokens if token not in first}) == (
            protected_servers.auth.grants[0].access,
            protected_servers.auth.grants[1].access,
        )


async def test_after_signing_out_the_next_process_has_none(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    await signed_in(protected_servers, tmp_path)
    await sign_out(protected_servers.store(tmp_path), {})
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        with pytest.raises(McpSignInNeeded):
            await one.call(one.scope(), "docs", "read")
    assert set(protected_servers.tokens) == {""}


async def test_files_that_others_could_have_written_are_not_used(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    await signed_in(protected_servers, tmp_path)
    store = protected_servers.store(tmp_path)
    store.tokens.path.chmod(0o644)
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        with pytest.raises(McpError, match=says("io.oauth.token.TokenFile._bytes.4")):
            await one.call(one.scope(), "docs", "read")
    assert set(protected_servers.tokens) <= {""}


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\x00", b'{"version": 9}'])
async def test_a_damaged_sign_in_counts_as_none(
    protected_servers: ProtectedServers, tmp_path: Path, damage: bytes
) -> None:
    await signed_in(protected_servers, tmp_path)
    protected_servers.store(tmp_path).path.write_bytes(damage)
    async with mcp_processes(tmp_path, protected_servers.entry()) as one:
        with pytest.raises(McpSignInNeeded):
            await one.call(one.scope(), "docs", "read")


async def test_a_server_of_the_older_transport_gets_tokens_too(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    await signed_in(protected_servers, tmp_path)
    protected_servers.inner = Stream()
    protected_servers.server.answer = protected_servers._gate
    async with mcp_processes(tmp_path, protected_servers.entry(type="sse")) as one:
        with trio.fail_after(60), pytest.raises(KeyError):  # it echoes, and gives no result of a tool
            await one.call(one.scope(), "docs", "read")
    assert protected_servers.tokens.count("") == 0
    assert len(protected_servers.tokens) >= 3, "the stream, and what is said to it"


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


def alone(protected_servers: ProtectedServers, **credentials: str) -> Any:
    return protected_servers.entry(oauth=OAuth(client_id=CLIENT, grant_type="client_credentials", **credentials))


@pytest.mark.parametrize("kind", ["secret", "EC", "RSA", "Ed25519"])
async def test_a_client_with_credentials_of_its_own_signs_in_without_a_person(
    protected_servers: ProtectedServers, tmp_path: Path, kind: str
) -> None:
    if kind == "secret":
        protected_servers.auth.secret = SECRET
        entry = alone(protected_servers, client_secret=SECRET)
    else:
        private, protected_servers.auth.public_key = private_and_public(kind)
        entry = alone(protected_servers, private_key=private)
    async with mcp_processes(tmp_path, entry) as one:
        scope = one.scope()
        assert await one.call(scope, "docs", "read") == "read: done"
        assert protected_servers.auth.asked_for("client_credentials") == 1
        protected_servers.auth.expire_all()
        assert await one.call(scope, "docs", "read") == "read: done"
        assert protected_servers.auth.asked_for("client_credentials") == 2
        protected_servers.needs["write"] = {"write"}
        assert await one.call(scope, "docs", "write") == "write: done"
    assert protected_servers.opened == []
    assert not any(b"PRIVATE KEY" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


async def test_many_calls_of_such_a_client_sign_in_once(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    protected_servers.auth.secret = SECRET
    async with mcp_processes(tmp_path, alone(protected_servers, client_secret=SECRET)) as one:
        scope = one.scope()
        async with trio.open_nursery() as calls:
            for _ in range(10):
                calls.start_soon(one.call, scope, "docs", "read")
    assert protected_servers.auth.asked_for("client_credentials") == 1


@pytest.mark.parametrize("credentials", [{"client_secret": "wrong"}, {"private_key": "no key"}])
async def test_such_a_client_that_is_refused_says_why(
    protected_servers: ProtectedServers, tmp_path: Path, credentials: dict[str, str]
) -> None:
    protected_servers.auth.secret = SECRET
    async with mcp_processes(tmp_path, alone(protected_servers, **credentials)) as one:
        with pytest.raises(McpSignInNeeded) as caught:
            await one.call(one.scope(), "docs", "read")
    assert CLIENT in str(caught.value) or "unknown client" in str(caught.value)
    assert protected_servers.opened == []
