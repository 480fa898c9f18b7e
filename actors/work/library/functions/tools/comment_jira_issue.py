"""Comments on an issue of Jira.

Environment: `JIRA_URL` (https://team.atlassian.net), `JIRA_API_TOKEN`, and for Atlassian's cloud `JIRA_LOGIN`, the mail
address that the token belongs to.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

WHO = "Jira"
WHERE = "https://id.atlassian.com/manage-profile/security/api-tokens has tokens."


def run(issue: str, comment: str) -> dict[str, Any]:
    """Write a comment on an issue of Jira.

    Args:
        issue: Its key: `ABC-12`.
        comment: The text.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*-[0-9]+", issue):
        sys.exit(f"{issue!r} is no key of an issue; expected one like ABC-12")
    answer = _ask(_request(f"/rest/api/2/issue/{issue}/comment", {"body": comment}))
    return {"id": answer.get("id", "")}


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
