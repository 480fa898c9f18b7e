"""Selection of a client's AWS signer: static keys, a profile with temporary keys, or a role.

    [profile work]
    role_arn = arn:aws:iam::123456789012:role/agents
    source_profile = default                 profile that signs the request; or `credential_source`, see below
    external_id = ...                        and `role_session_name`, `duration_seconds`; all are optional

    [profile tool]
    credential_process = /usr/bin/my-tool --account 7

    [profile signed-in]                      a user that signed in to IAM Identity Center: see "SSO" below
    sso_session = my-company
    sso_account_id = 123456789012
    sso_role_name = Agents

    [sso-session my-company]
    sso_region = eu-central-1
    sso_start_url = https://my-company.awsapps.com/start

A request to STS assumes a role. It is signed with the keys of another profile, which may also be temporary, or of the
environment, the container or the machine (`credential_source`: Environment, EcsContainer, Ec2InstanceMetadata). A
program runs without a shell, as a supervised process, for at most `PROGRAM_WITHIN` seconds. As in AWS's own tools, the
precedence is: role, SSO sign-in, keys in the profile, program. MFA codes are not supported, since the runtime cannot
ask for one.

Sources: AWS, "Using IAM roles in the CLI"; "Sourcing credentials with an external process"; STS API, `AssumeRole`.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode

import msgspec
import trio

from .....protocol.decoding import json_decoder
from .....protocol.errors import ConfigError, CredentialsError, UpstreamError
from .....protocol.json_values import UNREADABLE
from .....protocol.settings import ClientSettings
from ....io.atomic_write import write_whole
from ....io.imports import PROCESSES, imported
from ....io.secret_redaction import hidden_tail
from ..refreshing_credential import RefreshingCredential
from .keys import AwsKeys, Signer, keys_of, named_keys, profile_named, profile_of, region_of, session_named, static_keys
from .roles import EARLY, AssumedRole, WebIdentity, has_web_identity, sts

if TYPE_CHECKING:
    from .....supervisors import Actor, Root


Lender: TypeAlias = "AssumedRole | ProfileRole | WebIdentity"
"""Source of temporary keys. `renew` refreshes them."""


class RoleSigner:
    """Signer with the current temporary keys of a role. Call `role.renew` before each request."""

    def __init__(self, role: Lender, region: str, service: str) -> None:
        self.role = role
        self.region = region
        self.service = service

    def headers(self, method: str, path: str, fields: Iterable[tuple[str, str]], body: bytes) -> dict[str, str]:
        """Return the signature headers, with the parameters of `Signer.headers`."""
        return Signer(self.role.keys(), self.region, self.service).headers(method, path, fields, body)


def signer_of(
    client: ClientSettings, service: str, environ: Mapping[str, str], file: str, root: Root | None
) -> Signer | RoleSigner:
    """Return the signer of a client, from the first source that it has.

    The order is: keys of the client or the environment, temporary keys of its profile, the web identity (not if the
    client names a profile), static keys of the profile, the role of the container or machine (not if the client has a
    key or names a profile).

    This sends no request, so a missing role of the machine is detected only by the first request.

    Args:
        file: path of the settings, for errors.
        root: actor tree under which programs of profiles run.

    Raises:
        ConfigError: there is no region, or an AWS file is unreadable.
        CredentialsError: the keys or the profile of the client are incomplete, or no role is possible.
    """
    region = region_of(client, environ)
    if not region:
        raise ConfigError(f"client '{client.name}' has no `region`: set it in {file}, or AWS_REGION")
    profile = profile_of(client, environ)
    if named_keys(client, environ) is None:
        if is_asked_for(profile_named(profile, environ)):
            return RoleSigner(ProfileRole(profile, environ, region, root), region, service)
        if not client.profile and has_web_identity(environ):
            return RoleSigner(WebIdentity(environ, region), region, service)
    try:
        return Signer(keys_of(client, environ), region, service)
    except CredentialsError as error:
        # AWS_EC2_METADATA_DISABLED excludes the machine's role, but not that of a container.
        no_role = environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
        no_role &= not any(name.startswith("AWS_CONTAINER_CREDENTIALS_") for name in environ)
        if client.access_key_id or client.secret_access_key or client.profile or no_role:
            raise
        return RoleSigner(AssumedRole(environ, str(error)), region, service)


# --- profiles


PROGRAM_WITHIN = 60.0
"""Time limit of a program in seconds. Long, since it may ask the user."""

_NEVER = float("inf")


class _Printed(msgspec.Struct, rename="pascal"):
    version: int
    access_key_id: str
    secret_access_key: str
    session_token: str = ""
    expiration: datetime | None = None


_decode = json_decoder(_Printed).decode


def is_asked_for(profile: Mapping[str, str]) -> bool:
    """Return True if the keys of a profile are temporary, so they need a request or a program."""
    has_keys = static_keys(profile) is not None
    return (
        bool(profile.get("role_arn")) or is_sso(profile) or (not has_keys and bool(profile.get("credential_process")))
    )


class ProfileRole:
    """Temporary keys of a profile.

    Args:
        name: name of the profile.
        environ: environment with the paths of AWS's files, proxies and certificates.
        region: region of the STS request, unless the profile names one.
        root: actor tree under which programs run; without it, a program raises ConfigError.
        clock: returns seconds since the epoch.
    """

    def __init__(
        self,
        name: str,
        environ: Mapping[str, str],
        region: str,
        root: Root | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._environ = environ
        self._region = region
        self._root = root
        self._clock = clock
        self._renewed = RefreshingCredential(lambda: self._of(name, ()), early=EARLY, clock=clock)
        self.renew = self._renewed.renew
        """Refreshes the keys if they are old. Raises the same errors as `RefreshingCredential.renew`."""

    @property
    def named(self) -> str:
        """Description of the source of the keys, for messages."""
        return f"AWS profile '{self._name}'"

    def keys(self) -> AwsKeys:
        """Return the current keys. Raises CredentialsError before the first `renew`."""
        if self._renewed.current is None:
            raise CredentialsError(f"the keys of AWS profile '{self._name}' have not been fetched yet")
        return self._renewed.current

    async def _of(self, name: str, before: tuple[str, ...]) -> tuple[AwsKeys, float]:
        """Return the keys of a profile and their expiry.

        Args:
            before: profiles whose roles are assumed with these keys, to detect a cycle of `source_profile`.
        """
        profile = profile_named(name, self._environ)
        own = static_keys(profile)
        # AWS allows a profile to be its own source: then its static keys assume its role.
        if profile.get("role_arn") and name not in before:
            return await self._assumed(name, profile, await self._source(name, profile, before))
        if is_sso(profile):
            return await sso_keys(name, profile, self._environ, self._clock())
        if own is not None:
            return own, _NEVER
        if profile.get("credential_process"):
            return await self._printed(name, profile["credential_process"])
        if name in before:
            raise ConfigError(
                f"the `source_profile` settings of the AWS profiles form a loop at '{name}': {' -> '.join(before)}"
            )
        raise CredentialsError(
            f"AWS profile '{name}' has no keys, and neither `role_arn`, `sso_session` nor `credential_process`"
        )

    # --- roles

    async def _source(self, name: str, profile: Mapping[str, str], before: tuple[str, ...]) -> AwsKeys:
        if profile.get("mfa_serial"):
            raise ConfigError(
                f"AWS profile '{name}' needs the code of an MFA device (`mfa_serial`), which Callboard can't "
                "ask for; run: eval $(aws configure export-credentials --format env)"
            )
        if source := profile.get("source_profile"):
            return (await self._of(source, (*before, name)))[0]
        match profile.get("credential_source"):
            case "Environment":
                keys = static_keys(self._environ, lambda key: f"AWS_{key}".upper())
                if keys is None:
                    raise CredentialsError(
                        f"AWS profile '{name}' uses keys of the environment (`credential_source`), and none are set"
                    )
                return keys
            case "EcsContainer" | "Ec2InstanceMetadata":
                role = AssumedRole(self._environ, f"AWS profile '{name}' uses the role of this machine", self._clock)
                await role.renew()
                return role.keys()
        raise ConfigError(f"AWS profile '{name}' has `role_arn`, but neither `source_profile` nor `credential_source`")

    async def _assumed(self, name: str, profile: Mapping[str, str], keys: AwsKeys) -> tuple[AwsKeys, float]:
        asked = {
            "Action": "AssumeRole",
            "RoleArn": profile["role_arn"],
            "RoleSessionName": profile.get("role_session_name") or f"callboard-{int(self._clock())}",
            "DurationSeconds": profile.get("duration_seconds") or "3600",
        }
        if external := profile.get("external_id"):
            asked["ExternalId"] = external
        region = profile.get("region") or self._region
        return await sts(asked, who=f"AWS profile '{name}'", region=region, environ=self._environ, keys=keys)

    # --- programs

    async def _printed(self, name: str, command: str) -> tuple[AwsKeys, float]:
        what = f"the `credential_process` of AWS profile '{name}'"
        if self._root is None:
            raise ConfigError(
                f"{what} can't be executed here, because this process starts no programs; store keys in the profile"
            )
        try:
            argv = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"{what} can't be parsed: {error}") from error
        # The program runs as an actor under the root, so that it ends with this task or with the process.
        ref = self._root.spawn(self._run, argv, name="credential-process", link=False)
        try:
            end = await ref.wait()
        finally:
            ref.cancel()
        if end.error is not None or end.value is None:
            raise CredentialsError(f"{what}: {end.error or 'it was stopped'}") from end.error
        try:
            keys = _decode(end.value)
        except UNREADABLE as error:
            raise CredentialsError(f"{what} did not print AWS keys as JSON: {error}") from error
        if keys.version != 1:
            raise CredentialsError(f"{what} printed keys in the format of version {keys.version}; expected version 1")
        ends = _NEVER
        if keys.expiration is not None:
            # A time without a zone is UTC.
            zone = keys.expiration.tzinfo or UTC
            ends = keys.expiration.replace(tzinfo=zone).timestamp()
            if ends <= self._clock():
                raise CredentialsError(f"{what} printed keys that have expired")
        return AwsKeys(keys.access_key_id, keys.secret_access_key, keys.session_token), ends

    async def _run(self, me: Actor, argv: list[str]) -> bytes:
        await imported(PROCESSES)
        from .....supervisors.process import run_process

        stderr: list[str] = []
        done = await run_process(
            me, argv, name="program", env=dict(self._environ), timeout=PROGRAM_WITHIN, on_stderr=stderr.append
        )
        if done.status != 0:
            # Programs may print secrets to stderr, so the text is redacted.
            why = hidden_tail(" ".join(stderr), 300).strip()
            raise CredentialsError(f"the command exited with status {done.status}{': ' if why else ''}{why}")
        return done.stdout


# --- SSO: keys of a user that signed in to IAM Identity Center with `aws sso login`
#
# Older profiles contain `sso_start_url` and `sso_region` themselves. AWS's own tools store the token of the sign-in in
# ~/.aws/sso/cache, in a file named by the SHA-1 of the session, else of the start URL:
#
#     GET  https://portal.sso.{region}.amazonaws.com/federation/credentials     keys of a role, for the token
#     POST https://oidc.{region}.amazonaws.com/token                            a new token, if the session supports it
#
# A new token is written to the same file, so that AWS's tools use it, too. AWS_ENDPOINT_URL_SSO and
# AWS_ENDPOINT_URL_SSO_OIDC replace the addresses. No browser is opened here: the user signs in with AWS's tools.
#
# Sources: AWS, "Configuring IAM Identity Center authentication"; SSO portal API, `GetRoleCredentials`; SSO OIDC API,
# `CreateToken`; botocore, `tokens.SSOTokenProvider`.


TIMEOUT = 20.0
"""Timeout of a request in seconds."""

REFRESH_WITHIN = 20.0
"""Time limit in seconds of a token refresh. It is shielded from cancellation, so a shutdown may wait this long."""

TOKEN_EARLY = 300.0
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
        raise ConfigError(f"AWS profile '{name}' has no `{(missing or ['sso_region'])[0]}`: set it in {where}")
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
        raise CredentialsError(f"AWS profile '{name}': the response of SSO has no keys: {error}") from error
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
            f"AWS profile '{self._profile}': {why}; sign in: aws sso login --profile {self._profile}"
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
        if now < ends - TOKEN_EARLY:
            return stored.access_token
        if stored.refresh_token and stored.client_id:
            try:
                with trio.move_on_after(REFRESH_WITHIN) as scope:
                    # AWS accepts a refresh token once. A cancellation between its answer and the write to the file
                    # would lose the new one, and the user would have to sign in again.
                    scope.shield = True
                    return await self._renew(stored, msgspec.json.decode(body), now)
                raise UpstreamError(
                    f"AWS profile '{self._profile}': the sign-in was not renewed within {REFRESH_WITHIN:g} s"
                )
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
        words = f"AWS profile '{self._profile}': {answer.explanation} (HTTP {answer.status})"
        if answer.status >= 500 or answer.status == 429:
            raise UpstreamError(words, status=answer.status)
        return answer.status, answer.body, words


def _moment(text: str) -> float:
    """Return the seconds of a time such as `2026-11-23T10:00:00Z`; older tools write `UTC` instead of `Z`."""
    moment = datetime.fromisoformat(re.sub(r"UTC$", "+00:00", text))
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
