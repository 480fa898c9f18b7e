"""HTTP header parsing: request headers as a dictionary, `Retry-After`, `WWW-Authenticate`, and the reason of an error.

`WWW-Authenticate` (RFC 9110, section 11) may contain several challenges, each a scheme with either one token or
parameters; commas separate both challenges and parameters. Unreadable parts are skipped, so that a server with a
malformed header can still be used.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ....protocol.json_values import UNREADABLE
from ..secret_redaction import hidden_head

if TYPE_CHECKING:
    import httpx


def joined(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return header values by lower-case name; values of a repeated name are joined by commas, so no check for one
    expected value passes.
    """
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


# --- error responses


MOST_OF_BODY = 500
"""Maximum characters of a server's explanation in an error."""


def retry_after(headers: httpx.Headers, now: float) -> float | None:
    """Return the seconds to wait, given by the server as seconds, milliseconds or a date; None if it gives none.

    `now` is in seconds since the epoch.
    """
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        text = headers.get("retry-after", "")
        return max(0.0, float(text)) if text else None
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_tz(headers["retry-after"]) if "retry-after" in headers else None
        return max(0.0, email.utils.mktime_tz(date) - now) if date is not None else None
    except (ValueError, OverflowError):
        return None  # the year 99999, and other dates beyond the calendar


def message_in(body: bytes) -> str:
    """Return the error text in a response body, redacted and cut to `MOST_OF_BODY` characters.

    It is the text under `error`, `message` or `detail`, also nested. Without one it is the whole body; empty for HTML.
    """
    try:
        decoded: Any = msgspec.json.decode(body)
    except UNREADABLE:
        text = hidden_head(body.decode("utf-8", errors="replace").strip(), MOST_OF_BODY)
        return "" if text.startswith("<") else text
    for key in ("error", "message", "detail"):
        if isinstance(decoded, dict) and decoded.get(key):
            decoded = decoded[key]
    text = decoded if isinstance(decoded, str) else body.decode("utf-8", errors="replace")
    return hidden_head(text, MOST_OF_BODY)


LONGEST_CHALLENGE = 16 * 1024
"""Characters of a header that are parsed."""

_PIECE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*+"|")++')
"""Text between two unquoted commas; a quotation mark without its twin is an ordinary character."""

_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf"({_NAME})[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*+)\"|([^\s\",=][^\s\",]*)?)(?:\s+|\Z)")
_SCHEME = re.compile(rf"({_NAME})(?:\s++(?!=)|\Z)")
_TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*\Z")


class Challenge(msgspec.Struct, frozen=True):
    """Authentication challenge.

    Attributes:
        scheme: in lower case: `bearer`.
        parameters: by lower-case name, without quotes. The first of a name wins.
        token: value in place of parameters.
    """

    scheme: str
    parameters: dict[str, str] = {}
    token: str = ""


def challenges(header: str) -> list[Challenge]:
    """Parse all challenges of a header whose lines are joined by commas.

    Unreadable parts are skipped, and all that follows the first `LONGEST_CHALLENGE` characters.
    """
    found: list[Challenge] = []
    for match in _PIECE.finditer(header[:LONGEST_CHALLENGE]):
        piece = match[0].strip()
        start = 0
        if (scheme := _SCHEME.match(piece)) is not None:
            start = scheme.end()
            token = piece[start:] if _TOKEN68.match(piece, start) else ""
            found.append(Challenge(scheme[1].lower(), {}, token))
        while found and (parameter := _PARAMETER.match(piece, start)):  # some servers omit the comma
            name, quoted, plain = parameter.groups()
            value = (plain or "") if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            found[-1].parameters.setdefault(name.lower(), value)
            start = parameter.end()
    return found


def challenge_of(header: str, scheme: str) -> Challenge | None:
    """Return the challenge of a scheme (in lower case), the one with the most parameters if it is repeated.

    Returns None if the header has none.
    """
    of_scheme = [each for each in challenges(header) if each.scheme == scheme]
    return max(of_scheme, key=lambda each: len(each.parameters), default=None)
