"""AWS profiles with temporary keys: an assumed role, an SSO sign-in, or the output of a program.

    [profile work]
    role_arn = arn:aws:iam::123456789012:role/agents
    source_profile = default                 profile that signs the request; or `credential_source`, see below
    external_id = ...                        and `role_session_name`, `duration_seconds`; all are optional

    [profile tool]
    credential_process = /usr/bin/my-tool --account 7

A request to STS assumes a role. It is signed with the keys of another profile, which may also be temporary, or of
the environment, the container or the machine (`credential_source`: Environment, EcsContainer,
Ec2InstanceMetadata). A program runs without a shell, as a supervised process, for at most `WITHIN` seconds. As in AWS's
own tools, the precedence is: role, SSO sign-in, keys in the profile, program. MFA codes are not supported, since the
runtime cannot ask for one.

Sources: AWS, "Using IAM roles in the CLI"; "Sourcing credentials with an external process"; STS API, `AssumeRole`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from .....protocol.decoding import json_decoder
from .....protocol.errors import ConfigError, CredentialsError
from .....protocol.json_values import UNREADABLE
from ....io.imports import PROCESSES, imported
from ....io.secret_redaction import hidden_tail
from ..refreshing_credential import RefreshingCredential
from .keys import profile_named, static_keys
from .roles import EARLY, AssumedRole
from .signing import AwsKeys
from .sso import is_sso, sso_keys
from .sts import sts

if TYPE_CHECKING:
    from .....supervisors import Actor, Root

WITHIN = 60.0
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
        return f"profile '{self._name}' of AWS"

    def keys(self) -> AwsKeys:
        """Return the current keys. Raises CredentialsError before the first `renew`."""
        if self._renewed.current is None:
            raise CredentialsError(f"profile '{self._name}' of AWS has no keys yet")
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
            raise ConfigError(f"`source_profile` of AWS profiles leads back to '{name}': {' -> '.join(before)}")
        raise CredentialsError(
            f"profile '{name}' of AWS has no keys, and neither `role_arn`, `sso_session` nor `credential_process`"
        )

    # --- roles

    async def _source(self, name: str, profile: Mapping[str, str], before: tuple[str, ...]) -> AwsKeys:
        if profile.get("mfa_serial"):
            raise ConfigError(
                f"profile '{name}' of AWS needs the code of an MFA device (`mfa_serial`), which is not supported; "
                "run: eval $(aws configure export-credentials --format env)"
            )
        if source := profile.get("source_profile"):
            return (await self._of(source, (*before, name)))[0]
        match profile.get("credential_source"):
            case "Environment":
                keys = static_keys(self._environ, lambda key: f"AWS_{key}".upper())
                if keys is None:
                    raise CredentialsError(f"profile '{name}' of AWS uses keys of the environment, and none are set")
                return keys
            case "EcsContainer" | "Ec2InstanceMetadata":
                role = AssumedRole(
                    self._environ, f"profile '{name}' of AWS takes the role of this machine", self._clock
                )
                await role.renew()
                return role.keys()
        raise ConfigError(f"profile '{name}' of AWS has `role_arn`, and no `source_profile` or `credential_source`")

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
        return await sts(asked, who=f"profile '{name}' of AWS", region=region, environ=self._environ, keys=keys)

    # --- programs

    async def _printed(self, name: str, command: str) -> tuple[AwsKeys, float]:
        what = f"`credential_process` of profile '{name}' of AWS"
        if self._root is None:
            raise ConfigError(f"{what} can't be started here")
        try:
            argv = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"{what} can't be read: {error}") from error
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
            raise CredentialsError(f"{what} prints no keys: {error}") from error
        if keys.version != 1:
            raise CredentialsError(f"{what} prints version {keys.version}, not 1")
        ends = _NEVER
        if keys.expiration is not None:
            # A time without a zone is UTC.
            zone = keys.expiration.tzinfo or UTC
            ends = keys.expiration.replace(tzinfo=zone).timestamp()
            if ends <= self._clock():
                raise CredentialsError(f"{what} prints keys that have expired")
        return AwsKeys(keys.access_key_id, keys.secret_access_key, keys.session_token), ends

    async def _run(self, me: Actor, argv: list[str]) -> bytes:
        await imported(PROCESSES)
        from .....supervisors.process import run_process

        stderr: list[str] = []
        done = await run_process(
            me, argv, name="program", env=dict(self._environ), timeout=WITHIN, on_stderr=stderr.append
        )
        if done.status != 0:
            # Programs may print secrets to stderr, so the text is redacted.
            why = hidden_tail(" ".join(stderr), 300).strip()
            raise CredentialsError(f"it ended with status {done.status}{': ' if why else ''}{why}")
        return done.stdout
