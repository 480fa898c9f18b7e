"""Searches the web by Tavily.

Environment: `TAVILY_API_KEY`; `CALLBOARD_TAVILY_URL` for another address.
"""

from __future__ import annotations

import json
import os
import sys
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

WHO = "Tavily"
WHERE = "https://app.tavily.com has keys."
RESULTS = 8
EXCERPT = 2_000


def run(query: str) -> dict[str, Any]:
    """Search the web for up-to-date information. Returns an answer, and title, URL and an excerpt of the best pages.

    Args:
        query: What to search for.
    """
    base = os.environ.get("CALLBOARD_TAVILY_URL") or "https://api.tavily.com/search"
    asked = {"query": query, "max_results": RESULTS, "include_answer": True}
    headers = {"Authorization": f"Bearer {_key('TAVILY_API_KEY')}", "Content-Type": "application/json"}
    answer = _ask(Request(base, data=json.dumps(asked).encode(), headers=headers))
    pages = [
        {"title": page.get("title", ""), "url": page.get("url", ""), "text": (page.get("content") or "")[:EXCERPT]}
        for page in (answer.get("results") or [])[:RESULTS]
    ]
    return {"answer": answer.get("answer") or "", "pages": pages}


def _key(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        sys.exit(f"{WHO} needs {name}: set it in the environment, or in the config directory's .env. {WHERE}")
    return value


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: the key would go along to wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        """None: the redirect is an error."""


def _ask(request: Request) -> Any:
    """The answer of the service, from JSON; what it refuses ends the call with its words."""
    try:
        with build_opener(_Stay).open(request, timeout=30) as answer:
            return json.loads(answer.read(4_000_000))
    except HTTPError as error:
        said = error.read(2_000).decode(errors="replace").strip()
        sys.exit(f"{WHO} answered {error.code}: {said or error.reason}")
    except ValueError:
        sys.exit(f"{WHO} sent an answer that is no JSON")
    except (OSError, HTTPException) as error:
        sys.exit(f"{WHO} is not reachable: {getattr(error, 'reason', None) or error}")
