"""Tokens of a process for MCP servers: their files, the token of each request, and the reaction to a refusal.

    no token, no sign-in yet           send the request without; most servers require none
    401                                get another token, refreshed once for all waiting requests (`TokenKeeper`)
                                       or from a sign-in meanwhile in any process; send the request again
    403 with `insufficient_scope`      get a token from a sign-in meanwhile and send the request again; otherwise store
                                       the scopes for the next sign-in
    no other token                     raise `McpSignInNeeded`, which names the command; with the grant
                                       `client_credentials` the client gets a token itself, once for all requests

A refused request has not been executed, so any request may be repeated. `TRIES` limits that, since a server may refuse
every token. No browser is opened here: the user signs in with `callboard auth login` at any time.

A sign-in has two files: the token (`TokenFile`), and the description of its origin.

    oauth/mcp/https-mcp-example-com-mcp-4f1d….json          the token
    oauth/mcp/https-mcp-example-com-mcp-4f1d….json.login    its server and authorization server

Both names derive from the server's address and the `account` of its entry. So a server that moves, or a name in
mcp.json that gets another address, has no token there. A run needs no discovery: the data for refreshing a token was
checked at sign-in and is not taken from a server afterwards.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec
import trio

from .....protocol.decoding import json_decoder
from .....protocol.errors import CallboardError, ConfigError, OAuthRefused, SignInNeeded
from .....protocol.json_values import UNREADABLE
from .....protocol.mcp.config import OAuth, Server
from ....io.atomic_write import write_whole
from ....io.directories import private_directory, state_dir
from ....io.oauth.authorization import AuthServer
from ....io.oauth.endpoint import TokenEndpoint
from ....io.oauth.token import Keepers, OAuthToken, TokenFile, TokenKeeper
from .metadata import canonical, union

if TYPE_CHECKING:
    from .....supervisors.root import Root
    from ....io.oauth.authorization import Authorization, Redirect


TRIES = 2
"""Repetitions of a refused request with another token."""


def remedy(name: str) -> str:
    """Return the command with which the user signs in."""
    return f"callboard auth login mcp:{name}"


@final
class ServerAccess:
    """Access tokens for one server, shared by all its connections in this process.

    Attributes:
        name: name of the server.
        why: reason for the missing token, if it is known better than from the server's answer.
        store, environ: needed for a sign-in.
        turn: lock held during a sign-in.
        signed_in_at: time of the last sign-in, by trio's clock.
        declined: True after a failed sign-in; the user is not asked again.
    """

    def __init__(self, server: Server, store: LoginStore, keepers: Keepers, environ: Mapping[str, str]) -> None:
        self.name: str = server.name
        self.why: str = ""
        self.store = store
        self.environ = environ
        self.turn: trio.Lock = trio.Lock()
        self.signed_in_at: float = -math.inf
        self.declined: bool = False
        self._server = server
        self._keepers = keepers
        self._login: StoredLogin | None = None
        self._keeper: TokenKeeper | None = None
        self._looked = False

    async def token(self) -> OAuthToken | None:
        """Return the token for the next request; None for no token. No checkpoint if a valid token is in memory.

        None also if the token has expired and only a user can get another (see `why`): the request is sent without a
        token, and the server's answer decides what happens next.

        Raises:
            UpstreamError: the token has expired, and the authorization server can't be reached.
            ConfigError: a file is unusable.
        """
        if not self._looked:
            await self._reload()
        return None if self._keeper is None else await self._of(self._keeper, None)

    async def another(self, refused: OAuthToken | None) -> OAuthToken | None:
        """Return a token that the server has not refused; None if only a user can get one (see `why`).

        The token comes from a sign-in meanwhile, from a refresh, or from the client's own credentials.

        Raises:
            UpstreamError: the authorization server can't be reached.
            ConfigError: a file is unusable.
        """
        # Another process may have signed in since the last request.
        await self._reload()
        token = None if self._keeper is None else await self._of(self._keeper, refused)
        return token or await self._by_itself(refused, ())

    async def wider(self, refused: OAuthToken | None, scopes: tuple[str, ...]) -> OAuthToken | None:
        """Return another token after a 403 for missing scopes; None if only a user can get one.

        The token comes from a sign-in meanwhile, or from the client's own credentials (`client_credentials`).

        Args:
            scopes: scopes that the server requires; stored for the next sign-in if there was none meanwhile.
        """
        await self._reload()
        login, keeper = self._login, self._keeper
        if login is None or keeper is None:
            return await self._by_itself(refused, scopes)
        token = await trio.to_thread.run_sync(self.store.token, login)
        if token is not None and (refused is None or token.mark != refused.mark):
            return await self._of(keeper, refused)
        # `want` reads and then writes the file, and another process may sign in at the same time.
        async with self.store.tokens.locked():
            await trio.to_thread.run_sync(self.store.want, scopes)
        return await self._by_itself(refused, scopes)

    async def _by_itself(self, refused: OAuthToken | None, scopes: tuple[str, ...]) -> OAuthToken | None:
        """Return a token from the client's own credentials; None if the entry has none or they fail (see `why`)."""
        oauth = self._server.sign_in
        if oauth is None or not oauth.by_itself:
            return None
        from .sign_in import sign_in

        began = trio.current_time()
        async with self.turn:
            if self.signed_in_at <= began:  # no other task has signed in during the wait for the lock
                try:
                    await sign_in(self._server, self.store, self.environ, _no_person, scopes=scopes)
                except CallboardError as error:
                    self.why = str(error)
                    return None
                self.admitted()
            await self._reload()
            return None if self._keeper is None else await self._of(self._keeper, refused)

    def admitted(self) -> None:
        """Record a successful sign-in: the next request reads the stored token."""
        self.signed_in_at = trio.current_time()
        self.declined = self._looked = False

    async def _reload(self) -> None:
        """Read the stored sign-in again."""
        self._looked = True
        login = await trio.to_thread.run_sync(self.store.read)
        if login is None:
            self._login = self._keeper = None
        elif self._login is None or login.server != self._login.server:
            from .discovery import GuardedAuthHttp

            # A new sign-in can have another authorization server, so the token keeper is replaced with it.
            endpoint = TokenEndpoint(login.server, GuardedAuthHttp(self.environ, private=login.private))
            who = f"MCP server '{self.name}'"
            self._keeper = self._keepers.keeper(endpoint, self.store.tokens, who=who, remedy=remedy(self.name))
        self._login = login

    async def _of(self, keeper: TokenKeeper, refused: OAuthToken | None) -> OAuthToken | None:
        try:
            token = await (keeper.token() if refused is None else keeper.other_than(refused))
        except (SignInNeeded, OAuthRefused) as error:
            self.why = str(error)
            return None
        self.why = ""
        return token


