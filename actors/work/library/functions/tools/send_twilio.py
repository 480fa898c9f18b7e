"""Sends a message by Twilio.

Environment: `TWILIO_ACCOUNT_SID`, `TWILIO_AUTH_TOKEN`, `TWILIO_FROM_NUMBER`; `CALLBOARD_TWILIO_URL` for another
address.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

WHO = "Twilio"
WHERE = "https://console.twilio.com has it."


def run(to_number: str, message: str) -> dict[str, Any]:
    """Send a text message (SMS, or WhatsApp and the like) to a phone.

    Args:
        to_number: The number with its country code (+4930123456); of a channel, with its name (whatsapp:+4930123456).
        message: The text, of at most 1600 characters.
    """
    if not message.strip() or len(message) > 1_600:
        sys.exit("the message has to have 1 to 1600 characters")
    account, token = _key("TWILIO_ACCOUNT_SID"), _key("TWILIO_AUTH_TOKEN")
    base = os.environ.get("CALLBOARD_TWILIO_URL") or "https://api.twilio.com"
    sender, channel = _key("TWILIO_FROM_NUMBER"), to_number.rpartition(":")[0]
    if channel and ":" not in sender:
        sender = f"{channel}:{sender}"
    form = urlencode({"From": sender, "To": to_number, "Body": message})
    basic = base64.b64encode(f"{account}:{token}".encode()).decode()
    url = f"{base.rstrip('/')}/2010-04-01/Accounts/{quote(account, safe='')}/Messages.json"
    answer = _ask(Request(url, data=form.encode(), headers={"Authorization": f"Basic {basic}"}))
    return {"id": answer.get("sid", ""), "status": answer.get("status", "")}


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
