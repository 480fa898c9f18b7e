"""A person signs in to an MCP server: what is asked of whom, and what is left on disk."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import trio
from support.auth_server import CLIENT, SECRET
from support.fake_mcp_http import Talk
from support.fake_models import Request
from support.mcp_protected import OAUTH, RESOURCE, ProtectedServers, serve_protected
from support.messages import fragment, says
from support.ports import reserved_port
from support.waiting import PATIENCE

from callboard.actors.work.mcp.auth.sign_in import probe, sign_in, sign_out
from callboard.protocol.errors import ConfigError, McpLost, NobodyToAsk, OAuthRefused, UsageError
from callboard.protocol.mcp.config import OAuth


@pytest.fixture
async def protected_servers(nursery: trio.Nursery) -> ProtectedServers:
    return await serve_protected(nursery)


def asked(protected_servers: ProtectedServers) -> dict[str, str]:
    """What the last page that was opened is asked."""
    return dict(parse_qsl(urlsplit(protected_servers.opened[-1]).query))


async def test_from_the_address_alone_to_a_token(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    store = protected_servers.store(tmp_path)
    token = await sign_in(protected_servers.entry(), store, {}, protected_servers.person)
    assert protected_servers.auth.is_good(token.access_token)
    (registration,) = protected_servers.registered
    assert registration["redirect_uris"] == [asked(protected_servers)["redirect_uri"]]
    assert (registration["token_endpoint_auth_method"], registration["application_type"]) == ("none", "native")
    assert {
        name: asked(protected_servers)[name] for name in ("client_id", "resource", "scope", "code_challenge_method")
    } == {
        "client_id": CLIENT,
        "resource": protected_servers.server.url,
        "scope": "read",
        "code_challenge_method": "S256",
    }
    exchange = next(
        protected_servers.auth.fields(each) for each in protected_servers.auth.requests if each.path == "/token"
    )
    assert exchange["resource"] == protected_servers.server.url
    login = store.read()
    assert login is not None
    assert (login.url, login.server.issuer, login.private) == (
        protected_servers.server.url,
        protected_servers.auth.url,
        True,
    )
    assert store.token(login) == token
    for file in (store.path, store.tokens.path):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_the_challenge_says_which_scopes_are_needed(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    protected_servers.scope = "read files:read"
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    assert asked(protected_servers)["scope"] == "read files:read"


@pytest.mark.parametrize(("kind", "method"), [("http", "POST"), ("sse", "GET")])
async def test_a_server_is_asked_what_it_wants_in_its_own_way(
    protected_servers: ProtectedServers, tmp_path: Path, kind: str, method: str
) -> None:
    protected_servers.scope = "from-the-challenge"
    await sign_in(protected_servers.entry(type=kind), protected_servers.store(tmp_path), {}, protected_servers.person)
    assert protected_servers.server.requests[0].method == method
    assert asked(protected_servers)["scope"] == "from-the-challenge"


async def test_a_server_that_hangs_up_after_its_challenge(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    async def hangs_up(request: Request, talk: Talk) -> None:
        if request.path in protected_servers.metadata:
            await protected_servers(request, talk)
            return
        await talk.whole(b"", 401, connection="close")
        talk.done = False

    protected_servers.server.answer = hangs_up
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    login = protected_servers.store(tmp_path).read()
    assert login is not None
    assert login.private


async def test_through_a_proxy_it_is_not_known_where_a_server_is(protected_servers: ProtectedServers) -> None:
    assert (await probe(protected_servers.entry(), {})).private
    through = {"http_proxy": protected_servers.origin}
    assert not (await probe(protected_servers.entry(url="http://mcp.example/mcp"), through)).private


async def test_the_entry_wins(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    protected_servers.auth.secret = SECRET
    oauth = OAuth(client_id=CLIENT, client_secret=SECRET, scopes=("mine",), account="work")
    await sign_in(
        protected_servers.entry(oauth=oauth),
        protected_servers.store(tmp_path, oauth=oauth),
        {},
        protected_servers.person,
    )
    assert (asked(protected_servers)["scope"], protected_servers.registered) == ("mine", [])
    assert protected_servers.store(tmp_path).read() is None, "another account"


async def test_a_document_that_describes_us_needs_no_registration(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    protected_servers.published["client_id_metadata_document_supported"] = True
    document = "https://me.example/callboard.json"
    oauth = OAuth(client_metadata_url=document)

    async def person(request: Any, redirect: Any) -> str:
        protected_servers.opened.append(request.url)
        raise NobodyToAsk("enough")

    with pytest.raises(NobodyToAsk):
        await sign_in(protected_servers.entry(oauth=oauth), protected_servers.store(tmp_path), {}, person)
    assert (asked(protected_servers)["client_id"], protected_servers.registered) == (document, [])


async def test_a_registered_secret_goes_where_the_server_wants_it(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    protected_servers.auth.secret = SECRET
    protected_servers.registers = (
        201,
        {
            "client_id": CLIENT,
            "client_secret": SECRET,
            "token_endpoint_auth_method": "client_secret_basic",
        },
    )
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    (exchange,) = [each for each in protected_servers.auth.requests if each.path == "/token"]
    assert exchange.headers["authorization"].startswith("Basic ")
    assert "client_secret" not in protected_servers.auth.fields(exchange)


async def test_the_next_sign_in_asks_for_what_was_granted_and_what_was_wanted_since(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    store = protected_servers.store(tmp_path)
    await sign_in(protected_servers.entry(), store, {}, protected_servers.person, scopes=("extra",))
    store.want(("files:write", "read"))
    await sign_in(protected_servers.entry(), store, {}, protected_servers.person)
    assert asked(protected_servers)["scope"] == "read extra files:write"
    login = store.read()
    assert login is not None
    assert (login.wanted, login.server.scopes) == ((), ("read", "extra", "files:write"))


async def test_refresh_tokens_are_asked_for_where_that_is_a_scope(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    protected_servers.published["scopes_supported"] = ["read", "offline_access"]
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    assert (asked(protected_servers)["scope"], asked(protected_servers)["prompt"]) == ("read offline_access", "consent")


@pytest.mark.parametrize(("port", "uri"), [(0, ""), (1, "")])
async def test_the_redirect_address_is_the_registered_one(
    protected_servers: ProtectedServers, tmp_path: Path, port: int, uri: str
) -> None:
    with reserved_port("127.0.0.1", "::1") as number:
        where = f"http://localhost:{number}/callback"
        oauth = OAuth(client_id=CLIENT, **({"callback_port": number} if port else {"redirect_uri": where}))
        await sign_in(
            protected_servers.entry(oauth=oauth), protected_servers.store(tmp_path), {}, protected_servers.person
        )
    assert asked(protected_servers)["redirect_uri"] == where


async def test_signing_out_forgets_and_revokes(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    store = protected_servers.store(tmp_path)
    token = await sign_in(protected_servers.entry(), store, {}, protected_servers.person)
    assert await sign_out(store, {}) == (True, "")
    assert not protected_servers.auth.is_good(token.access_token)
    assert store.read() is None
    assert await sign_out(store, {}) == (False, "")


async def test_what_can_t_be_revoked_or_read_is_forgotten_all_the_same(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    store = protected_servers.store(tmp_path)
    await sign_in(protected_servers.entry(), store, {}, protected_servers.person)

    async def down(request: Any) -> tuple[int, Any]:
        return 503, {}

    protected_servers.auth.pages["/revoke"] = down
    there, why = await sign_out(store, {})
    assert there
    assert "503" in why
    await sign_in(protected_servers.entry(), store, {}, protected_servers.person)
    store.tokens.path.chmod(0o644)
    assert await sign_out(store, {}) == (True, "")
    assert not store.tokens.path.exists()


# --- servers that are not as the specification has it


async def test_metadata_at_the_root_will_do_without_a_challenge(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    protected_servers.challenge = ""
    protected_servers.metadata[RESOURCE] = {
        **protected_servers.metadata.pop(f"{RESOURCE}/mcp"),
        "resource": protected_servers.origin,
    }
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    assert asked(protected_servers)["resource"] == protected_servers.origin, "as it writes it"


async def test_metadata_at_the_root_about_another_server_does_not_count(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    protected_servers.challenge = ""
    protected_servers.metadata[RESOURCE] = {
        **protected_servers.metadata.pop(f"{RESOURCE}/mcp"),
        "resource": f"{protected_servers.origin}/other",
    }
    with pytest.raises(
        ConfigError, match=says("work.mcp.auth.metadata.checked_resource", resource="…/other'", url="…/mcp")
    ):
        await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)


async def test_a_server_of_the_first_revision_is_its_own_authorization_server(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    protected_servers.challenge = "Bearer"
    protected_servers.metadata.clear()
    protected_servers.metadata[OAUTH] = {**protected_servers.published, "issuer": protected_servers.origin}
    protected_servers.auth.names_issuer = False
    protected_servers.metadata[OAUTH].pop("authorization_response_iss_parameter_supported")
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    assert asked(protected_servers)["resource"] == protected_servers.server.url


async def test_the_user_may_say_where_the_authorization_server_is(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    protected_servers.metadata.clear()
    oauth = OAuth(auth_server_metadata_url=f"{protected_servers.auth.url}{OAUTH}")
    await sign_in(
        protected_servers.entry(oauth=oauth),
        protected_servers.store(tmp_path, oauth=oauth),
        {},
        protected_servers.person,
    )


async def test_one_slash_at_the_end_of_an_issuer_makes_no_other_of_it(
    protected_servers: ProtectedServers, tmp_path: Path
) -> None:
    protected_servers.metadata[f"{RESOURCE}/mcp"]["authorization_servers"] = [f"{protected_servers.auth.url}/"]
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)


async def test_the_second_authorization_server_will_do(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    protected_servers.metadata[f"{RESOURCE}/mcp"]["authorization_servers"] = [
        protected_servers.origin,
        protected_servers.auth.url,
    ]
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)


async def test_a_server_that_wants_no_sign_in(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    protected_servers.metadata.clear()
    with pytest.raises(ConfigError, match=says("work.mcp.auth.sign_in.sign_in")):
        await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)


async def test_no_registration(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    del protected_servers.published["registration_endpoint"]
    with pytest.raises(ConfigError, match=says("work.mcp.auth.sign_in.registered", redirect_uri="http://127…")):
        await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((400, {"error": "invalid_redirect_uri", "error_description": "no loopback"}), "'no loopback'"),
        ((403, {}), "HTTP 403"),
        ((201, {"client_id": 3}), says("work.mcp.auth.sign_in.registered.3")),
        ((201, {"client_id": ""}), says("work.mcp.auth.sign_in._usable.3")),
        ((201, {"client_id": "x", "token_endpoint_auth_method": "private_key_jwt"}), "private_key_jwt"),
        (
            (201, {"client_id": "x", "token_endpoint_auth_method": "client_secret_post"}),
            says("work.mcp.auth.sign_in._usable.2"),
        ),
    ],
)
async def test_a_registration_that_is_of_no_use(
    protected_servers: ProtectedServers, tmp_path: Path, answer: tuple[int, Any], why: str
) -> None:
    protected_servers.registers = answer
    with pytest.raises(ConfigError, match=why):
        await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    assert protected_servers.opened == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"oauth": False}, says("work.mcp.auth.sign_in._settings.2")),
        ({"headers": {"authorization": "Bearer x"}}, says("work.mcp.auth.sign_in._settings.3")),
        ({"type": "stdio", "command": "x"}, says("work.mcp.auth.sign_in._settings")),
    ],
)
async def test_entries_that_are_not_signed_in_to(
    protected_servers: ProtectedServers, tmp_path: Path, options: Any, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        await sign_in(
            protected_servers.entry(**options), protected_servers.store(tmp_path), {}, protected_servers.person
        )


async def test_a_person_who_says_no(protected_servers: ProtectedServers, tmp_path: Path, nursery: trio.Nursery) -> None:
    async def person(request: Any, redirect: Any) -> str:
        nursery.start_soon(protected_servers.auth.browser, request.url, "access_denied")
        code: str = await redirect.answer(request, PATIENCE)
        return code

    with pytest.raises(OAuthRefused, match=r"MCP server 'docs'.*said no"):
        await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, person)
    assert protected_servers.store(tmp_path).read() is None


async def test_a_server_that_is_not_there(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    with pytest.raises(McpLost, match=says("io.http.transport.Connections._connected")):
        await sign_in(
            protected_servers.entry(url="http://127.0.0.1:1/mcp"),
            protected_servers.store(tmp_path),
            {},
            protected_servers.person,
        )


# --- hostile ones


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"resource": "https://bank.example/api"},
            says("work.mcp.auth.metadata.checked_resource", resource="'https://bank.example/api'"),
        ),
        ({"resource": "{origin}/mcp/deeper"}, "deeper"),
        ({"resource": "{origin}/mc"}, "/mc'"),
        ({"resource": "{origin}/mcp#x"}, "#x"),
        ({"resource": "http://user@{netloc}/mcp"}, "user@"),
        ({"resource": "nonsense"}, "nonsense"),
        ({"authorization_servers": ["http://auth.example"]}, fragment("work.mcp.auth.metadata.safe_address.3")),
        ({"authorization_servers": ["javascript:alert(1)"]}, fragment("work.mcp.auth.metadata.safe_address")),
        ({"authorization_servers": ["file:///etc/passwd"]}, fragment("work.mcp.auth.metadata.safe_address")),
    ],
)
async def test_a_server_that_wants_a_token_for_another(
    protected_servers: ProtectedServers, tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    netloc = protected_servers.origin.removeprefix("http://")
    text = json.dumps(changes).replace("{origin}", protected_servers.origin).replace("{netloc}", netloc)
    protected_servers.metadata[f"{RESOURCE}/mcp"] |= json.loads(text)
    with pytest.raises(ConfigError, match=why):
        await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    assert (protected_servers.opened, protected_servers.registered) == ([], [])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"issuer": "https://accounts.example"},
            says("work.mcp.auth.metadata.checked_issuer", issuer_2="'https://accounts.example'"),
        ),
        (
            {"authorization_endpoint": "http://auth.example/authorize"},
            fragment("work.mcp.auth.metadata.safe_address.3"),
        ),
        ({"authorization_endpoint": "https://x/a\nb"}, fragment("work.mcp.auth.metadata.safe_address")),
        ({"authorization_endpoint": 'https://x/$(calc)"'}, fragment("work.mcp.auth.metadata.safe_address")),
        ({"authorization_endpoint": "calc.exe"}, fragment("work.mcp.auth.metadata.safe_address")),
        ({"authorization_endpoint": None}, "publishes no `authorization_endpoint`"),
        ({"token_endpoint": "http://10.0.0.1/token"}, fragment("work.mcp.auth.metadata.safe_address.3")),
        ({"token_endpoint": "https://me:pw@auth.example/token"}, says("work.mcp.auth.metadata.safe_address.2")),
        ({"registration_endpoint": "ftp://auth.example"}, says("work.mcp.auth.metadata.safe_address.3")),
        ({"code_challenge_methods_supported": None}, says("work.mcp.auth.metadata.checked_endpoints.3")),
        ({"code_challenge_methods_supported": ["plain"]}, says("work.mcp.auth.metadata.checked_endpoints.4")),
        ({"token_endpoint": 7}, says("work.mcp.auth.discovery._Search._issuer.2")),
    ],
)
async def test_an_authorization_server_that_is_not_to_be_used(
    protected_servers: ProtectedServers, tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    protected_servers.published |= changes
    with pytest.raises(ConfigError, match=why):
        await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    assert (protected_servers.opened, protected_servers.registered) == ([], [])


async def test_an_answer_from_another_issuer_gets_no_code(
    protected_servers: ProtectedServers, tmp_path: Path, nursery: trio.Nursery
) -> None:
    async def person(request: Any, redirect: Any) -> str:
        honest, protected_servers.auth.url = protected_servers.auth.url, "https://evil.example"
        nursery.start_soon(protected_servers.auth.browser, request.url)
        try:
            code: str = await redirect.answer(request, PATIENCE)
        finally:
            protected_servers.auth.url = honest
        return code

    with pytest.raises(
        OAuthRefused, match=says("io.oauth.authorization.Authorization.code_of.2", said="from 'https://evil.example'")
    ):
        await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, person)
    assert protected_servers.auth.asked_for("authorization_code") == 0


async def test_pkce_may_be_known_by_the_user(protected_servers: ProtectedServers, tmp_path: Path) -> None:
    del protected_servers.published["code_challenge_methods_supported"]
    oauth = OAuth(assume_pkce=True)
    await sign_in(protected_servers.entry(oauth=oauth), protected_servers.store(tmp_path), {}, protected_servers.person)
    assert asked(protected_servers)["code_challenge_method"] == "S256"
