"""AWS keys of the role of this container or machine.

    AWS_CONTAINER_CREDENTIALS_RELATIVE_URI     ECS: GET http://169.254.170.2{uri}
    AWS_CONTAINER_CREDENTIALS_FULL_URI         EKS and others: GET this URL, with AWS_CONTAINER_AUTHORIZATION_TOKEN
                                               or the contents of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE
    neither                                    EC2: three requests to http://169.254.169.254, version 2 (IMDSv2)

The keys are temporary, and are refreshed five minutes before they expire (`RefreshingCredential`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec
import trio

from .....protocol.decoding import json_decoder
from .....protocol.errors import ConfigError, CredentialsError, UpstreamError
from .....protocol.json_values import UNREADABLE
from ....io.imports import imported
from ..refreshing_credential import RefreshingCredential
from .signing import AwsKeys

EARLY = 300.0
"""Seconds before their expiry at which keys are refreshed."""

TIMEOUT = 2.0
"""Timeout of a request in seconds. Short, since these services are on the same machine."""

_ECS = "http://169.254.170.2"
_EC2 = "http://169.254.169.254"
_MAY_BE_PLAIN = frozenset({"169.254.170.2", "169.254.170.23", "fd00:ec2::23", "localhost"})
"""Hosts in addition to loopback that may be used without TLS; the same as in AWS's own tools."""


class _Granted(msgspec.Struct, rename="pascal"):
    access_key_id: str
    secret_access_key: str
    token: str
    expiration: datetime


_decode = json_decoder(_Granted).decode


class AssumedRole:
    """Temporary keys of this container or machine, fetched when they are needed.

    Args:
        environ: environment with the address of the container's service.
        where_else: text of the error if there is no role, about the sources that were tried before.
        clock: returns seconds since the epoch.
    """

    def __init__(self, environ: Mapping[str, str], where_else: str, clock: Callable[[], float] = time.time) -> None:
        self._environ = environ
        self._where_else = where_else
        self._renewed = RefreshingCredential(self._ask, early=EARLY, clock=clock)
        self.renew = self._renewed.renew
        """Refreshes the keys if they are old. Raises the same errors as `RefreshingCredential.renew`.

        CredentialsError means that there is no role, ConfigError that the environment names an address that is not
        allowed.
        """

    @property
    def named(self) -> str:
        """Description of the source of the keys; "" for a machine, whose role is unknown before a request."""
        return "the role of this container" if self._container else ""

    def keys(self) -> AwsKeys:
        """Return the current keys. Raises CredentialsError before the first `renew`."""
        if self._renewed.current is None:
            raise CredentialsError(self._where_else)
        return self._renewed.current

    async def _ask(self) -> tuple[AwsKeys, float]:
        granted = await (self._of_container() if self._container else self._of_instance())
        keys = AwsKeys(granted.access_key_id, granted.secret_access_key, granted.token)
        return keys, granted.expiration.timestamp()

    @property
    def _container(self) -> str:
        relative = self._environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        return f"{_ECS}{relative}" if relative else self._environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")

    async def _of_container(self) -> _Granted:
        url = urlsplit(self._container)
        if url.scheme != "https" and not _may_be_plain(url.hostname or ""):
            raise ConfigError(
                f"AWS_CONTAINER_CREDENTIALS_FULL_URI is '{self._container}': keys may only come by https, from this "
                f"machine, or from {', '.join(sorted(_MAY_BE_PLAIN))}"
            )
        token, file = (self._environ.get(f"AWS_CONTAINER_AUTHORIZATION_TOKEN{end}", "") for end in ("", "_FILE"))
        if file:
            try:
                token = (await trio.Path(file).read_text("utf-8")).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE can't be read: {error}") from error
        headers = {"authorization": token} if token else {}
        return _granted(await self._answer("GET", self._container, headers))

    async def _of_instance(self) -> _Granted:
        base = (self._environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _EC2).rstrip("/")
        try:
            # IMDSv2 only: many machines disable version 1, and its plain GET can be abused through request forgery.
            ttl = {"x-aws-ec2-metadata-token-ttl-seconds": "21600"}
            token = (await self._answer("PUT", f"{base}/latest/api/token", ttl)).decode("latin-1").strip()
            headers = {"x-aws-ec2-metadata-token": token}
            roles = f"{base}/latest/meta-data/iam/security-credentials/"
            name = (await self._answer("GET", roles, headers)).decode("latin-1").strip()
            return _granted(await self._answer("GET", f"{roles}{name}", headers))
        except (CredentialsError, UpstreamError) as error:
            if self._renewed.current is not None or (isinstance(error, UpstreamError) and error.status):
                raise  # a metadata server exists, so the error is its own and not a missing role
            raise CredentialsError(f"{self._where_else}; nor is there a role of this machine ({error})") from error

    async def _answer(self, method: str, url: str, headers: Mapping[str, str]) -> bytes:
        await imported(".actors.io.http.transport")
        from ....io.http.transport import simple_request

        # proxy="-": a proxy cannot reach link-local addresses, and must not see the keys.
        answer = await simple_request(method, url, headers, environ=self._environ, timeout=TIMEOUT, proxy="-")
        if answer.status != 200:
            text = f"{urlsplit(url).hostname} gave no keys: {answer.explanation} (HTTP {answer.status})"
            raise UpstreamError(text, status=answer.status) if answer.status >= 500 else CredentialsError(text)
        return answer.body


def _may_be_plain(host: str) -> bool:
    try:
        return host in _MAY_BE_PLAIN or ip_address(host).is_loopback
    except ValueError:
        return False


def _granted(body: bytes) -> _Granted:
    try:
        granted = _decode(body)
    except UNREADABLE as error:
        text = body[:200].decode("utf-8", errors="replace")
        raise CredentialsError(f"the role returned no keys: {text}") from error
    zone = granted.expiration.tzinfo or UTC
    return msgspec.structs.replace(granted, expiration=granted.expiration.replace(tzinfo=zone))
