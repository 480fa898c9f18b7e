"""OAuth clients (`auth: oauth`): requests with the token of a signed-in user.

    clients:
      - type: gemini
        auth: oauth
        oauth: {client_id: ..., client_secret: ...}

`io.oauth` refreshes the token; this module adds it as a header. A request that is refused all the same (401) is sent
once more with another token. The OAuth addresses come from the client's entry, or from the defaults of its type.
`client_id` always comes from the user. It identifies a registered program to the provider; callboard is not registered
with any, and does not use the id of another program.
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
from ...io.oauth.authorization import LOOPBACK, AuthServer
from ...io.oauth.endpoint import AuthHttp, TokenEndpoint
from ...io.oauth.token import Keepers, OAuthToken, TokenFile, TokenKeeper
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
"""Default OAuth settings by client type."""


def client_to_sign_in(name: str | None, settings: Settings) -> ClientSettings:
    """Return the client `name`, or without a name the only OAuth client.

    Raises:
        UsageError: there is no client of that name, or no name and not exactly one OAuth client.
        ConfigError: the client does not use OAuth.
    """
    can = [client for client in settings.clients if signs_in(client)]
    there_are = f"there are: {', '.join(client.name for client in can)}" if can else "no client has `auth: oauth`"
    if name is None:
        if len(can) == 1:
            return can[0]
        if not can:
            raise UsageError(f"no client in {settings.file} has `auth: oauth`, so none can be signed in to")
        raise UsageError(f"several clients of {settings.file} can be signed in to; name one: {there_are}")
    client = next((each for each in settings.clients if each.name == name), None)
    if client is None:
        hint = did_you_mean(name, [each.name for each in can]) or there_are
        raise UsageError(f"there is no client '{name}' in {settings.file}; {hint}")
    if not signs_in(client):
        raise ConfigError(
            f"client '{name}' in {settings.file} has no `auth: oauth`; it uses an API key and needs no sign-in"
        )
    return client


def auth_server_of(client: ClientSettings, file: str) -> AuthServer:
    """Return the authorization server of a client, with defaults of its type.

    An entry with a `token_url` of its own gets no defaults.

    Args:
        file: path of the settings, for error texts.

    Raises:
        ConfigError: the client's entry lacks `client_id` or `token_url`.
    """
    own, usual = client.oauth or OAuthSettings(), _OF_TYPES.get(client.type, OAuthSettings())
    lacking = [name for name in ("client_id", "token_url") if not (getattr(own, name) or getattr(usual, name))]
    if lacking:
        named = " and ".join(f"`oauth.{name}`" for name in lacking)
        raise ConfigError(f"client '{client.name}' in {file} has `auth: oauth` but no {named}: see docs/providers.md")
    moved = bool(own.token_url)  # with another server, no default of the usual one is valid
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
    """Return the token file of the client with this name."""
    return TokenFile(state_dir(environ) / "oauth" / "models", client)


def is_signed_in(client: ClientSettings, environ: Mapping[str, str], file: str) -> bool:
    """Return True if a user has signed in for the client and its entry is complete. Reads its token file only."""
    try:
        check_signed_in(client, environ, file)
    except ConfigError:
        return False
    return True


def check_signed_in(client: ClientSettings, environ: Mapping[str, str], file: str) -> None:
    """Check that a token exists, before a run starts. This reads the token file and sends no request.

    Raises:
        SignInNeeded: no user has signed in.
        ConfigError: the client's entry is incomplete, or its token file is unusable.
    """
    if token_file_of(client.name, environ).read(auth_server_of(client, file)) is None:
        raise SignInNeeded(f"client '{client.name}': not signed in; sign in: {remedy_of(client.name)}")


def remedy_of(client: str) -> str:
    """Return the command to sign in."""
    return f"callboard auth login {client}"


class SignIns:
    """Token keepers of a process's OAuth clients.

    Args:
        root: actor tree under which the token keepers run.
        environ: environment with the state directory, which contains the token files.
        file: path of the settings, for error texts.
    """

    def __init__(self, root: Root, environ: Mapping[str, str], file: str) -> None:
        self._environ = environ
        self._file = file
        self._keepers = Keepers(root)

    def keeper(self, client: ClientSettings) -> TokenKeeper:
        """Return the keeper of a client's token.

        Raises:
            ConfigError: the client's entry is incomplete.
        """
        server = auth_server_of(client, self._file)
        endpoint = TokenEndpoint(server, AuthHttp(self._environ, client.extra.proxy))
        file, who = token_file_of(client.name, self._environ), f"client '{client.name}'"
        return self._keepers.keeper(endpoint, file, who=who, remedy=remedy_of(client.name))


class SignedIn:
    """`TokenBearer` of a model with an OAuth client.

    Args:
        client: name of the client.
        keeper: keeper of its token.
        headers: all other headers of its requests.

    Attributes:
        headers: headers of the next request; current after `renew`.
    """

    def __init__(self, client: str, keeper: TokenKeeper, headers: Mapping[str, str]) -> None:
        self.headers = dict(headers)
        self._client = client
        self._keeper = keeper
        self._shown: OAuthToken | None = None

    async def renew(self) -> OAuthToken:
        """Refresh the token if it expires soon, and return it. Raises the same errors as `TokenKeeper.token`."""
        return self._show(await self._keeper.token())

    async def once_more(self, token: OAuthToken, refused: KeyRefused, send: Callable[[], Awaitable[T]]) -> T:
        """Refresh the token and send the refused request again; return its reply.

        Raises:
            SignInNeeded: there is no other token, or it is refused as well.
            CredentialsError: the refusal is not about the token: the account lacks a permission.
        """
        # 403 means that the token is valid and the account lacks a permission: a new token would be refused as well.
        if refused.status != 401:
            raise CredentialsError(f"{refused.said}; the signed-in account lacks the permission") from refused
        self._show(await self._keeper.other_than(token))
        try:
            return await send()
        except KeyRefused as again:
            sign_in = f"sign in: {remedy_of(self._client)}"
            raise SignInNeeded(f"{again.said}, although the token was just refreshed; {sign_in}") from again

    def _show(self, token: OAuthToken) -> OAuthToken:
        if token is not self._shown:
            self._shown = token
            self.headers["authorization"] = f"Bearer {token.access_token}"
        return token
