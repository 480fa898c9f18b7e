"""Asks Wolfram Alpha, by its API for language models.

Environment: `WOLFRAM_API_ID`; `CALLBOARD_WOLFRAMALPHA_URL` for another address.
"""

from __future__ import annotations

import os
import sys
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

WHO = "Wolfram Alpha"
WHERE = "https://developer.wolframalpha.com has ids for the LLM API."

MOST = 64_000
"""Characters of the answer that the model gets."""


def run(query: str) -> str:
    """Ask Wolfram Alpha what has to be computed, or needs exact facts and data: mathematics, units, dates, science.

    Args:
        query: The question in English, in few words.
    """
    base = os.environ.get("CALLBOARD_WOLFRAMALPHA_URL") or "https://www.wolframalpha.com/api/v1/llm-api"
    asked = urlencode({"input": query, "appid": _key("WOLFRAM_API_ID")})
    return _ask(Request(f"{base}?{asked}")).decode(errors="replace")[:MOST]


def _key(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        sys.exit(f"{WHO} needs {name}: set it in the environment, or in the config directory's .env. {WHERE}")
    return value


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
