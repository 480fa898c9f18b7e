"""Searches the web by Perplexity, whose model answers.

Environment: `PERPLEXITY_API_KEY`; `PERPLEXITY_WEB_SEARCH_MODEL` (sonar); `CALLBOARD_PERPLEXITY_URL` for another
address.
"""

from __future__ import annotations

import json
import os
import sys
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

WHO = "Perplexity"
WHERE = "https://www.perplexity.ai/account/api has keys."
MOST = 32_000


def run(query: str) -> dict[str, Any]:
    """Ask Perplexity, which searches the web. Returns an answer, and title and URL of the pages it is from.

    Args:
        query: A question, as one would ask a person.
    """
    base = os.environ.get("CALLBOARD_PERPLEXITY_URL") or "https://api.perplexity.ai/chat/completions"
    model = os.environ.get("PERPLEXITY_WEB_SEARCH_MODEL") or "sonar"
    asked = {"model": model, "messages": [{"role": "user", "content": query}]}
    headers = {"Authorization": f"Bearer {_key('PERPLEXITY_API_KEY')}", "Content-Type": "application/json"}
    answer = _ask(Request(base, data=json.dumps(asked).encode(), headers=headers))
    try:
        text = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        sys.exit(f"{WHO} sent an answer without a text")
    pages = answer.get("search_results") or [{"url": url} for url in answer.get("citations") or []]
    return {
        "answer": text[:MOST],
        "pages": [{"title": page.get("title", ""), "url": page.get("url", "")} for page in pages[:20]],
    }


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
