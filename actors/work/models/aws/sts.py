"""AWS's Security Token Service: keys of a role, for a while.

    POST https://sts.{region}.amazonaws.com/      a form; signed with keys of one's own, or with a token in the form

Another address is that of AWS_ENDPOINT_URL_STS, as in AWS's own tools. The answer is XML, of which four texts count.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlencode, urlsplit

from .....protocol.errors import CredentialsError, UpstreamError
from ....io.imports import imported
from .signing import Keys, Signer

TIMEOUT = 20.0
"""Seconds for the connection to STS, and for its answer."""

_FORM = "application/x-www-form-urlencoded; charset=utf-8"
_WANTED = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")


async def sts(
    asked: Mapping[str, str], *, who: str, region: str, environ: Mapping[str, str], keys: Keys | None
) -> tuple[Keys, float]:
    """The keys that a request is answered with, and when they end, in seconds since the epoch.

    Args:
        who: for the errors.
        keys: sign it; None if it needs no signature.

    Raises:
        CredentialsError: it is refused.
        UpstreamError: there was no answer that says so.
    """
    await imported(".actors.io.http.brief")
    from ....io.http.brief import brief

    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    url = (environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.{domain}").rstrip("/") + "/"
    body = urlencode({**asked, "Version": "2011-06-15"}).encode()
    headers = {"content-type": _FORM}
    if keys is not None:
        fields = (("host", urlsplit(url).netloc), *headers.items())
        headers |= Signer(keys, region, "sts").headers("POST", urlsplit(url).path, fields, body)
    answer = await brief("POST", url, headers, body, environ=environ, timeout=TIMEOUT)
    text = answer.body.decode("utf-8", errors="replace")
    if answer.status != 200:
        words = f"{who}: {_tagged(text, 'Message') or answer.said} (HTTP {answer.status})"
        if answer.status >= 500 or _tagged(text, "Code") in ("Throttling", "IDPCommunicationError"):
            raise UpstreamError(words, status=answer.status)
        raise CredentialsError(f"{words}; the role is {asked['RoleArn']}")
    found = [_tagged(text, tag) for tag in _WANTED]
    try:
        ends = datetime.fromisoformat(found[3]).timestamp()
    except ValueError:
        ends = 0.0
    if not all(found) or not ends:
        raise CredentialsError(f"{who}: STS gave no keys: {answer.said}")
    return Keys(*found[:3]), ends


def _tagged(text: str, tag: str) -> str:
    """What stands between the tags of an answer, which has each of ours once."""
    found = re.search(rf"<{tag}>([^<]*)</{tag}>", text)
    return html.unescape(found[1]).strip() if found else ""
