"""Log line of a request to a provider, as it is sent but without secrets."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import httpx

from ...io.secret_redaction import PUT, Redactor

log = logging.getLogger("callboard.models")

MOST = 20_000
"""Maximum number of characters of a body in the log."""

_SECRET = re.compile(r"auth|key|token|secret|cookie|credential|signature|password", re.IGNORECASE)
_OPEN = frozenset({"x-amz-content-sha256", "x-api-key-version"})


def show(model: str, url: httpx.URL, headers: Mapping[str, str], body: bytes) -> None:
    """Write a request to the log (`CALLBOARD_LOG=models=debug`).

    Values of headers with the name of a secret are redacted, also where they occur in the body or the URL. Texts with
    the form of a secret are redacted as well.
    """
    redactor = Redactor()
    for name, value in headers.items():
        if _SECRET.search(name) and name not in _OPEN:
            redactor.add(value, value.rpartition(" ")[2])
    shown = " ".join(
        f"{name}: {PUT if _SECRET.search(name) and name not in _OPEN else redactor.text(value)};"
        for name, value in headers.items()
    )
    text = redactor.text(body.decode("utf-8", "replace"))
    if len(text) > MOST:
        text = f"{text[: MOST // 2]} [... {len(text) - MOST} characters left out ...] {text[-MOST // 2 :]}"
    log.debug("request to %s: POST %s | %s | %s", model, redactor.text(str(url)), shown, text)
