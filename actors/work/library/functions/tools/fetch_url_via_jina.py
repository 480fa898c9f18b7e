"""Reads web pages by Jina's reader.

Environment: `JINA_API_KEY` for more than a few pages a minute; `CALLBOARD_JINA_READER_URL` for another address.
"""

from __future__ import annotations

import os
import sys
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

WHO = "Jina's reader"

MOST = 64_000
"""Characters of the answer that the model gets."""


def run(url: str) -> str:
    """Get the text of a web page as Markdown, also of pages that need JavaScript. The page is fetched by Jina.

    Args:
        url: An http or https URL.
    """
    if not url.lower().startswith(("http://", "https://")):
        sys.exit(f"{url!r} is no http or https URL")
    base = os.environ.get("CALLBOARD_JINA_READER_URL") or "https://r.jina.ai"
    key = os.environ.get("JINA_API_KEY", "").strip()
    headers = {"Accept": "text/plain", "User-Agent": "callboard"} | ({"Authorization": f"Bearer {key}"} if key else {})
    text = _ask(Request(f"{base.rstrip('/')}/{url}", headers=headers)).decode(errors="replace").strip()
    return text[:MOST] or "(the page has no text)"


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: the key would go along to wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        """None: the redirect is an error."""


def _ask(request: Request) -> bytes:
    """The answer of the service; what it refuses ends the call with its words."""
    try:
        with build_opener(_Stay).open(request, timeout=30) as answer:
            data: bytes = answer.read(4_000_000)
            return data
    except HTTPError as error:
        said = error.read(2_000).decode(errors="replace").strip()
        sys.exit(f"{WHO} answered {error.code}: {said or error.reason}")
    except (OSError, HTTPException) as error:
        sys.exit(f"{WHO} is not reachable: {getattr(error, 'reason', None) or error}")
