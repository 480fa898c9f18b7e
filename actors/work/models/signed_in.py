"""Clients whose requests carry a token that a person has signed in for (`auth: oauth`).

    clients:
      - type: gemini
        auth: oauth
        oauth: {client_id: ..., client_secret: ...}

`io.oauth` keeps the token good; here it becomes a header. A request that is refused all the same (401) is sent once
more, with another token. The addresses are those of the client's entry, or of its type. `client_id` always comes from
the user: it is the name under which a provider knows a program, and callboard is registered with none, nor takes that
of another program.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from ....protocol.errors import ConfigError, CredentialsError, KeyRefused, SignInNeeded, UsageError
from ....protocol.problems import did_you_mean
from ....protocol.settings import ClientSettings, Settings
from ....protocol.settings.model import OAuthSettings
from ....supervisors import Root
from ...io.directories import state_dir
from ...io.oauth.endpoint import TokenEndpoint
from ...io.oauth.http import AuthHttp
from ...io.oauth.keeper import Keeper, Keepers
from ...io.oauth.server import LOOPBACK, AuthServer
from ...io.oauth.token import Token
from ...io.oauth.token_file import TokenFile
from .providers import signs_in

T = TypeVar("T")

_OF_TYPES: Mapping[str, OAuthSettings] = {
    "gemini": OAuthSettings(
        authorization_url="https://accounts.google.com/o/oauth2/v2/auth",
        token_url="https://oauth2.googleapis.com/token",  # noqa: S106 - a URL
        revocation_url="https://oauth2.googleapis.com/revoke",
        issuer="https://accounts.google.com",
        scopes=(
            "https://www.googleapis.com/auth/generative-language.peruserquota",
            "https://www.googleapis.com/auth/generative-language.retriever",
        ),
        params={"access_type": "offline", "prompt": "consent"},  # without these there is no refresh token
    ),
}
"""What the entry of a client need not say."""


def client_to_sign_in(name: str | None, settings: Settings) -> ClientSettings:
    """The client of that name, or the only one that people sign in for.

    Raises:
        UsageError: there is no client of that name, or several and none is named.
        ConfigError: it is not one that people sign in for.
    """
    can = [client for client in settings.clients if signs_in(client)]
    there_are = f"there are: {', '.join(client.name for client in can)}" if can else "none of it has `auth: oauth`"
    if name is None:
        if len(can) == 1:
            return can[0]
        raise UsageError(f"name the client of {settings.file} to sign in to; {there_are}")
    client = next((each for each in settings.clients if each.name == name), None)
    if client is None:
        hint = did_you_mean(name, [each.name for each in can]) or there_are
        raise UsageError(f"there is no client '{name}' in {settings.file}; {hint}")
    if not signs_in(client):
        raise ConfigError(f"client '{name}' in {settings.file} has no `auth: oauth`: it is asked with a key")
    return client


def auth_server_of(client: ClientSettings, file: str) -> AuthServer:
    """Who gives out the tokens of a client.

    Args:
        file: where the client stands, for the errors.

    Raises:
        ConfigError: its entry lacks something; the text says what.
    """
    own, usual = client.oauth or OAuthSettings(), _OF_TYPES.get(client.type, OAuthSettings())
    lacking = [name for name in ("client_id", "token_url") if not (getattr(own, name) or getattr(usual, name))]
    if lacking:
        named = " and ".join(f"`oauth.{name}`" for name in lacking)
        raise ConfigError(f"client '{client.name}' in {file} has `auth: oauth` and no {named}: see docs/providers.md")
    moved = bool(own.token_url)  # at another server, nothing of the usual one holds
    base = OAuthSettings() if moved else usual
    return AuthServer(
        client_id=own.client_id,
        client_secret=own.client_secret,
        basic=own.basic,
        authorization_url=own.authorization_url or base.authorization_url,
        token_url=own.token_url or base.token_url,
        device_url=own.device_url,
        revocation_url=own.revocation_url or base.revocation_url,
        redirect_uri=own.redirect_uri or LOOPBACK,
        issuer=own.issuer or base.issuer,
        scopes=own.scopes or base.scopes,
        resource=own.resource,
        body=own.body,
        more={**base.params, **own.params},
    )


def token_file_of(client: str, environ: Mapping[str, str]) -> TokenFile:
    """Where the token of a client lies, by the client's name."""
    return TokenFile(state_dir(environ) / "oauth" / "models", client)


def is_signed_in(client: ClientSettings, environ: Mapping[str, str], file: str) -> bool:
    """Whether a person has signed in for a client, as far as its files say. Reads its token's file."""
    try:
        check_signed_in(client, environ, file)
    except ConfigError:
        return False
    return True


def check_signed_in(client: ClientSettings, environ: Mapping[str, str], file: str) -> None:
    """See that there is a token, before a run begins. Reads its file.

    Raises:
        SignInNeeded: no person has signed in.
        ConfigError: the client's entry lacks something, or the token's file can't be used.
    """
    if token_file_of(client.name, environ).read(auth_server_of(client, file)) is None:
        raise SignInNeeded(f"client '{client.name}': not signed in; sign in: {remedy_of(client.name)}")


def remedy_of(client: str) -> str:
    """How a person signs in."""
    return f"callboard auth login {client}"


class SignIns:
    """The clients of a process that people sign in for.

    Args:
        root: keepers of tokens live under it.
        environ: says where tokens lie.
        file: where the clients stand, for the errors.
    """

    def __init__(self, root: Root, environ: Mapping[str, str], file: str) -> None:
        self._environ = environ
        self._file = file
        self._keepers = Keepers(root)

    def keeper(self, client: ClientSettings) -> Keeper:
        """Keeps the token of a client.

        Raises:
            ConfigError: its entry lacks something.
        """
        server = auth_server_of(client, self._file)
        endpoint = TokenEndpoint(server, AuthHttp(self._environ, client.extra.proxy))
        file, who = token_file_of(client.name, self._environ), f"client '{client.name}'"
        return self._keepers.keeper(endpoint, file, who=who, remedy=remedy_of(client.name))


class SignedIn:
    """The headers of a model whose client carries a token.

    Args:
        client: its name.
        keeper: of its token.
        headers: what its requests carry besides.

    Attributes:
        headers: what its next request carries; up to date after `renew`.
    """

    def __init__(self, client: str, keeper: Keeper, headers: Mapping[str, str]) -> None:
        self.headers = dict(headers)
        self._client = client
        self._keeper = keeper
        self._shown: Token | None = None

    async def renew(self) -> Token:
        """See to it that there is a token that is good for a while. Raises as `Keeper.token`."""
        return self._show(await self._keeper.token())

    async def once_more(self, token: Token, refused: KeyRefused, send: Callable[[], Awaitable[T]]) -> T:
        """The reply to a request that was refused with that token, if it is not with another one.

        Raises:
            SignInNeeded: there is no other, or it is refused as well.
            CredentialsError: the account may not do this.
        """
        if refused.status != 401:
            raise CredentialsError(f"{refused.said}; the account that is signed in may not do this") from refused
        self._show(await self._keeper.other_than(token))
        try:
            return await send()
        except KeyRefused as again:
            sign_in = f"sign in: {remedy_of(self._client)}"
            raise SignInNeeded(f"{again.said}, with a token that was just renewed; {sign_in}") from again

    def _show(self, token: Token) -> Token:
        if token is not self._shown:
            self._shown = token
            self.headers["authorization"] = f"Bearer {token.access_token}"
        return token
