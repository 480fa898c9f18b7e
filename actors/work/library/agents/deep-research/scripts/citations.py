"""Finds what a text cites: addresses of pages, and DOIs."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_LETTERS = r"[^\s<>\"'`\\^{|}”’»）」】。，、]+"
_CITED = re.compile(rf"https?://{_LETTERS}|(?<![\w./-])10\.\d{{4,9}}/{_LETTERS}", re.IGNORECASE)


def cited(text: str) -> list[str]:
    """The addresses in a text, each once, in the order in which they come; a DOI as the address it leads to."""
    urls: dict[str, None] = {}
    match = _CITED.search(text)
    while match:
        address = _trimmed(match[0])
        url = address.partition("#")[0] if "://" in address else f"https://doi.org/{address}"
        if _has_host(url):
            urls[url] = None
        # From its own end, since two may touch: `[a](https://x.y/)[b](https://x.y/z)`.
        match = _CITED.search(text, match.start() + len(address))
    return list(urls)


def _trimmed(address: str) -> str:
    """Without what belongs to the sentence or to Markdown: a bracket that was opened before it, and full stops."""
    depth = 0
    for at, letter in enumerate(address):
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            address = address[:at]
            break
    return address.rstrip(".,;:!?*_")


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False