@final
class Accesses:
    """Token access of a process, one object per server.

    Args:
        root: the actors of the tokens run below it.
        environ: determines the directory of the tokens.
    """

    def __init__(self, root: Root, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._keepers = Keepers(root)
        self._known: dict[Path, ServerAccess] = {}

    def of(self, server: Server) -> ServerAccess | None:
        """Return the access for a server with resolved values; None for a server that uses no tokens.

        Servers with the same address and account have one object.
        """
        if server.sign_in is None:
            return None
        store = LoginStore(folder(self._environ), server)
        return self._known.setdefault(store.path, ServerAccess(server, store, self._keepers, self._environ))


async def _no_person(_request: Authorization, _redirect: Redirect) -> str:
    raise AssertionError("this grant needs no user")


def folder(environ: Mapping[str, str]) -> Path:
    """Return the directory of the sign-ins and tokens for MCP servers."""
    return state_dir(environ) / "oauth" / "mcp"


MAX_LOGIN_SIZE = 64 * 1024
"""Bytes of a file at most."""


class StoredLogin(msgspec.Struct, frozen=True, kw_only=True):
    """Stored sign-in.

    Attributes:
        url: canonical address of the server.
        server: authorization server and OAuth client; its `resource` is the resource of the token.
        private: True if the authorization server may have a private address: the MCP server has one, or the user names
            it.
        wanted: scopes that the server has required since; the next sign-in requests them too.
    """

    url: str
    server: AuthServer
    private: bool = False
    wanted: tuple[str, ...] = ()
    version: int = 1

    def __repr__(self) -> str:
        """Return a text without secrets."""
        return f"StoredLogin({self.url!r})"


class LoginStore:
    """Sign-in files of one server.

    Args:
        folder: directory of all servers.

    Its methods block. Call those that write, and `remove`, under the lock of `tokens`.
    """

    def __init__(self, folder: Path, server: Server) -> None:
        account = server.oauth.account if isinstance(server.oauth, OAuth) else ""
        self.url: str = canonical(server.url)
        self.tokens: TokenFile = TokenFile(folder, f"{self.url} {account}".strip())
        self.path: Path = self.tokens.path.with_name(f"{self.tokens.path.name}.login")

    def read(self) -> StoredLogin | None:
        """Return the sign-in; None if there is none, or it is no longer valid.

        Raises:
            ConfigError: the file can't be read, or belongs to another user.
        """
        try:
            # O_NOFOLLOW and O_NONBLOCK: another user may have put a link or a FIFO in a shared directory.
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as file:
                if os.fstat(handle).st_uid != os.geteuid():
                    raise ConfigError(f"{self.path} belongs to another user; remove it and sign in again")
                login = _decode(file.read(MAX_LOGIN_SIZE))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ConfigError(f"{self.path} can't be read: {error.strerror or error}") from error
        except UNREADABLE:
            return None  # the next sign-in overwrites it
        return login if login.version == 1 and login.url == self.url else None

    def token(self, login: StoredLogin) -> OAuthToken | None:
        """Return the token of this sign-in; None if there is none, or it is for another server or client.

        Raises as `read`.
        """
        return self.tokens.read(login.server)

    def write(self, login: StoredLogin) -> None:
        """Write this sign-in; its token is written through `tokens`.

        Raises:
            ConfigError: the file can't be written.
        """
        try:
            private_directory(self.path.parent)
            write_whole(self.path, msgspec.json.encode(login), private=True)
        except OSError as error:
            raise ConfigError(f"the sign-in can't be stored in {self.path}: {error.strerror or error}") from error

    def write_with_token(self, server: AuthServer, token: OAuthToken, *, private: bool) -> None:
        """Write a new sign-in and its token. Raises as `write`."""
        # The sign-in first, so that a reader of the token always finds its sign-in.
        self.write(StoredLogin(url=self.url, server=server, private=private))
        self.tokens.write(token, server)

    def want(self, scopes: tuple[str, ...]) -> None:
        """Store scopes that the server requires, which the next sign-in requests. Does nothing without a sign-in.

        Raises:
            ConfigError: the file can't be read or written.
        """
        login = self.read()
        if login is not None and not set(scopes) <= {*login.wanted, *login.server.scopes}:
            self.write(msgspec.structs.replace(login, wanted=union(login.wanted, scopes)))

    def remove(self) -> bool:
        """Remove the sign-in and its token; return True if there was a token.

        Raises:
            ConfigError: a file can't be removed.
        """
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path} can't be removed: {error.strerror or error}") from error
        return self.tokens.remove()


_decode = json_decoder(StoredLogin).decode
