"""Removes secrets from logs, audit lines and events.

It looks for two things. Known secrets (the keys of the configured providers, the server's own token) are found
wherever they stand. Others are found by their form: bearer tokens, signed tokens, keys of ours and of the usual
providers. Events are searched for the former only: text of models and people may look like the latter by chance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import final

from ...protocol.settings import Settings

PUT = "[redacted]"
SHORTEST = 8
"""Characters; what is shorter would be found in words that are no secrets."""

_FORMS = re.compile(
    r"(?P<head>\bbearer[ .]+)[A-Za-z0-9._~+/=-]{8,}"
    r"|\bcb_[A-Za-z0-9-]{1,64}_[A-Za-z0-9_-]{16,}"
    r"|\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|\b(?:sk|pk|ghp|gho|xox[abp]|AIza)[-_A-Za-z0-9]{20,}"
    r"|\$argon2id?\$[^\s\"']+"
    r"|(?P<field>[#?&](?:token|access_token|api_key|key)=)[^&\s\"']+",
    re.IGNORECASE,
)


@final
class Redactor:
    """Takes secrets out.

    Args:
        secrets: what must not be seen; others may follow with `add`.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._texts: tuple[str, ...] = ()
        self._bytes: tuple[bytes, ...] = ()
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Look for these too."""
        known = {*self._texts, *(secret for secret in secrets if len(secret) >= SHORTEST)}
        known |= {json.dumps(secret)[1:-1] for secret in known}  # as it stands in JSON
        self._texts = tuple(sorted(known, key=len, reverse=True))
        self._bytes = tuple(secret.encode("utf-8", "surrogatepass") for secret in self._texts)

    def text(self, text: str) -> str:
        """A line without what we know and what looks like a secret."""
        for secret in self._texts:
            if secret in text:
                text = text.replace(secret, PUT)
        return _FORMS.sub(_hidden, text)

    def data(self, data: bytes) -> bytes:
        """An encoded event without what we know. Costs a search per secret."""
        for secret in self._bytes:
            if secret in data:
                data = data.replace(secret, PUT.encode())
        return data


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """The keys of the providers: those that the settings name, and what else the environment calls an API key."""
    named = [client.api_key for client in settings.clients if client.api_key]
    named += [client.oauth.client_secret for client in settings.clients if client.oauth is not None]
    return [*named, *(value for name, value in environ.items() if name.endswith("_API_KEY") and " " not in value)]


def _hidden(match: re.Match[str]) -> str:
    return f"{match['head'] or match['field'] or ''}{PUT}"
