"""The tokens of a process: what a link puts into its requests, and what it does when a server refuses one.

    no token, no sign-in yet           the request goes without; most servers want nothing
    401                                another token: refreshed once for all who wait (`io.oauth.keeper`), or one that a
                                       person has got meanwhile, in this process or another; and the request once more
    403 with `insufficient_scope`      a token that a person has got meanwhile, and the request once more; else what is
                                       wanted is noted, so that the next sign-in asks for it, too
    no other token                     `McpSignInNeeded`, which names the command

A refused request has not been begun, so each may be made again; `TRIES` times at most, since a server may refuse what
it gets for ever. No browser is opened here: a person signs in with `callboard auth login`, at any time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, final

import trio

from .....protocol.errors import OAuthRefused, SignInNeeded
from .....protocol.mcp.config import Server
from ....io.directories import state_dir
from ....io.oauth.endpoint import TokenEndpoint
from ....io.oauth.keeper import Keeper, Keepers
from ....io.oauth.token import Token
from .store import Login, Store

if TYPE_CHECKING:
    from .....supervisors.root import Root

TRIES = 2
"""Times that a refused request is made again with another token."""


def remedy(name: str) -> str:
    """What a person runs to sign in."""
    return f"callboard auth login mcp:{name}"


@final
class Access:
    """To one server. Shared by all its connections in this process.

    Attributes:
        name: of the server.
        why: why there is no token, where that is known better than the server says it.
        store, environ: what a sign-in needs.
        turn: held by the one who has a person sign in.
        signed_in_at: when one last did, by trio's clock.
        declined: whether it came to nothing: the person is not asked again.
    """

    def __init__(self, name: str, store: Store, keepers: Keepers, environ: Mapping[str, str]) -> None:
        self.name = name
        self.why = ""
        self.store = store
        self.environ = environ
        self.turn = trio.Lock()
        self.signed_in_at = -math.inf
        self.declined = False
        self._keepers = keepers
        self._login: Login | None = None
        self._keeper: Keeper | None = None
        self._looked = False

    async def token(self) -> Token | None:
        """The token for the next request; None to go without. No checkpoint if one is at hand.

        A token that can't be refreshed goes as it is: the server's answer says what follows.
        """
        if not self._looked:
            await self._look()
        return None if self._keeper is None else await self._of(self._keeper, None)

    async def another(self, refused: Token | None) -> Token | None:
        """A token that the server has not refused; None if only a person can get one."""
        await self._look()
        return None if self._keeper is None else await self._of(self._keeper, refused)

    async def wider(self, refused: Token | None, scopes: tuple[str, ...]) -> Token | None:
        """A token that may do more, since a person has signed in meanwhile; None if none has.

        Args:
            scopes: what the server wants; noted for the next sign-in.
        """
        await self._look()
        login, keeper = self._login, self._keeper
        if login is None or keeper is None:
            return None
        kept = await trio.to_thread.run_sync(self.store.token, login)
        if kept is not None and (refused is None or kept.mark != refused.mark):
            return await self._of(keeper, refused)
        async with self.store.tokens.locked():
            await trio.to_thread.run_sync(self.store.want, scopes)
        return None

    def admitted(self) -> None:
        """A person has just signed in."""
        self.signed_in_at = trio.current_time()
        self.declined = self._looked = False

    async def _look(self) -> None:
        """Read anew who has signed in."""
        self._looked = True
        login = await trio.to_thread.run_sync(self.store.read)
        if login is None:
            self._login = self._keeper = None
        elif self._login is None or login.server != self._login.server:
            from .http import GuardedAuthHttp

            endpoint = TokenEndpoint(login.server, GuardedAuthHttp(self.environ, private=login.private))
            who = f"MCP server '{self.name}'"
            self._keeper = self._keepers.keeper(endpoint, self.store.tokens, who=who, remedy=remedy(self.name))
        self._login = login

    async def _of(self, keeper: Keeper, refused: Token | None) -> Token | None:
        try:
            token = await (keeper.token() if refused is None else keeper.other_than(refused))
        except (SignInNeeded, OAuthRefused) as error:
            self.why = str(error)
            return None
        self.why = ""
        return token


@final
class Accesses:
    """Of a process, one for each server.

    Args:
        root: the actors of the tokens live below it.
        environ: says where tokens lie.
    """

    def __init__(self, root: Root, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._keepers = Keepers(root)
        self._known: dict[Path, Access] = {}

    def of(self, server: Server) -> Access | None:
        """For a server whose values are put in; None for one that has no use for tokens."""
        if server.sign_in is None:
            return None
        store = Store(folder(self._environ), server)
        return self._known.setdefault(store.path, Access(server.name, store, self._keepers, self._environ))


def folder(environ: Mapping[str, str]) -> Path:
    """Where tokens lie."""
    return state_dir(environ) / "oauth" / "mcp"
