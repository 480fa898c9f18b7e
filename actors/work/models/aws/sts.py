"""Client of AWS's Security Token Service (STS), which issues temporary keys of a role.

    POST https://sts.{region}.amazonaws.com/      a form; signed with other keys, or with a token in the form

AWS_ENDPOINT_URL_STS replaces the address, as in AWS's own tools. The answer is XML, of which four texts are used.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlencode, urlsplit

from .....protocol.errors import CredentialsError, UpstreamError
from ....io.imports import imported
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
    await imported(".actors.io.http.simple_request")
    from ....io.http.simple_request import simple_request

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
