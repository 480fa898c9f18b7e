"""Searches issues of Jira.

Environment: `JIRA_URL` (https://team.atlassian.net), `JIRA_API_TOKEN`, and for Atlassian's cloud `JIRA_LOGIN`, the mail
address that the token belongs to.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

WHO = "Jira"
WHERE = "https://id.atlassian.com/manage-profile/security/api-tokens has tokens."
RESULTS = 50
FIELDS = ("summary", "status", "assignee", "priority", "issuetype", "updated")


def run(jql_query: str) -> list[dict[str, Any]]:
    """Search the issues of Jira. Returns key, summary, status, assignee, priority, type and the last change of each.

    Args:
        jql_query: A query in Jira's language: `project = ABC AND status != Done ORDER BY updated DESC`.
    """
    where = "/rest/api/3/search/jql" if os.environ.get("JIRA_LOGIN", "").strip() else "/rest/api/2/search"
    asked = urlencode({"jql": jql_query, "maxResults": RESULTS, "fields": ",".join(FIELDS)})
    answer = _ask(_request(f"{where}?{asked}"))
    return [_shown(issue) for issue in (answer.get("issues") or [])[:RESULTS]]


def _shown(issue: dict[str, Any]) -> dict[str, Any]:
    fields = issue.get("fields") or {}
    shown: dict[str, Any] = {"key": issue.get("key", "")}
    for name in FIELDS:
        value = fields.get(name)
        shown[name] = (value.get("displayName") or value.get("name")) if isinstance(value, dict) else value
    return shown


def _request(path: str, body: dict[str, Any] | None = None) -> Request:
    """A request to the site: with a login it is Atlassian's cloud, without one a data center and its access token."""
    site, token = _key("JIRA_URL").rstrip("/"), _key("JIRA_API_TOKEN")
    if not site.startswith(("https://", "http://localhost:", "http://127.0.0.1:")):
        sys.exit("JIRA_URL has to begin with https://, since the token goes there")
    login = os.environ.get("JIRA_LOGIN", "").strip()
    basic = "Basic " + base64.b64encode(f"{login}:{token}".encode()).decode()
    headers = {"Authorization": basic if login else f"Bearer {token}", "Accept": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    return Request(f"{site}{path}", data=data, headers=headers | ({"Content-Type": "application/json"} if body else {}))


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
