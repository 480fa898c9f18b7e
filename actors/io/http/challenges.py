"""Reads `WWW-Authenticate` (RFC 9110, section 11): what a server wants before it answers.

One header may hold several challenges, each a scheme with either one token or parameters; the same comma separates
challenges and parameters. What can't be read is skipped: a server that says more than it should still says something.
"""

from __future__ import annotations

import re

import msgspec

LONGEST = 16 * 1024
"""Characters of a header that are looked at."""

_PIECE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*+"|")++')
"""What stands between two commas that are not quoted; a quotation mark without its twin is a letter."""

_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf"({_NAME})[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*+)\"|([^\s\",=][^\s\",]*)?)(?:\s+|\Z)")
_SCHEME = re.compile(rf"({_NAME})(?:\s++(?!=)|\Z)")
_TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*\Z")


class Challenge(msgspec.Struct, frozen=True):
    """One challenge.

    Attributes:
        scheme: in small letters: `bearer`.
        parameters: by name in small letters, without quotes. The first of a name counts.
        token: what stands there instead of parameters.
    """

    scheme: str
    parameters: dict[str, str] = {}
    token: str = ""


def challenges(header: str) -> list[Challenge]:
    """All challenges of a header, whose lines are joined by commas."""
    found: list[Challenge] = []
    for match in _PIECE.finditer(header[:LONGEST]):
        piece = match[0].strip()
        start = 0
        if (scheme := _SCHEME.match(piece)) is not None:
            start = scheme.end()
            token = piece[start:] if _TOKEN68.match(piece, start) else ""
            found.append(Challenge(scheme[1].lower(), {}, token))
        while found and (parameter := _PARAMETER.match(piece, start)):  # some leave the comma out
            name, quoted, plain = parameter.groups()
            value = (plain or "") if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            found[-1].parameters.setdefault(name.lower(), value)
            start = parameter.end()
    return found


def challenge_of(header: str, scheme: str) -> Challenge | None:
    """The challenge of that scheme; of several the one that says most, since some servers repeat themselves."""
    of_scheme = [each for each in challenges(header) if each.scheme == scheme]
    return max(of_scheme, key=lambda each: len(each.parameters), default=None)
