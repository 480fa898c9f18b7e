"""What a sign-in leaves behind: a token (`TokenFile`), and beside it whose that is.

    oauth/mcp/https-mcp-example-com-mcp-4f1d….json          the token
    oauth/mcp/https-mcp-example-com-mcp-4f1d….json.login    the server it is for, and where it comes from

Both are named by the address of the server, and by the `account` of its entry. So a server that moves, or a name in
mcp.json that gets another address, has no token there. A run needs no discovery: what it refreshes a token with was
checked when a person signed in, and is not taken from a server since.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from .....protocol.decoding import json_decoder
from .....protocol.errors import ConfigError
from .....protocol.json_values import UNREADABLE
from .....protocol.mcp.config import OAuth, Server
from ....io.directories import private_directory
from ....io.oauth.server import AuthServer
from ....io.oauth.token import Token
from ....io.oauth.token_file import TokenFile
from ....io.whole_file import write_whole
from .metadata import canonical, union

MOST = 64 * 1024
"""Bytes of a file."""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in.

    Attributes:
        url: of the server, in its canonical form.
        server: who gave out the token, and as whom we asked; its `resource` is what the token is for.
        private: whether the authorization server may be at a private address: the server is, or the user has named it.
        wanted: scopes that the server has asked for since; the next sign-in asks for them, too.
    """

    url: str
    server: AuthServer
    private: bool = False
    wanted: tuple[str, ...] = ()
    version: int = 1

    def __repr__(self) -> str:
        """Without secrets."""
        return f"Login({self.url!r})"


class Store:
    """Of one server.

    Args:
        folder: of all servers.

    Its methods block. Those that change something belong under the lock of `tokens`.
    """

    def __init__(self, folder: Path, server: Server) -> None:
        account = server.oauth.account if isinstance(server.oauth, OAuth) else ""
        self.url = canonical(server.url)
        self.tokens = TokenFile(folder, f"{self.url} {account}".strip())
        self.path = self.tokens.path.with_name(f"{self.tokens.path.name}.login")

    def read(self) -> Login | None:
        """The sign-in; None if there is none, or it is of no use any more.

        Raises:
            ConfigError: the file can't be read.
        """
        try:
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
            return None  # a sign-in writes it anew
        return login if login.version == 1 and login.url == self.url else None

    def token(self, login: Login) -> Token | None:
        """The token of this sign-in. Raises as `read`."""
        return self.tokens.read(login.server)

    def write(self, login: Login) -> None:
        """Have the file hold this sign-in; its token goes to `tokens`.

        Raises:
            ConfigError: it could not be written.
        """
        try:
            private_directory(self.path.parent)
            write_whole(self.path, msgspec.json.encode(login), private=True)
        except OSError as error:
            raise ConfigError(f"the sign-in can't be kept in {self.path}: {error.strerror or error}") from error

    def want(self, scopes: tuple[str, ...]) -> None:
        """Note that the server wants these. Raises as `write`."""
        login = self.read()
        if login is not None and not set(scopes) <= {*login.wanted, *login.server.scopes}:
            self.write(msgspec.structs.replace(login, wanted=union(login.wanted, scopes)))

    def remove(self) -> bool:
        """Forget it; whether there was one.

        Raises:
            ConfigError: a file can't be removed.
        """
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path} can't be removed: {error.strerror or error}") from error
        return self.tokens.remove()


_decode = json_decoder(Login).decode
