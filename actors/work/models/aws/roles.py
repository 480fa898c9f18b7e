"""Temporary AWS keys of a role: the role of this container or machine, or one that AWS's token service (STS) issues.

    AWS_CONTAINER_CREDENTIALS_RELATIVE_URI     ECS: GET http://169.254.170.2{uri}
    AWS_CONTAINER_CREDENTIALS_FULL_URI         EKS and others: GET this URL, with AWS_CONTAINER_AUTHORIZATION_TOKEN
                                               or the contents of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE
    neither                                    EC2: three requests to http://169.254.169.254, version 2 (IMDSv2)

The keys are refreshed five minutes before they expire (`RefreshingCredential`).

**STS.** `POST https://sts.{region}.amazonaws.com/` with a form; signed with other keys, or with a token in the form.
AWS_ENDPOINT_URL_STS replaces the address, as in AWS's own tools. The answer is XML, of which four texts are used.

**Web identity.** A Kubernetes service account (EKS) gets its keys from STS with a token:

    AWS_WEB_IDENTITY_TOKEN_FILE       token file that Kubernetes refreshes, so it is read again for each request
    AWS_ROLE_ARN                      role to assume with the token; AWS_ROLE_SESSION_NAME may name the session
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import urlencode, urlsplit

import msgspec
import trio

from .....protocol.decoding import json_decoder
from .....protocol.errors import ConfigError, CredentialsError, UpstreamError
from .....protocol.json_values import UNREADABLE
from ....io.imports import imported
from ..refreshing_credential import RefreshingCredential
from .keys import AwsKeys, Signer

EARLY = 300.0
"""Seconds before their expiry at which keys are refreshed."""

METADATA_TIMEOUT = 2.0
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

        CredentialsError means that there is no role, or that its service refused the request. ConfigError means that
        the environment names an address that is not allowed, or a token file that is unreadable.
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
                f"AWS_CONTAINER_CREDENTIALS_FULL_URI is '{self._container}': keys are only fetched by https, "
                f"from this machine, or from {', '.join(sorted(_MAY_BE_PLAIN))}"
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
            raise CredentialsError(f"{self._where_else}; and this machine has no role ({error})") from error

    async def _answer(self, method: str, url: str, headers: Mapping[str, str]) -> bytes:
        await imported(".actors.io.http.transport")
        from ....io.http.transport import simple_request

        # proxy="-": a proxy cannot reach link-local addresses, and must not see the keys.
        answer = await simple_request(method, url, headers, environ=self._environ, timeout=METADATA_TIMEOUT, proxy="-")
        if answer.status != 200:
            text = f"{urlsplit(url).hostname} returned no keys: {answer.explanation} (HTTP {answer.status})"
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
        raise CredentialsError(f"the response for the role has no keys: {text}") from error
    zone = granted.expiration.tzinfo or UTC
    return msgspec.structs.replace(granted, expiration=granted.expiration.replace(tzinfo=zone))


# --- STS


STS_TIMEOUT = 20.0
"""Timeout of a request to STS in seconds."""

_FORM = "application/x-www-form-urlencoded; charset=utf-8"
_WANTED = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")


async def sts(
    asked: Mapping[str, str], *, who: str, region: str, environ: Mapping[str, str], keys: AwsKeys | None
) -> tuple[AwsKeys, float]:
    """Send a request to STS; return the issued keys and their expiry, in seconds since the epoch.

    Args:
        asked: parameters of the request.
        who: source of the request, for errors.
        keys: keys that sign the request; None if it needs no signature.

    Raises:
        CredentialsError: STS refuses the request, or its answer has no keys.
        UpstreamError: STS is unreachable, failed or is throttling.
    """
    await imported(".actors.io.http.transport")
    from ....io.http.transport import simple_request

    # Regional endpoints, not the global sts.amazonaws.com: their session tokens are valid in all regions.
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    url = (environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.{domain}").rstrip("/") + "/"
    body = urlencode({**asked, "Version": "2011-06-15"}).encode()
    headers = {"content-type": _FORM}
    if keys is not None:
        fields = (("host", urlsplit(url).netloc), *headers.items())
        headers |= Signer(keys, region, "sts").headers("POST", urlsplit(url).path, fields, body)
    answer = await simple_request("POST", url, headers, body, environ=environ, timeout=STS_TIMEOUT)
    text = answer.body.decode("utf-8", errors="replace")
    if answer.status != 200:
        words = f"{who}: {_tagged(text, 'Message') or answer.explanation} (HTTP {answer.status})"
        # Both codes arrive with status 400, although another try may succeed.
        if answer.status >= 500 or _tagged(text, "Code") in ("Throttling", "IDPCommunicationError"):
            raise UpstreamError(words, status=answer.status)
        raise CredentialsError(f"{words}; the role is {asked['RoleArn']}")
    found = [_tagged(text, tag) for tag in _WANTED]
    try:
        ends = datetime.fromisoformat(found[3]).timestamp()
    except ValueError:
        ends = 0.0
    if not all(found) or not ends:
        raise CredentialsError(f"{who}: STS returned no keys: {answer.explanation}")
    return AwsKeys(*found[:3]), ends


def _tagged(text: str, tag: str) -> str:
    """Return the text of an XML element, which occurs at most once in an answer."""
    found = re.search(rf"<{tag}>([^<]*)</{tag}>", text)
    return html.unescape(found[1]).strip() if found else ""


# --- web identity


_FILE = "AWS_WEB_IDENTITY_TOKEN_FILE"
_ROLE = "AWS_ROLE_ARN"


def has_web_identity(environ: Mapping[str, str]) -> bool:
    """Return True if the environment names a token file and a role."""
    return bool(environ.get(_FILE) and environ.get(_ROLE))


class WebIdentity:
    """Temporary keys of the service account.

    Args:
        environ: environment with token file, role, proxies and certificates.
        region: region of the STS request.
        clock: returns seconds since the epoch.
    """

    def __init__(self, environ: Mapping[str, str], region: str, clock: Callable[[], float] = time.time) -> None:
        self._environ = environ
        self._region = region
        self._clock = clock
        self._renewed = RefreshingCredential(self._ask, early=EARLY, clock=clock)
        self.renew = self._renewed.renew
        """Refreshes the keys if they are old. Raises the same errors as `RefreshingCredential.renew`."""

    @property
    def named(self) -> str:
        """Description of the source of the keys, for messages."""
        return _FILE

    def keys(self) -> AwsKeys:
        """Return the current keys. Raises CredentialsError before the first `renew`."""
        if self._renewed.current is None:
            raise CredentialsError(f"the keys for {_ROLE} have not been fetched yet")
        return self._renewed.current

    async def _ask(self) -> tuple[AwsKeys, float]:
        try:
            token = (await trio.Path(self._environ[_FILE]).read_text("utf-8")).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{_FILE} can't be read: {error}") from error
        asked = {
            "Action": "AssumeRoleWithWebIdentity",
            "RoleArn": self._environ[_ROLE],
            "RoleSessionName": self._environ.get("AWS_ROLE_SESSION_NAME") or f"callboard-{int(self._clock())}",
            "WebIdentityToken": token,
        }
        return await sts(asked, who=_FILE, region=self._region, environ=self._environ, keys=None)
