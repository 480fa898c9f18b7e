"""The weather, as a tool file in Python. The built-in tool of this name does the same without a process of its own.

Environment: `CALLBOARD_WEATHER_URL` for another address.
"""

from __future__ import annotations

import os
import sys
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

WHO = "the weather service"


def run(location: str) -> str:
    """Get the current weather of a place.

    Args:
        location: The place: `London`, `Portland, Oregon`.
    """
    base = os.environ.get("CALLBOARD_WEATHER_URL") or "https://wttr.in"
    if not location.strip():
        sys.exit("the location is empty")
    text = _ask(Request(f"{base.rstrip('/')}/{quote(location.strip(), safe='')}?format=4&m"))
    return text.decode(errors="replace").strip()[:2_000] or f"(no weather is known for {location})"


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
