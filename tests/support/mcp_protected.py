"""An MCP server over HTTP that wants tokens, and the authorization server that gives them out; both on loopback.

    servers = await serve_protected(nursery)
    entry = servers.entry()                                    # for mcp.json
    await sign_in(entry, servers.store(tmp_path), {}, servers.person)
    servers.metadata[path]["resource"] = "..."                 # what it publishes; `published`: of the other one

The MCP server is `Legacy` behind a gate; tools that need more scopes than others are in `needs`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from callboard.actors.io.oauth.authorization import Authorization, Redirect
from callboard.actors.work.mcp.auth.access import LoginStore, folder
from callboard.protocol.mcp.config import Server
from support.auth_server import CLIENT, LocalAuthServer, auth_server
from support.fake_mcp_http import INITIALIZED, SESSION, Answer, FakeMcp, Legacy, Talk, fake_mcp, result, said
from support.fake_models import Request
from support.waiting import PATIENCE

Json = Any
RESOURCE = "/.well-known/oauth-protected-resource"
OAUTH = "/.well-known/oauth-authorization-server"

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("read", "write", "delete")]


class ProtectedServers:
    """Both servers.

    Attributes:
        auth: gives out tokens; `published` is its metadata, `registers` how it answers registrations, `registered` what
            was asked of it there.
        server: the MCP server; its url is `/mcp` of `origin`.
        metadata: what the MCP server publishes, by path.
        challenge: what it says to those without a token; `{origin}` and `{scope}` are filled in.
        needs: the scopes that a tool needs.
        refuses: so many requests are answered with 401 whatever their token.
        tokens: that came with requests, in order; "" for none.
        opened: pages that the person was sent to.
    """

    auth: LocalAuthServer
    server: FakeMcp

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.metadata: dict[str, Json] = {}
        self.published: dict[str, Json] = {}
        self.challenge = 'Bearer resource_metadata="{origin}/.well-known/oauth-protected-resource/mcp"{scope}'
        self.scope = ""
        self.needs: dict[str, set[str]] = {}
        self.refuses = 0
        self.tokens: list[str] = []
        self.opened: list[str] = []
        self.registered: list[Json] = []
        self.registers: tuple[int, Json] = (201, {"client_id": CLIENT})
        self.inner: Answer = Legacy(self._tools)

    @property
    def origin(self) -> str:
        return self.server.origin

    def entry(self, **options: Any) -> Server:
        """For mcp.json."""
        return Server(**{"name": "docs", "type": "http", "url": self.server.url, "where": "mcp.json:1", **options})

    def store(self, directory: Path, **options: Any) -> LoginStore:
        """Where the sign-in is kept, if `XDG_STATE_HOME` is that directory."""
        return LoginStore(folder({"XDG_STATE_HOME": str(directory)}), self.entry(**options))

    async def person(self, request: Authorization, redirect: Redirect) -> str:
        """Says yes."""
        self.opened.append(request.url)
        self._nursery.start_soon(self.auth.browser, request.url)
        return await redirect.answer(request, PATIENCE)

    async def register(self, request: Request) -> tuple[int, Json]:
        """Dynamic registration."""
        self.registered.append(request.json)
        return self.registers

    async def publish(self, request: Request) -> tuple[int, Json]:
        """The authorization server's metadata."""
        return 200, self.published

    async def __call__(self, request: Request, talk: Talk) -> None:
        path = request.path
        if path in self.metadata:
            await talk.json(self.metadata[path])
        elif not path.startswith("/mcp"):
            await talk.whole(b"<html>nothing here</html>", 404, content_type="text/html")
        else:
            await self._gate(request, talk)

    async def _gate(self, request: Request, talk: Talk) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        self.tokens.append(token)
        scope = f', scope="{self.scope}"' if self.scope else ""
        if self.refuses or scheme != "Bearer" or not self.auth.is_good(token):
            self.refuses = max(0, self.refuses - 1)
            words = self.challenge.format(origin=self.origin, scope=scope)
            await talk.json({"error": "invalid_token"}, 401, **({"www_authenticate": words} if words else {}))
            return
        granted = {scope for grant in self.auth.grants if token in grant.access for scope in grant.scopes.split()}
        tool = request.json.get("params", {}).get("name", "") if request.method == "POST" else ""
        if lacking := self.needs.get(tool, set()) - granted:
            words = f'Bearer error="insufficient_scope", scope="{" ".join(sorted(lacking))}"'
            await talk.json({"error": "insufficient_scope"}, 403, www_authenticate=words)
            return
        if isinstance(self.inner, Legacy) and said(request) == "initialize":
            has_tools = {**INITIALIZED, "capabilities": {"tools": {}}}
            await talk.json(result(request, has_tools), mcp_session_id=SESSION)
            return
        await self.inner(request, talk)

    async def _tools(self, request: Request, talk: Talk) -> None:
        if request.json["method"] == "tools/list":
            await talk.json(result(request, {"tools": TOOLS}))
        elif request.json["method"] == "tools/call":
            text = f"{request.json['params']['name']}: done"
            await talk.json(result(request, {"content": [{"type": "text", "text": text}]}))
        else:
            await talk.json(result(request, {}))


async def serve_protected(nursery: trio.Nursery) -> ProtectedServers:
    """Start servers that follow the specification."""
    protected_servers = ProtectedServers(nursery)
    protected_servers.auth = auth = await auth_server(nursery)
    protected_servers.server = server = await fake_mcp(nursery, protected_servers)
    protected_servers.metadata[f"{RESOURCE}/mcp"] = {
        "resource": server.url,
        "authorization_servers": [auth.url],
        "scopes_supported": ["read"],
    }
    protected_servers.published = {
        "issuer": auth.url,
        "authorization_endpoint": f"{auth.url}/authorize",
        "token_endpoint": f"{auth.url}/token",
        "registration_endpoint": f"{auth.url}/register",
        "revocation_endpoint": f"{auth.url}/revoke",
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }
    auth.pages[OAUTH] = protected_servers.publish
    auth.pages["/register"] = protected_servers.register
    return protected_servers
