"""Client of AWS's Security Token Service (STS), which issues temporary keys of a role.

    POST https://sts.{region}.amazonaws.com/      a form; signed with other keys, or with a token in the form

AWS_ENDPOINT_URL_STS replaces the address, as in AWS's own tools. The answer is XML, of which four texts are used.

**Web identity.** A Kubernetes service account (EKS) gets its keys with a token:

    AWS_WEB_IDENTITY_TOKEN_FILE       token file that Kubernetes refreshes, so it is read again for each request
    AWS_ROLE_ARN                      role to assume with the token; AWS_ROLE_SESSION_NAME may name the session
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import urlencode, urlsplit

import trio

from .....protocol.errors import ConfigError, CredentialsError, UpstreamError
from ....io.imports import imported
from ..refreshing_credential import RefreshingCredential
from .roles import EARLY
from .signing import AwsKeys, Signer

TIMEOUT = 20.0
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
        CredentialsError: STS refuses the request.
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
    answer = await simple_request("POST", url, headers, body, environ=environ, timeout=TIMEOUT)
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
        raise CredentialsError(f"{who}: STS gave no keys: {answer.explanation}")
    return AwsKeys(*found[:3]), ends


def _tagged(text: str, tag: str) -> str:
    """Return the text of an XML element, which occurs at most once in an answer."""
    found = re.search(rf"<{tag}>([^<]*)</{tag}>", text)
    return html.unescape(found[1]).strip() if found else ""


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
            raise CredentialsError(f"{_ROLE} has no keys yet")
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
