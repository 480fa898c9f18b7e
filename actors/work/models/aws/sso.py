"""AWS keys of a user that signed in to IAM Identity Center (SSO) with `aws sso login`.

    [profile work]
    sso_session = my-company
    sso_account_id = 123456789012
    sso_role_name = Agents

    [sso-session my-company]
    sso_region = eu-central-1
    sso_start_url = https://my-company.awsapps.com/start

Older profiles contain `sso_start_url` and `sso_region` themselves. AWS's own tools store the token of the sign-in in
~/.aws/sso/cache, in a file named by the SHA-1 of the session, else of the start URL:

    GET  https://portal.sso.{region}.amazonaws.com/federation/credentials     keys of a role, for the token
    POST https://oidc.{region}.amazonaws.com/token                            a new token, if the session supports it

A new token is written to the same file, so that AWS's tools use it, too. AWS_ENDPOINT_URL_SSO and
AWS_ENDPOINT_URL_SSO_OIDC replace the addresses. This module opens no browser: the user signs in with AWS's tools.

Sources: AWS, "Configuring IAM Identity Center authentication"; SSO portal API, `GetRoleCredentials`; SSO OIDC API,
`CreateToken`; botocore, `tokens.SSOTokenProvider`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import trio

from .....protocol.decoding import json_decoder
from .....protocol.errors import ConfigError, CredentialsError, UpstreamError
from .....protocol.json_values import UNREADABLE
from ....io.atomic_write import write_whole
from ....io.imports import imported
from .keys import session_named
from .signing import AwsKeys

TIMEOUT = 20.0
"""Timeout of a request in seconds."""

WITHIN = 20.0
"""Time limit in seconds of a token refresh. It is shielded from cancellation, so a shutdown may wait this long."""

EARLY = 300.0
"""Seconds before its expiry at which a token is refreshed, if the session supports it."""

_REGION = re.compile(r"[a-z0-9-]+")
_NEEDED = ("sso_account_id", "sso_role_name", "sso_region", "sso_start_url")


class _Token(msgspec.Struct, rename="camel"):
    access_token: str
    expires_at: str
    refresh_token: str = ""
    client_id: str = ""
    client_secret: str = ""


class _RoleKeys(msgspec.Struct, rename="camel"):
    access_key_id: str
    secret_access_key: str
    session_token: str
    expiration: int


class _Granted(msgspec.Struct, rename="camel"):
    role_credentials: _RoleKeys


class _Renewed(msgspec.Struct, rename="camel"):
    access_token: str
    expires_in: int
    refresh_token: str = ""


_token = json_decoder(_Token).decode
_granted = json_decoder(_Granted).decode
_renewed = json_decoder(_Renewed).decode


def is_sso(profile: Mapping[str, str]) -> bool:
    """Return True if the keys of a profile come from an SSO sign-in."""
    return bool(profile.get("sso_account_id") and (profile.get("sso_session") or profile.get("sso_start_url")))


async def sso_keys(
    name: str, profile: Mapping[str, str], environ: Mapping[str, str], now: float
) -> tuple[AwsKeys, float]:
    """Return the keys of an SSO profile and their expiry, in seconds since the epoch.

    Args:
        name: name of the profile, for errors.
        now: current time, in seconds since the epoch.

    Raises:
        ConfigError: the profile is incomplete.
        CredentialsError: the user has to sign in, or is not allowed to use this role.
        UpstreamError: AWS is unreachable or failed.
    """
    session = profile.get("sso_session", "")
    settings = {**profile, **(session_named(session, environ) if session else {})}
    missing = [key for key in _NEEDED if not settings.get(key)]
    if missing or not _REGION.fullmatch(settings["sso_region"]):
        where = f"[sso-session {session}] or the profile" if session else "the profile"
        raise ConfigError(f"profile '{name}' of AWS has no `{(missing or ['sso_region'])[0]}`: set it in {where}")
    signed_in = _SignIn(name, settings["sso_region"], session or settings["sso_start_url"], environ)
    token = await signed_in.token(now)
    query = urlencode({"role_name": settings["sso_role_name"], "account_id": settings["sso_account_id"]})
    url = f"{signed_in.address('SSO', 'portal.sso')}/federation/credentials?{query}"
    status, body, words = await signed_in.asked("GET", url, {"x-amz-sso_bearer_token": token}, b"")
    if status == 401:
        raise signed_in.needed("the sign-in has expired")
    if status != 200:
        raise CredentialsError(
            f"{words}; the role is {settings['sso_role_name']} of account {settings['sso_account_id']}"
        )
    try:
        keys = _granted(body).role_credentials
    except UNREADABLE as error:
        raise CredentialsError(f"profile '{name}' of AWS: SSO gave no keys: {error}") from error
    return AwsKeys(keys.access_key_id, keys.secret_access_key, keys.session_token), keys.expiration / 1000


class _SignIn:
    """SSO sign-in in the token cache of AWS's tools."""

    def __init__(self, profile: str, region: str, key: str, environ: Mapping[str, str]) -> None:
        self._profile = profile
        self._region = region
        self._environ = environ
        home = Path(environ.get("HOME") or Path.home())
        # SHA-1 because AWS's tools name their cache files this way.
        name = hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()
        self._file = home / ".aws" / "sso" / "cache" / f"{name}.json"

    def needed(self, why: str) -> CredentialsError:
        """Return the error that asks the user to sign in."""
        return CredentialsError(
            f"profile '{self._profile}' of AWS: {why}; sign in: aws sso login --profile {self._profile}"
        )

    def address(self, service: str, host: str) -> str:
        """Return the base URL of a service."""
        domain = "amazonaws.com.cn" if self._region.startswith("cn-") else "amazonaws.com"
        named = self._environ.get(f"AWS_ENDPOINT_URL_{service}") or f"https://{host}.{self._region}.{domain}"
        return named.rstrip("/")

    async def token(self, now: float) -> str:
        """Return a valid token: that of the file, or a new one if it expires soon.

        Raises:
            CredentialsError: there is no valid token; the text asks the user to sign in.
            UpstreamError: the token has expired and the refresh failed.
        """
        try:
            body = await trio.Path(self._file).read_bytes()
            stored = _token(body)
            ends = _moment(stored.expires_at)
        except FileNotFoundError:
            raise self.needed("no user has signed in") from None
        except (OSError, ValueError, *UNREADABLE) as error:
            raise self.needed(f"{self._file} can't be read ({error})") from error
        if now < ends - EARLY:
            return stored.access_token
        if stored.refresh_token and stored.client_id:
            try:
                with trio.move_on_after(WITHIN) as scope:
                    # AWS accepts a refresh token once. A cancellation between its answer and the write to the file
                    # would lose the new one, and the user would have to sign in again.
                    scope.shield = True
                    return await self._renew(stored, msgspec.json.decode(body), now)
                raise UpstreamError(f"profile '{self._profile}' of AWS: the sign-in was not renewed in {WITHIN:g} s")
            # A failed refresh is no error while the old token is valid.
            except (CredentialsError, UpstreamError):
                if now >= ends:
                    raise
        if now >= ends:
            raise self.needed("the sign-in has expired")
        return stored.access_token

    async def _renew(self, stored: _Token, whole: dict[str, Any], now: float) -> str:
        asked = {
            "clientId": stored.client_id,
            "clientSecret": stored.client_secret,
            "grantType": "refresh_token",
            "refreshToken": stored.refresh_token,
        }
        url = f"{self.address('SSO_OIDC', 'oidc')}/token"
        headers = {"content-type": "application/json"}
        status, body, words = await self.asked("POST", url, headers, msgspec.json.encode(asked))
        if status != 200:
            raise self.needed(f"the sign-in can't be renewed ({words})")
        try:
            newer = _renewed(body)
        except UNREADABLE as error:
            raise self.needed(f"the sign-in can't be renewed ({error})") from error
        ends = datetime.fromtimestamp(now + newer.expires_in, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        # Update the decoded file instead of writing a new one: AWS's tools store further keys in it.
        whole |= {"accessToken": newer.access_token, "expiresAt": ends}
        whole |= {"refreshToken": newer.refresh_token} if newer.refresh_token else {}
        data = msgspec.json.encode(whole)
        try:
            await trio.to_thread.run_sync(lambda: write_whole(self._file, data, private=True))
        except OSError as error:
            raise self.needed(f"{self._file} can't be written ({error})") from error
        return newer.access_token

    async def asked(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, str]:
        """Send a request; return status and body of the answer, and a text for errors.

        Raises:
            UpstreamError: the status is 429, or 500 and above, or the connection failed.
        """
        await imported(".actors.io.http.transport")
        from ....io.http.transport import simple_request

        answer = await simple_request(method, url, headers, body, environ=self._environ, timeout=TIMEOUT)
        words = f"profile '{self._profile}' of AWS: {answer.explanation} (HTTP {answer.status})"
        if answer.status >= 500 or answer.status == 429:
            raise UpstreamError(words, status=answer.status)
        return answer.status, answer.body, words


def _moment(text: str) -> float:
    """Return the seconds of a time such as `2026-11-23T10:00:00Z`; older tools write `UTC` instead of `Z`."""
    moment = datetime.fromisoformat(re.sub(r"UTC$", "+00:00", text))
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
