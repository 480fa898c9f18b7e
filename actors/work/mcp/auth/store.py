"""Files of a sign-in: the token (`TokenFile`), and a file that describes its origin.

    oauth/mcp/https-mcp-example-com-mcp-4f1d….json          the token
    oauth/mcp/https-mcp-example-com-mcp-4f1d….json.login    its server and authorization server

Both names derive from the server's address and the `account` of its entry. So a server that moves, or a name in
mcp.json that gets another address, has no token there. A run needs no discovery: the data for refreshing a token was
checked at sign-in and is not taken from a server afterwards.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from .....protocol.decoding import json_decoder
from .....protocol.errors import ConfigError
from .....protocol.json_values import UNREADABLE
from .....protocol.mcp.config import OAuth, Server
from ....io.atomic_write import write_whole
from ....io.directories import private_directory
from ....io.oauth.authorization import AuthServer
from ....io.oauth.token import OAuthToken, TokenFile
from .metadata import canonical, union

MOST = 64 * 1024
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

    Its methods block. Call `write`, `want` and `remove` under the lock of `tokens`.
    """

    def __init__(self, folder: Path, server: Server) -> None:
        account = server.oauth.account if isinstance(server.oauth, OAuth) else ""
        self.url: str = canonical(server.url)
        self.tokens: TokenFile = TokenFile(folder, f"{self.url} {account}".strip())
        self.path: Path = self.tokens.path.with_name(f"{self.tokens.path.name}.login")

    def read(self) -> StoredLogin | None:
        """Return the sign-in; None if there is none, or it is no longer valid.

        Raises:
            ConfigError: the file can't be read.
        """
        try:
            # O_NOFOLLOW and O_NONBLOCK: another user may have put a link or a FIFO in a shared directory.
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as file:
                if os.fstat(handle).st_uid != os.geteuid():
                    raise ConfigError(f"{self.path} belongs to another user; remove it and sign in again")
                login = _decode(file.read(MOST))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ConfigError(f"{self.path} can't be read: {error.strerror or error}") from error
        except UNREADABLE:
            return None  # the next sign-in overwrites it
        return login if login.version == 1 and login.url == self.url else None

    def token(self, login: StoredLogin) -> OAuthToken | None:
        """Return the token of this sign-in. Raises as `read`."""
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

    def want(self, scopes: tuple[str, ...]) -> None:
        """Store scopes that the server requires. Raises as `write`."""
        login = self.read()
        if login is not None and not set(scopes) <= {*login.wanted, *login.server.scopes}:
            self.write(msgspec.structs.replace(login, wanted=union(login.wanted, scopes)))

    def remove(self) -> bool:
        """Remove the sign-in and return True if there was one.

        Raises:
            ConfigError: a file can't be removed.
        """
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path} can't be removed: {error.strerror or error}") from error
        return self.tokens.remove()


_decode = json_decoder(StoredLogin).decode
